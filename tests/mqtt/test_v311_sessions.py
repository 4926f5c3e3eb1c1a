"""MQTT 3.1.1: sessions, queues for those who are away, and redelivery. Clauses are those of the 3.1.1 standard."""

import pytest

from tests.mqtt.client311 import PUBCOMP, PUBREC, PUBREL, Ack, Client311, Publish, ack, publish
from tests.mqtt.dial import Dial, unique


def away(dial: Dial, *filters: str, qos: int = 2) -> str:
    """A client id with a session that is subscribed, and disconnected."""
    client_id = unique()
    client = dial.v311(client_id, clean=False)
    client.subscribe(*filters, qos=qos)
    client.disconnect()
    return client_id


def test_messages_wait_in_order_mqtt_3_1_2_5(dial: Dial, topic: str) -> None:
    client_id = away(dial, topic)
    publisher = dial.v311()
    for number in range(50):
        publisher.publish(topic, b"%d" % number, 1 + number % 2)
    client = dial.v311(client_id, clean=False)
    assert client.connack.session_present
    publisher.publish(topic, b"50", 1)  # newer than what waits: delivered after it
    messages = [client.take() for _ in range(51)]
    for qos in (1, 2):  # the order that counts is per topic and QoS (MQTT-4.6.0-6)
        numbers = [int(message.payload) for message in messages if message.qos == qos]
        assert numbers == sorted(numbers)
    assert sorted(int(message.payload) for message in messages) == list(range(51))
    assert not any(message.dup for message in messages)  # none had been sent before (MQTT-3.3.1-1)
    client.quiet()


def test_messages_are_not_queued_for_a_clean_session_mqtt_3_1_2_6(dial: Dial, topic: str) -> None:
    client_id = unique()
    client = dial.v311(client_id)
    client.subscribe(topic)
    client.disconnect()
    dial.v311().publish(topic, b"x")
    client = dial.v311(client_id, clean=False)
    assert not client.connack.session_present
    client.quiet()


def test_clean_session_discards_what_waits_mqtt_3_1_2_6(dial: Dial, topic: str) -> None:
    client_id = away(dial, topic)
    dial.v311().publish(topic, b"x")
    client = dial.v311(client_id, clean=True)
    assert not client.connack.session_present
    client.quiet()
    dial.v311().publish(topic, b"y")
    client.quiet()  # the subscription is gone too


def test_subscriptions_survive_mqtt_3_1_2_4(dial: Dial, topic: str) -> None:
    client_id = away(dial, topic, topic + "/+")
    client = dial.v311(client_id, clean=False)
    client.publish(topic, b"1")
    client.publish(topic + "/b", b"2")
    assert [client.take().payload, client.take().payload] == [b"1", b"2"]


def test_unsubscription_survives_mqtt_3_1_2_4(dial: Dial, topic: str) -> None:
    client_id = away(dial, topic, topic + "/+")
    client = dial.v311(client_id, clean=False)
    client.unsubscribe(topic)
    client.disconnect()
    publisher = dial.v311()
    publisher.publish(topic, b"1")
    publisher.publish(topic + "/b", b"2")
    client = dial.v311(client_id, clean=False)
    assert client.take().payload == b"2"
    client.quiet()


def test_retained_messages_survive_the_session_mqtt_3_1_2_7(dial: Dial, topic: str) -> None:
    client = dial.v311()
    client.publish(topic, b"kept", retain=True)
    client.disconnect()
    other = dial.v311()
    other.subscribe(topic)
    assert other.take().payload == b"kept"


@pytest.mark.parametrize("qos", [1, 2])
def test_unacknowledged_publish_is_resent_with_dup_mqtt_4_4_0_1(dial: Dial, topic: str, qos: int) -> None:
    client_id = unique()
    client = dial.v311(client_id, clean=False)
    client.subscribe(topic)
    publisher = dial.v311()
    for number in range(5):
        publisher.publish(topic, b"%d" % number, qos)
    first = [client.expect(Publish) for _ in range(5)]
    client.drop()
    client = dial.v311(client_id, clean=False)
    again = [client.expect(Publish) for _ in range(5)]
    assert all(message.dup for message in again)  # MQTT-3.3.1-1
    expected = [(message.packet_id, message.payload) for message in first]
    assert [(message.packet_id, message.payload) for message in again] == expected


def test_acknowledged_publish_is_not_resent_mqtt_4_4_0_1(dial: Dial, topic: str) -> None:
    client_id = unique()
    client = dial.v311(client_id, clean=False)
    client.subscribe(topic)
    publisher = dial.v311()
    publisher.publish(topic, b"1", 1)
    publisher.publish(topic, b"2", 2)
    assert [client.take().payload, client.take().payload] == [b"1", b"2"]
    client.quiet()  # the acknowledgements have been read
    client.drop()
    dial.v311(client_id, clean=False).quiet()


def pubrel_pending(dial: Dial, topic: str) -> tuple[str, int]:
    """A session that has had a QoS 2 message, sent PUBREC and seen PUBREL, and lost its network."""
    client_id = unique()
    client = dial.v311(client_id, clean=False)
    client.subscribe(topic)
    dial.v311().publish(topic, b"x", 2)
    message = client.expect(Publish)
    client.send(ack(PUBREC, message.packet_id))
    assert client.expect(Ack) == Ack(PUBREL, message.packet_id)
    client.drop()
    return client_id, message.packet_id


def test_unacknowledged_pubrel_is_resent_mqtt_4_4_0_1(dial: Dial, topic: str) -> None:
    client_id, packet_id = pubrel_pending(dial, topic)
    client = dial.v311(client_id, clean=False)
    assert client.expect(Ack) == Ack(PUBREL, packet_id)  # and not the PUBLISH (MQTT-4.3.3-1)
    client.quiet()
    client.send(ack(PUBCOMP, packet_id))
    client.quiet()
    client.drop()
    dial.v311(client_id, clean=False).quiet()


def test_incoming_qos2_survives_reconnection_mqtt_4_3_3_2(dial: Dial, topic: str) -> None:
    """A publisher that resends after a network failure does not make a second message."""
    subscriber = dial.v311()
    subscriber.subscribe(topic)
    client_id = unique()
    client = dial.v311(client_id, clean=False)
    client.send(publish(topic, b"once", 2, 11))
    client.acknowledged(PUBREC, 11)
    client.drop()
    client = dial.v311(client_id, clean=False)
    assert client.connack.session_present
    client.send(publish(topic, b"once", 2, 11, dup=True))
    client.acknowledged(PUBREC, 11)
    client.send(ack(PUBREL, 11))
    client.acknowledged(PUBCOMP, 11)
    assert subscriber.take().payload == b"once"
    subscriber.quiet()


def test_take_over_goes_on_with_the_session_mqtt_3_1_4_2(dial: Dial, topic: str) -> None:
    client_id = unique()
    first = dial.v311(client_id, clean=False)
    first.subscribe(topic)
    dial.v311().publish(topic, b"x")
    seen = first.expect(Publish)
    second = dial.v311(client_id, clean=False)
    assert second.connack.session_present
    again = second.take()
    assert (again.dup, again.packet_id, again.payload) == (True, seen.packet_id, b"x")
    assert first.closed() == b""


def resume(dial: Dial, client_id: str, take: int) -> tuple[Client311, list[int]]:
    """Reconnects, takes some messages, and returns the client with what it saw."""
    client = dial.v311(client_id, clean=False)
    return client, [int(client.take().payload) for _ in range(take)]


def test_messages_wait_over_several_connections_mqtt_3_1_2_5(dial: Dial, topic: str) -> None:
    client_id = away(dial, topic)
    publisher = dial.v311()
    for number in range(12):
        publisher.publish(topic, b"%d" % number, 1)
    seen: list[int] = []
    for _ in range(3):
        client, numbers = resume(dial, client_id, 4)
        seen += numbers
        client.ping()  # the acknowledgements have been read; what is in flight comes again
        client.drop()
    assert seen == list(range(12))


def test_queued_message_keeps_its_qos_and_retain_flag_mqtt_3_3_1_9(dial: Dial, topic: str) -> None:
    client_id = away(dial, topic)
    dial.v311().publish(topic, b"x", 2, retain=True)
    message = dial.v311(client_id, clean=False).take()
    assert (message.qos, message.retain) == (2, False)


def test_queued_messages_survive_unsubscription_in_flight_mqtt_3_10_4_3(dial: Dial, topic: str) -> None:
    """Delivery that has begun is completed although the subscription is gone."""
    client = dial.v311()
    client.subscribe(topic)
    dial.v311().publish(topic, b"x", 2)
    message = client.expect(Publish)
    client.unsubscribe(topic)
    client.send(ack(PUBREC, message.packet_id))
    assert client.expect(Ack) == Ack(PUBREL, message.packet_id)

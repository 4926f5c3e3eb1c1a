"""MQTT 3.1.1: PUBLISH and the QoS flows, both ways. Clauses are those of the 3.1.1 standard."""

import pytest

from tests.mqtt.client311 import PUBACK, PUBCOMP, PUBREC, PUBREL, Ack, Publish, ack, publish
from tests.mqtt.dial import Dial
from tests.mqtt.servers import mosquitto_departs

ALL_QOS = (0, 1, 2)
IN_FLIGHT = 10  # messages at a time: below any server's window


def test_publish_qos0_has_no_acknowledgement_mqtt_4_3_1_1(dial: Dial, topic: str) -> None:
    client, subscriber = dial.v311(), dial.v311()
    subscriber.subscribe(topic)
    client.send(publish(topic, b"x"))
    client.quiet()
    assert subscriber.expect(Publish) == Publish(topic, b"x")
    subscriber.quiet()


def test_publish_qos1_is_acknowledged_mqtt_4_3_2_2(dial: Dial, topic: str) -> None:
    client = dial.v311()
    for packet_id in (1, 258, 65535):
        client.send(publish(topic, b"x", 1, packet_id))
        assert client.packet() == b"\x40\x02" + packet_id.to_bytes(2)


def test_publish_qos1_same_id_after_puback_is_a_new_message_mqtt_4_3_2_2(dial: Dial, topic: str) -> None:
    client, subscriber = dial.v311(), dial.v311()
    subscriber.subscribe(topic)
    for dup in (False, True, True):
        client.send(publish(topic, b"x", 1, 9, dup=dup))
        client.acknowledged(PUBACK, 9)
    assert [subscriber.take().payload for _ in range(3)] == [b"x", b"x", b"x"]


def test_publish_qos2_is_acknowledged_mqtt_4_3_3_2(dial: Dial, topic: str) -> None:
    client = dial.v311()
    client.send(publish(topic, b"x", 2, 513))
    assert client.packet() == b"\x50\x02\x02\x01"
    client.send(ack(PUBREL, 513))
    assert client.packet() == b"\x70\x02\x02\x01"


@pytest.mark.parametrize(
    "times", [1, pytest.param(3, marks=mosquitto_departs("it closes at the second duplicate (MQTT-4.3.3-2)"))]
)
def test_publish_qos2_duplicate_is_delivered_once_mqtt_4_3_3_2(dial: Dial, topic: str, times: int) -> None:
    client, subscriber = dial.v311(), dial.v311()
    subscriber.subscribe(topic)
    for dup in (False, *[True] * times):
        client.send(publish(topic, b"once", 2, 7, dup=dup))
        client.acknowledged(PUBREC, 7)
    client.send(ack(PUBREL, 7))
    client.acknowledged(PUBCOMP, 7)
    assert subscriber.take().payload == b"once"
    subscriber.quiet()


def test_publish_qos2_same_id_after_pubcomp_is_a_new_message_mqtt_4_3_3_2(dial: Dial, topic: str) -> None:
    client, subscriber = dial.v311(), dial.v311()
    subscriber.subscribe(topic)
    for payload in (b"1", b"2"):
        client.send(publish(topic, payload, 2, 7))
        client.acknowledged(PUBREC, 7)
        client.send(ack(PUBREL, 7))
        client.acknowledged(PUBCOMP, 7)
    assert [subscriber.take().payload, subscriber.take().payload] == [b"1", b"2"]


def test_pubrel_unknown_id_is_completed_mqtt_4_3_3_2(dial: Dial) -> None:
    client = dial.v311()
    client.send(ack(PUBREL, 99))
    client.acknowledged(PUBCOMP, 99)


@pytest.mark.parametrize("first_byte", [PUBACK, PUBREC, PUBCOMP])
def test_acknowledgement_unknown_id_harms_nothing(dial: Dial, first_byte: int) -> None:
    """3.1.1 does not say what it means; a PUBREC may be answered by PUBREL, and the connection may be closed."""
    bystander, client = dial.v311(), dial.v311()
    client.send(ack(first_byte, 99))
    bystander.quiet()


def test_outgoing_qos1_is_sent_once_mqtt_4_3_2_1(dial: Dial, topic: str) -> None:
    subscriber, client = dial.v311(), dial.v311()
    subscriber.subscribe(topic)
    client.publish(topic, b"x", 1)
    message = subscriber.expect(Publish)
    assert (message.qos, message.dup) == (1, False)
    subscriber.quiet()  # unacknowledged, and not sent again on this connection
    subscriber.send(ack(PUBACK, message.packet_id))
    subscriber.quiet()


def test_outgoing_qos2_flow_mqtt_4_3_3_1(dial: Dial, topic: str) -> None:
    subscriber, client = dial.v311(), dial.v311()
    subscriber.subscribe(topic)
    client.publish(topic, b"x", 2)
    message = subscriber.expect(Publish)
    assert (message.qos, message.dup) == (2, False)
    subscriber.quiet()
    subscriber.send(ack(PUBREC, message.packet_id))
    assert subscriber.expect(Ack) == Ack(PUBREL, message.packet_id)
    subscriber.quiet()
    subscriber.send(ack(PUBCOMP, message.packet_id))
    subscriber.quiet()


@pytest.mark.parametrize("granted", ALL_QOS)
@pytest.mark.parametrize("published", ALL_QOS)
def test_delivery_qos_is_the_lower_one_mqtt_3_8_4_6(dial: Dial, topic: str, published: int, granted: int) -> None:
    client = dial.v311()
    assert client.subscribe(topic, qos=granted) == (granted,)
    client.publish(topic, b"x", published)
    message = client.take()
    assert (message.payload, message.qos) == (b"x", min(published, granted))
    client.quiet()


@pytest.mark.parametrize("qos", [1, 2])
def test_dup_is_not_propagated_mqtt_3_3_1_3(dial: Dial, topic: str, qos: int) -> None:
    client, subscriber = dial.v311(), dial.v311()
    subscriber.subscribe(topic)
    client.send(publish(topic, b"x", qos, 5, dup=True))
    client.reply(Ack)
    if qos == 2:  # the server may wait for PUBREL before it goes on
        client.send(ack(PUBREL, 5))
    assert subscriber.take().dup is False


@pytest.mark.parametrize("qos", ALL_QOS)
def test_order_is_kept_mqtt_4_6_0_6(dial: Dial, topic: str, qos: int) -> None:
    client, subscriber = dial.v311(), dial.v311()
    subscriber.subscribe(topic)
    numbers = list(range(1, 201))
    for first in range(0, len(numbers), IN_FLIGHT):
        batch = numbers[first : first + IN_FLIGHT]
        client.send(*(publish(topic, b"%d" % number, qos, number) for number in batch))
        if qos:  # acknowledged in the order received (MQTT-4.6.0-2, MQTT-4.6.0-3)
            assert [client.expect(Ack).packet_id for _ in batch] == batch
        if qos == 2:  # the server may wait for PUBREL before it goes on
            client.send(*(ack(PUBREL, number) for number in batch))
            assert [client.expect(Ack).packet_id for _ in batch] == batch
    assert [int(subscriber.take().payload) for _ in numbers] == numbers


@pytest.mark.parametrize("qos", [1, 2])
def test_outgoing_ids_in_flight_are_different_mqtt_2_3_1_4(dial: Dial, topic: str, qos: int) -> None:
    client, subscriber = dial.v311(), dial.v311()
    subscriber.subscribe(topic)
    for number in range(10):
        client.publish(topic, b"%d" % number, qos)
    messages = [subscriber.expect(Publish) for _ in range(10)]
    assert [int(message.payload) for message in messages] == list(range(10))
    assert len({message.packet_id for message in messages}) == 10


def test_outgoing_acknowledged_in_any_order(dial: Dial, topic: str) -> None:
    """The window moves on whichever acknowledgement comes; nothing is lost or sent twice."""
    client, subscriber = dial.v311(), dial.v311()
    subscriber.subscribe(topic)
    for number in range(10):
        client.publish(topic, b"%d" % number, 1)
    for message in reversed([subscriber.expect(Publish) for _ in range(10)]):
        subscriber.send(ack(PUBACK, message.packet_id))
    for number in range(10, 15):
        client.publish(topic, b"%d" % number, 1)
    assert [int(subscriber.take().payload) for _ in range(5)] == list(range(10, 15))
    subscriber.quiet()


def test_both_ways_use_ids_independently_mqtt_2_3_1_4(dial: Dial, topic: str) -> None:
    """Client and server may use the same identifier at the same time."""
    client = dial.v311()
    client.subscribe(topic)
    client.publish(topic, b"x", 2)
    message = client.expect(Publish)
    client.send(publish(topic + "/other", b"y", 2, message.packet_id))
    client.acknowledged(PUBREC, message.packet_id)
    client.send(ack(PUBREC, message.packet_id))
    client.acknowledged(PUBREL, message.packet_id)
    client.send(ack(PUBREL, message.packet_id))
    client.acknowledged(PUBCOMP, message.packet_id)
    client.send(ack(PUBCOMP, message.packet_id))
    client.quiet()


@pytest.mark.parametrize("remaining_length", [127, 128, 16_383, 16_384, 200_000, 2_097_151, 2_097_152])
def test_payload_at_length_boundaries_arrives_intact_mqtt_2_2_3(dial: Dial, topic: str, remaining_length: int) -> None:
    """Where the remaining length takes one byte more."""
    client, subscriber = dial.v311(), dial.v311()
    subscriber.subscribe(topic)
    payload = (bytes(range(256)) * 8192)[: remaining_length - 2 - len(topic)]
    payload += bytes(remaining_length - 2 - len(topic) - len(payload))
    client.send(publish(topic, payload))
    assert subscriber.expect(Publish) == Publish(topic, payload)


@pytest.mark.parametrize("qos", ALL_QOS)
def test_empty_payload_is_a_message(dial: Dial, topic: str, qos: int) -> None:
    client = dial.v311()
    client.subscribe(topic)
    client.publish(topic, b"", qos)
    assert client.take().payload == b""


@pytest.mark.parametrize("name", ["\ufeffbom", "é", "水/气", "a b", "/", "//", "\U0001f600"], ids=ascii)
def test_topic_is_not_altered_mqtt_4_7_3_4(dial: Dial, topic: str, name: str) -> None:
    """Nor is U+FEFF stripped (MQTT-1.5.3-3)."""
    client = dial.v311()
    client.subscribe(f"{topic}/{name}")
    client.publish(f"{topic}/{name}", b"x")
    assert client.take().topic == f"{topic}/{name}"
    client.subscribe(name)
    client.publish(name, b"y")
    assert client.take().topic == name


def test_topic_of_full_length_is_accepted_mqtt_4_7_3_3(dial: Dial, topic: str) -> None:
    name = topic.ljust(65535, "x")
    client = dial.v311()
    assert client.subscribe(name) == (2,)
    client.publish(name, b"x")
    assert client.take().topic == name

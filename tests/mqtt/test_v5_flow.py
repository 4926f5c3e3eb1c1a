"""MQTT 5: receive maximum in both directions, and maximum packet size. Clauses are those of the MQTT 5 standard."""

import pytest
from mqtt5 import PubAckPacket, PubCompPacket, PublishPacket, PubRecPacket, PubRecReasonCode, PubRelPacket, QoS

from tests.mqtt.client5 import Client5
from tests.mqtt.dial import Dial, unique
from tests.mqtt.servers import mosquitto_departs, skip_on_mosquitto


def sent(client: Client5) -> list[PublishPacket]:
    """What the server has sent so far, all of it PUBLISH packets; nothing is acknowledged."""
    came = client.ping()
    messages = [each for each in came if isinstance(each, PublishPacket)]
    assert len(messages) == len(came), came
    return messages


def identifier(message: PublishPacket) -> int:
    assert message.packet_id is not None
    return message.packet_id


def payloads(messages: list[PublishPacket]) -> list[int]:
    return [int(message.payload) for message in messages]


@pytest.mark.parametrize("qos", [1, 2])
@pytest.mark.parametrize("window", [1, 3])
def test_server_respects_receive_maximum_mqtt_3_3_4_9(dial: Dial, topic: str, window: int, qos: int) -> None:
    client, publisher = dial.v5(receive_max=window), dial.v5()
    client.subscribe(topic)
    for number in range(window + 4):
        publisher.publish(topic, b"%d" % number, qos)
    messages = sent(client)
    assert payloads(messages) == list(range(window))
    client._set_aside.extend(messages)
    assert [int(client.take().payload) for _ in range(window + 4)] == list(range(window + 4))
    client.quiet()


@mosquitto_departs("it sends beyond the receive maximum after a PUBACK out of order (MQTT-3.3.4-9)")
def test_quota_comes_back_with_each_puback_mqtt_4_9_0_2(dial: Dial, topic: str) -> None:
    client, publisher = dial.v5(receive_max=3), dial.v5()
    client.subscribe(topic)
    for number in range(6):
        publisher.publish(topic, b"%d" % number, 1)
    first = sent(client)
    client.send(PubAckPacket(identifier(first[1])).write())
    assert payloads(sent(client)) == [3]
    client.send(PubAckPacket(identifier(first[0])).write(), PubAckPacket(identifier(first[2])).write())
    assert payloads(sent(client)) == [4, 5]


def test_quota_comes_back_with_pubcomp_not_pubrec_mqtt_4_9_0_2(dial: Dial, topic: str) -> None:
    client, publisher = dial.v5(receive_max=1), dial.v5()
    client.subscribe(topic)
    publisher.publish(topic, b"0", 2)
    publisher.publish(topic, b"1", 2)
    (first,) = sent(client)
    client.send(PubRecPacket(identifier(first)).write())
    client.expect(PubRelPacket)
    client.quiet()
    client.send(PubCompPacket(identifier(first)).write())
    assert payloads(sent(client)) == [1]


def test_quota_comes_back_with_a_refusing_pubrec_mqtt_4_9_0_2(dial: Dial, topic: str) -> None:
    client, publisher = dial.v5(receive_max=1), dial.v5()
    client.subscribe(topic)
    publisher.publish(topic, b"0", 2)
    publisher.publish(topic, b"1", 2)
    (first,) = sent(client)
    client.send(PubRecPacket(identifier(first), reason_code=PubRecReasonCode.QUOTA_EXCEEDED).write())
    assert payloads(sent(client)) == [1]


def test_full_window_delays_nothing_else_mqtt_3_3_4_10(dial: Dial, topic: str) -> None:
    client, publisher = dial.v5(receive_max=1), dial.v5()
    client.subscribe(topic)
    publisher.publish(topic, b"0", 1)
    publisher.publish(topic, b"1", 1)
    assert payloads(sent(client)) == [0]  # answered PINGREQ (MQTT-4.9.0-3)
    assert client.publish(topic + "/other", b"x", 2) in (0, 0x10)
    assert client.subscribe(topic + "/other") == [2]
    publisher.publish(topic, b"2", 0)
    assert payloads(sent(client)) == [2]  # QoS 0 needs no quota


@mosquitto_departs("it resends beyond the receive maximum (MQTT-3.3.4-9)")
def test_window_holds_after_reconnection_mqtt_3_3_4_9(dial: Dial, topic: str) -> None:
    """The new connection's receive maximum counts for what is resent and what waited."""
    client_id, publisher = unique(), dial.v5()
    client = dial.v5(client_id, session_expiry_interval=60, receive_max=4)
    client.subscribe(topic)
    for number in range(8):
        publisher.publish(topic, b"%d" % number, 1)
    assert payloads(sent(client)) == [0, 1, 2, 3]
    client.drop()
    client = dial.v5(client_id, clean_start=False, session_expiry_interval=60, receive_max=2)
    again = sent(client)
    assert payloads(again) == [0, 1]
    client._set_aside.extend(again)
    messages = [client.take() for _ in range(8)]
    assert payloads(messages) == list(range(8))
    assert [message.duplicate for message in messages] == [True] * 4 + [False] * 4


@mosquitto_departs("it neither answers nor disconnects (MQTT-3.3.4-7)")
def test_client_exceeding_receive_maximum_is_disconnected_mqtt_3_3_4_7(dial: Dial, topic: str) -> None:
    bystander, client = dial.v5(), dial.v5()
    window = client.connack.receive_max
    if window >= 65535:
        pytest.skip("the server's receive maximum is the number of packet identifiers: it cannot be exceeded")
    for packet_id in range(1, window + 2):
        client.send(PublishPacket(topic, b"x", qos=QoS.EXACTLY_ONCE, packet_id=packet_id).write())
    for packet_id in range(1, window + 1):
        assert client.expect(PubRecPacket).packet_id == packet_id
    client.refused(0x93)
    bystander.quiet()


def test_client_may_fill_its_window_again_and_again_mqtt_3_3_4_7(dial: Dial, topic: str) -> None:
    client = dial.v5()
    window = min(client.connack.receive_max, 100)
    ids = range(1, window + 1)
    for _ in range(3):
        client.send(*(PublishPacket(topic, b"x", qos=QoS.EXACTLY_ONCE, packet_id=each).write() for each in ids))
        assert [client.expect(PubRecPacket).packet_id for _ in ids] == list(ids)
        client.send(*(PubRelPacket(each).write() for each in ids))
        assert [client.expect(PubCompPacket).packet_id for _ in ids] == list(ids)
    client.quiet()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_packet_beyond_the_clients_maximum_is_not_sent_mqtt_3_1_2_25(dial: Dial, topic: str, qos: int) -> None:
    """It counts as delivered, so that what follows is not held up; others get it."""
    if qos:
        skip_on_mosquitto("a message too large stays in flight (MQTT-3.1.2-25)")
    small, other, publisher = dial.v5(max_packet_size=100, receive_max=1), dial.v5(), dial.v5()
    small.subscribe(topic)
    other.subscribe(topic)
    publisher.publish(topic, b"y" * 101, qos)
    publisher.publish(topic, b"x", qos)
    assert small.take().payload == b"x"
    small.quiet()
    assert [len(other.take().payload), len(other.take().payload)] == [101, 1]


@mosquitto_departs("its sum is a byte short (MQTT-3.1.2-24)")
def test_packet_of_exactly_the_maximum_is_sent_mqtt_3_1_2_24(dial: Dial, topic: str) -> None:
    size = len(PublishPacket(topic, b"x" * 50).write())
    fits, too_small = dial.v5(max_packet_size=size), dial.v5(max_packet_size=size - 1)
    fits.subscribe(topic)
    too_small.subscribe(topic)
    dial.v5().publish(topic, b"x" * 50, 0)
    assert len(fits.take().payload) == 50
    too_small.quiet()


def test_properties_count_towards_the_maximum_mqtt_3_1_2_24(dial: Dial, topic: str) -> None:
    small, publisher = dial.v5(max_packet_size=60), dial.v5()
    small.subscribe(topic)
    publisher.publish(topic, b"x", 0, user_properties=[("k", "v" * 60)])
    publisher.publish(topic, b"y", 0)
    assert small.take().payload == b"y"


def test_queued_packet_beyond_the_maximum_is_not_sent_mqtt_3_1_2_25(dial: Dial, topic: str) -> None:
    """What waited in the session meets the limit of the connection that fetches it."""
    client_id, publisher = unique(), dial.v5()
    client = dial.v5(client_id, session_expiry_interval=60)
    client.subscribe(topic)
    client.disconnect()
    publisher.publish(topic, b"y" * 101, 1)
    publisher.publish(topic, b"x", 1)
    client = dial.v5(client_id, clean_start=False, max_packet_size=100)
    assert client.take().payload == b"x"
    client.quiet()


def test_retained_packet_beyond_the_maximum_is_not_sent_mqtt_3_1_2_25(dial: Dial, topic: str) -> None:
    publisher, small = dial.v5(), dial.v5(max_packet_size=100)
    publisher.publish(topic, b"y" * 101, 1, retain=True)
    small.subscribe(topic)
    small.quiet()

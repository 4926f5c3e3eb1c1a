"""MQTT 5: the QoS flows, both ways. Clauses are those of the MQTT 5 standard."""

import mqtt5
import pytest
from mqtt5 import (
    PubAckPacket,
    PubAckReasonCode,
    PubCompPacket,
    PublishPacket,
    PubRecPacket,
    PubRecReasonCode,
    PubRelPacket,
    QoS,
)

from tests.mqtt.dial import Dial, unique
from tests.mqtt.servers import mosquitto_departs

ALL_QOS = (0, 1, 2)


def publish(topic: str, payload: bytes, qos: int, packet_id: int, duplicate: bool = False) -> bytes:
    return PublishPacket(topic, payload, qos=QoS(qos), packet_id=packet_id, duplicate=duplicate).write()


def test_publish_qos1_is_acknowledged_mqtt_4_3_2_4(dial: Dial, topic: str) -> None:
    client, subscriber = dial.v5(), dial.v5()
    assert client.publish(topic, b"x", 1) in (0x00, 0x10)
    subscriber.subscribe(topic)
    assert client.publish(topic, b"x", 1) == 0x00
    assert subscriber.take().payload == b"x"


def test_publish_qos1_same_id_after_puback_is_a_new_message_mqtt_4_3_2_5(dial: Dial, topic: str) -> None:
    client, subscriber = dial.v5(), dial.v5()
    subscriber.subscribe(topic)
    for duplicate in (False, True, True):
        client.send(publish(topic, b"x", 1, 9, duplicate))
        assert client.expect(PubAckPacket).packet_id == 9
    assert [subscriber.take().payload for _ in range(3)] == [b"x", b"x", b"x"]


def test_publish_qos2_flow_mqtt_4_3_3_8(dial: Dial, topic: str) -> None:
    client, subscriber = dial.v5(), dial.v5()
    subscriber.subscribe(topic)
    client.send(publish(topic, b"x", 2, 513))
    received = client.expect(PubRecPacket)
    assert (received.packet_id, received.reason_code) == (513, 0)
    client.send(PubRelPacket(513).write())
    completed = client.expect(PubCompPacket)
    assert (completed.packet_id, completed.reason_code) == (513, 0)
    assert subscriber.take().payload == b"x"


def test_publish_qos2_duplicate_is_delivered_once_mqtt_4_3_3_10(dial: Dial, topic: str) -> None:
    client, subscriber = dial.v5(), dial.v5()
    subscriber.subscribe(topic)
    for duplicate in (False, True):
        client.send(publish(topic, b"once", 2, 7, duplicate))
        assert client.expect(PubRecPacket).packet_id == 7
    client.send(PubRelPacket(7).write())
    assert client.expect(PubCompPacket).reason_code == 0
    assert subscriber.take().payload == b"once"
    subscriber.quiet()


def test_publish_qos2_same_id_after_pubcomp_is_a_new_message_mqtt_4_3_3_12(dial: Dial, topic: str) -> None:
    client, subscriber = dial.v5(), dial.v5()
    subscriber.subscribe(topic)
    for payload in (b"1", b"2"):
        client.send(publish(topic, payload, 2, 7))
        client.expect(PubRecPacket)
        client.send(PubRelPacket(7).write())
        client.expect(PubCompPacket)
    assert [subscriber.take().payload, subscriber.take().payload] == [b"1", b"2"]


@mosquitto_departs("PUBCOMP says success for an identifier it does not know (3.7.2.1)")
def test_pubrel_unknown_id_is_told_so_mqtt_4_3_3_11(dial: Dial) -> None:
    client = dial.v5()
    client.send(PubRelPacket(99).write())
    completed = client.expect(PubCompPacket)
    assert (completed.packet_id, completed.reason_code) == (99, 0x92)
    client.quiet()


@mosquitto_departs("it closes the connection")
def test_pubrec_unknown_id_is_told_so_mqtt_3_6_2_1(dial: Dial) -> None:
    client = dial.v5()
    client.send(PubRecPacket(99).write())
    release = client.expect(PubRelPacket)
    assert (release.packet_id, release.reason_code) == (99, 0x92)
    client.quiet()


@pytest.mark.parametrize("granted", ALL_QOS)
@pytest.mark.parametrize("published", ALL_QOS)
def test_delivery_qos_is_the_lower_one_mqtt_3_8_4_8(dial: Dial, topic: str, published: int, granted: int) -> None:
    client = dial.v5()
    assert client.subscribe(topic, qos=granted) == [granted]
    client.publish(topic, b"x", published)
    message = client.take()
    assert (message.payload, message.qos) == (b"x", min(published, granted))
    client.quiet()


@pytest.mark.parametrize("qos", [1, 2])
def test_dup_is_not_propagated_mqtt_3_3_1_3(dial: Dial, topic: str, qos: int) -> None:
    client, subscriber = dial.v5(), dial.v5()
    subscriber.subscribe(topic)
    client.send(publish(topic, b"x", qos, 5, duplicate=True))
    if qos == 2:  # the server may wait for PUBREL before it goes on
        client.expect(PubRecPacket)
        client.send(PubRelPacket(5).write())
    assert subscriber.take().duplicate is False


@pytest.mark.parametrize("qos", ALL_QOS)
def test_order_is_kept_mqtt_4_6_0_5(dial: Dial, topic: str, qos: int) -> None:
    client, subscriber = dial.v5(), dial.v5()
    subscriber.subscribe(topic)
    numbers = list(range(100))
    for number in numbers:
        client.publish(topic, b"%d" % number, qos)
    assert [int(subscriber.take().payload) for _ in numbers] == numbers


@pytest.mark.parametrize("qos", [1, 2])
def test_outgoing_is_not_resent_on_the_same_connection_mqtt_4_4_0_1(dial: Dial, topic: str, qos: int) -> None:
    client, subscriber = dial.v5(), dial.v5()
    subscriber.subscribe(topic)
    client.publish(topic, b"x", qos)
    assert subscriber.expect(PublishPacket).duplicate is False
    subscriber.quiet()
    subscriber.quiet()


@pytest.mark.parametrize("qos", [1, 2])
def test_unacknowledged_publish_is_resent_with_dup_mqtt_4_4_0_1(dial: Dial, topic: str, qos: int) -> None:
    client_id, publisher = unique(), dial.v5()
    client = dial.v5(client_id, session_expiry_interval=60)
    client.subscribe(topic)
    for number in range(5):
        publisher.publish(topic, b"%d" % number, qos, user_properties=[("n", str(number))])
    first = [client.expect(PublishPacket) for _ in range(5)]
    client.drop()
    client = dial.v5(client_id, clean_start=False, session_expiry_interval=60)
    again = [client.expect(PublishPacket) for _ in range(5)]
    assert all(message.duplicate for message in again)  # MQTT-3.3.1-1
    assert [message.packet_id for message in again] == [message.packet_id for message in first]
    assert [message.payload for message in again] == [message.payload for message in first]
    assert [message.user_properties for message in again] == [message.user_properties for message in first]


def test_unacknowledged_pubrel_is_resent_mqtt_4_4_0_1(dial: Dial, topic: str) -> None:
    client_id = unique()
    client = dial.v5(client_id, session_expiry_interval=60)
    client.subscribe(topic)
    dial.v5().publish(topic, b"x", 2)
    packet_id = client.expect(PublishPacket).packet_id
    assert packet_id is not None
    client.send(PubRecPacket(packet_id).write())
    assert client.expect(PubRelPacket).packet_id == packet_id
    client.drop()
    client = dial.v5(client_id, clean_start=False, session_expiry_interval=60)
    assert client.expect(PubRelPacket).packet_id == packet_id  # and not the PUBLISH (MQTT-4.3.3-6)
    client.send(PubCompPacket(packet_id).write())
    client.quiet()
    client.drop()
    dial.v5(client_id, clean_start=False).quiet()


def test_incoming_qos2_survives_reconnection_mqtt_4_3_3_10(dial: Dial, topic: str) -> None:
    subscriber, client_id = dial.v5(), unique()
    subscriber.subscribe(topic)
    client = dial.v5(client_id, session_expiry_interval=60)
    client.send(publish(topic, b"once", 2, 11))
    client.expect(PubRecPacket)
    client.drop()
    client = dial.v5(client_id, clean_start=False, session_expiry_interval=60)
    assert client.connack.session_present
    client.send(publish(topic, b"once", 2, 11, duplicate=True))
    assert client.expect(PubRecPacket).packet_id == 11
    client.send(PubRelPacket(11).write())
    assert client.expect(PubCompPacket).reason_code == 0
    assert subscriber.take().payload == b"once"
    subscriber.quiet()


@pytest.mark.parametrize("qos", [1, 2])
def test_refused_by_the_client_counts_as_acknowledged_mqtt_4_4_0_2(dial: Dial, topic: str, qos: int) -> None:
    """A PUBACK or PUBREC of 0x80 or more ends the flow: no PUBREL, no redelivery."""
    client_id = unique()
    client = dial.v5(client_id, session_expiry_interval=60)
    client.subscribe(topic)
    dial.v5().publish(topic, b"x", qos)
    packet_id = client.expect(PublishPacket).packet_id
    assert packet_id is not None
    client.send(
        PubAckPacket(packet_id, reason_code=PubAckReasonCode.UNSPECIFIED_ERROR).write()
        if qos == 1
        else PubRecPacket(packet_id, reason_code=PubRecReasonCode.UNSPECIFIED_ERROR).write()
    )
    client.quiet()
    client.drop()
    dial.v5(client_id, clean_start=False).quiet()


def test_acknowledgements_of_any_length_are_understood_mqtt_3_4_2_1(dial: Dial, topic: str) -> None:
    """Reason code and properties may be left out, or be there."""
    client, publisher = dial.v5(receive_max=1), dial.v5()
    client.subscribe(topic)
    properties = b"\x26\x00\x01k\x00\x01v"  # a user property
    forms = [b"", b"\x00", b"\x00\x00", bytes([0, len(properties)]) + properties]
    for number, form in enumerate(forms):
        publisher.publish(topic, b"%d" % number, 1)
        packet_id = client.expect(PublishPacket).packet_id
        assert packet_id is not None
        body = packet_id.to_bytes(2) + form
        client.send(bytes([0x40, len(body)]) + body)
    client.quiet()


def test_both_ways_use_ids_independently_mqtt_2_2_1_4(dial: Dial, topic: str) -> None:
    client = dial.v5()
    client.subscribe(topic)
    client.publish(topic, b"x", 2)
    packet_id = client.expect(PublishPacket).packet_id
    assert packet_id is not None
    client.send(publish(topic + "/other", b"y", 2, packet_id))
    assert client.expect(PubRecPacket).packet_id == packet_id
    client.send(PubRecPacket(packet_id).write(), PubRelPacket(packet_id).write())
    kinds = {type(client.receive()), type(client.receive())}
    assert kinds == {mqtt5.PubRelPacket, mqtt5.PubCompPacket}
    client.send(PubCompPacket(packet_id).write())
    client.quiet()

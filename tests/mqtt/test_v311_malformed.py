"""MQTT 3.1.1: what no client may send closes that one connection, and harms nobody else."""

import pytest

from tests.mqtt.client311 import ack, publish, subscribe, unsubscribe
from tests.mqtt.dial import Dial
from tests.mqtt.raw import packet, string
from tests.mqtt.servers import skip_on_mosquitto

VIOLATIONS = {
    "publish_qos_3_mqtt_3_3_1_4": packet(0x36, string("t"), b"\x00\x01"),
    "publish_dup_at_qos_0_mqtt_3_3_1_2": publish("t", b"x", dup=True),
    "publish_id_0_mqtt_2_3_1_1": publish("t", b"x", 1, 0),
    "publish_plus_in_topic_mqtt_3_3_2_2": publish("t/+", b"x"),
    "publish_hash_in_topic_mqtt_3_3_2_2": publish("t/#", b"x"),
    "publish_empty_topic_mqtt_4_7_3_1": publish("", b"x"),
    "publish_null_in_topic_mqtt_4_7_3_2": publish("t\x00", b"x"),
    "publish_ill_formed_topic_mqtt_1_5_3_1": publish(b"t\xc3\x28", b"x"),
    "publish_overlong_utf8_topic_mqtt_1_5_3_1": publish(b"t\xc0\xaf", b"x"),
    "publish_surrogate_in_topic_mqtt_1_5_3_1": publish(b"t\xed\xbf\xbf", b"x"),
    "publish_topic_longer_than_packet_mqtt_3_3_2_1": packet(0x30, b"\x00\x09abc"),
    "publish_without_topic_mqtt_3_3_2_1": packet(0x30),
    "publish_without_id_mqtt_2_3_1_1": packet(0x32, string("t")),
    "pubrel_flags_mqtt_3_6_1_1": ack(0x60, 1),
    "puback_flags_mqtt_2_2_2_2": ack(0x41, 1),
    "puback_without_id_mqtt_2_3_1_6": packet(0x40),
    "subscribe_flags_mqtt_3_8_1_1": packet(0x80, b"\x00\x01", string("t"), b"\x00"),
    "subscribe_no_filter_mqtt_3_8_3_3": packet(0x82, b"\x00\x01"),
    "subscribe_qos_3_mqtt_3_8_3_4": subscribe(1, ("t", 3)),
    "subscribe_reserved_bits_mqtt_3_8_3_4": subscribe(1, ("t", 0x04)),
    "subscribe_without_qos_mqtt_3_8_3_3": packet(0x82, b"\x00\x01", string("t")),
    "subscribe_id_0_mqtt_2_3_1_1": subscribe(0, ("t", 0)),
    "subscribe_ill_formed_filter_mqtt_3_8_3_1": subscribe(1, (b"\xff", 0)),
    "subscribe_null_in_filter_mqtt_4_7_3_2": subscribe(1, ("a\x00", 0)),
    "unsubscribe_flags_mqtt_3_10_1_1": packet(0xA0, b"\x00\x01", string("t")),
    "unsubscribe_no_filter_mqtt_3_10_3_2": packet(0xA2, b"\x00\x01"),
    "unsubscribe_id_0_mqtt_2_3_1_1": unsubscribe(0, "t"),
    "unsubscribe_ill_formed_filter_mqtt_3_10_3_1": unsubscribe(1, b"\xff"),
    "pingreq_flags_mqtt_2_2_2_2": packet(0xC1),
    "disconnect_flags_mqtt_2_2_2_2": packet(0xE1),
    "remaining_length_of_five_bytes_mqtt_2_2_3": b"\x30\xff\xff\xff\xff\x01",
    "puback_surplus_mqtt_2_2_3": packet(0x40, b"\x00\x01\x00"),
    "pubrel_surplus_mqtt_2_2_3": packet(0x62, b"\x00\x01\x00"),
    "pingreq_surplus_mqtt_2_2_3": packet(0xC0, b"\x00"),
    "disconnect_surplus_mqtt_2_2_3": packet(0xE0, b"\x00"),
    "subscribe_surplus_mqtt_3_8_3_3": packet(0x82, b"\x00\x01", string("t"), b"\x00\x00"),
    "unsubscribe_surplus_mqtt_3_10_3_1": packet(0xA2, b"\x00\x01", string("t"), b"\x00"),
    "type_0_mqtt_2_2_1": packet(0x00),
    "type_15_mqtt_2_2_1": packet(0xF0),
    "connack_mqtt_2_2_1": packet(0x20, b"\x00\x00"),
    "suback_mqtt_2_2_1": packet(0x90, b"\x00\x01\x00"),
    "unsuback_mqtt_2_2_1": ack(0xB0, 1),
    "pingresp_mqtt_2_2_1": packet(0xD0),
}

MOSQUITTO_LETS_PASS = (
    "publish_dup_at_qos_0", "puback_flags", "puback_surplus", "pubrel_surplus", "pingreq_flags", "pingreq_surplus",
    "suback_mqtt", "unsuback_mqtt", "pingresp_mqtt",
)  # fmt: skip


@pytest.mark.parametrize("name", VIOLATIONS)
def test_violation_closes_only_that_connection_mqtt_4_8_0_1(dial: Dial, topic: str, name: str) -> None:
    if name.startswith(MOSQUITTO_LETS_PASS):
        skip_on_mosquitto("it lets this pass (MQTT-4.8.0-1)")
    bystander, client = dial.v311(), dial.v311()
    bystander.subscribe(topic)
    client.quiet()
    client.send(VIOLATIONS[name])
    assert client.closed() == b""
    bystander.publish(topic, b"still here")
    assert bystander.take().payload == b"still here"


def test_work_before_a_violation_is_done_mqtt_4_8_0_1(dial: Dial, topic: str) -> None:
    """Packets in front of the malformed one, in the same segment, are processed and answered."""
    subscriber, client = dial.v311(), dial.v311()
    subscriber.subscribe(topic)
    client.send(publish(topic, b"good", 1, 3), packet(0x36, string("t"), b"\x00\x01"), publish(topic, b"late", 1, 4))
    assert client.closed() == b"\x40\x02\x00\x03"
    assert subscriber.take().payload == b"good"
    subscriber.quiet()

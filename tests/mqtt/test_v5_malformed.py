"""MQTT 5: malformed packets and protocol errors end that one connection with the right reason code.

Where the standard leaves open which of the two an error is, both codes are right.
"""

import mqtt5
import pytest

from tests.mqtt.dial import Dial
from tests.mqtt.raw import packet, string, varint
from tests.mqtt.servers import skip_on_mosquitto

MALFORMED, PROTOCOL, TOPIC_NAME, TOPIC_FILTER = 0x81, 0x82, 0x90, 0x8F
EITHER = (MALFORMED, PROTOCOL)
NO_PROPERTIES = b"\x00"
ID = b"\x00\x01"


def publish(topic: str | bytes = "t", properties: bytes = b"", first_byte: int = 0x30, packet_id: bytes = b"") -> bytes:
    return packet(first_byte, string(topic), packet_id, varint(len(properties)), properties, b"x")


def subscribe(name: str | bytes = "t", options: int = 0, properties: bytes = b"", packet_id: bytes = ID) -> bytes:
    return packet(0x82, packet_id, varint(len(properties)), properties, string(name), bytes([options]))


ERRORS: dict[str, tuple[bytes, tuple[int, ...]]] = {
    "publish_qos_3_mqtt_3_3_1_4": (publish(first_byte=0x36, packet_id=ID), (MALFORMED,)),
    "publish_dup_at_qos_0_mqtt_3_3_1_2": (publish(first_byte=0x38), EITHER),
    "publish_id_0_mqtt_2_2_1_3": (publish(first_byte=0x32, packet_id=b"\x00\x00"), EITHER),
    "publish_plus_in_topic_mqtt_3_3_2_2": (publish("a/+"), (*EITHER, TOPIC_NAME)),
    "publish_hash_in_topic_mqtt_3_3_2_2": (publish("a/#"), (*EITHER, TOPIC_NAME)),
    "publish_null_in_topic_mqtt_1_5_4_2": (publish("a\x00"), (*EITHER, TOPIC_NAME)),
    "publish_ill_formed_topic_mqtt_1_5_4_1": (publish(b"a\xc3\x28"), (*EITHER, TOPIC_NAME)),
    "publish_surrogate_in_topic_mqtt_1_5_4_1": (publish(b"\xed\xa0\x80"), (*EITHER, TOPIC_NAME)),
    "publish_topic_longer_than_packet_mqtt_3_3_2_1": (packet(0x30, b"\x00\x09abc"), (MALFORMED,)),
    "publish_subscription_identifier_mqtt_3_3_4_6": (publish(properties=b"\x0b\x01"), EITHER),
    "publish_payload_format_2_mqtt_3_3_2_3_2": (publish(properties=b"\x01\x02"), EITHER),
    "publish_payload_format_twice_mqtt_3_3_2_3_2": (publish(properties=b"\x01\x01\x01\x01"), (PROTOCOL,)),
    "publish_expiry_twice_mqtt_3_3_2_3_3": (publish(properties=b"\x02\x00\x00\x00\x01" * 2), (PROTOCOL,)),
    "publish_content_type_twice_mqtt_3_3_2_3_9": (publish(properties=b"\x03\x00\x01a" * 2), (PROTOCOL,)),
    "publish_content_type_ill_formed_mqtt_3_3_2_19": (publish(properties=b"\x03\x00\x01\xff"), (MALFORMED, PROTOCOL)),
    "publish_response_topic_ill_formed_mqtt_3_3_2_13": (publish(properties=b"\x08\x00\x01\xff"), (MALFORMED, PROTOCOL)),
    "publish_user_property_ill_formed_mqtt_1_5_7_1": (publish(properties=b"\x26\x00\x01\xff\x00\x01v"), (MALFORMED, PROTOCOL)),
    "publish_property_of_connect_mqtt_2_2_2_2": (publish(properties=b"\x11\x00\x00\x00\x01"), EITHER),
    "publish_unknown_property_mqtt_2_2_2_2": (publish(properties=b"\x7f\x01"), EITHER),
    "publish_property_cut_off_mqtt_2_2_2_2": (publish(properties=b"\x02\x00"), EITHER),
    "publish_property_length_too_long_mqtt_2_2_2_1": (packet(0x30, string("t"), b"\x7f\x01\x01x"), EITHER),
    "publish_property_length_of_five_bytes_mqtt_1_5_5": (packet(0x30, string("t"), b"\xff\xff\xff\xff\x01x"), EITHER),
    "publish_without_properties_mqtt_2_2_2_1": (packet(0x30, string("t")), EITHER),
    "puback_unknown_reason_mqtt_3_4_2_1": (packet(0x40, ID, b"\x77"), EITHER),
    "puback_flags_mqtt_2_1_3_1": (packet(0x42, ID), (MALFORMED,)),
    "puback_id_cut_off_mqtt_3_4_2": (packet(0x40, b"\x00"), (MALFORMED,)),
    "pubrel_flags_mqtt_3_6_1_1": (packet(0x60, ID), (MALFORMED,)),
    "pubrel_unknown_reason_mqtt_3_6_2_1": (packet(0x62, ID, b"\x01"), EITHER),
    "subscribe_flags_mqtt_3_8_1_1": (packet(0x80, ID, NO_PROPERTIES, string("t"), b"\x00"), (MALFORMED,)),
    "subscribe_id_0_mqtt_2_2_1_3": (subscribe(packet_id=b"\x00\x00"), EITHER),
    "subscribe_no_filter_mqtt_3_8_3_2": (packet(0x82, ID, NO_PROPERTIES), EITHER),
    "subscribe_without_options_mqtt_3_8_3_2": (packet(0x82, ID, NO_PROPERTIES, string("t")), (MALFORMED,)),
    "subscribe_reserved_bits_mqtt_3_8_3_5": (subscribe(options=0x40), EITHER),
    "subscribe_qos_3_mqtt_3_8_3_1": (subscribe(options=0x03), EITHER),
    "subscribe_retain_handling_3_mqtt_3_8_3_1": (subscribe(options=0x30), EITHER),
    "subscribe_ill_formed_filter_mqtt_3_8_3_1": (subscribe(b"\xff"), (*EITHER, TOPIC_FILTER)),
    "subscribe_property_of_publish_mqtt_2_2_2_2": (subscribe(properties=b"\x01\x01"), EITHER),
    "unsubscribe_flags_mqtt_3_10_1_1": (packet(0xA0, ID, NO_PROPERTIES, string("t")), (MALFORMED,)),
    "unsubscribe_no_filter_mqtt_3_10_2_2": (packet(0xA2, ID, NO_PROPERTIES), EITHER),
    "unsubscribe_id_0_mqtt_2_2_1_3": (packet(0xA2, b"\x00\x00", NO_PROPERTIES, string("t")), EITHER),
    "pingreq_flags_mqtt_2_1_3_1": (packet(0xC1), (MALFORMED,)),
    "disconnect_flags_mqtt_3_14_1_1": (packet(0xE1), (MALFORMED,)),
    "disconnect_unknown_reason_mqtt_3_14_2_1": (packet(0xE0, b"\x77"), EITHER),
    "disconnect_expiry_twice_mqtt_3_14_2_2_2": (packet(0xE0, b"\x00\x0a" + b"\x11\x00\x00\x00\x00" * 2), EITHER),
    "auth_flags_mqtt_3_15_1_1": (packet(0xF1), (MALFORMED,)),
    "remaining_length_of_five_bytes_mqtt_1_5_5": (b"\x30\xff\xff\xff\xff\x01", (MALFORMED,)),
    "pingreq_surplus_mqtt_3_12": (packet(0xC0, b"\x00"), EITHER),
    "puback_surplus_mqtt_3_4_2": (packet(0x40, ID, b"\x00\x00\x00"), EITHER),
    "subscribe_surplus_mqtt_3_8_3": (packet(0x82, ID, NO_PROPERTIES, string("t"), b"\x00\x00"), EITHER),
    "type_0_mqtt_2_1_2": (packet(0x00), EITHER),
    "connack_mqtt_2_1_2": (packet(0x20, b"\x00\x00\x00"), EITHER),
    "suback_mqtt_2_1_2": (packet(0x90, ID, b"\x00\x00"), EITHER),
    "unsuback_mqtt_2_1_2": (packet(0xB0, ID, b"\x00\x00"), EITHER),
    "pingresp_mqtt_2_1_2": (packet(0xD0), EITHER),
}  # fmt: skip

MOSQUITTO_LETS_PASS = (
    "publish_dup_at_qos_0", "publish_subscription_identifier", "publish_payload_format_2", "puback_unknown_reason",
    "puback_flags", "puback_surplus", "pubrel_unknown_reason", "pingreq_flags", "pingreq_surplus", "suback_mqtt",
    "unsuback_mqtt", "pingresp_mqtt",
)  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_error_ends_only_that_connection_mqtt_4_13_1_1(dial: Dial, topic: str, name: str) -> None:
    if name.startswith(MOSQUITTO_LETS_PASS):
        skip_on_mosquitto("it lets this pass (MQTT-4.13.1-1)")
    data, codes = ERRORS[name]
    bystander, client = dial.v5(), dial.v5()
    bystander.subscribe(topic)
    client.quiet()
    client.send(data)
    client.refused(*codes)
    bystander.publish(topic, b"still here")
    assert bystander.take().payload == b"still here"


def test_work_before_an_error_is_done_mqtt_4_13_1_1(dial: Dial, topic: str) -> None:
    """Packets in front of the malformed one, in the same segment, are processed and answered; those behind are not."""
    subscriber, client = dial.v5(), dial.v5()
    subscriber.subscribe(topic)
    good = mqtt5.PublishPacket(topic, b"good", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=3).write()
    late = mqtt5.PublishPacket(topic, b"late", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=4).write()
    client.send(good, publish(first_byte=0x36, packet_id=ID), late)
    assert client.expect(mqtt5.PubAckPacket).packet_id == 3
    client.refused(MALFORMED)
    assert subscriber.take().payload == b"good"
    subscriber.quiet()


def test_disconnect_fits_the_clients_maximum_mqtt_3_14_2_3(dial: Dial) -> None:
    """A reason string is left out where it would make the packet too large for the client."""
    client = dial.v5(max_packet_size=20)  # enough for CONNACK
    client.send(publish(first_byte=0x36, packet_id=ID))
    assert len(client.closed()) <= 20


def test_disconnect_from_the_server_has_no_session_expiry_mqtt_3_14_2_2(dial: Dial) -> None:
    client = dial.v5(session_expiry_interval=60)
    client.send(mqtt5.ConnectPacket("x").write())
    answer = client.closed()
    if answer:
        goodbye, _ = mqtt5.read(memoryview(answer))
        assert isinstance(goodbye, mqtt5.DisconnectPacket)
        assert goodbye.session_expiry_interval is None

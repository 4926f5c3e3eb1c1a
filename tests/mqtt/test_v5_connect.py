"""MQTT 5: CONNECT, CONNACK, keep alive, AUTH, PINGREQ and DISCONNECT. Clauses are those of the MQTT 5 standard."""

import time

import mqtt5
import pytest

from tests.mqtt.client5 import Client5
from tests.mqtt.dial import Dial, unique
from tests.mqtt.raw import PINGREQ, WAIT_S, RawConnection, packet, string, varint
from tests.mqtt.servers import skip_on_mosquitto


def connect(
    flags: int = 0x02, properties: bytes = b"", payload: bytes | None = None, first_byte: int = 0x10, name: str = "MQTT"
) -> bytes:
    """A CONNECT put together by hand, so that it can be wrong."""
    payload = string(unique()) if payload is None else payload
    header = string(name) + bytes([5, flags, 0, 60])
    return packet(first_byte, header, varint(len(properties)), properties, payload)


def rejection(connection: RawConnection) -> int | None:
    """The reason code of the CONNACK a refused CONNECT may be answered with, before the connection is closed."""
    answer = connection.closed()
    if not answer:
        return None
    connack, size = mqtt5.read(memoryview(answer))
    assert isinstance(connack, mqtt5.ConnAckPacket)
    assert size == len(answer)  # nothing after it
    assert int(connack.reason_code) >= 0x80
    assert not connack.session_present  # MQTT-3.2.2-6
    return int(connack.reason_code)


def test_connect_is_acknowledged_mqtt_3_1_4_5(dial: Dial) -> None:
    connection = dial.raw()
    connection.send(connect())
    answer = connection.packet()
    assert answer[0] == 0x20
    assert answer[2:4] == b"\x00\x00"  # no session, success


@pytest.mark.parametrize(
    "first",
    [mqtt5.PublishPacket("t", b"x").write(), PINGREQ, mqtt5.DisconnectPacket().write(), mqtt5.AuthPacket().write(), b"\xf0\x00"],
    ids=["publish", "pingreq", "disconnect", "auth", "empty_auth"],
)  # fmt: skip
def test_first_packet_other_than_connect_closes_mqtt_3_1_0_1(dial: Dial, first: bytes) -> None:
    connection = dial.raw()
    connection.send(first)
    assert connection.closed() == b""  # no DISCONNECT before a CONNACK (MQTT-3.14.0-1)


def test_second_connect_is_a_protocol_error_mqtt_3_1_0_2(dial: Dial) -> None:
    client = dial.v5()
    client.send(connect())
    client.refused(0x82)


def test_connect_wrong_protocol_name_closes_mqtt_3_1_2_1(dial: Dial) -> None:
    connection = dial.raw()
    connection.send(connect(name="MQTX"))
    assert connection.closed()[3:4] != b"\x00"  # nothing, or a refusal in whichever form


SESSION_EXPIRY = b"\x11\x00\x00\x00\x05"
WILL = 0x04 | 0x02

MALFORMED_CONNECTS = {
    "reserved_flag_mqtt_3_1_2_3": (connect(0x03), 0x81),
    "fixed_header_flags_mqtt_2_1_3_1": (connect(first_byte=0x11), 0x81),
    "will_qos_without_will_mqtt_3_1_2_11": (connect(0x0A), 0x81),
    "will_retain_without_will_mqtt_3_1_2_13": (connect(0x22), 0x81),
    "will_qos_3_mqtt_3_1_2_12": (connect(WILL | 0x18, payload=string("x") + b"\x00" + string("w") + string("")), 0x81),
    "will_missing_mqtt_3_1_2_9": (connect(WILL), 0x81),
    "user_name_missing_mqtt_3_1_2_17": (connect(0x82), 0x81),
    "password_missing_mqtt_3_1_2_19": (connect(0x42), 0x81),
    "client_id_missing_mqtt_3_1_3_3": (connect(payload=b""), 0x81),
    "client_id_ill_formed_mqtt_3_1_3_4": (connect(payload=string(b"\xff")), 0x81),
    "client_id_with_null_mqtt_1_5_4_2": (connect(payload=string("a\x00")), 0x81),
    "will_topic_ill_formed_mqtt_3_1_3_11": (connect(WILL, payload=string("x") + b"\x00" + string(b"\xff") + string("")), 0x81),
    "session_expiry_twice_mqtt_3_1_2_11_2": (connect(properties=SESSION_EXPIRY * 2), 0x82),
    "receive_maximum_0_mqtt_3_1_2_11_3": (connect(properties=b"\x21\x00\x00"), 0x82),
    "maximum_packet_size_0_mqtt_3_1_2_11_4": (connect(properties=b"\x27\x00\x00\x00\x00"), 0x82),
    "request_response_2_mqtt_3_1_2_11_6": (connect(properties=b"\x19\x02"), 0x82),
    "request_problem_2_mqtt_3_1_2_11_7": (connect(properties=b"\x17\x02"), 0x82),
    "authentication_data_alone_mqtt_3_1_2_11_10": (connect(properties=b"\x16\x00\x01x"), 0x82),
    "unknown_property_mqtt_2_2_2_2": (connect(properties=b"\x7f\x00"), 0x81),
    "property_of_publish_mqtt_2_2_2_2": (connect(properties=b"\x23\x00\x01"), 0x81),
    "property_cut_off_mqtt_2_2_2_2": (connect(properties=b"\x11\x00\x00"), 0x81),
    "property_length_too_long_mqtt_2_2_2_1": (packet(0x10, string("MQTT"), b"\x05\x02\x00\x3c\x7f", string("x")), 0x81),
    "will_delay_twice_mqtt_3_1_3_2_2": (connect(WILL, payload=string("x") + b"\x0a" + b"\x18\x00\x00\x00\x01" * 2 + string("w") + string("")), 0x82),
    "surplus_mqtt_3_1_4_1": (connect(payload=string("x") + b"surplus"), 0x81),
    "will_topic_empty_mqtt_4_7_3_1": (connect(WILL, payload=string("x") + b"\x00" + string("") + string("")), 0x90),
    "will_topic_with_wildcard_mqtt_4_7_0_1": (connect(WILL, payload=string("x") + b"\x00" + string("a/+") + string("")), 0x90),
    "truncated_mqtt_3_1_4_1": (packet(0x10, string("MQTT"), b"\x05\x02\x00"), 0x81),
}  # fmt: skip


@pytest.mark.parametrize("name", MALFORMED_CONNECTS)
def test_malformed_connect_is_refused_mqtt_3_1_4_1(dial: Dial, name: str) -> None:
    """A CONNACK with the reason, or none. Malformed and protocol error are told apart only where it is clear."""
    if name.startswith("authentication_data_alone"):
        skip_on_mosquitto("it accepts authentication data without a method (3.1.2.11.10)")
    data, code = MALFORMED_CONNECTS[name]
    bystander, connection = dial.v5(), dial.raw()
    connection.send(data)
    assert rejection(connection) in (None, code, 0x81, 0x82)
    bystander.quiet()


def test_password_without_user_name_is_allowed_mqtt_3_1_2_9(dial: Dial) -> None:
    dial.v5(password=b"secret").quiet()


def test_empty_client_id_is_assigned_one_mqtt_3_2_2_16(dial: Dial) -> None:
    clients = [dial.v5(""), dial.v5("", clean_start=False)]
    names = [client.connack.assigned_client_id for client in clients]
    assert all(names)
    assert names[0] != names[1]
    assert dial.v5(unique()).connack.assigned_client_id is None


def test_assigned_client_id_is_the_client_id_mqtt_3_1_3_7(dial: Dial, topic: str) -> None:
    first = dial.v5("", session_expiry_interval=60)
    first.subscribe(topic)
    name = first.connack.assigned_client_id
    first.disconnect()
    dial.v5().publish(topic, b"x")
    again = dial.v5(name, clean_start=False)
    assert again.connack.session_present
    assert again.take().payload == b"x"


def test_connack_announces_a_complete_server_mqtt_3_2_2_3(dial: Dial) -> None:
    connack = dial.v5().connack
    assert connack.max_qos == 2
    assert connack.retain_available
    assert connack.wildcard_subscription_available
    assert connack.subscription_id_available
    assert connack.shared_subscription_available
    assert connack.receive_max > 0
    assert connack.max_packet_size is None or connack.max_packet_size > 0
    assert connack.authentication_method is None  # MQTT-4.12.0-6
    assert connack.response_info is None  # it was not asked for (MQTT-3.1.2-28)


def test_same_client_id_takes_the_session_over_mqtt_3_1_4_3(dial: Dial, topic: str) -> None:
    client_id = unique()
    first = dial.v5(client_id)
    second = dial.v5(client_id)
    first.refused(0x8E)
    second.subscribe(topic)
    second.publish(topic, b"x")
    assert second.take().payload == b"x"


def test_take_over_between_versions_mqtt_3_1_4_3(dial: Dial) -> None:
    client_id = unique()
    first = dial.v5(client_id)
    second = dial.v311(client_id)
    first.refused(0x8E)
    third = dial.v5(client_id)
    assert second.closed() == b""
    third.quiet()


def test_unknown_authentication_method_is_refused_mqtt_4_12_0_1(dial: Dial) -> None:
    connection = dial.raw()
    connection.send(mqtt5.ConnectPacket(unique(), authentication_method="none-such").write())
    assert rejection(connection) in (None, 0x8C, 0x87)


@pytest.mark.parametrize("reason", [0x00, 0x18, 0x19])
def test_auth_without_method_is_a_protocol_error_mqtt_4_12_0_7(dial: Dial, reason: int) -> None:
    bystander, client = dial.v5(), dial.v5()
    client.send(mqtt5.AuthPacket(reason_code=mqtt5.AuthReasonCode(reason), authentication_method="m").write())
    client.refused(0x82)
    bystander.quiet()


def test_keep_alive_is_enforced_mqtt_3_1_2_22(dial: Dial) -> None:
    silent, busy, unlimited = dial.v5(keep_alive=1), dial.v5(keep_alive=1), dial.v5(keep_alive=0)
    deadline = time.monotonic() + WAIT_S
    connected = True
    while connected:
        assert time.monotonic() < deadline, "a client with keep alive 1 was silent, and is still connected"
        busy.quiet()
        connected = silent.stays(0.25)
    silent.refused(0x8D)
    busy.quiet()
    unlimited.quiet()


def test_server_keep_alive_is_within_what_it_may_be_mqtt_3_2_2_22(dial: Dial) -> None:
    """A server that wants another keep alive says so; one that does not, takes the client's (tested above)."""
    asked = 65535
    given = dial.v5(keep_alive=asked).connack.server_keep_alive
    assert given is None or 0 < given < asked


def test_pingreq_is_answered_mqtt_3_12_4_1(dial: Dial) -> None:
    client = dial.v5()
    client.send(PINGREQ, PINGREQ)
    assert [client.packet(), client.packet()] == [b"\xd0\x00", b"\xd0\x00"]


@pytest.mark.parametrize("data", [b"\xe0\x00", b"\xe0\x01\x00", b"\xe0\x02\x00\x00", b"\xe0\x01\x04", b"\xe0\x01\x82"])
def test_disconnect_of_any_length_closes_mqtt_3_14_4_2(dial: Dial, data: bytes) -> None:
    client = dial.v5()
    client.send(data)
    assert client.closed() == b""


def test_problem_information_is_not_sent_unasked_mqtt_3_1_2_29(dial: Dial, topic: str) -> None:
    client = dial.v5(request_problem_info=False)
    client.send(mqtt5.UnsubscribePacket(1, [topic]).write())
    unsuback = client.expect(mqtt5.UnsubAckPacket)
    client.send(mqtt5.PubRelPacket(9).write())
    pubcomp = client.expect(mqtt5.PubCompPacket)
    client.send(mqtt5.PublishPacket(topic, b"x", qos=mqtt5.QoS.AT_LEAST_ONCE, packet_id=1).write())
    puback = client.expect(mqtt5.PubAckPacket)
    for answer in (unsuback, pubcomp, puback):
        assert answer.reason_str is None
        assert answer.user_properties == []


def test_connect_properties_are_accepted_mqtt_3_1_2_11(dial: Dial) -> None:
    dial.v5(
        session_expiry_interval=1, receive_max=5, max_packet_size=1000, topic_alias_max=3, request_response_info=True,
        request_problem_info=False, user_properties=[("a", "b"), ("a", "b"), ("", "")],
    ).quiet()  # fmt: skip


def test_packets_in_single_bytes_are_understood(dial: Dial, topic: str) -> None:
    """The transport is a stream: where it is cut means nothing."""
    client = dial.open5()
    subscribe = mqtt5.SubscribePacket(1, [mqtt5.TopicFilter(topic)]).write()
    publish = mqtt5.PublishPacket(topic, b"abc", user_properties=[("k", "v")], content_type="text").write()
    for byte in connect() + subscribe + publish:
        client.send(bytes([byte]))
    client.expect(mqtt5.ConnAckPacket)
    client.expect(mqtt5.SubAckPacket)
    assert client.expect(mqtt5.PublishPacket).payload == b"abc"


def test_versions_talk_to_each_other(dial: Dial, topic: str) -> None:
    old, new = dial.v311(), dial.v5()
    old.subscribe(topic)
    new.subscribe(topic)
    new.publish(topic, b"new", 2, user_properties=[("k", "v")], message_expiry_interval=100, content_type="text")
    assert (old.take().payload, new.take().payload) == (b"new", b"new")
    old.publish(topic, b"old", 2, retain=True)
    message = new.take()
    assert (message.payload, message.user_properties, message.message_expiry_interval) == (b"old", [], None)
    assert old.take().payload == b"old"
    late: Client5 = dial.v5()
    late.subscribe(topic)
    assert late.take().retain

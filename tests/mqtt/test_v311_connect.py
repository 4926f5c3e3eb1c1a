"""MQTT 3.1.1: CONNECT, CONNACK, keep alive, PINGREQ and DISCONNECT. Clauses are those of the 3.1.1 standard."""

import time

import pytest

from tests.mqtt.client311 import (
    DISCONNECT,
    Connack,
    Publish,
    Suback,
    Will,
    ack,
    connect,
    publish,
    subscribe,
    unsubscribe,
)
from tests.mqtt.dial import Dial, unique
from tests.mqtt.raw import PINGREQ, WAIT_S, packet, string


@pytest.mark.parametrize(
    "first",
    [publish("t", b"x"), PINGREQ, DISCONNECT, subscribe(1, ("t", 0)), unsubscribe(1, "t"), ack(0x40, 1), b"\x20\x02\x00\x00"],
    ids=["publish", "pingreq", "disconnect", "subscribe", "unsubscribe", "puback", "connack"],
)  # fmt: skip
def test_first_packet_other_than_connect_closes_mqtt_3_1_0_1(dial: Dial, first: bytes) -> None:
    connection = dial.raw()
    connection.send(first)
    assert connection.closed() == b""


def test_second_connect_closes_mqtt_3_1_0_2(dial: Dial) -> None:
    client_id = unique()
    client = dial.v311(client_id)
    client.send(connect(client_id))
    assert client.closed() == b""


def test_connect_is_acknowledged_byte_for_byte_mqtt_3_1_4_4(dial: Dial) -> None:
    connection = dial.raw()
    connection.send(connect(unique()))
    assert connection.packet() == b"\x20\x02\x00\x00"


def test_connect_wrong_protocol_name_closes_mqtt_3_1_2_1(dial: Dial) -> None:
    connection = dial.raw()
    connection.send(connect(unique(), name="MQTX"))
    assert connection.closed()[3:4] != b"\x00"  # nothing, or a refusal


@pytest.mark.parametrize("level", [0, 1, 2, 3, 6, 255])
def test_connect_unknown_level_is_refused_mqtt_3_1_2_2(dial: Dial, level: int) -> None:
    connection = dial.raw()
    connection.send(connect(unique(), level=level))
    answer = connection.closed()
    # 0x01 is what 3.1.1 asks for; MQTT 5 has 0x84 for it, which a client of a later version would understand.
    assert answer == b"\x20\x02\x00\x01" or (level > 5 and (answer[0], answer[3]) == (0x20, 0x84))


def test_connect_of_3_1_is_accepted(dial: Dial, topic: str) -> None:
    """The version before: another protocol name and level, and the rest the same here."""
    client = dial.v311(name="MQIsdp", level=3)
    client.subscribe(topic)
    client.publish(topic, b"x", 2)
    assert client.take().payload == b"x"


MALFORMED_CONNECTS = {
    "reserved_flag_mqtt_3_1_2_3": connect("x", extra_flags=0x01),
    "will_qos_without_will_mqtt_3_1_2_13": connect("x", extra_flags=0x08),
    "will_retain_without_will_mqtt_3_1_2_15": connect("x", extra_flags=0x20),
    "will_qos_3_mqtt_3_1_2_14": connect("x", will=Will("w", b"", qos=3)),
    "will_fields_missing_mqtt_3_1_2_9": connect("x", extra_flags=0x04),
    "user_name_missing_mqtt_3_1_2_19": connect("x", extra_flags=0x80),
    "password_missing_mqtt_3_1_2_21": connect("x", username="u", extra_flags=0x40),
    "password_without_user_name_mqtt_3_1_2_22": connect("x", password=b"p"),
    "client_id_missing_mqtt_3_1_3_3": packet(0x10, string("MQTT"), b"\x04\x02\x00\x3c"),
    "client_id_ill_formed_mqtt_3_1_3_4": connect(b"\xff\xfe"),
    "client_id_with_null_mqtt_1_5_3_2": connect("a\x00b"),
    "client_id_surrogate_mqtt_1_5_3_1": connect(b"\xed\xa0\x80"),
    "will_topic_ill_formed_mqtt_3_1_3_10": packet(0x10, string("MQTT"), b"\x04\x06\x00\x3c", string("x"), string(b"\xff"), string("")),
    "user_name_ill_formed_mqtt_3_1_3_11": packet(0x10, string("MQTT"), b"\x04\x82\x00\x3c", string("x"), string(b"\xff")),
    "fixed_header_flags_mqtt_2_2_2_2": packet(0x11, connect("x")[2:]),
    "surplus_mqtt_3_1_4_1": packet(0x10, connect("x")[2:], b"surplus"),
    "will_topic_empty_mqtt_4_7_3_1": connect("x", will=Will("", b"")),
    "will_topic_with_wildcard_mqtt_4_7_1_1": connect("x", will=Will("a/#", b"")),
    "truncated_mqtt_3_1_4_1": packet(0x10, string("MQTT"), b"\x04\x02"),
    "client_id_longer_than_packet_mqtt_3_1_4_1": packet(0x10, string("MQTT"), b"\x04\x02\x00\x3c\x00\x09abc"),
    "empty_mqtt_3_1_4_1": packet(0x10),
}  # fmt: skip


@pytest.mark.parametrize("data", MALFORMED_CONNECTS.values(), ids=MALFORMED_CONNECTS.keys())
def test_malformed_connect_closes_without_connack(dial: Dial, data: bytes) -> None:
    bystander = dial.v311()
    connection = dial.raw()
    connection.send(data)
    assert connection.closed() == b""
    bystander.quiet()


def test_connect_all_fields_in_order_is_accepted_mqtt_3_1_3_1(dial: Dial) -> None:
    will = Will(unique("t"), b"gone", qos=2, retain=True)
    client = dial.v311(will=will, username="user", password=b"\x00secret")
    client.quiet()
    client.disconnect()


def test_connect_23_bytes_is_accepted_mqtt_3_1_3_5(dial: Dial) -> None:
    for client_id in ("0123456789abcdefghijklm", "nopqrstuvwxyzABCDEFGHIJ", "KLMNOPQRSTUVWXYZ"):
        dial.v311(client_id).quiet()


def test_connect_long_utf8_client_id_is_accepted(dial: Dial) -> None:
    """Not asked by the standard, but clients in the field do it."""
    dial.v311("é水/+#$ " + unique() * 10).quiet()


def test_empty_client_ids_are_different_clients_mqtt_3_1_3_6(dial: Dial) -> None:
    first, second = dial.v311(""), dial.v311("")
    first.quiet()
    second.quiet()


def test_empty_client_id_without_clean_session_is_rejected_mqtt_3_1_3_8(dial: Dial) -> None:
    connection = dial.raw()
    connection.send(connect("", clean=False))
    assert connection.closed() == b"\x20\x02\x00\x02"


def test_data_after_rejected_connect_is_ignored_mqtt_3_1_4_5(dial: Dial, topic: str) -> None:
    connection = dial.raw()
    connection.send(connect("", clean=False), publish(topic, b"no", retain=True))
    assert connection.closed() == b"\x20\x02\x00\x02"
    client = dial.v311()
    client.subscribe(topic)
    client.quiet()


def test_data_sent_with_connect_is_processed_mqtt_3_2_0_1(dial: Dial, topic: str) -> None:
    """A client need not wait for CONNACK; CONNACK is still the first answer."""
    client = dial.open311()
    client.send(connect(unique()), subscribe(1, (topic, 0)), publish(topic, b"x"), PINGREQ)
    assert client.expect(Connack) == Connack(False, 0)
    assert client.expect(Suback) == Suback(1, (0,))
    assert client.expect(Publish) == Publish(topic, b"x")
    client.receive()


def test_packets_in_single_bytes_are_understood_mqtt_4_2_0_1(dial: Dial, topic: str) -> None:
    """The transport is a stream: where it is cut means nothing."""
    client = dial.open311()
    for byte in connect(unique()) + subscribe(1, (topic, 1)) + publish(topic, b"abc", 1, 7):
        client.send(bytes([byte]))
    assert client.expect(Connack) == Connack(False, 0)
    assert client.expect(Suback) == Suback(1, (1,))
    assert client.reply(Publish).payload == b"abc"


def test_same_client_id_disconnects_the_first_mqtt_3_1_4_2(dial: Dial, topic: str) -> None:
    client_id = unique()
    first = dial.v311(client_id)
    second = dial.v311(client_id)
    assert first.closed() == b""
    second.subscribe(topic)
    second.publish(topic, b"x")
    assert second.take().payload == b"x"


def test_session_present_follows_the_session_mqtt_3_2_2_2(dial: Dial) -> None:
    client_id = unique()
    seen = []
    for clean in (False, False, True, False, True):
        client = dial.v311(client_id, clean=clean)
        seen.append(client.connack.session_present)
        client.disconnect()
    # new; kept; discarded (MQTT-3.2.2-1); nothing kept of a clean session (MQTT-3.1.2-6); discarded
    assert seen == [False, True, False, False, False]


def test_session_present_after_network_failure_mqtt_3_2_2_2(dial: Dial) -> None:
    client_id = unique()
    dial.v311(client_id, clean=False).drop()
    assert dial.v311(client_id, clean=False).connack == Connack(True, 0)


def test_keep_alive_is_enforced_mqtt_3_1_2_24(dial: Dial, topic: str) -> None:
    """Silence is judged by what the client sends: what it receives does not count, and any packet does."""
    silent = dial.v311(keep_alive=1)
    silent.subscribe(topic, qos=0)
    busy, unlimited = dial.v311(keep_alive=1), dial.v311(keep_alive=0)
    deadline = time.monotonic() + WAIT_S
    connected = True
    while connected:
        assert time.monotonic() < deadline, "a client with keep alive 1 was silent, and is still connected"
        busy.send(publish(topic, b"tick"))
        connected = silent.stays(0.25)
    busy.quiet()
    unlimited.quiet()


def test_pingreq_is_answered_mqtt_3_12_4_1(dial: Dial) -> None:
    client = dial.v311()
    client.send(PINGREQ, PINGREQ)
    assert [client.packet(), client.packet()] == [b"\xd0\x00", b"\xd0\x00"]


def test_disconnect_closes_the_connection_mqtt_3_14_4_1(dial: Dial) -> None:
    client = dial.v311()
    client.send(DISCONNECT)
    assert client.closed() == b""

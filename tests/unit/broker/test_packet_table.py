"""What every packet gets, well-formed and malformed, before CONNECT and after it, in MQTT 3.1.1 and 5.

The answers are those of the standards (the clause is in the last column; where a number differs in 5, it is the second
one). `closed` means that nothing is sent and the connection ends, as always in 3.1.1 [MQTT-4.8.0-1]; in 5 a DISCONNECT with a
reason comes first, written as `81` or `82` (4.13). Before CONNECT nothing may be sent at all [MQTT-3.1.0-1].
tests/mqtt has more ways in which each packet can be wrong, over real connections.
"""

from dataclasses import dataclass

import mqtt5
import pytest

from tests.core_client import Client, World
from tests.mqtt import client311
from tests.mqtt.raw import packet, string

ID, NO_PROPERTIES, TOPIC = b"\x00\x07", b"\x00", string("t")
OLD, NEW = 4, 5
ANSWERS = {
    2: "CONNACK",
    4: "PUBACK",
    5: "PUBREC",
    6: "PUBREL",
    7: "PUBCOMP",
    9: "SUBACK",
    11: "UNSUBACK",
    13: "PINGRESP",
}


@dataclass(frozen=True)
class Row:
    name: str
    old: bytes | None  # in 3.1.1, None: there is no such packet
    new: bytes | None  # in 5
    old_answer: str
    new_answer: str
    clause: str


CONNECT_OLD = client311.connect("again")
CONNECT_NEW = mqtt5.ConnectPacket("again", clean_start=True).write()

AFTER_CONNECT = [
    #   packet                   3.1.1                                  5                                            3.1.1       5              clause
    Row("type 0", packet(0x00), packet(0x00), "closed", "81", "2.2.1-2, 2.1.2"),
    Row("CONNECT", CONNECT_OLD, CONNECT_NEW, "closed", "82", "3.1.0-2"),
    Row("CONNACK", packet(0x20, b"\0\0"), packet(0x20, b"\0\0\0"), "closed", "82", "2.2.1, 2.1.2"),
    Row("PUBLISH QoS 0", packet(0x30, TOPIC, b"x"), packet(0x30, TOPIC, NO_PROPERTIES, b"x"), "", "", "3.3.4-1"),
    Row("PUBLISH QoS 1", packet(0x32, TOPIC, ID, b"x"), packet(0x32, TOPIC, ID, NO_PROPERTIES, b"x"), "PUBACK", "PUBACK 10", "3.3.4-1"),
    Row("PUBLISH QoS 2", packet(0x34, TOPIC, ID, b"x"), packet(0x34, TOPIC, ID, NO_PROPERTIES, b"x"), "PUBREC", "PUBREC", "3.3.4-1"),
    Row("PUBLISH QoS 3", packet(0x36, TOPIC, ID, b"x"), packet(0x36, TOPIC, ID, NO_PROPERTIES, b"x"), "closed", "81", "3.3.1-4"),
    Row("PUBLISH DUP at QoS 0", packet(0x38, TOPIC, b"x"), packet(0x38, TOPIC, NO_PROPERTIES, b"x"), "closed", "81", "3.3.1-2"),
    Row("PUBLISH id 0", packet(0x32, TOPIC, b"\0\0", b"x"), packet(0x32, TOPIC, b"\0\0", NO_PROPERTIES, b"x"), "closed", "81", "2.3.1-1, 2.2.1-3"),
    Row("PUBLISH wildcard", packet(0x30, string("t/#"), b"x"), packet(0x30, string("t/#"), NO_PROPERTIES, b"x"), "closed", "90", "3.3.2-2"),
    Row("PUBLISH no topic", packet(0x30, string(""), b"x"), packet(0x30, string(""), NO_PROPERTIES, b"x"), "closed", "82", "4.7.3-1, 3.3.2.3.4"),
    Row("PUBLISH cut off", packet(0x30, b"\0\x09t"), packet(0x30, b"\0\x09t"), "closed", "81", "3.3.2-1"),
    Row("PUBACK unknown id", packet(0x40, ID), packet(0x40, ID), "", "", "4.6.0"),
    Row("PUBACK flags", packet(0x41, ID), packet(0x41, ID), "closed", "81", "2.2.2-2, 2.1.3-1"),
    Row("PUBACK cut off", packet(0x40, b"\0"), packet(0x40, b"\0"), "closed", "81", "3.4.2"),
    Row("PUBACK surplus", packet(0x40, ID, b"\0"), packet(0x40, ID, b"\0\0\0"), "closed", "81", "3.4.2"),
    Row("PUBREC unknown id", packet(0x50, ID), packet(0x50, ID), "PUBREL", "PUBREL 92", "4.3.3-1, 4.3.3-4"),
    Row("PUBREC flags", packet(0x51, ID), packet(0x51, ID), "closed", "81", "2.2.2-2, 2.1.3-1"),
    Row("PUBREC cut off", packet(0x50, b"\0"), packet(0x50, b"\0"), "closed", "81", "3.5.2"),
    Row("PUBREL unknown id", packet(0x62, ID), packet(0x62, ID), "PUBCOMP", "PUBCOMP 92", "4.3.3-2, 3.7.2.1"),
    Row("PUBREL flags", packet(0x60, ID), packet(0x60, ID), "closed", "81", "3.6.1-1"),
    Row("PUBREL cut off", packet(0x62, b"\0"), packet(0x62, b"\0"), "closed", "81", "3.6.2"),
    Row("PUBCOMP unknown id", packet(0x70, ID), packet(0x70, ID), "", "", "4.3.3"),
    Row("PUBCOMP flags", packet(0x71, ID), packet(0x71, ID), "closed", "81", "2.2.2-2, 2.1.3-1"),
    Row("PUBCOMP cut off", packet(0x70, b"\0"), packet(0x70, b"\0"), "closed", "81", "3.7.2"),
    Row("SUBSCRIBE", packet(0x82, ID, TOPIC, b"\1"), packet(0x82, ID, NO_PROPERTIES, TOPIC, b"\1"), "SUBACK", "SUBACK", "3.8.4-1"),
    Row("SUBSCRIBE flags", packet(0x80, ID, TOPIC, b"\1"), packet(0x80, ID, NO_PROPERTIES, TOPIC, b"\1"), "closed", "81", "3.8.1-1"),
    Row("SUBSCRIBE id 0", packet(0x82, b"\0\0", TOPIC, b"\1"), packet(0x82, b"\0\0", NO_PROPERTIES, TOPIC, b"\1"), "closed", "81", "2.3.1-1, 2.2.1-3"),
    Row("SUBSCRIBE no filter", packet(0x82, ID), packet(0x82, ID, NO_PROPERTIES), "closed", "82", "3.8.3-3, 3.8.3-2"),
    Row("SUBSCRIBE QoS 3", packet(0x82, ID, TOPIC, b"\3"), packet(0x82, ID, NO_PROPERTIES, TOPIC, b"\3"), "closed", "81", "3.8.3-4, 3.8.3.1"),
    Row("SUBSCRIBE reserved bits", packet(0x82, ID, TOPIC, b"\x81"), packet(0x82, ID, NO_PROPERTIES, TOPIC, b"\x81"), "closed", "81", "3.8.3-4, 3.8.3-5"),
    Row("SUBSCRIBE cut off", packet(0x82, ID, TOPIC), packet(0x82, ID, NO_PROPERTIES, TOPIC), "closed", "81", "3.8.3"),
    Row("SUBACK", packet(0x90, ID, b"\0"), packet(0x90, ID, NO_PROPERTIES, b"\0"), "closed", "82", "2.2.1, 2.1.2"),
    Row("UNSUBSCRIBE", packet(0xA2, ID, TOPIC), packet(0xA2, ID, NO_PROPERTIES, TOPIC), "UNSUBACK", "UNSUBACK 11", "3.10.4-4"),
    Row("UNSUBSCRIBE flags", packet(0xA0, ID, TOPIC), packet(0xA0, ID, NO_PROPERTIES, TOPIC), "closed", "81", "3.10.1-1"),
    Row("UNSUBSCRIBE id 0", packet(0xA2, b"\0\0", TOPIC), packet(0xA2, b"\0\0", NO_PROPERTIES, TOPIC), "closed", "81", "2.3.1-1, 2.2.1-3"),
    Row("UNSUBSCRIBE no filter", packet(0xA2, ID), packet(0xA2, ID, NO_PROPERTIES), "closed", "82", "3.10.3-2"),
    Row("UNSUBSCRIBE cut off", packet(0xA2, ID, b"\0\x09t"), packet(0xA2, ID, NO_PROPERTIES, b"\0\x09t"), "closed", "81", "3.10.3"),
    Row("UNSUBACK", packet(0xB0, ID), packet(0xB0, ID, NO_PROPERTIES, b"\0"), "closed", "82", "2.2.1, 2.1.2"),
    Row("PINGREQ", packet(0xC0), packet(0xC0), "PINGRESP", "PINGRESP", "3.12.4-1"),
    Row("PINGREQ flags", packet(0xC1), packet(0xC1), "closed", "81", "2.2.2-2, 2.1.3-1"),
    Row("PINGREQ surplus", packet(0xC0, b"\0"), packet(0xC0, b"\0"), "closed", "81", "3.12"),
    Row("PINGRESP", packet(0xD0), packet(0xD0), "closed", "82", "2.2.1, 2.1.2"),
    Row("DISCONNECT", packet(0xE0), packet(0xE0), "closed", "closed", "3.14.4-2"),
    Row("DISCONNECT flags", packet(0xE1), packet(0xE1), "closed", "81", "3.14.1-1"),
    Row("DISCONNECT surplus", packet(0xE0, b"\0"), packet(0xE0, b"\0\0\0"), "closed", "81", "3.14.1"),
    Row("DISCONNECT unknown reason", None, packet(0xE0, b"\x77"), "", "81", "3.14.2-1"),
    Row("AUTH", packet(0xF0), packet(0xF0), "closed", "82", "2.2.1, 4.12.0-6"),
    Row("AUTH flags", packet(0xF1), packet(0xF1), "closed", "81", "2.2.2-2, 3.15.1-1"),
    Row("length of five bytes", b"\x30\xff\xff\xff\xff\x01", b"\x30\xff\xff\xff\xff\x01", "closed", "81", "2.2.3, 1.5.5"),
]  # fmt: skip

CONNECTS = [
    Row("CONNECT", CONNECT_OLD, CONNECT_NEW, "CONNACK", "CONNACK", "3.2.0-1"),
    Row("CONNECT flags", b"\x11" + CONNECT_OLD[1:], b"\x11" + CONNECT_NEW[1:], "closed", "closed", "2.2.2-2, 2.1.3-1"),
    Row("CONNECT reserved bit", client311.connect("c", extra_flags=1), packet(0x10, string("MQTT"), b"\5\3\0\0\0", string("c")), "closed", "CONNACK 81", "3.1.2-3"),
    Row("CONNECT will QoS 3", client311.connect("c", will=client311.Will("t", b"", 3)), packet(0x10, string("MQTT"), b"\5\x1e\0\0\0", string("c"), b"\0", TOPIC, b"\0\0"), "closed", "CONNACK 81", "3.1.2-14, 3.1.2-12"),
    Row("CONNECT no client id", packet(0x10, string("MQTT"), b"\4\2\0\0"), packet(0x10, string("MQTT"), b"\5\2\0\0\0"), "closed", "CONNACK 81", "3.1.3-3"),
    Row("CONNECT surplus", packet(0x10, string("MQTT"), b"\4\2\0\0", string("c"), b"x"), packet(0x10, string("MQTT"), b"\5\2\0\0\0", string("c"), b"x"), "closed", "CONNACK 81", "3.1.3"),
    Row("CONNECT unknown name", packet(0x10, string("MQTX"), b"\4\2\0\0", string("c")), packet(0x10, string("MQTX"), b"\5\2\0\0\0", string("c")), "CONNACK 1", "CONNACK 1", "3.1.2-1"),
    Row("CONNECT level 6", packet(0x10, string("MQTT"), b"\6\2\0\0\0", string("c")), None, "CONNACK 84", "", "3.1.2-2"),
]  # fmt: skip


def outcome(world: World, client: Client, version: int) -> str:
    """What was sent, and whether the connection has ended."""
    found = []
    while client.inbox:
        kind, size = client.inbox[0] >> 4, 2 + client.inbox[1]
        data, client.inbox = client.inbox[:size], client.inbox[size:]
        if version == NEW:
            answer, _ = mqtt5.read(memoryview(data))
            reasons = getattr(answer, "reason_codes", None) or [getattr(answer, "reason_code", 0)]
            code = int(reasons[0]) if kind != 9 else 0
        else:
            code = data[3] if kind == 2 else 0
        found.append(f"{code:x}" if kind == 14 else ANSWERS[kind] + (f" {code:x}" if code else ""))
    is_open = client.connection in world.broker.connections
    refused = found and (len(found[-1]) == 2 or found[-1].startswith("CONNACK "))
    if not is_open and not refused:
        found.append("closed")
    assert is_open or client.is_closed
    assert not (is_open and refused)
    return " ".join(found)


def opened(is_connected: bool, version: int) -> tuple[World, Client]:
    world = World(id_token="table", incarnation="1")
    client = Client(world, "c")
    client.open()
    if is_connected:
        client.send_bytes(client311.connect("c") if version == OLD else CONNECT_NEW.replace(b"again", b"first"))
        assert outcome(world, client, version) == "CONNACK"
    return world, client


def packets(rows: list[Row]) -> list[tuple[int, bytes, str, str]]:
    found = []
    for row in rows:
        for version, data, answer in ((OLD, row.old, row.old_answer), (NEW, row.new, row.new_answer)):
            if data is not None:
                found.append((version, data, answer, f"{row.name} in MQTT {version} ({row.clause})"))
    return found


AFTER, FIRST = packets(AFTER_CONNECT), packets(CONNECTS)


@pytest.mark.parametrize(("version", "data", "answer"), [it[:3] for it in AFTER], ids=[it[3] for it in AFTER])
def test_packet_after_connect(version: int, data: bytes, answer: str) -> None:
    world, client = opened(True, version)
    client.send_bytes(data)
    assert outcome(world, client, version) == answer
    if client.connection in world.broker.connections:
        client.send_bytes(packet(0xC0))
        assert outcome(world, client, version) == "PINGRESP"


@pytest.mark.parametrize(("version", "data"), [it[:2] for it in AFTER if "CONNECT in" not in it[3]])
def test_packet_before_connect_closes_without_a_word_mqtt_3_1_0_1(version: int, data: bytes) -> None:
    world, client = opened(False, version)
    client.send_bytes(data)
    assert outcome(world, client, version) == "closed"


@pytest.mark.parametrize(("version", "data", "answer"), [it[:3] for it in FIRST], ids=[it[3] for it in FIRST])
def test_connect(version: int, data: bytes, answer: str) -> None:
    world, client = opened(False, version)
    client.send_bytes(data)
    assert outcome(world, client, NEW if data[4:9] == b"MQTT\5" or "84" in answer else OLD) == answer


def test_every_packet_type_is_in_the_table() -> None:
    for version in (OLD, NEW):
        assert {data[0] >> 4 for it, data, *_ in AFTER if it == version} == set(range(16))

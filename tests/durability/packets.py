"""The few MQTT packets (3.1.1 and 5) that the clients of the kill tests send and read.

Knows bytes only, and nothing of the codecs of the broker under test. Levels are those of CONNECT: 4 is 3.1.1, 5 is 5.
"""

from collections.abc import Sequence

from tests.mqtt.raw import packet, string, varint

LEVEL_311, LEVEL_5 = 4, 5
CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, DISCONNECT = 2, 3, 4, 5, 6, 7, 9, 14  # packet types
DUP, RETAIN = 0x08, 0x01  # in the first byte of a PUBLISH
REFUSED = 0x80  # reason codes and return codes from here on are refusals
ID_NOT_FOUND = 0x92  # reason code of a PUBCOMP for an id that is not known
PACKET_ID_MAX = 65_535

_FIRST = {PUBACK: 0x40, PUBREC: 0x50, PUBREL: 0x62, PUBCOMP: 0x70}
_CLEAN = 0x02  # the connect flag of a clean start
_SESSION_EXPIRY, _RECEIVE_MAXIMUM = 0x11, 0x21  # properties
NEVER_S = 0xFFFF_FFFF  # the expiry interval of a session that does not expire
_NUMBER_BYTES = {0x13: 2, 0x22: 2, 0x21: 2, 0x11: 4, 0x27: 4, 0x24: 1, 0x25: 1, 0x28: 1, 0x29: 1, 0x2A: 1}  # properties


def connect(client_id: str, level: int, receive_maximum: int, is_clean: bool = False, expiry_s: int = NEVER_S) -> bytes:
    """Without will, user name or keep-alive. In 3.1.1 a session that begins clean ends with its connection."""
    properties = b""
    if level == LEVEL_5:
        known = bytes([_SESSION_EXPIRY]) + expiry_s.to_bytes(4, "big")
        known += bytes([_RECEIVE_MAXIMUM]) + receive_maximum.to_bytes(2, "big")
        properties = varint(len(known)) + known
    return packet(0x10, string("MQTT"), bytes([level, _CLEAN * is_clean, 0, 0]), properties, string(client_id))


def disconnect(level: int) -> bytes:
    """The session ends with the connection, if MQTT 5 is spoken; in 3.1.1 it stays as it is."""
    ending = bytes([0, 5, _SESSION_EXPIRY]) + bytes(4)
    return packet(0xE0, ending if level == LEVEL_5 else b"")


def subscribe(packet_id: int, filters: Sequence[str], qos: int, level: int) -> bytes:
    wanted = b"".join(string(each) + bytes([qos]) for each in filters)
    return packet(0x82, packet_id.to_bytes(2, "big"), _no_properties(level), wanted)


def publish(topic: str, payload: bytes, qos: int, packet_id: int, level: int, retain: bool = False) -> bytes:
    """The first sending of a message; `again` makes the next ones of it."""
    number = packet_id.to_bytes(2, "big") if qos else b""
    return packet(0x30 | qos << 1 | retain, string(topic), number, _no_properties(level), payload)


def again(published: bytes) -> bytes:
    """The same PUBLISH, marked as a duplicate."""
    return bytes([published[0] | DUP]) + published[1:]


def acknowledgement(kind: int, packet_id: int, reason: int = 0) -> bytes:
    """A PUBACK, PUBREC, PUBREL or PUBCOMP; the short form, which both versions have, where there is no reason to give."""
    return packet(_FIRST[kind], packet_id.to_bytes(2, "big"), bytes([reason]) if reason else b"")


def cut(data: bytes) -> tuple[list[tuple[int, bytes]], bytes]:
    """The whole packets in the data, each as first byte and body, and the rest."""
    whole: list[tuple[int, bytes]] = []
    start, end = 0, len(data)
    while end - start >= 2:
        length, index = data[start + 1], start + 2
        shift = 7
        while length >> shift and index < end:  # the last digit read has its continuation bit set
            length = (length & (1 << shift) - 1) | data[index] << shift
            index += 1
            shift += 7
        if length >> shift or index + length > end:
            break
        whole.append((data[start], data[index : index + length]))
        start = index + length
    return whole, data[start:]


def published(first: int, body: bytes, level: int) -> tuple[str, int, bytes]:
    """Topic, packet id (0 at QoS 0) and payload of a PUBLISH."""
    after = 2 + int.from_bytes(body[:2], "big")
    topic = body[2:after].decode()
    packet_id = 0
    if first & 0x06:
        packet_id = int.from_bytes(body[after : after + 2], "big")
        after += 2
    if level == LEVEL_5:
        size, after = _number(body, after)
        after += size
    return topic, packet_id, body[after:]


def acknowledged(body: bytes) -> tuple[int, int]:
    """Packet id and reason code of a PUBACK, PUBREC, PUBREL or PUBCOMP."""
    return int.from_bytes(body[:2], "big"), body[2] if len(body) > 2 else 0


def receive_maximum(connack: bytes) -> int:
    """How many messages the broker takes at once, as its MQTT 5 CONNACK says."""
    size, index = _number(connack, 2)
    end = index + size
    while index < end:
        kind, index = connack[index], index + 1
        if kind == _RECEIVE_MAXIMUM:
            return int.from_bytes(connack[index : index + 2], "big")
        index += _value_bytes(kind, connack, index)
    return PACKET_ID_MAX


def _value_bytes(kind: int, body: bytes, index: int) -> int:
    """The size of the value of a property of CONNACK: a number, one string, or two."""
    if kind in _NUMBER_BYTES:
        return _NUMBER_BYTES[kind]
    size = 2 + int.from_bytes(body[index : index + 2], "big")
    if kind == 0x26:  # a user property
        size += 2 + int.from_bytes(body[index + size : index + size + 2], "big")
    return size


def _number(body: bytes, index: int) -> tuple[int, int]:
    """A variable byte integer, and where it ends."""
    value, shift = 0, 0
    while True:
        digit = body[index]
        value |= (digit & 0x7F) << shift
        index, shift = index + 1, shift + 7
        if digit < 0x80:
            return value, index


def _no_properties(level: int) -> bytes:
    return b"\0" if level == LEVEL_5 else b""

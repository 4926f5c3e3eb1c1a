"""The bytes of the few MQTT packets that the load generator sends, built before anything is measured.

Levels are those of the CONNECT packet: 4 is MQTT 3.1.1, 5 is MQTT 5.
"""

import socket
from collections.abc import Sequence

LEVEL_311 = 4
LEVEL_5 = 5
CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK = 2, 3, 4, 5, 6, 7, 9  # the upper half of the first byte
CONNACK_BYTES = 4  # in MQTT 3.1.1
PUBACK_BYTES = 4  # also the size of all other packets of a handshake in MQTT 3.1.1
NEXT = {PUBLISH: b"\x50\x02", PUBREC: b"\x62\x02", PUBREL: b"\x70\x02"}  # the answer at QoS 2, without the identifier
LAST = (PUBREL, PUBCOMP)  # the last packet of a handshake at QoS 2 that a receiver and a sender receive
DUPLICATE = 0x08  # in the first byte of a PUBLISH
PINGREQ = b"\xc0\x00"
DISCONNECT = b"\xe0\x00"
PACKET_ID_MAX = 65_535  # sixteen bits
LENGTH_BYTES_MAX = 4  # of the "remaining length" field, by the standard
REFUSED = 0x80  # reason codes and return codes from here on are refusals


def connect(client_id: str, level: int = LEVEL_311, is_clean: bool = True, keep_alive_s: int = 0) -> bytes:
    """Without keep-alive an idle client may be silent. A session that is not clean never expires."""
    assert is_clean or level == LEVEL_311  # MQTT 5 would need a property
    properties = b"\x00" if level == LEVEL_5 else b""
    header = _text("MQTT") + bytes((level, 0x02 * is_clean)) + keep_alive_s.to_bytes(2, "big")
    return _packet(0x10, header + properties + _text(client_id))


def subscribe(packet_id: int, filters: Sequence[str], qos: int, level: int = LEVEL_311) -> bytes:
    properties = b"\x00" if level == LEVEL_5 else b""
    subscriptions = b"".join(_text(topic_filter) + bytes((qos,)) for topic_filter in filters)
    return _packet(0x82, packet_id.to_bytes(2, "big") + properties + subscriptions)


def publish(
    topic: str, payload: bytes, qos: int = 0, packet_id: int = 0, level: int = LEVEL_311, is_retained: bool = False
) -> bytes:
    identity = packet_id.to_bytes(2, "big") if qos else b""
    properties = b"\x00" if level == LEVEL_5 else b""
    return _packet(0x30 | qos << 1 | is_retained, _text(topic) + identity + properties + payload)


def packet_id_offset(packet: bytes) -> int:
    """The offset of the packet identifier in a PUBLISH at QoS 1 or 2."""
    start = 1 + next(index for index, byte in enumerate(packet[1:], 1) if byte < 0x80)
    return start + 2 + int.from_bytes(packet[start : start + 2], "big")


def acknowledgements(publishes: bytes | bytearray, size: int, offset: int) -> bytearray:
    """PUBACKs for back-to-back PUBLISH packets of `size` bytes each, with the identifier at `offset`."""
    acks = bytearray(b"\x40\x02\x00\x00" * (len(publishes) // size))
    acks[2::4] = publishes[offset::size]
    acks[3::4] = publishes[offset + 1 :: size]
    return acks


def read_packet(connection: socket.socket) -> bytes:
    """Reads exactly one packet. It is slow (byte by byte at first), and used only before the measurement."""
    packet = bytearray(_read(connection, 1))
    length = 0
    for index in range(LENGTH_BYTES_MAX):
        packet += _read(connection, 1)
        length |= (packet[-1] & 0x7F) << 7 * index
        if packet[-1] < 0x80:
            break
    return bytes(packet) + _read(connection, length)


def _read(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        chunk = connection.recv(count - len(data))
        if not chunk:
            raise ConnectionError("the broker closed the connection")
        data += chunk
    return data


def _text(text: str) -> bytes:
    encoded = text.encode()
    return len(encoded).to_bytes(2, "big") + encoded


def _packet(first_byte: int, body: bytes) -> bytes:
    length = bytearray()
    rest = len(body)
    while rest >= 0x80:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    length.append(rest)
    return bytes((first_byte,)) + bytes(length) + body

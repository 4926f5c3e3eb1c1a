"""MQTT 3.1.1 for tests, written by hand from the standard: encoders, a decoder, and a client on a raw connection."""

import struct
from dataclasses import dataclass
from typing import TypeAlias

from tests.mqtt.raw import Conversation, packet, string

DISCONNECT = b"\xe0\x00"
PUBACK, PUBREC, PUBREL, PUBCOMP, UNSUBACK = 0x40, 0x50, 0x62, 0x70, 0xB0


@dataclass(frozen=True)
class Will:
    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False


@dataclass(frozen=True)
class Connack:
    session_present: bool
    code: int


@dataclass(frozen=True)
class Publish:
    topic: str
    payload: bytes
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0


@dataclass(frozen=True)
class Ack:
    """PUBACK, PUBREC, PUBREL, PUBCOMP or UNSUBACK, by its first byte."""

    first_byte: int
    packet_id: int


@dataclass(frozen=True)
class Suback:
    packet_id: int
    codes: tuple[int, ...]


@dataclass(frozen=True)
class Pingresp:
    pass


Received: TypeAlias = Connack | Publish | Ack | Suback | Pingresp


def connect(
    client_id: str | bytes,
    *,
    clean: bool = True,
    keep_alive: int = 60,
    will: Will | None = None,
    username: str | None = None,
    password: bytes | None = None,
    name: str = "MQTT",
    level: int = 4,
    extra_flags: int = 0,
) -> bytes:
    """A CONNECT; `extra_flags` sets bits a well-behaved client would not."""
    flags, payload = extra_flags | (0x02 if clean else 0), string(client_id)
    if will:
        flags |= 0x04 | will.qos << 3 | will.retain << 5
        payload += string(will.topic) + string(will.payload)
    if username is not None:
        flags, payload = flags | 0x80, payload + string(username)
    if password is not None:
        flags, payload = flags | 0x40, payload + string(password)
    return packet(0x10, string(name), bytes([level, flags]), struct.pack(">H", keep_alive), payload)


def publish(
    topic: str | bytes, payload: bytes, qos: int = 0, packet_id: int = 0, retain: bool = False, dup: bool = False
) -> bytes:
    identifier = struct.pack(">H", packet_id) if qos else b""
    return packet(0x30 | dup << 3 | qos << 1 | retain, string(topic), identifier, payload)


def ack(first_byte: int, packet_id: int) -> bytes:
    return packet(first_byte, struct.pack(">H", packet_id))


def subscribe(packet_id: int, *filters: tuple[str | bytes, int]) -> bytes:
    return packet(0x82, struct.pack(">H", packet_id), *(string(name) + bytes([qos]) for name, qos in filters))


def unsubscribe(packet_id: int, *filters: str | bytes) -> bytes:
    return packet(0xA2, struct.pack(">H", packet_id), *(string(name) for name in filters))


def decode(data: bytes) -> Received:
    """A packet a server may send, checked to be exactly what the standard allows."""
    first = data[0]
    body = data[2:] if data[1] < 0x80 else data[1:].lstrip(bytes(range(0x80, 0x100)))[1:]
    if first >> 4 == 3:
        return _decode_publish(first, body)
    if first == 0x20:
        assert len(body) == 2, data
        assert body[0] in (0, 1), data
        return Connack(bool(body[0]), body[1])
    if first == 0xD0:
        assert not body, data
        return Pingresp()
    packet_id = int.from_bytes(body[:2])
    if first == 0x90:
        assert set(body[2:]) <= {0, 1, 2, 0x80}, data
        return Suback(packet_id, tuple(body[2:]))
    assert first in (PUBACK, PUBREC, PUBREL, PUBCOMP, UNSUBACK), data
    assert len(body) == 2, data
    return Ack(first, packet_id)


def _decode_publish(first: int, body: bytes) -> Publish:
    qos, size = first >> 1 & 3, int.from_bytes(body[:2])
    assert qos < 3
    topic, rest = body[2 : 2 + size].decode(), body[2 + size :]
    packet_id, payload = (int.from_bytes(rest[:2]), rest[2:]) if qos else (0, rest)
    assert bool(packet_id) == bool(qos), "a packet identifier is there, and not 0, exactly when QoS > 0"
    return Publish(topic, payload, qos, bool(first & 1), bool(first & 8), packet_id)


class Client311(Conversation[Received]):
    """A client that does what the standard asks of one, unless a test sends packets of its own."""

    connack: Connack

    def decode(self, data: bytes) -> Received:
        return decode(data)

    def is_pong(self, received: Received) -> bool:
        return isinstance(received, Pingresp)

    def acknowledged(self, first_byte: int, packet_id: int) -> None:
        """The reply to something sent: this acknowledgement for this identifier."""
        answer = self.reply(Ack)
        assert answer == Ack(first_byte, packet_id)

    def subscribe(self, *filters: str, qos: int = 2) -> tuple[int, ...]:
        packet_id = self.next_id()
        self.send(subscribe(packet_id, *((name, qos) for name in filters)))
        answer = self.reply(Suback)
        assert answer.packet_id == packet_id
        return answer.codes

    def unsubscribe(self, *filters: str) -> None:
        packet_id = self.next_id()
        self.send(unsubscribe(packet_id, *filters))
        self.acknowledged(UNSUBACK, packet_id)

    def publish(self, topic: str, payload: bytes, qos: int = 1, *, retain: bool = False) -> None:
        """Publishes and completes the handshake, so that the server has taken the message when this returns."""
        packet_id = self.next_id() if qos else 0
        self.send(publish(topic, payload, qos, packet_id, retain))
        if qos == 0:
            self._set_aside.extend(self.ping())
        elif qos == 1:
            self.acknowledged(PUBACK, packet_id)
        else:
            self.acknowledged(PUBREC, packet_id)
            self.send(ack(PUBREL, packet_id))
            self.acknowledged(PUBCOMP, packet_id)

    def take(self) -> Publish:
        """Receives a PUBLISH and acknowledges it as its QoS asks."""
        message = self.expect(Publish)
        if message.qos == 1:
            self.send(ack(PUBACK, message.packet_id))
        elif message.qos == 2:
            self.send(ack(PUBREC, message.packet_id))
            self.acknowledged(PUBREL, message.packet_id)
            self.send(ack(PUBCOMP, message.packet_id))
        return message

    def disconnect(self) -> None:
        """DISCONNECT, and waits until the server has closed: then it has done what it does at a disconnection."""
        self.send(DISCONNECT)
        self.closed()
        self.close()

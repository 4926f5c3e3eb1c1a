"""The server side of MQTT 3.1.1 and 3.1. Packets are represented by the packet classes of MQTT 5."""

import struct

import mqtt5

from brokerbed.broker.errors import MalformedPacketError, MqttError, ProtocolError
from brokerbed.broker.mqtt import frames

NAMES = {b"MQTT": 4, b"MQIsdp": 3}  # protocol name -> protocol level
SESSION_FOREVER_S = 0xFFFF_FFFF
_RETURN_CODES = {0x00: 0, 0x84: 1, 0x85: 2, 0x88: 3, 0x89: 3, 0x86: 4, 0x87: 5, 0x8A: 5, 0x97: 3, 0x9F: 3}
_FAILED_SUBSCRIPTION = 0x80
_FLAGS = {frames.SUBSCRIBE: 2, frames.UNSUBSCRIBE: 2, frames.PUBREL: 2}


class _Reader:
    """Reads the body of one packet from front to back."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at

    def take(self, size: int) -> bytes:
        taken = self._data[self._at : self._at + size]
        if len(taken) < size:
            raise MalformedPacketError("a packet that is shorter than it says")
        self._at += size
        return taken

    def byte(self) -> int:
        return self.take(1)[0]

    def number(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def packet_id(self) -> int:
        number = self.number()
        if number == 0:
            raise MalformedPacketError("packet id 0")
        return number

    def binary(self) -> bytes:
        return self.take(self.number())

    def text(self) -> str:
        return frames.decoded_topic(self.binary())

    def rest(self) -> bytes:
        return self.take(len(self._data) - self._at)

    def at_end(self) -> bool:
        return self._at == len(self._data)

    def end(self) -> None:
        if not self.at_end():
            raise MalformedPacketError("a packet that is longer than it says")


def decode_31(frame: bytes) -> mqtt5.Packet:
    """As `decode`, but MQTT 3.1 allows a DUP flag in PUBREL, SUBSCRIBE and UNSUBSCRIBE, which 3.1.1 forbids."""
    if frame[0] >> 4 in _FLAGS:
        frame = bytes((frame[0] & ~8,)) + frame[1:]
    return decode(frame)


def decode(frame: bytes) -> mqtt5.Packet:
    """Decode one complete packet. The broker reads the parts of a PUBLISH from the frame instead (frames.py)."""
    kind, flags = frame[0] >> 4, frame[0] & 0x0F
    if kind != frames.PUBLISH and flags != _FLAGS.get(kind, 0):
        raise MalformedPacketError("the fixed header has wrong flags")
    bounds = frames.bounds(frame, 0, len(frame))
    assert bounds is not None
    reader = _Reader(frame, bounds[0])
    try:
        packet = _decode_body(kind, flags, reader)
    except ValueError as error:  # raised by a packet class that refuses a topic or filter
        raise MalformedPacketError(str(error)) from None
    reader.end()
    return packet


_ACKNOWLEDGEMENTS = {
    frames.PUBACK: mqtt5.PubAckPacket, frames.PUBREC: mqtt5.PubRecPacket, frames.PUBREL: mqtt5.PubRelPacket,
    frames.PUBCOMP: mqtt5.PubCompPacket,
}  # fmt: skip


def _decode_body(kind: int, flags: int, reader: _Reader) -> mqtt5.Packet:
    if kind in _ACKNOWLEDGEMENTS:
        acknowledgement: mqtt5.Packet = _ACKNOWLEDGEMENTS[kind](reader.packet_id())
        return acknowledgement
    if kind == frames.CONNECT:
        return _connect(reader)
    if kind == frames.PUBLISH:
        return _publish(flags, reader)
    if kind == frames.SUBSCRIBE:
        return _subscribe(reader)
    if kind == frames.UNSUBSCRIBE:
        return _unsubscribe(reader)
    if kind == frames.PINGREQ:
        return mqtt5.PingReqPacket()
    if kind == frames.DISCONNECT:
        return mqtt5.DisconnectPacket()
    raise MalformedPacketError(f"packet type {kind} from a client")


def _connect(reader: _Reader) -> mqtt5.ConnectPacket:
    name, level = reader.binary(), reader.byte()
    if NAMES.get(name) != level & 0x7F:  # Mosquitto's bridges set the highest bit of the level
        raise MqttError("no protocol that is spoken here", 0x84)
    flags, keep_alive = reader.byte(), reader.number()
    if flags & 1:
        raise MalformedPacketError("the reserved flag of CONNECT is set")
    client_id = reader.text()
    has_will, will_qos, will_retain = flags & 4, flags >> 3 & 3, flags & 0x20
    if will_qos == 3 or (not has_will and (will_qos or will_retain)):
        raise MalformedPacketError("will flags that contradict one another")
    will = None
    if has_will:
        topic, payload = reader.text(), reader.binary()
        will = mqtt5.Will(topic, payload=payload, qos=mqtt5.QoS(will_qos), retain=bool(will_retain))
    if flags & 0x40 and not flags & 0x80:
        raise MalformedPacketError("a password without a user name")
    clean = bool(flags & 2)
    return mqtt5.ConnectPacket(
        client_id, clean_start=clean, will=will, keep_alive=keep_alive,
        username=reader.text() if flags & 0x80 else None, password=reader.binary() if flags & 0x40 else None,
        session_expiry_interval=0 if clean else SESSION_FOREVER_S,
    )  # fmt: skip


def _publish(flags: int, reader: _Reader) -> mqtt5.PublishPacket:
    qos = flags >> 1 & 3
    if qos == 3:
        raise MalformedPacketError("QoS 3")
    topic = reader.text()
    packet_id = reader.packet_id() if qos else None
    payload = reader.rest()
    return mqtt5.PublishPacket(
        topic, payload, qos=mqtt5.QoS(qos), retain=bool(flags & 1), duplicate=bool(flags & 8), packet_id=packet_id
    )


def _subscribe(reader: _Reader) -> mqtt5.SubscribePacket:
    packet_id = reader.packet_id()
    filters = []
    while not reader.at_end():
        pattern, qos = reader.text(), reader.byte()
        if qos > 2:
            raise MalformedPacketError("a requested QoS above 2")
        filters.append(mqtt5.TopicFilter(pattern, max_qos=mqtt5.QoS(qos), retain_as_published=False))
    if not filters:
        raise ProtocolError("no topic filter")
    return mqtt5.SubscribePacket(packet_id, filters)


def _unsubscribe(reader: _Reader) -> mqtt5.UnsubscribePacket:
    packet_id = reader.packet_id()
    patterns = []
    while not reader.at_end():
        patterns.append(reader.text())
    if not patterns:
        raise ProtocolError("no topic filter")
    return mqtt5.UnsubscribePacket(packet_id, patterns)


_WITH_ID_ONLY = {
    mqtt5.PubAckPacket: 0x40, mqtt5.PubRecPacket: 0x50, mqtt5.PubRelPacket: 0x62, mqtt5.PubCompPacket: 0x70,
    mqtt5.UnsubAckPacket: 0xB0,
}  # fmt: skip


def encode(packet: mqtt5.Packet) -> bytes:
    """Encode a packet from the server. A DISCONNECT has no bytes: a 3.1.1 server only closes the connection."""
    if isinstance(packet, mqtt5.PublishPacket):
        topic = packet.topic.encode()
        head = struct.pack(">H", len(topic)) + topic
        if packet.packet_id is not None:
            head += struct.pack(">H", packet.packet_id)
        first = 0x30 | packet.duplicate << 3 | int(packet.qos) << 1 | packet.retain
        return bytes((first,)) + frames.encoded_length(len(head) + len(packet.payload)) + head + packet.payload
    if isinstance(packet, mqtt5.ConnAckPacket):
        return bytes((0x20, 2, packet.session_present, _RETURN_CODES.get(int(packet.reason_code), 3)))
    if isinstance(packet, mqtt5.SubAckPacket):
        codes = bytes(min(int(code), _FAILED_SUBSCRIPTION) for code in packet.reason_codes)
        return b"\x90" + frames.encoded_length(2 + len(codes)) + struct.pack(">H", packet.packet_id) + codes
    if isinstance(packet, mqtt5.PingRespPacket):
        return b"\xd0\x00"
    if isinstance(packet, mqtt5.DisconnectPacket):
        return b""
    return struct.pack(">BBH", _WITH_ID_ONLY[type(packet)], 2, packet.packet_id)  # type: ignore[union-attr]

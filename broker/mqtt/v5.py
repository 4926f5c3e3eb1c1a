"""MQTT 5 by means of the `mqtt5` codec, with the checks of the standard that the codec leaves to its user."""

import struct

import mqtt5

from brokerbed.broker.errors import MalformedPacketError, ProtocolError
from brokerbed.broker.mqtt import frames, text
from brokerbed.broker.mqtt.frames import encoded_length
from brokerbed.broker.values import FORMAT_0_GIVEN

TYPES: dict[type, int] = {
    mqtt5.ConnectPacket: frames.CONNECT, mqtt5.ConnAckPacket: frames.CONNACK, mqtt5.PublishPacket: frames.PUBLISH,
    mqtt5.PubAckPacket: frames.PUBACK, mqtt5.PubRecPacket: frames.PUBREC, mqtt5.PubRelPacket: frames.PUBREL,
    mqtt5.PubCompPacket: frames.PUBCOMP, mqtt5.SubscribePacket: frames.SUBSCRIBE, mqtt5.SubAckPacket: frames.SUBACK,
    mqtt5.UnsubscribePacket: frames.UNSUBSCRIBE, mqtt5.UnsubAckPacket: frames.UNSUBACK,
    mqtt5.PingReqPacket: frames.PINGREQ, mqtt5.PingRespPacket: frames.PINGRESP,
    mqtt5.DisconnectPacket: frames.DISCONNECT, mqtt5.AuthPacket: frames.AUTH,
}  # fmt: skip
_PROTOCOL_ERRORS = ("must be !=", "Duplicate value", "Topic alias must be set")  # in messages of the codec
_SUBSCRIPTION_OPTIONS_RESERVED = 0xC0
_FORMAT_0 = b"\x01\x00"  # a Payload Format Indicator of 0; the same bytes may also occur elsewhere in a packet


def decode(frame: bytes) -> mqtt5.Packet:
    text.check(frame)
    marked = _with_format_0_marked(frame)
    try:
        packet, _ = mqtt5.read(memoryview(marked))
    except (ValueError, IndexError, OverflowError) as error:
        message = str(error)
        is_protocol_error = any(words in message for words in _PROTOCOL_ERRORS)
        raise (ProtocolError if is_protocol_error else MalformedPacketError)(message) from None
    except BaseException as error:  # a panic of the codec must not end the broker
        if type(error).__name__ != "PanicException":
            raise
        raise MalformedPacketError("a packet at which the codec panics") from None
    _check(packet, frame, marked is not frame)
    return packet


def encode(packet: mqtt5.Packet) -> bytes:
    if isinstance(packet, mqtt5.ConnAckPacket):
        return _connack(packet)
    frame = packet.write()
    if isinstance(packet, mqtt5.PublishPacket) and packet.payload_format_indicator == FORMAT_0_GIVEN:
        return _with_format(frame, text.format_at(frame), 0)
    return frame


def _with_format_0_marked(frame: bytes) -> bytes:
    """The frame with a Payload Format Indicator of 0, which the codec reads as none, replaced by FORMAT_0_GIVEN."""
    if _FORMAT_0 not in frame or frame[0] >> 4 not in (frames.PUBLISH, frames.CONNECT):
        return frame
    at = text.format_at(frame)
    return _with_format(frame, at, FORMAT_0_GIVEN) if at and frame[at] == 0 else frame


def _with_format(frame: bytes, at: int, indicator: int) -> bytes:
    return frame[:at] + bytes((indicator,)) + frame[at + 1 :]


def _connack(packet: mqtt5.ConnAckPacket) -> bytes:
    """Encode a CONNACK with its properties in Mosquitto's order, so that test suites which compare bytes can be used.

    The codec writes the same properties in another order, which the standard allows too. Properties that the broker
    never sets are not written here.
    """
    properties = b""
    if packet.topic_alias_max:
        properties += struct.pack(">BH", 0x22, packet.topic_alias_max)
    if packet.session_expiry_interval is not None:
        properties += struct.pack(">BI", 0x11, packet.session_expiry_interval)
    texts = ((0x12, packet.assigned_client_id), (0x15, packet.authentication_method), (0x1F, packet.reason_str))
    for identifier, string in texts:
        if string is not None:
            properties += struct.pack(">BH", identifier, len(string.encode())) + string.encode()
    if packet.server_keep_alive is not None:
        properties += struct.pack(">BH", 0x13, packet.server_keep_alive)
    if packet.max_packet_size is not None:
        properties += struct.pack(">BI", 0x27, packet.max_packet_size)
    for name, value in packet.user_properties:
        properties += b"\x26" + b"".join(
            struct.pack(">H", len(text.encode())) + text.encode() for text in (name, value)
        )
    if packet.receive_max < 0xFFFF:
        properties += struct.pack(">BH", 0x21, packet.receive_max)
    body = bytes((packet.session_present, int(packet.reason_code))) + encoded_length(len(properties)) + properties
    return b"\x20" + encoded_length(len(body)) + body


def _check(packet: mqtt5.Packet, frame: bytes, is_marked: bool) -> None:
    texts: list[str] = []
    match packet:
        case mqtt5.PublishPacket():
            texts = [packet.topic, packet.response_topic or "", packet.content_type or ""]
            _check_format(packet.payload_format_indicator, is_marked)
            _check_id(packet.packet_id)
        case mqtt5.SubscribePacket():
            texts = [topic_filter.pattern for topic_filter in packet.topic_filters]
            _check_filters(packet.packet_id, texts)
            _check_options(frame, texts)
        case mqtt5.UnsubscribePacket():
            texts = packet.patterns
            _check_filters(packet.packet_id, texts)
        case mqtt5.ConnectPacket():
            texts = _check_connect(packet, frame, is_marked)
        case mqtt5.PubAckPacket() | mqtt5.PubRecPacket() | mqtt5.PubRelPacket() | mqtt5.PubCompPacket():
            _check_id(packet.packet_id)
    if any("\0" in value for value in texts):
        raise MalformedPacketError("text with a null character")


def _check_connect(packet: mqtt5.ConnectPacket, frame: bytes, is_marked: bool) -> list[str]:
    flags = _connect_flags(frame)
    if flags & 1:
        raise MalformedPacketError("the reserved flag of CONNECT is set")
    if not flags & 4 and flags & 0x38:
        raise MalformedPacketError("QoS or retain of a will that is not there")
    if packet.authentication_data is not None and packet.authentication_method is None:
        raise ProtocolError("authentication data without a method")
    if packet.will is None:
        return [packet.client_id, packet.username or ""]
    _check_format(packet.will.payload_format_indicator, is_marked)
    return [packet.client_id, packet.username or "", packet.will.topic]


def _check_format(indicator: int, is_marked: bool) -> None:
    if indicator > 1 and not is_marked:
        raise ProtocolError("a payload format indicator other than 0 and 1")


def _check_filters(packet_id: int, filters: list[str]) -> None:
    _check_id(packet_id)
    if not filters:
        raise ProtocolError("no topic filter")


def _check_id(packet_id: int | None) -> None:
    if packet_id == 0:
        raise MalformedPacketError("packet id 0")


def _connect_flags(frame: bytes) -> int:
    body = next(position for position in range(1, 5) if frame[position] < 0x80) + 1
    return frame[body + 7]


def _check_options(frame: bytes, filters: list[str]) -> None:
    """Reject reserved bits in the options byte after each filter [MQTT-3.8.3-5], which the codec ignores."""
    at = len(frame)
    for pattern in reversed(filters):
        if frame[at - 1] & _SUBSCRIPTION_OPTIONS_RESERVED:
            raise MalformedPacketError("reserved bits of the subscription options are set")
        at -= 3 + len(pattern.encode())

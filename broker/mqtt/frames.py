"""Finds packets in a byte stream (section 2.1), and the parts of a PUBLISH without building a packet object.

The broker's hot path uses these functions; everything else goes through a codec (v311.py, v5.py).
"""

from brokerbed.broker.errors import MalformedPacketError, PacketTooLargeError

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 1, 2, 3, 4, 5, 6, 7
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = 8, 9, 10, 11, 12, 13, 14, 15
LENGTH_BYTES_MAX = 4  # bytes that encode the remaining length, section 1.5.5


def bounds(data: bytes, start: int, size_max: int) -> tuple[int, int] | None:
    """Where the body of the packet at `start` begins and ends; None if the packet is still incomplete."""
    length = shift = 0
    at = start + 1
    while True:
        if at >= len(data):
            if at - start > LENGTH_BYTES_MAX:
                raise MalformedPacketError("the remaining length has more than four bytes")
            return None
        byte = data[at]
        at += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if at - start > LENGTH_BYTES_MAX:
            raise MalformedPacketError("the remaining length has more than four bytes")
    if at - start + length > size_max:
        raise PacketTooLargeError(f"a packet of {at - start + length} bytes; at most {size_max} are allowed")
    stop = at + length
    return None if stop > len(data) else (at, stop)


def whole_size(start: bytes) -> int:
    """The size of the packet that begins with these bytes. If they do not tell it yet, one byte more than there are."""
    length = shift = 0
    for at in range(1, min(len(start), 1 + LENGTH_BYTES_MAX)):
        length |= (start[at] & 0x7F) << shift
        if start[at] < 0x80:
            return at + 1 + length
        shift += 7
    return len(start) + 1


def encoded_length(length: int) -> bytes:
    """The remaining length as a variable byte integer."""
    if length < 0x80:
        return bytes((length,))
    out = bytearray()
    while True:
        length, byte = length >> 7, length & 0x7F
        if length:
            out.append(byte | 0x80)
        else:
            out.append(byte)
            return bytes(out)


def publish_parts(data: bytes, body: int, stop: int, qos: int) -> tuple[bytes, int, int]:
    """The topic (undecoded), the packet id (0 at QoS 0), and where the properties or the payload begin."""
    if body + 2 > stop:
        raise MalformedPacketError("a PUBLISH without a topic")
    topic_end = body + 2 + (data[body] << 8 | data[body + 1])
    at = topic_end + 2 if qos else topic_end
    if at > stop:
        raise MalformedPacketError("a PUBLISH that ends within its topic or packet id")
    packet_id = data[topic_end] << 8 | data[topic_end + 1] if qos else 0
    if qos and not packet_id:
        raise MalformedPacketError("a PUBLISH with packet id 0")
    return data[body + 2 : topic_end], packet_id, at


def decoded_topic(raw: bytes) -> str:
    """A topic name as text. Section 1.5.4 forbids null characters and bytes that are not UTF-8."""
    try:
        topic = raw.decode("utf-8")
    except UnicodeDecodeError:
        raise MalformedPacketError("a topic that is not UTF-8") from None
    if "\0" in topic:
        raise MalformedPacketError("a topic with a null character")
    return topic

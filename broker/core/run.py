"""A run: consecutive notifications at QoS 0 that differ only in payload and number, kept as the bytes that arrived.

There are three encodings, called forms: in version 3.1.1 there are no properties, in version 5 their list is empty, and
on a link the list contains only the message's identity. A receiver that uses the form in which the run arrived gets the
same bytes. On a simulated network the Run object itself is sent, and its bytes are a single payload.

A run at QoS 1 or 2 is a Batch; its messages differ in their packet ids, too.
"""

from functools import lru_cache
from typing import Any

from brokerbed.broker.core.link import DIGITS, PACKET_IDS, tag_head
from brokerbed.broker.mqtt import frames
from brokerbed.broker.values import CACHED_TOPIC_CHARS_MAX, Message

ID_HIGH = bytes(packet_id >> 8 for packet_id in range(PACKET_IDS + 1))  # the first byte of each packet id
ID_LOW = bytes(packet_id & 0xFF for packet_id in range(PACKET_IDS + 1))
V311, V5, TAGGED, OBJECT = 0, 1, 2, 3  # the forms; TAGGED is that of links, OBJECT that of simulated networks


class Run:
    __slots__ = ("_encoded", "count", "data", "form", "origin", "payload_at", "raw_topic", "sequence", "size", "topic")
    qos = 0

    def __init__(self, data: bytes, size: int, raw_topic: bytes, topic: str, payload_at: int, form: int) -> None:
        self.data = data
        self.size = size  # of each encoded message in `data`
        self.count = len(data) // size if form != OBJECT else 1
        self.raw_topic = raw_topic
        self.topic = topic
        self.payload_at = payload_at  # where the payload begins in each message
        self.form = form
        self.origin = ""  # the origin of all messages
        self.sequence = 0  # the number of the first message
        self._encoded: dict[tuple[int, int], bytes] | None = None  # other encodings, by form and QoS

    def in_form(self, form: int, qos: int = 0) -> bytes:
        """All messages in a form and at a QoS, encoded once for all receivers. Packet ids have any value."""
        if form == self.form and qos == self.qos:
            return self.data
        if self._encoded is None:
            self._encoded = {}
        encoded = self._encoded.get((form, qos))
        if encoded is None:
            encoded = self._encoded[form, qos] = self._encode(form, qos)
        return encoded

    def messages(self, publisher: object) -> list[Message]:
        """The messages as objects, for receivers that need more than the bytes."""
        return [self.message(index, publisher) for index in range(self.count)]

    def message(self, index: int, publisher: object) -> Message:
        """One of them, counted from 0."""
        start = index * self.size
        message = Message(
            self.topic, self.data[start + self.payload_at : start + self.size], self.qos, False, publisher
        )
        message.origin, message.sequence = self.origin, self.sequence + index
        return message

    def _payloads(self) -> list[bytes]:
        data, size, at = self.data, self.size, self.payload_at
        if self.form == OBJECT:
            return [data]
        return [data[start + at : start + size] for start in range(0, len(data), size)]

    def _encode(self, form: int, qos: int) -> bytes:
        assert qos == 0
        start_of = _cached_start if len(self.raw_topic) <= CACHED_TOPIC_CHARS_MAX else _start
        start = start_of(self.raw_topic, self.size - self.payload_at, self.origin if form == TAGGED else "", form)
        if form != TAGGED:
            return start + start.join(self._payloads())
        if self.count == 1:
            return start + b"%016d" % self.sequence + self.data[self.payload_at :]
        pieces: list[bytes] = []
        for sequence, payload in enumerate(self._payloads(), self.sequence):
            pieces += start, b"%016d" % sequence, payload
        return b"".join(pieces)


class Batch(Run):
    """A run at QoS 1 or 2, in a form of clients."""

    __slots__ = ("_messages", "id_at", "is_additional", "last_sent", "qos", "references", "row_number")

    def __init__(
        self, data: bytes, size: int, raw_topic: bytes, topic: str, payload_at: int, form: int, qos: int
    ) -> None:
        super().__init__(data, size, raw_topic, topic, payload_at, form)
        self.qos = qos
        self.id_at = payload_at - (3 if form == V5 else 2)  # where the packet id is in each message
        self.is_additional = False  # nobody here or below subscribes to the topic
        self.row_number = 0  # of the run's row in the store; 0: it has none
        self.references = 0  # how many other rows in the store refer to the run
        self._messages: list[Message] | None = None
        # What the last receiver of the whole run was sent: form, QoS and first packet id; what its session has in
        # flight; the bytes. Receivers of the same topics are often at the same packet id, and then share all of that.
        self.last_sent: tuple[tuple[int, int, int], dict[int, Any], bytes] | None = None

    def messages(self, publisher: object) -> list[Message]:
        """As for a run, but all receivers share the objects, because a stored message has one row for all of them."""
        if self._messages is None:
            self._messages = super().messages(publisher)
        return self._messages

    def message(self, index: int, publisher: object) -> Message:
        message = super().message(index, publisher)
        message.is_additional = self.is_additional
        return message

    @property
    def ids_high(self) -> bytes:
        """The first bytes of all packet ids."""
        return self.data[self.id_at :: self.size]

    @property
    def ids_low(self) -> bytes:
        return self.data[self.id_at + 1 :: self.size]

    def packet_ids(self) -> list[int]:
        return [high << 8 | low for high, low in zip(self.ids_high, self.ids_low, strict=True)]

    def slice(self, form: int, start: int, stop: int, qos: int = 0) -> bytes:
        """The messages from number `start` to before number `stop`. At QoS 1 and 2 packet ids have any value."""
        encoded = self.in_form(form, qos)
        if stop - start == self.count:
            return encoded
        size = len(encoded) // self.count
        return encoded[start * size : stop * size]

    def with_ids(self, form: int, qos: int, start: int, first_id: int, count: int) -> bytes:
        """The messages from number `start` on, in a form of clients, at QoS 1 or 2, with consecutive packet ids."""
        encoded = self.slice(form, start, start + count, qos)
        size = len(encoded) // count
        id_at = size - (self.size - self.payload_at) - (3 if form == V5 else 2)
        if count == 1:
            return encoded[:id_at] + first_id.to_bytes(2, "big") + encoded[id_at + 2 :]
        changed = bytearray(encoded)
        changed[id_at::size] = ID_HIGH[first_id : first_id + count]
        changed[id_at + 1 :: size] = ID_LOW[first_id : first_id + count]
        return bytes(changed)

    def _encode(self, form: int, qos: int) -> bytes:
        if qos == 0:
            return super()._encode(form, qos)
        head = len(self.raw_topic).to_bytes(2, "big") + self.raw_topic + (b"\0\0\0" if form == V5 else b"\0\0")
        length = len(head) + self.size - self.payload_at
        start = (0x30 | qos << 1).to_bytes(1, "big") + frames.encoded_length(length) + head
        return start + start.join(self._payloads())


def notification(topic: str, payload: bytes) -> Run:
    """One notification on a simulated network."""
    return Run(payload, len(payload), b"", topic, 0, OBJECT)


def _start(raw_topic: bytes, payload_size: int, origin: str, form: int) -> bytes:
    """How each encoded message begins: up to its payload, or on a link up to the digits of its number."""
    properties = tag_head(origin) if form == TAGGED else b"\0" if form == V5 else b""
    head = len(raw_topic).to_bytes(2, "big") + raw_topic + properties
    length = len(head) + payload_size + (DIGITS if form == TAGGED else 0)
    return b"\x30" + frames.encoded_length(length) + head


_cached_start = lru_cache(maxsize=100_000)(_start)

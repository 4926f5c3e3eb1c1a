"""Consecutive notifications at QoS 0 that are alike in all but payload and number, kept as the bytes they came in.

There are three forms of such bytes: version 3.1.1 has no properties, version 5 has an empty list of them, and on a link
the list holds just the message's identity. A receiver of the form in which the run came gets the very bytes. On a
simulated network the object itself is what is sent, and its bytes are one payload.
"""

from functools import lru_cache

from brokerbed.broker.core.link import DIGITS, tag_head
from brokerbed.broker.mqtt import frames
from brokerbed.broker.values import CACHED_TOPIC_CHARS_MAX, Message

V311, V5, TAGGED, OBJECT = 0, 1, 2, 3  # forms


class Run:
    __slots__ = ("_made", "count", "data", "form", "origin", "payload_at", "raw_topic", "sequence", "size", "topic")

    def __init__(self, data: bytes, size: int, raw_topic: bytes, topic: str, payload_at: int, form: int) -> None:
        self.data = data
        self.size = size  # of one message, as it came
        self.count = len(data) // size if form != OBJECT else 1
        self.raw_topic = raw_topic
        self.topic = topic
        self.payload_at = payload_at  # in each message
        self.form = form
        self.origin = ""  # of the messages, and the number of the first
        self.sequence = 0
        self._made: dict[int, bytes] = {form: data}

    def in_form(self, form: int) -> bytes:
        """All messages as a receiver of that form gets them."""
        made = self._made.get(form)
        if made is None:
            made = self._made[form] = self._make(form)
        return made

    def messages(self, publisher: object) -> list[Message]:
        """One by one, for receivers that need more than the bytes."""
        out = []
        for number, payload in enumerate(self._payloads()):
            message = Message(self.topic, payload, 0, False, publisher)
            message.origin, message.sequence = self.origin, self.sequence + number
            out.append(message)
        return out

    def _payloads(self) -> list[bytes]:
        data, size, at = self.data, self.size, self.payload_at
        if self.form == OBJECT:
            return [data]
        return [data[start + at : start + size] for start in range(0, len(data), size)]

    def _make(self, form: int) -> bytes:
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


def notification(topic: str, payload: bytes) -> Run:
    """One notification on a simulated network."""
    return Run(payload, len(payload), b"", topic, 0, OBJECT)


def _start(raw_topic: bytes, payload_size: int, origin: str, form: int) -> bytes:
    """How each message begins, up to its payload, or to the digits of its number."""
    properties = tag_head(origin) if form == TAGGED else b"\0" if form == V5 else b""
    head = len(raw_topic).to_bytes(2, "big") + raw_topic + properties
    length = len(head) + payload_size + (DIGITS if form == TAGGED else 0)
    return b"\x30" + frames.encoded_length(length) + head


_cached_start = lru_cache(maxsize=100_000)(_start)

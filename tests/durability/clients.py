"""Publishers and subscribers whose sessions outlive their connections, as MQTT demands of a client.

Each has one non-blocking socket at a time; whoever runs them calls `tick` now and then and `ready` when the selector
says so. They tell the ledger what they do and see, and judge only what breaks the protocol between them and the broker.
"""

import random
import selectors
import socket
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from tests.durability import packets
from tests.durability.brokers import HOST, BrokerProcess
from tests.durability.ledger import Kind, Ledger, Reader, Stream

RETRY_S = 0.01  # between two attempts to connect
REFUSED_S = 0.2  # ... after a CONNACK that says no
CONNECT_S_MAX = 2.0  # on loopback the kernel answers at once, whatever the broker does
CHUNK_BYTES = 1 << 18
BURST_MESSAGES = 20.0  # that a publisher may send at once when it has been idle


class Client(ABC):
    def __init__(self, name: str, level: int, broker: BrokerProcess, selector: selectors.BaseSelector) -> None:
        self.name = name
        self.level = level
        self.broker = broker
        self.is_wanted = True  # else it stays away
        self.receive_maximum = packets.PACKET_ID_MAX  # of what the broker may send at once
        self.is_clean = False  # whether the next connection begins a new session
        self.expiry_s = packets.NEVER_S  # of its session
        self._has_session = False
        self._is_accepted = False
        self._selector = selector
        self._socket: socket.socket | None = None
        self._incarnation = 0
        self._retry_at = 0.0
        self._now = 0.0
        self._input = b""
        self._output = bytearray()
        self._last_id = 0

    @property
    def is_connected(self) -> bool:
        """Whether the process that its broker is now has accepted it."""
        return self._is_accepted and self._incarnation == self.broker.incarnation

    @abstractmethod
    def is_idle(self) -> bool:
        """Connected, with nothing under way."""

    @abstractmethod
    def state(self) -> str:
        """Of its session, for people."""

    # -- the connection -----------------------------------------------------------------------------------------

    def tick(self, now: float) -> None:
        """Connects where it is time to."""
        self._now = now
        if self._socket is None and self.is_wanted and now >= self._retry_at:
            self._dial()

    def cut(self) -> None:
        """Loses its connection."""
        self._close()

    def rest(self) -> None:
        """Goes away without a word, until it is wanted again."""
        self.is_wanted = False
        self._close()

    def wake(self) -> None:
        self.is_wanted = True

    def ready(self, mask: int) -> None:
        if mask & selectors.EVENT_READ:
            self._receive()
        if mask & selectors.EVENT_WRITE:
            self._flush()

    def _dial(self) -> None:
        self._incarnation = self.broker.incarnation
        try:
            made = socket.create_connection((HOST, self.broker.port), timeout=CONNECT_S_MAX)
        except OSError:
            self._retry_at = self._now + RETRY_S
            return
        made.setblocking(False)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = made
        self._selector.register(made, selectors.EVENT_READ, self)
        self._send(packets.connect(self.name, self.level, self.receive_maximum, self.is_clean, self.expiry_s))
        self._flush()

    def _receive(self) -> None:
        if self._socket is None:
            return
        try:
            data = self._socket.recv(CHUNK_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._ended()
            return
        whole, self._input = packets.cut(self._input + data)
        for first, body in whole:
            self._handle(first, body)
        self._flush()

    def _ended(self) -> None:
        if self._incarnation == self.broker.incarnation and self.broker.is_running():
            self._note(Kind.CLOSED, f"by {self.broker.name}")
        self._close()

    def _close(self) -> None:
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket.close()
        self._socket = None
        self._is_accepted = False
        self._input = b""
        self._output.clear()
        self._retry_at = self._now + RETRY_S

    def _send(self, data: bytes) -> None:
        """Collects output; one write sends it when all that was received is handled."""
        self._output += data

    def _flush(self) -> None:
        if self._socket is None:
            return
        try:
            while self._output:
                del self._output[: self._socket.send(self._output)]
        except BlockingIOError:
            pass
        except OSError:  # the other end is gone: what it said before is still to be read, and then the end
            self._output.clear()
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._output else 0)
        if self._selector.get_key(self._socket).events != events:
            self._selector.modify(self._socket, events, self)

    # -- packets ------------------------------------------------------------------------------------------------

    def _handle(self, first: int, body: bytes) -> None:
        kind = first >> 4
        if kind == packets.CONNACK:
            self._answered(body)
        elif kind == packets.DISCONNECT:
            self._note(Kind.ANSWER, f"DISCONNECT 0x{body[0] if body else 0:02x}")
        elif self._socket is not None:
            self._take(kind, first, body)

    def _answered(self, body: bytes) -> None:
        if body[1]:
            self._note(Kind.ANSWER, f"CONNACK 0x{body[1]:02x}")
            self._close()
            self._retry_at = self._now + REFUSED_S
            return
        is_present = bool(body[0] & 1)
        if self._has_session and not is_present:
            self._note(Kind.SESSION, f"at {self.broker.name}, after {self.broker.incarnation} kills")
        self._has_session = self._is_accepted = True
        self._connected(is_present, body)

    def _next_id(self) -> int:
        self._last_id = self._last_id % packets.PACKET_ID_MAX + 1
        return self._last_id

    def _unexplained(self, kind: int, body: bytes) -> None:
        self._note(Kind.ANSWER, f"a packet of type {kind}: {body[:20].hex(' ')}")

    @abstractmethod
    def _connected(self, is_present: bool, connack: bytes) -> None:
        """The broker has accepted the connection, with or without the session."""

    @abstractmethod
    def _take(self, kind: int, first: int, body: bytes) -> None:
        """One more packet."""

    @abstractmethod
    def _note(self, kind: Kind, what: str) -> None:
        """Tells the ledger of something that must not happen."""


@dataclass(frozen=True, slots=True)
class Open:
    """A message that the broker has not taken over completely."""

    stream: Stream
    number: int
    packet: bytes


class Publisher(Client):
    """Keeps a window of messages open, at a bounded rate, and sends what is open again when it reconnects."""

    def __init__(
        self,
        name: str,
        level: int,
        broker: BrokerProcess,
        selector: selectors.BaseSelector,
        ledger: Ledger,
        streams: Sequence[Stream],
        window: int,
        rate_per_s: float,
        draw: random.Random,
    ) -> None:
        super().__init__(name, level, broker, selector)
        self.is_publishing = False
        self._ledger = ledger
        self._streams = streams
        self._window_max = self._window = window
        self._rate_per_s = rate_per_s
        self._draw = draw
        self._allowed = 0.0  # messages that the rate allows now
        self._sent: dict[int, Open] = {}  # PUBLISH sent and not acknowledged, in the order of sending
        self._taken: dict[int, Open] = {}  # PUBREC received and not PUBCOMP, in that order

    def is_idle(self) -> bool:
        return self.is_connected and not self._sent and not self._taken

    def state(self) -> str:
        return f"connected: {self.is_connected}, not acknowledged: {[*self._sent]}, not complete: {[*self._taken]}"

    def open_messages(self) -> int:
        return len(self._sent) + len(self._taken)

    def tick(self, now: float) -> None:
        self._allowed = min(BURST_MESSAGES, self._allowed + (now - self._now) * self._rate_per_s)
        super().tick(now)
        if self.is_connected and self.is_publishing:
            self._publish()
            self._flush()

    def _publish(self) -> None:
        while self._allowed >= 1 and self.open_messages() < self._window:
            self._allowed -= 1
            stream = self._draw.choice(self._streams)
            number, payload = self._ledger.published(stream)
            packet_id = self._next_id()
            while packet_id in self._sent or packet_id in self._taken:
                packet_id = self._next_id()
            packet = packets.publish(stream.topic, payload, stream.qos, packet_id, self.level, stream.is_retained)
            if stream.qos:
                self._sent[packet_id] = Open(stream, number, packet)
            self._send(packet)

    def _connected(self, is_present: bool, connack: bytes) -> None:
        if self.level == packets.LEVEL_5:
            self._window = min(self._window_max, packets.receive_maximum(connack))
        if not is_present:  # nobody knows our packet ids any more: the standard has us forget them, too
            self._ledger.discarded += len(self._sent)
            self._sent.clear()
            self._taken.clear()
            return
        for packet_id in self._taken:
            self._send(packets.acknowledgement(packets.PUBREL, packet_id))
        for each in self._sent.values():
            each.stream.resent[each.number] += 1
            self._send(packets.again(each.packet))

    def _take(self, kind: int, first: int, body: bytes) -> None:
        del first
        packet_id, reason = packets.acknowledged(body)
        known = self._taken if kind == packets.PUBCOMP else self._sent
        opened = known.get(packet_id)
        qos = {packets.PUBACK: 1, packets.PUBREC: 2, packets.PUBCOMP: 2}.get(kind)
        if opened is None or opened.stream.qos != qos:
            self._unexplained(kind, body)
            return
        del known[packet_id]
        if kind == packets.PUBCOMP:  # whatever its reason: the first PUBCOMP may have been lost with the broker
            return
        if reason >= packets.REFUSED:
            self._unexplained(kind, body)
            return
        self._ledger.acknowledged(opened.stream, opened.number)
        if kind == packets.PUBREC:
            self._taken[packet_id] = opened
            self._send(packets.acknowledgement(packets.PUBREL, packet_id))

    def _note(self, kind: Kind, what: str) -> None:
        self._ledger.note(kind, self.name, what)


class Subscriber(Client):
    """Subscribes once, acknowledges everything, and gives a message at QoS 2 to its application once."""

    def __init__(
        self, reader: Reader, level: int, broker: BrokerProcess, selector: selectors.BaseSelector, ledger: Ledger
    ) -> None:
        super().__init__(reader.name, level, broker, selector)
        self.is_subscribed = False
        self.last_at = 0.0  # when the last message came
        self.repeated = 0  # messages at QoS 2 that came again before their release, and were not given on
        self._reader = reader
        self._ledger = ledger
        self._unreleased: dict[int, bytes] = {}  # packet ids received at QoS 2 and not released -> payload
        self._seen_ids: set[int] = set()  # on this connection
        self._has_asked = False  # to subscribe, in a session that the broker still has

    def is_idle(self) -> bool:
        return self.is_connected and self.is_subscribed and not self._unreleased

    def state(self) -> str:
        told = f"connected: {self.is_connected}, subscribed: {self.is_subscribed}"
        return f"{told}, wanted: {self.is_wanted}, not released: {[*self._unreleased]}"

    def _connected(self, is_present: bool, connack: bytes) -> None:
        del connack
        self._seen_ids.clear()
        if not is_present:
            self._unreleased.clear()
            self.is_subscribed = False
        if not self.is_subscribed:
            if not (is_present and self._has_asked):  # else it may get what was retained when it asked first
                self._ledger.subscribing(self._reader)
            self._has_asked = True
            share = f"$share/{self._reader.group}/" if self._reader.group else ""
            filters = [share + each for each in self._reader.filters]
            self._send(packets.subscribe(self._next_id(), filters, self._reader.qos, self.level))

    def _take(self, kind: int, first: int, body: bytes) -> None:
        if kind == packets.PUBLISH:
            self._delivered(first, body)
        elif kind == packets.PUBREL:
            packet_id, _ = packets.acknowledged(body)
            is_known = self._unreleased.pop(packet_id, None) is not None
            reason = 0 if is_known or self.level != packets.LEVEL_5 else packets.ID_NOT_FOUND
            self._send(packets.acknowledgement(packets.PUBCOMP, packet_id, reason))
        elif kind == packets.SUBACK and all(it == self._reader.qos for it in body[-len(self._reader.filters) :]):
            self.is_subscribed = True
        else:
            self._unexplained(kind, body)

    def _delivered(self, first: int, body: bytes) -> None:
        topic, packet_id, payload = packets.published(first, body, self.level)
        qos, is_marked = first >> 1 & 3, bool(first & packets.DUP)
        is_retained = bool(first & packets.RETAIN)
        self.last_at = self._now
        if is_marked and packet_id in self._seen_ids:
            self._note(Kind.REPEATED, f"packet id {packet_id}, {payload[:40]!r}")
        self._seen_ids.add(packet_id)
        if qos < 2:
            self._ledger.received(self._reader, topic, payload, qos, is_marked, is_retained)
            if qos:
                self._send(packets.acknowledgement(packets.PUBACK, packet_id))
            return
        before = self._unreleased.get(packet_id)
        if before is None:
            self._unreleased[packet_id] = payload
            self._ledger.received(self._reader, topic, payload, qos, is_marked, is_retained)
        elif before == payload:
            self.repeated += 1
        else:
            self._note(Kind.REUSED, f"packet id {packet_id}, {before[:40]!r} and {payload[:40]!r}")
        self._send(packets.acknowledgement(packets.PUBREC, packet_id))

    def _note(self, kind: Kind, what: str) -> None:
        self._ledger.note(kind, self._reader.name, what)

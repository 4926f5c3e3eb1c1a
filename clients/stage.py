"""The parts of a testbed client besides its session: its own queue, its log records, the identity of its messages."""

from collections import deque
from collections.abc import Callable
from typing import Any

from brokerbed.broker.config import Demand
from brokerbed.broker.core.lifetime import payload_words
from brokerbed.clients.session import Clock
from brokerbed.log.record import RECORD, Log

CLASS = b"/class"  # stands for the publisher of messages without identity; no peer has a slash in its name
PACK = RECORD.pack


class _Waiting:
    """An item in the queue of a stage, or in service."""

    __slots__ = ("arrived_ns", "dies_ns", "is_gone", "item")

    def __init__(self, item: object, arrived_ns: int, dies_ns: int | None) -> None:
        self.item = item
        self.arrived_ns = arrived_ns
        self.dies_ns = dies_ns
        self.is_gone = False  # it was served, or its time was over


class Stage:
    """A first-come-first-served queue with one server, which works only while it is on. Interrupted service resumes.

    Service follows a schedule, as in brokers: it begins when the message arrives or the previous service is due to end,
    and it ends when it is due, however late a timer is. `done` is called with the time at which it was due. An item can
    have a time at which it dies, waiting or in service, while the stage is on or off; then `died` is called instead.
    """

    def __init__(
        self,
        clock: Clock,
        demand: Demand | None,
        done: Callable[[Any, int], None],
        died: Callable[[Any, int], None] = lambda *_: None,
    ) -> None:
        self._clock = clock
        self._demand = demand
        self._done = done
        self._died = died
        self._queue: deque[_Waiting] = deque()
        self._dead = 0  # how many in the queue; they stay there until they are the first
        self._due_ns: int | None = None
        self._left_ns: int | None = None
        self._on_ns: int | None = None  # since when it is on; None while it is off

    def __len__(self) -> int:
        return len(self._queue) - self._dead

    def put(self, item: object, arrived_ns: int, expires_at_ns: int | None = None) -> None:
        if expires_at_ns is not None and expires_at_ns <= arrived_ns:
            self._died(item, arrived_ns)
            return
        waiting = _Waiting(item, arrived_ns, expires_at_ns)
        self._queue.append(waiting)
        if expires_at_ns is not None:
            self._clock.at(expires_at_ns, self._expire, waiting)
        if self._due_ns is None:
            self._serve(arrived_ns)

    def switch(self, is_on: bool) -> None:
        now_ns = self._clock.now_ns
        if is_on:
            self._on_ns = now_ns
            self._serve(now_ns)
            return
        self._on_ns = None
        if self._due_ns is not None:
            self._left_ns = max(0, self._due_ns - now_ns)
            self._due_ns = None

    def _serve(self, start_ns: int) -> None:
        """Serves the next item from `start_ns`, but not before it arrived or the stage was switched on."""
        while self._on_ns is not None and self._queue and self._due_ns is None:
            first = self._queue[0]
            if first.is_gone:
                self._queue.popleft()
                self._dead -= 1
                continue
            begin_ns = max(start_ns, first.arrived_ns, self._on_ns)
            if first.dies_ns is not None and first.dies_ns <= begin_ns and self._left_ns is None:
                self._died(self._pop(), first.dies_ns)
                continue
            if self._demand is None:
                self._done(self._pop(), begin_ns)
                continue
            left_ns = self._demand() if self._left_ns is None else self._left_ns
            self._left_ns = None
            self._due_ns = begin_ns + left_ns
            self._clock.at(self._due_ns, self._served, self._due_ns)

    def _served(self, due_ns: int) -> None:
        if due_ns == self._due_ns and self._on_ns is not None:
            self._due_ns = None
            self._done(self._pop(), due_ns)
            self._serve(due_ns)

    def _pop(self) -> object:
        first = self._queue.popleft()
        item, first.item, first.is_gone = first.item, None, True
        return item

    def _expire(self, waiting: _Waiting) -> None:
        if waiting.is_gone:
            return
        assert waiting.dies_ns is not None
        if waiting is self._queue[0]:  # it may be in service, which the next one has from now on
            item = self._pop()
            self._due_ns = self._left_ns = None
        else:
            item, waiting.item, waiting.is_gone = waiting.item, None, True
            self._dead += 1
        self._died(item, waiting.dies_ns)
        self._serve(waiting.dies_ns)


class MessageRecorder:
    """Writes the log records of one testbed client about one publisher's messages to one topic.

    The identity of a message (publisher and number) is in its payload. Names are looked up once.
    """

    __slots__ = ("_client_id", "_log", "_names", "_qos", "_topic", "publisher")

    def __init__(self, log: Log | None, client_id: str, topic: str, publisher: str, qos: int) -> None:
        self._log = log
        self._client_id = client_id
        self._topic = topic
        self.publisher = publisher
        self._qos = qos
        self._names: tuple[int, int, int] | None = None  # the numbers that the log gave to client, topic and publisher

    def add(self, time_ns: int, kind: int, number: int, size: int, reason: int = 0) -> None:
        log = self._log
        if log is None:
            return
        if self._names is None:
            self._names = log.number(self._client_id), log.number(self._topic), log.number(self.publisher)
        subject, topic, origin = self._names
        log.records += PACK(time_ns, number, origin, subject, topic, -1, size, 1, kind, self._qos, reason, 0)


def payload_of(publisher: str, number: int, size: int, expires_at_ns: int | None = None) -> bytes:
    """The payload of a message. `expires_at_ns` is a time of the brokers' clock."""
    return payload_words(publisher, number, expires_at_ns).encode().ljust(size, b".")


def identity(payload: bytes) -> tuple[bytes, int] | None:
    """The publisher and number of a message; None for messages of a class at QoS 0, and of strangers."""
    parts = payload.split(b" ", 2)
    is_identity = len(parts) == 3 and parts[0] != CLASS and parts[1].isdigit() and parts[0].isascii()
    return (parts[0], int(parts[1])) if is_identity else None

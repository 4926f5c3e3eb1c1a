"""The parts of a testbed client besides its session: its own queue, its log records, the identity of its messages."""

from collections import deque
from collections.abc import Callable
from typing import Any

from brokerbed.broker.config import Demand
from brokerbed.clients.session import Clock
from brokerbed.log.record import RECORD, Log

CLASS = b"/class"  # stands for the publisher of messages without identity; no peer has a slash in its name
PACK = RECORD.pack


class Stage:
    """A first-come-first-served queue with one server, which works only while it is on. Interrupted service resumes.

    Service follows a schedule, as in brokers: it begins when the message arrives or the previous service is due to end,
    and it ends when it is due, however late a timer is. `done` is called with the time at which it was due.
    """

    def __init__(self, clock: Clock, demand: Demand | None, done: Callable[[Any, int], None]) -> None:
        self._clock = clock
        self._demand = demand
        self._done = done
        self._queue: deque[tuple[int, object]] = deque()  # arrival time, item
        self._due_ns: int | None = None
        self._left_ns: int | None = None
        self._on_ns: int | None = None  # since when it is on; None while it is off

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, item: object, arrived_ns: int) -> None:
        self._queue.append((arrived_ns, item))
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
            arrived_ns, item = self._queue[0]
            begin_ns = max(start_ns, arrived_ns, self._on_ns)
            if self._demand is None:
                self._queue.popleft()
                self._done(item, begin_ns)
                continue
            left_ns = self._demand() if self._left_ns is None else self._left_ns
            self._left_ns = None
            self._due_ns = begin_ns + left_ns
            self._clock.at(self._due_ns, self._served, self._due_ns)

    def _served(self, due_ns: int) -> None:
        if due_ns == self._due_ns and self._on_ns is not None:
            self._due_ns = None
            self._done(self._queue.popleft()[1], due_ns)
            self._serve(due_ns)


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

    def add(self, time_ns: int, kind: int, number: int, size: int) -> None:
        log = self._log
        if log is None:
            return
        if self._names is None:
            self._names = log.number(self._client_id), log.number(self._topic), log.number(self.publisher)
        subject, topic, origin = self._names
        log.records += PACK(time_ns, number, origin, subject, topic, -1, size, 1, kind, self._qos, 0, 0)


def payload_of(publisher: str, number: int, size: int) -> bytes:
    return f"{publisher} {number} ".encode().ljust(size, b".")


def identity(payload: bytes) -> tuple[bytes, int] | None:
    """The publisher and number of a message; None for messages of a class at QoS 0."""
    parts = payload.split(b" ", 2)
    return (parts[0], int(parts[1])) if len(parts) == 3 and parts[0] != CLASS else None

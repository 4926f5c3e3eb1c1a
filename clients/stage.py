"""What clients of the testbed have beside their sessions: queues of their own, notes in the log, named messages."""

from collections import deque
from collections.abc import Callable
from typing import Any

from brokerbed.broker.config import Demand
from brokerbed.clients.session import Clock
from brokerbed.log.record import RECORD, Log

CLASS = b"/class"  # stands for the publisher where there is no identity; the slash keeps it apart from every name
PACK = RECORD.pack


class Stage:
    """A queue with one server: first come first served, only while it is on, interrupted service resumes.

    It is a schedule, as at brokers: a service begins when the message came or the one before it was due, and ends when
    it is due, however late a timer is. `done` is told that time.
    """

    def __init__(self, clock: Clock, demand: Demand | None, done: Callable[[Any, int], None]) -> None:
        self._clock = clock
        self._demand = demand
        self._done = done
        self._queue: deque[tuple[int, object]] = deque()  # since when, what
        self._due_ns: int | None = None
        self._left_ns: int | None = None
        self._on_ns: int | None = None  # since when it is on

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, item: object, came_ns: int) -> None:
        self._queue.append((came_ns, item))
        if self._due_ns is None:
            self._serve(came_ns)

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
        """The next one, from then on, but not from before it came or the stage was on."""
        while self._on_ns is not None and self._queue and self._due_ns is None:
            came_ns, item = self._queue[0]
            begin_ns = max(start_ns, came_ns, self._on_ns)
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


class Notes:
    """What one of the testbed's clients notes of one publisher's messages to one topic.

    A message's identity, publisher and number, is in its payload. Names are looked up once.
    """

    __slots__ = ("_client_id", "_log", "_names", "_qos", "_topic", "publisher")

    def __init__(self, log: Log | None, client_id: str, topic: str, publisher: str, qos: int) -> None:
        self._log = log
        self._client_id = client_id
        self._topic = topic
        self.publisher = publisher
        self._qos = qos
        self._names: tuple[int, int, int] | None = None

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
    """Publisher and number; what a class's publisher sends at QoS 0 has none."""
    parts = payload.split(b" ", 2)
    return (parts[0], int(parts[1])) if len(parts) == 3 and parts[0] != CLASS else None

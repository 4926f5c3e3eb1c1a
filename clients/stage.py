"""What clients of the testbed have beside their sessions: queues of their own, notes in the log, named messages."""

from collections import deque
from collections.abc import Callable

from broker.config import Demand
from broker.log_record import RECORD, Log
from clients.session import Clock

CLASS = b"class"  # stands for the publisher where there is no identity
PACK = RECORD.pack


class Stage:
    """A queue with one server: first come first served, only while it is on, interrupted service resumes."""

    def __init__(self, clock: Clock, demand: Demand | None, done: Callable[[object], None]) -> None:
        self._clock = clock
        self._demand = demand
        self._done = done
        self._queue: deque[tuple[int, object]] = deque()  # since when, what
        self._due_ns: int | None = None
        self._left_ns: int | None = None
        self._is_on = False

    def __len__(self) -> int:
        return len(self._queue)

    def put(self, item: object) -> None:
        if self._demand is None and self._is_on and not self._queue:
            self._done(item)
            return
        now_ns = self._clock.now_ns
        self._queue.append((now_ns, item))
        if self._due_ns is None:
            self._serve(now_ns)

    def switch(self, is_on: bool) -> None:
        self._is_on = is_on
        now_ns = self._clock.now_ns
        if is_on:
            self._serve(now_ns)
        elif self._due_ns is not None:
            self._left_ns = max(0, self._due_ns - now_ns)
            self._due_ns = None

    def _serve(self, start_ns: int) -> None:
        """The next one, from then on, which is when the one before it was due and not when a timer fired.

        But not from before it came.
        """
        while self._is_on and self._queue and self._due_ns is None:
            if self._demand is None:
                self._done(self._queue.popleft()[1])
                continue
            left_ns = self._demand() if self._left_ns is None else self._left_ns
            self._left_ns = None
            self._due_ns = max(start_ns, self._queue[0][0]) + left_ns
            self._clock.at(self._due_ns, self._served, self._due_ns)

    def _served(self, due_ns: int) -> None:
        if due_ns == self._due_ns and self._is_on:
            self._due_ns = None
            self._done(self._queue.popleft()[1])
            self._serve(due_ns)


class Notes:
    """What one of the testbed's clients notes of one publisher's messages to one topic.

    A message's identity, publisher and number, is in its payload. Names are looked up once.
    """

    __slots__ = ("_client_id", "_clock", "_log", "_names", "_qos", "_topic", "publisher")

    def __init__(self, clock: Clock, log: Log | None, client_id: str, topic: str, publisher: str, qos: int) -> None:
        self._clock = clock
        self._log = log
        self._client_id = client_id
        self._topic = topic
        self.publisher = publisher
        self._qos = qos
        self._names: tuple[int, int, int] | None = None

    def add(self, kind: int, number: int, size: int) -> None:
        log = self._log
        if log is None:
            return
        if self._names is None:
            self._names = log.number(self._client_id), log.number(self._topic), log.number(self.publisher)
        subject, topic, origin = self._names
        log.records += PACK(
            self._clock.now_ns, number, origin, subject, topic, -1, size, 1, kind, self._qos, 0, 0
        )  # fmt: skip


def payload_of(publisher: str, number: int, size: int) -> bytes:
    return f"{publisher} {number} ".encode().ljust(size, b".")


def identity(payload: bytes) -> tuple[bytes, int] | None:
    """Publisher and number; what a class's publisher sends at QoS 0 has none."""
    parts = payload.split(b" ", 2)
    return (parts[0], int(parts[1])) if len(parts) == 3 and parts[0] != CLASS else None

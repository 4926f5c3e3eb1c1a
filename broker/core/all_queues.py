"""Keeps the messages that wait for all clients together within a limit, at the cost of those who have most of them."""

from typing import TYPE_CHECKING

from brokerbed.broker.core import deliver
from brokerbed.broker.core.session import Session
from brokerbed.broker.values import LONG_AGO_NS
from brokerbed.log.record import Reason

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker

COUNT_PERIOD_NS = 100_000_000  # how often the queues are looked at, while they may be full


class AllQueues:
    """Counts what is added, and looks at the queues themselves only if that could be too much."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._bytes_at_most = 0  # in all queues: what was counted, and what was added since then
        self._counted_at_ns = LONG_AGO_NS
        self._fullest: Session | None = None  # when they were counted

    def are_full(self, size: int, now_ns: int) -> bool:
        """Whether there is no room for a message of this size."""
        bytes_max = self._broker.config.queues_bytes_max
        if self._bytes_at_most + size <= bytes_max:
            return False
        if now_ns - self._counted_at_ns >= COUNT_PERIOD_NS:
            self._counted_at_ns = now_ns
            sessions = self._broker.sessions.values()
            self._bytes_at_most = sum(session.queue_bytes for session in sessions)
            self._fullest = max(sessions, key=lambda session: session.queue_bytes, default=None)
        return self._bytes_at_most + size > bytes_max

    def make_room(self, size: int, now_ns: int) -> bool:
        """Whether there is room now, for which the oldest messages of the fullest queue are dropped if they may be."""
        broker = self._broker
        while self.are_full(size, now_ns):
            broker.counters.shed["queues_bytes"] += 1
            fullest = self._fullest if broker.config.queue_policy != "reject" else None
            oldest = fullest.pop_unsent() if fullest is not None else None
            if fullest is None or oldest is None:
                return False
            if not fullest.parked:  # then the dropped head of the queue was the delivery in service
                fullest.service_due_ns = fullest.service_left_ns = None
            self._bytes_at_most -= oldest.message.size
            deliver.drop(broker, fullest, oldest, Reason.QUEUE_FULL, now_ns)
        self._bytes_at_most += size
        return True

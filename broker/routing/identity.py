"""Identity-based routing: a filter travels up when its first subscription appears, and again when its last is gone.

Two subscriptions are the same when their filters are the same string (Mühl et al. 2009, Sect. 2).
"""

from collections.abc import Iterable

from brokerbed.broker.routing.strategy import Algorithm
from brokerbed.broker.values import Entry


class Identity:
    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def added(self, entry: Entry) -> Entry | None:
        count = self._counts[entry.filter] = self._counts.get(entry.filter, 0) + 1
        return Entry(entry.filter) if count == 1 else None

    def removed(self, entry: Entry) -> Entry | None:
        count = self._counts.pop(entry.filter, 0)
        if count > 1:
            self._counts[entry.filter] = count - 1
            return None
        return Entry(entry.filter)

    def wanted(self) -> Iterable[Entry]:
        return map(Entry, self._counts)


ALGORITHM = Algorithm(
    "identity", "A filter travels up once, however many subscriptions to it there are below.", Identity
)

"""Identity-based routing: a filter is announced with its first subscription and withdrawn with its last.

Two subscriptions are identical if their filters are the same string (Mühl et al. 2009, Sect. 2).
"""

from collections.abc import Iterable

from brokerbed.broker.routing.strategy import Algorithm, Announcement, Neighbour, UpwardStrategy
from brokerbed.broker.values import Entry


class Identity(UpwardStrategy):
    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[str, int] = {}  # filter -> number of local subscriptions and entries from children

    def heard(self, source: Neighbour | None, entry: Entry, is_added: bool) -> Iterable[Announcement]:
        del source
        topic_filter, counts = entry.filter, self._counts
        if is_added:
            count = counts[topic_filter] = counts.get(topic_filter, 0) + 1
            return self._announce(Entry(topic_filter), True) if count == 1 else ()
        count = counts.pop(topic_filter, 0)
        if count > 1:
            counts[topic_filter] = count - 1
        return self._announce(Entry(topic_filter), False) if count == 1 else ()

    def _wanted_by_parent(self) -> Iterable[Entry]:
        return map(Entry, self._counts)


ALGORITHM = Algorithm(
    "identity", "A filter travels up once, however many subscriptions to it there are below.", Identity
)

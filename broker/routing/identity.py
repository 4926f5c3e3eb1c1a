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
        count_before = self._counts.pop(entry.filter, 0) if not is_added else self._counts.get(entry.filter, 0)
        count = count_before + 1 if is_added else max(count_before - 1, 0)
        if count:
            self._counts[entry.filter] = count
        return self._announce(Entry(entry.filter), is_added) if count == is_added else ()

    def _wanted_by_parent(self) -> Iterable[Entry]:
        return map(Entry, self._counts)


ALGORITHM = Algorithm(
    "identity", "A filter travels up once, however many subscriptions to it there are below.", Identity
)

"""Simple routing: every subscription is announced up to the root and stored at each broker on the way."""

from collections.abc import Iterable

from brokerbed.broker.routing.strategy import Algorithm, Announcement, Neighbour, UpwardStrategy
from brokerbed.broker.values import Entry


class Simple(UpwardStrategy):
    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[Entry, int] = {}  # more than 1 while a session moves: both ends of a link have its entries

    def heard(self, source: Neighbour | None, entry: Entry, is_added: bool) -> Iterable[Announcement]:
        del source
        if is_added:
            count = self._counts[entry] = self._counts.get(entry, 0) + 1
        else:
            count = self._counts.pop(entry, 0)
            if count > 1:
                self._counts[entry] = count - 1
        return self._announce(entry, is_added) if count == 1 else ()

    def _wanted_by_parent(self) -> Iterable[Entry]:
        return self._counts


ALGORITHM = Algorithm(
    "simple", "Every subscription travels to the root and is stored on the way.", Simple, sends_each_subscription=True
)

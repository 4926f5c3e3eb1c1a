"""Simple routing: every subscription is announced up to the root and stored at each broker on the way."""

from collections.abc import Iterable

from brokerbed.broker.routing.strategy import Algorithm, Announcement, Neighbour, UpwardStrategy
from brokerbed.broker.values import Entry


class Simple(UpwardStrategy):
    def __init__(self) -> None:
        super().__init__()
        self._entries: dict[Entry, None] = {}

    def heard(self, source: Neighbour | None, entry: Entry, is_added: bool) -> Iterable[Announcement]:
        del source
        if is_added:
            self._entries[entry] = None
        else:
            self._entries.pop(entry, None)
        return self._announce(entry, is_added)

    def _wanted_by_parent(self) -> Iterable[Entry]:
        return self._entries


ALGORITHM = Algorithm(
    "simple", "Every subscription travels to the root and is stored on the way.", Simple, sends_each_subscription=True
)

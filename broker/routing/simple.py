"""Simple routing: every single subscription travels to the root and is stored at each broker on the way."""

from collections.abc import Iterable

from brokerbed.broker.routing.strategy import Algorithm
from brokerbed.broker.values import Entry


class Simple:
    def __init__(self) -> None:
        self._entries: dict[Entry, None] = {}

    def added(self, entry: Entry) -> Entry | None:
        self._entries[entry] = None
        return entry

    def removed(self, entry: Entry) -> Entry | None:
        self._entries.pop(entry, None)
        return entry

    def wanted(self) -> Iterable[Entry]:
        return self._entries


ALGORITHM = Algorithm(
    "simple", "Every subscription travels to the root and is stored on the way.", Simple, sends_each_subscription=True
)

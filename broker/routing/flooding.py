"""Notification flooding: every notification crosses every link once; nothing is stored and nobody is told anything."""

from collections.abc import Iterable

from brokerbed.broker.routing.strategy import Algorithm
from brokerbed.broker.values import Entry


class Flooding:
    def added(self, entry: Entry) -> Entry | None:
        del entry
        return None

    def removed(self, entry: Entry) -> Entry | None:
        del entry
        return None

    def wanted(self) -> Iterable[Entry]:
        return ()


ALGORITHM = Algorithm(
    "flooding",
    "Every notification crosses every link; brokers store nothing about one another.",
    Flooding,
    stores_entries=False,
)

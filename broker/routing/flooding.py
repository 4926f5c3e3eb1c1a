"""Notification flooding: every notification crosses every link once; brokers announce and store nothing."""

from collections.abc import Iterable

from brokerbed.broker.routing.strategy import Algorithm, Announcement, Neighbour
from brokerbed.broker.values import Entry


class Flooding:
    def joined(self, link: Neighbour) -> None:
        """Nothing depends on which links exist."""

    def left(self, link: Neighbour) -> Iterable[Announcement]:
        del link
        return ()

    def heard(self, source: Neighbour | None, entry: Entry, is_added: bool) -> Iterable[Announcement]:
        del source, entry, is_added
        return ()

    def wanted(self, link: Neighbour) -> Iterable[Entry]:
        del link
        return ()


ALGORITHM = Algorithm(
    "flooding",
    "Every notification crosses every link; brokers store nothing about one another.",
    Flooding,
    stores_entries=False,
)

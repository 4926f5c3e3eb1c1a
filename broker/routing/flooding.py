"""Notification flooding: every notification crosses every link once; nothing is stored and nobody is told anything."""

from collections.abc import Iterable

from brokerbed.broker.values import Entry


class Flooding:
    floods = True

    def added(self, entry: Entry) -> Entry | None:
        del entry
        return None

    def removed(self, entry: Entry) -> Entry | None:
        del entry
        return None

    def wanted(self) -> Iterable[Entry]:
        return ()

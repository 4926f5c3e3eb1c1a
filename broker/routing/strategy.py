"""What a routing algorithm decides: which subscriptions a broker passes on to its parent.

An algorithm is one file with one class and a line in registry.py. It is told of every subscription that appears or
disappears at its broker, from a client or from a child link, and says what the parent must be told. Where notifications
go is not its business: they climb to the root, and go down a link that has a matching entry (or every link, if the
algorithm floods).
"""

from collections.abc import Iterable
from typing import Protocol

from brokerbed.broker.values import Entry


class Strategy(Protocol):
    floods: bool  # notifications go down every link, entries or not

    def added(self, entry: Entry) -> Entry | None:
        """A subscription appeared here or below; what to tell the parent, if anything."""

    def removed(self, entry: Entry) -> Entry | None:
        """... disappeared."""

    def wanted(self) -> Iterable[Entry]:
        """All that the parent should know, in a fixed order."""

"""What a routing algorithm decides: which subscriptions a broker passes on to its parent.

An algorithm is one file with one class and one record of it, an Algorithm. It hears of every subscription that appears
or disappears at its broker, from a client or from a child link, and answers with what the parent must be told.
Notifications climb to the root. They go down every link whose child has a matching entry; if the algorithm stores no
entries, they go down every link.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

from brokerbed.broker.values import Entry


class Strategy(Protocol):
    """The routing state of one broker. It does no I/O, reads no clock, and iterates over no sets."""

    def added(self, entry: Entry) -> Entry | None:
        """A subscription appeared here or below; returns what to tell the parent, if anything."""

    def removed(self, entry: Entry) -> Entry | None:
        """A subscription disappeared here or below; returns what to tell the parent, if anything."""

    def wanted(self) -> Iterable[Entry]:
        """Everything that the parent should know, in a fixed order."""


@dataclass(frozen=True, slots=True)
class Algorithm:
    """Everything that other parts of brokerbed may ask about an algorithm; none of them tests for its name."""

    name: str  # in scenario files and on the command line
    summary: str  # one line of documentation
    make: Callable[[], Strategy]  # once per broker
    stores_entries: bool = True  # a parent stores what its children want; otherwise notifications go down every link
    sends_each_subscription: bool = False  # equal filters of several subscribers are told, and stored, one by one

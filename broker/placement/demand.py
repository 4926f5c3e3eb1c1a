"""How much traffic each traffic class sends through this broker, as the broker sees it.

A traffic class is here a set of brokers: this one, if its own clients publish or receive, and the neighbours from which
messages come or to which they go. Counting is one addition to a dictionary; what the counts mean is found out when
somebody asks.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

COUNTS_MAX = 100_000  # counts that are kept before they are summed up by class; each takes some 200 bytes
CLASSES_MAX = 1000  # traffic classes; the rarest ones beyond that become one class of all brokers

Key = TypeVar("Key", bound=Hashable)
Members = frozenset[str]


class Demand(Generic[Key]):
    def __init__(self, members_of: Callable[[Key], Members]) -> None:
        """`members_of`: the traffic class of what is counted under a key."""
        self._members_of = members_of
        self._counts: dict[Key, int] = {}
        self._classes: dict[Members, int] = {}
        self._others = 0  # messages of classes that were too rare
        self.since_ns = 0

    def count(self, key: Key, messages: int) -> None:
        counts = self._counts
        counts[key] = counts.get(key, 0) + messages
        if len(counts) > COUNTS_MAX:
            self._sum_up()

    def restart(self, now_ns: int) -> None:
        """Forget what was counted: the neighbours are others from now on, or a new period begins."""
        self._counts.clear()
        self._classes.clear()
        self._others = 0
        self.since_ns = now_ns

    def by_class(self, everybody: Members) -> Mapping[Members, int]:
        """Messages by traffic class, since the last restart."""
        self._sum_up()
        classes = {members: count for members, count in self._classes.items() if len(members) > 1}
        if self._others:
            classes[everybody] = classes.get(everybody, 0) + self._others
        return classes

    def _sum_up(self) -> None:
        classes = self._classes
        for key, count in self._counts.items():
            members = self._members_of(key)
            classes[members] = classes.get(members, 0) + count
        self._counts.clear()
        if len(classes) > CLASSES_MAX:
            in_order = sorted(classes.items(), key=lambda item: (-item[1], sorted(item[0])))
            self._classes = dict(in_order[:CLASSES_MAX])
            self._others += sum(count for _, count in in_order[CLASSES_MAX:])

"""The routing tables that brokers should have, from the tree and what their clients subscribe to and advertise. Pure.

This is the definition of each kind of routing, stated for the network as a whole; brokers come to the same tables step
by step. It asks the record of the algorithm and uses none of its code.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property

from brokerbed.analysis.invariants import TABLES, Judged
from brokerbed.scenario import Advertising, Algorithm
from brokerbed.scenario.topology import Tree
from brokerbed.topics import ADVERTISE, covers_strictly, is_wildcard, merged_filter, overlap

Filters = Mapping[str, int]  # how many subscriptions (or advertisements) each filter has
Held = dict[tuple[str, str], dict[str, int]]  # by broker and link, as `broker>neighbour`: filters and how many entries


def compared(run: int, there: Held, right: Held) -> Iterator[Judged]:
    """Routing entries that are missing or superfluous at the end of a run."""
    for place in dict.fromkeys((*there, *right)):
        (broker, link), found, wanted = place, there.get(place, {}), right.get(place, {})
        for pattern in dict.fromkeys((*found, *wanted)):
            number, due = found.get(pattern, 0), wanted.get(pattern, 0)
            kind = "superfluous" if number > due else "missing"
            text = f"{broker}: entry for {pattern} to {link} is {kind}"
            yield Judged(run, TABLES, max(number, due), abs(number - due), 0, text)


class RightTables:
    """What each broker should know of each neighbour. Filters of advertisements begin with `$advertise/`."""

    def __init__(
        self,
        tree: Tree,
        algorithm: Algorithm,
        parameters: Mapping[str, int],
        wanted: Mapping[str, Filters],
        advertised: Mapping[str, Filters],
    ) -> None:
        """`wanted` and `advertised` have what the clients of each broker subscribe to and advertise."""
        self._tree = tree
        self._algorithm = algorithm
        self._parameters = parameters
        self._wanted = _Sides(tree, wanted)
        self._advertised = _Sides(tree, advertised)
        self._covers_of: dict[str, list[str]] = {}
        self._overlaps_of: dict[str, list[str]] = {}

    def held(self) -> Held:
        held: Held = {}
        algorithm = self._algorithm
        if not algorithm.stores_entries:
            return held
        for child in range(1, len(self._tree)):
            names = self._tree.names[child], self._tree.names[int(self._tree.parents[child])]
            down, up = (names[1], f"{names[1]}>{names[0]}"), (names[0], f"{names[0]}>{names[1]}")
            held[down] = self._announced_up(child)
            if algorithm.speaks_downward:
                held[up] = self._called_for(self._wanted.above(child), self._advertised.below[child])
            if algorithm.advertises:
                self._add_advertisements(held[down], self._advertised.below[child])
            if algorithm.advertising is Advertising.EVERYWHERE:
                self._add_advertisements(held[up], self._advertised.above(child))
        return held

    def _announced_up(self, child: int) -> dict[str, int]:
        below, algorithm = self._wanted.below[child], self._algorithm
        if algorithm.sends_each_subscription:
            return dict(below)
        if algorithm.covers:
            return dict.fromkeys(self._uncovered(below), 1)
        if algorithm.advertising is Advertising.EVERYWHERE:
            return self._called_for(below, self._advertised.above(child))
        return dict.fromkeys(below, 1)

    def _called_for(self, wanted: Filters, advertised: Filters) -> dict[str, int]:
        """Of these filters, those that the other side is told: all, or those that overlap one of its advertisements."""
        if not self._algorithm.advertises:
            return dict.fromkeys(wanted, 1)
        return {pattern: 1 for pattern in wanted if any(it in advertised for it in self._overlapping(pattern))}

    def _overlapping(self, pattern: str) -> list[str]:
        """All advertisements of the network that a filter overlaps."""
        found = self._overlaps_of.get(pattern)
        if found is None:
            candidates: Iterable[str] = self._advertised.everything
            if not is_wildcard(pattern):  # which overlaps itself, and filters with wildcards
                candidates = [it for it in (pattern, *self._advertised_patterns) if it in self._advertised.everything]
            found = self._overlaps_of[pattern] = [it for it in candidates if overlap(pattern, it)]
        return found

    @cached_property
    def _advertised_patterns(self) -> list[str]:
        return [pattern for pattern in self._advertised.everything if is_wildcard(pattern)]

    def _uncovered(self, wanted: Filters) -> list[str]:
        """The filters that no other one strictly covers, after those that differ in the last level were merged."""
        there = dict.fromkeys(wanted)
        if self._algorithm.merges:
            counts = Counter(merged for pattern in wanted if (merged := merged_filter(pattern)) is not None)
            there |= dict.fromkeys(it for it, count in counts.items() if count >= self._parameters["threshold"])
        return [pattern for pattern in there if not any(cover in there for cover in self._covers(pattern))]

    def _covers(self, pattern: str) -> list[str]:
        """The strict covers of a filter among all filters with wildcards that there may be."""
        found = self._covers_of.get(pattern)
        if found is None:
            found = self._covers_of[pattern] = [it for it in self._wildcards if covers_strictly(it, pattern)]
        return found

    @cached_property
    def _wildcards(self) -> list[str]:
        everything = self._wanted.everything
        wildcards = dict.fromkeys(pattern for pattern in everything if is_wildcard(pattern))
        if self._algorithm.merges:
            wildcards |= dict.fromkeys(it for pattern in everything if (it := merged_filter(pattern)) is not None)
        return list(wildcards)

    @staticmethod
    def _add_advertisements(held: dict[str, int], advertised: Iterable[str]) -> None:
        held.update(dict.fromkeys((ADVERTISE + pattern for pattern in advertised), 1))


class _Sides:
    """The filters of clients below each link, and above it."""

    def __init__(self, tree: Tree, local: Mapping[str, Filters]) -> None:
        self.below = [Counter(local.get(name, {})) for name in tree.names]
        for child in range(len(tree) - 1, 0, -1):
            self.below[int(tree.parents[child])].update(self.below[child])
        self.everything = self.below[0]

    def above(self, child: int) -> dict[str, int]:
        below = self.below[child]
        rest = {pattern: count - below.get(pattern, 0) for pattern, count in self.everything.items()}
        return {pattern: count for pattern, count in rest.items() if count}

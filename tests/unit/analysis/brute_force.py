"""Counts what routing algorithms store and send, by their definitions, over all states of a small network.

Nothing here is shared with the models or with the brokers. A state says which filters are wanted at which brokers and
which sources are ON. The expected values are sums over all states and over all single changes of a state, with their
probabilities and rates.
"""

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from itertools import product

Link = tuple[int, int]  # from, to
Told = dict[Link, frozenset[str]]


@dataclass(frozen=True)
class Churn:
    broker: int
    filter: str
    arrival_rate: float
    mean_active: float
    ending_rate: float | None = None  # how often it is switched off, by the probability that it is off; None: as on


@dataclass(frozen=True)
class Source:
    broker: int
    topic: str
    rate: float  # while it is ON
    on_off_s: tuple[float, float] | None = None  # None: always ON


@dataclass
class Network:
    parents: list[int]  # of each broker; -1 for the root, which is broker 0
    churns: list[Churn] = field(default_factory=list)
    sources: list[Source] = field(default_factory=list)
    permanent: list[tuple[int, str]] = field(default_factory=list)

    @property
    def links(self) -> list[int]:
        """By the child's number."""
        return list(range(1, len(self.parents)))

    def below(self, child: int) -> frozenset[int]:
        found, size = {child}, 0
        while size < len(found):
            size = len(found)
            found |= {broker for broker, parent in enumerate(self.parents) if parent in found}
        return frozenset(found)


@dataclass
class Counts:
    """Per link, by its child's number."""

    entries_up: dict[int, float]  # stored at the parent, announced by the child
    entries_down: dict[int, float]
    advertisements_up: dict[int, float]
    advertisements_down: dict[int, float]
    up: dict[int, float]
    down: dict[int, float]
    additional: dict[int, float]
    unwanted: dict[int, float]
    control_up: dict[int, float]
    control_down: dict[int, float]


@cache
def topics_of(topic_filter: str) -> frozenset[str]:
    """The topics that the filter matches, of a universe with levels that no filter names."""
    levels = [*"abct", "g0", "g1", "other"]
    universe = [*levels, *(f"{x}/{y}" for x in levels for y in levels)]
    universe += [f"{x}/{y}/{z}" for x in ("g0", "g1", "other") for y in levels[:3] for z in ("a", "other")]
    pattern = re.escape(topic_filter).replace(r"\+", "[^/]+").replace("/\\#", "(/.*)?").replace(r"\#", ".*")
    found = frozenset(topic for topic in universe if re.fullmatch(pattern, topic))
    assert found, f"the universe has no topic for {topic_filter}"
    return found


def strictly_covers(wide: str, narrow: str) -> bool:
    return wide != narrow and topics_of(narrow) <= topics_of(wide)


@dataclass(frozen=True)
class State:
    """What is wanted and what is advertised, at each broker."""

    wanted: tuple[frozenset[str], ...]
    advertised: tuple[frozenset[str], ...]


class BruteForce:
    def __init__(self, network: Network, algorithm: str, threshold: int = 3) -> None:
        self.network, self.algorithm, self.threshold = network, algorithm, threshold
        brokers = range(len(network.parents))
        self.sides: dict[Link, frozenset[int]] = {}  # by link: the brokers on the sender's side
        for child in network.links:
            below = network.below(child)
            self.sides[child, network.parents[child]] = below
            self.sides[network.parents[child], child] = frozenset(brokers) - below
        self.switched = [source for source in network.sources if source.on_off_s is not None]
        self.has_advertisements = "advertisement" in algorithm
        self._entries: dict[State, Told] = {}
        self._states: dict[tuple[bool, ...], State] = {}
        self.has_root = not algorithm.startswith("peer")

    # -- what is stored in one state ----------------------------------------------------------------------------

    def entries(self, state: State) -> Told:
        if state not in self._entries:  # a state is met once by itself and once for each change that leads to it
            self._entries[state] = self._entries_of(state)
        return self._entries[state]

    def _entries_of(self, state: State) -> Told:
        told = {}
        for (here, there), side in self.sides.items():
            is_up = self.network.parents[here] == there
            wanted = frozenset[str]().union(*(state.wanted[broker] for broker in side))
            others = frozenset(range(len(self.network.parents))) - side
            called = frozenset[str]().union(*(state.advertised[broker] for broker in others))
            if self.algorithm == "flooding" or (self.has_root and not is_up and not self.has_advertisements):
                wanted = frozenset()
            elif self.has_advertisements and not (self.has_root and is_up):
                wanted = frozenset(pattern for pattern in wanted if topics_of(pattern) & called)
            elif self.algorithm == "covering":
                wanted = _uncovered(wanted)
            elif self.algorithm == "merging":
                prefixes = [
                    pattern.rpartition("/")[0] for pattern in wanted if "/" in pattern and pattern[-1] not in "+#"
                ]
                full = {prefix for prefix in prefixes if prefixes.count(prefix) >= self.threshold}
                wanted = _uncovered(wanted | {f"{prefix}/+" for prefix in full})
            told[here, there] = wanted
        return told

    def advertisements(self, state: State) -> Told:
        told = {}
        for (here, there), side in self.sides.items():
            is_up = self.network.parents[here] == there
            is_told = self.has_advertisements and (is_up or not self.has_root)
            topics = frozenset[str]().union(*(state.advertised[broker] for broker in side)) if is_told else frozenset()
            told[here, there] = topics
        return told

    # -- what is sent -------------------------------------------------------------------------------------------

    def messages(self, before: State, after: State) -> Iterator[tuple[Link, int]]:
        """Messages that one change of the state makes necessary, per direction of a link."""
        old, new = self.entries(before), self.entries(after)
        old_topics, new_topics = self.advertisements(before), self.advertisements(after)
        for link in self.sides:
            sent = len(new_topics[link] ^ old_topics[link]) + len(new[link] - old[link])
            for gone in old[link] - new[link]:
                is_covered = any(strictly_covers(come, gone) for come in new[link] - old[link])
                is_uncalled = before.advertised != after.advertised
                sent += not (is_covered or is_uncalled)
            yield link, sent

    def crossings(self, told: Told, start: int, topic: str) -> Iterator[Link]:
        """The links that a notification crosses, hop by hop."""
        waiting: list[tuple[int, int | None]] = [(start, None)]
        while waiting:
            here, came_from = waiting.pop()
            for link in self.sides:
                if link[0] != here or link[1] == came_from:
                    continue
                climbs = self.has_root and not self.has_advertisements and self.network.parents[here] == link[1]
                is_wanted = any(topic in topics_of(pattern) for pattern in told[link[1], here])
                if self.algorithm == "flooding" or climbs or is_wanted:
                    yield link
                    waiting.append((link[1], here))

    # -- sums over states ---------------------------------------------------------------------------------------

    def counts(self) -> Counts:
        network = self.network
        sums = Counts(*(dict.fromkeys(network.links, 0.0) for _ in Counts.__dataclass_fields__))
        sizes = len(network.churns), len(self.switched)
        for on in product((False, True), repeat=sum(sizes)):
            wanting, sending = on[: sizes[0]], on[sizes[0] :]
            probability = math.prod(self.chance(position, is_on) for position, is_on in enumerate(on))
            state = self.state(*wanting, *sending)
            self.add_sizes(sums, state, probability)
            self.add_notifications(sums, state, sending, probability)
            for position, is_on in enumerate(on):
                if not is_on:
                    other = (*on[:position], True, *on[position + 1 :])
                    changed = self.state(*other)
                    on_rate, off_rate = self.rates(position)
                    self.add_control(sums, self.messages(state, changed), probability * on_rate)
                    self.add_control(sums, self.messages(changed, state), probability * off_rate)
        return sums

    def state(self, *on: bool) -> State:
        """By whether each of the subscriptions and each of the sources that come and go is on."""
        if on not in self._states:
            self._states[on] = self._state_of(on[: len(self.network.churns)], on[len(self.network.churns) :])
        return self._states[on]

    def _state_of(self, wanting: tuple[bool, ...], sending: tuple[bool, ...]) -> State:
        brokers = range(len(self.network.parents))
        wanted: list[set[str]] = [set() for _ in brokers]
        advertised: list[set[str]] = [set() for _ in brokers]
        for broker, pattern in self.network.permanent:
            wanted[broker].add(pattern)
        for churn, is_on in zip(self.network.churns, wanting, strict=True):
            if is_on:
                wanted[churn.broker].add(churn.filter)
        for source in self.network.sources:
            if source.on_off_s is None and source.rate:
                advertised[source.broker].add(source.topic)
        for source, is_on in zip(self.switched, sending, strict=True):
            if is_on:
                advertised[source.broker].add(source.topic)
        return State(tuple(map(frozenset, wanted)), tuple(map(frozenset, advertised)))

    def chance(self, position: int, is_on: bool) -> float:
        churns = self.network.churns
        if position < len(churns):
            off = math.exp(-churns[position].mean_active)
        else:
            on_s, off_s = self.switched[position - len(churns)].on_off_s or (1.0, 0.0)
            off = off_s / (on_s + off_s)
        return 1 - off if is_on else off

    def rates(self, position: int) -> tuple[float, float]:
        """How often it is switched on and off, by the probability that it is off. In equilibrium they are equal."""
        churns = self.network.churns
        if position < len(churns):
            churn = churns[position]
            return churn.arrival_rate, churn.arrival_rate if churn.ending_rate is None else churn.ending_rate
        _, off_s = self.switched[position - len(churns)].on_off_s or (1.0, 0.0)
        return 1 / off_s, 1 / off_s

    def add_sizes(self, sums: Counts, state: State, probability: float) -> None:
        entries, advertisements = self.entries(state), self.advertisements(state)
        for child in self.network.links:
            up, down = (child, self.network.parents[child]), (self.network.parents[child], child)
            sums.entries_up[child] += probability * len(entries[up])
            sums.entries_down[child] += probability * len(entries[down])
            sums.advertisements_up[child] += probability * len(advertisements[up])
            sums.advertisements_down[child] += probability * len(advertisements[down])

    def add_notifications(self, sums: Counts, state: State, sending: tuple[bool, ...], probability: float) -> None:
        told = self.entries(state)
        on = dict(zip(map(id, self.switched), sending, strict=True))
        for source in self.network.sources:
            if not on.get(id(source), True):
                continue
            for here, there in self.crossings(told, source.broker, source.topic):
                is_up = self.network.parents[here] == there
                child = here if is_up else there
                rate = probability * source.rate
                (sums.up if is_up else sums.down)[child] += rate
                below = (pattern for broker in self.network.below(child) for pattern in state.wanted[broker])
                if self.algorithm == "flooding" or any(source.topic in topics_of(pattern) for pattern in below):
                    continue
                if is_up and self.has_root and not self.has_advertisements:
                    sums.additional[child] += rate
                if not is_up:
                    sums.unwanted[child] += rate

    def add_control(self, sums: Counts, messages: Iterable[tuple[Link, int]], rate: float) -> None:
        for (here, there), sent in messages:
            is_up = self.network.parents[here] == there
            (sums.control_up if is_up else sums.control_down)[here if is_up else there] += rate * sent


def _uncovered(filters: frozenset[str]) -> frozenset[str]:
    return frozenset(it for it in filters if not any(strictly_covers(other, it) for other in filters))

"""A scenario as it is run and predicted: one point of an experiment, everything resolved, nothing mutable.

The parts that are complete as written (laws, peers, faults, links, limits) are the objects of format.py; the tree is
built, and rates that were spread evenly or given one by one are known per broker and class.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from brokerbed.broker.routing.registry import ALGORITHMS
from brokerbed.broker.routing.strategy import Algorithm
from brokerbed.scenario.classes import CLASSES_MAX, Sources
from brokerbed.scenario.document import Plain
from brokerbed.scenario.format import (
    Clock,
    Fault,
    Limits,
    Link,
    Publisher,
    Service,
    Subscriber,
    Tolerance,
)
from brokerbed.scenario.law import Law
from brokerbed.scenario.topology import Tree
from brokerbed.scenario.workload import WORKLOAD
from brokerbed.topics import is_wildcard, matches

P = TypeVar("P", Publisher, Subscriber)
Cell = tuple[int, int]  # position of the broker in the tree, number of the class
GROUP_FILTER_SLASHES = 2  # in group/0007/+ and group/0007/#


@dataclass(frozen=True, slots=True)
class Churn:
    """Subscriptions to one class at one broker: Poisson arrivals that each stay for a lifetime."""

    arrival_rate_per_s: float
    lifetime: Law

    @property
    def mean_active(self) -> float:
        return self.arrival_rate_per_s * self.lifetime.mean_s


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """Subscriptions that come and go; those given for one broker and class replace the even spread there."""

    spread: Churn | None  # at each of the `places`, to each class
    places: frozenset[int]  # positions of brokers in the tree
    overrides: Mapping[Cell, Churn]
    wide: Churn | None  # at each of the `places`, to all classes of each group
    qos: int

    def of(self, broker: int, class_number: int) -> Churn | None:
        return self.overrides.get((broker, class_number), self.spread if broker in self.places else None)

    def mean_active(self, classes: range) -> float:
        """How many subscriptions to just these classes there are on average, at all brokers."""
        own = [(broker, churn) for (broker, number), churn in self.overrides.items() if number in classes]
        spread = len(self.places) * len(classes) - sum(broker in self.places for broker, _ in own)
        active = 0.0 if self.spread is None else self.spread.mean_active
        return active * spread + sum(churn.mean_active for _, churn in own)


@dataclass(frozen=True, slots=True)
class Publications:
    """Publications to classes. With `sources`, rates hold while the source of that broker and class is on."""

    spread_per_s: float  # at each of the `places`, to each class
    places: frozenset[int]
    overrides_per_s: Mapping[Cell, float]
    sources: Sources | None  # None: all are always on
    qos: int

    def rate_per_s(self, broker: int, class_number: int) -> float:
        spread_per_s = self.spread_per_s if broker in self.places else 0.0
        return self.overrides_per_s.get((broker, class_number), spread_per_s)

    @property
    def share_on(self) -> float:
        return 1.0 if self.sources is None else self.sources.share_on

    def mean_rate_per_s(self, classes: range) -> float:
        """What is published to these classes on average, over all brokers."""
        own = [(broker, rate) for (broker, number), rate in self.overrides_per_s.items() if number in classes]
        spread = len(self.places) * len(classes) - sum(broker in self.places for broker, _ in own)
        return self.share_on * (self.spread_per_s * spread + sum(rate for _, rate in own))


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    seed: int
    at: Mapping[str, Plain]  # what the sweep set at this point; empty without a sweep
    clock: Clock
    tree: Tree
    routing: str
    routing_parameters: Mapping[str, int]  # all that the algorithm has
    refresh_ns: int | None
    classes: int
    groups: int | None  # None: the classes are not in groups
    subscriptions: Subscriptions
    publications: Publications
    service: Service
    publishers: tuple[Publisher, ...]  # of one copy
    subscribers: tuple[Subscriber, ...]
    copies: int
    faults: tuple[Fault, ...]
    payload_bytes: int
    peers: str  # stock or light: which client publishers and subscribers are, where they are real
    limits: Limits
    durability: str
    links: tuple[Link, ...]
    tolerance: Tolerance
    parts: Mapping[str, Any]  # of the workload, beside those above: the sections that are given, by key

    @property
    def algorithm(self) -> Algorithm:
        """The record of the routing algorithm, which says what it stores and sends."""
        return ALGORITHMS[self.routing]

    def pairs(self) -> list[tuple[Publisher, Subscriber]]:
        """Publishers and those who subscribe to them, in the order of the file."""
        return [
            (publisher, subscriber)
            for publisher in self.publishers
            for subscriber in self.subscribers
            if matches(subscriber.topic, publisher.topic)
        ]

    @property
    def topics_of_parts(self) -> list[str]:
        """What the other parts of the workload publish to."""
        return [topic for name, section in self.parts.items() for topic in WORKLOAD[name].topics(section)]

    @property
    def filters_of_parts(self) -> list[str]:
        """What the other parts of the workload subscribe to."""
        return [topic for name, section in self.parts.items() for topic in WORKLOAD[name].filters(section)]

    def copy_of(self, peer: P, copy: int) -> P:
        """Copy number `copy` of a peer: an id and a topic of its own, which no other copy's filters match."""
        assert 0 <= copy < self.copies
        if self.copies == 1:
            return peer
        return peer.model_copy(update={"id": f"{peer.id}.{copy}", "topic": f"copy{copy}/{peer.topic}"})

    def class_topic(self, number: int) -> str:
        return f"class/{number:04d}" if self.groups is None else f"group/{number % self.groups:04d}/{number:04d}"

    def group_filter(self, group: int) -> str:
        """The filter that matches all classes of a group."""
        assert self.groups is not None
        return f"group/{group:04d}/+"

    def group_above(self, topic_filter: str) -> int | None:
        """The group whose filter strictly covers this one, if there is one."""
        prefix, _, last = topic_filter.rpartition("/")
        group = None if self.groups is None or last in ("+", "#") else _number(prefix.rpartition("/")[2])
        is_above = group is not None and group < (self.groups or 0) and prefix == f"group/{group:04d}"
        return group if is_above else None

    def classes_matching(self, topic_filter: str) -> range:
        """The classes whose topics a filter matches: all, those of one group, one or none, by the levels they have."""
        if is_wildcard(topic_filter) and matches(topic_filter, self._any_topic):
            return range(self.classes)
        number = _number(topic_filter.rpartition("/")[2])
        if number is not None:
            is_one = number < self.classes and matches(topic_filter, self.class_topic(number))
            return range(number, number + 1) if is_one else range(0)
        if self.groups is not None and is_wildcard(topic_filter) and topic_filter.count("/") == GROUP_FILTER_SLASHES:
            group = _number(topic_filter.split("/")[1])
            if group is not None and group < self.groups and matches(topic_filter, self.class_topic(group)):
                return range(group, self.classes, self.groups)
        return range(0)

    @property
    def _any_topic(self) -> str:
        """Only filters that match all classes match this."""
        return "class/any of them" if self.groups is None else "group/any of them/any of them"


@dataclass(frozen=True, slots=True)
class Experiment:
    """What one file describes: a single scenario, or the points of a sweep."""

    file: str
    name: str
    is_sweep: bool
    points: tuple[Scenario, ...]


def _number(level: str) -> int | None:
    """The number that a level of a topic is, if it can be that of a class or group."""
    is_number = level.isascii() and level.isdigit() and len(level) <= len(str(CLASSES_MAX))
    return int(level) if is_number else None

"""A scenario as it is run and predicted: one point of an experiment, everything resolved, nothing mutable.

The parts that are complete as written (laws, peers, faults, links, limits) are the objects of format.py; the tree is
built, and rates that were spread evenly or given one by one are known per broker and class.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from brokerbed.broker.routing.registry import ALGORITHMS
from brokerbed.broker.routing.strategy import Algorithm
from brokerbed.scenario.document import Plain
from brokerbed.scenario.format import (
    CLASSES_MAX,
    Clock,
    Fault,
    Law,
    Limits,
    Link,
    Publisher,
    Service,
    Subscriber,
    Tolerance,
)
from brokerbed.scenario.topology import Tree
from brokerbed.scenario.workload import WORKLOAD
from brokerbed.topics import is_wildcard, matches

P = TypeVar("P", Publisher, Subscriber)
Cell = tuple[int, int]  # position of the broker in the tree, number of the class


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
    everywhere: Churn | None
    overrides: Mapping[Cell, Churn]
    qos: int

    def of(self, broker: int, class_number: int) -> Churn | None:
        return self.overrides.get((broker, class_number), self.everywhere)


@dataclass(frozen=True, slots=True)
class Publications:
    everywhere_per_s: float
    overrides_per_s: Mapping[Cell, float]
    qos: int

    def rate_per_s(self, broker: int, class_number: int) -> float:
        return self.overrides_per_s.get((broker, class_number), self.everywhere_per_s)

    def class_rate_per_s(self, class_number: int, brokers: int) -> float:
        """What is published to one class, over all brokers."""
        own = [rate for (_, number), rate in self.overrides_per_s.items() if number == class_number]
        return self.everywhere_per_s * (brokers - len(own)) + sum(own)


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    seed: int
    at: Mapping[str, Plain]  # what the sweep set at this point; empty without a sweep
    clock: Clock
    tree: Tree
    routing: str
    refresh_ns: int | None
    classes: int
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

    def classes_matching(self, topic_filter: str) -> range:
        """The classes whose topics a filter matches. Class topics have two levels, so it is all, one or none."""
        if is_wildcard(topic_filter) and matches(topic_filter, "class/any of them"):
            return range(self.classes)
        number = topic_filter.rpartition("/")[2]
        if number.isascii() and number.isdigit() and len(number) <= len(str(CLASSES_MAX)):
            class_number = int(number)
            if class_number < self.classes and matches(topic_filter, class_topic(class_number)):
                return range(class_number, class_number + 1)
        return range(0)


@dataclass(frozen=True, slots=True)
class Experiment:
    """What one file describes: a single scenario, or the points of a sweep."""

    file: str
    name: str
    is_sweep: bool
    points: tuple[Scenario, ...]


def class_topic(number: int) -> str:
    return f"class/{number:04d}"

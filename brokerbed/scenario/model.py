"""A scenario as it is run and predicted: one point of an experiment, everything resolved, nothing mutable.

The parts that are complete as written (laws, peers, faults, links, limits) are the objects of format.py; the tree is
built, and rates that were spread evenly or given one by one are known per broker and class.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from brokerbed.broker.routing.registry import ALGORITHMS
from brokerbed.broker.routing.strategy import Algorithm
from brokerbed.scenario.adaptive import PlacementSection
from brokerbed.scenario.classes import CLASSES_MAX, Sources
from brokerbed.scenario.costs import Costs
from brokerbed.scenario.demand import Demand
from brokerbed.scenario.document import Plain
from brokerbed.scenario.format import Clock, Fault, Limits, Link, Service, Tolerance
from brokerbed.scenario.peers import Peer, Publisher, Requester, Responder, Subscriber
from brokerbed.scenario.profile import Factor
from brokerbed.scenario.subscriptions import Cell, Subscriptions
from brokerbed.scenario.topology import Tree
from brokerbed.scenario.workload import WORKLOAD
from brokerbed.topics import is_wildcard, matches

P = TypeVar("P", bound=Peer)
GROUP_FILTER_SLASHES = 2  # in group/0007/+ and group/0007/#


@dataclass(frozen=True, slots=True)
class Publications:
    """Publications to classes. With `sources`, rates hold while the source of that broker and class is on."""

    spread_per_s: float  # at each of the `places`, to each class
    places: frozenset[int]
    overrides_per_s: Mapping[Cell, float]
    sources: Sources | None  # None: all are always on
    profile: Factor | None  # of all rates
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
        mean_factor = 1.0 if self.profile is None else self.profile.mean
        return mean_factor * self.share_on * (self.spread_per_s * spread + sum(rate for _, rate in own))


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
    requesters: tuple[Requester, ...]
    responders: tuple[Responder, ...]
    copies: int
    faults: tuple[Fault, ...]
    payload_bytes: int
    peers: str  # stock or light: which client peers are, where they are real
    limits: Limits
    durability: str
    links: tuple[Link, ...]
    media: tuple[str, ...]  # brokers that stand for a broadcast medium: what they send is not counted in totals
    costs: Costs | None  # None: nobody asks what traffic costs
    placement: PlacementSection | None  # None: links stay where they are
    tolerance: Tolerance
    model: str  # best or algorithm1: how delays behind peers that come and go are predicted
    parts: Mapping[str, Any]  # of the workload, beside those above: the sections that are given, by key

    @property
    def algorithm(self) -> Algorithm:
        """The record of the routing algorithm, which says what it stores and sends."""
        return ALGORITHMS[self.routing]

    @property
    def profiles(self) -> list[Factor]:
        given = self.subscriptions.profile, self.publications.profile
        return [profile for profile in given if profile is not None]

    @property
    def period_ns(self) -> int | None:
        """The period with which rates vary; None if they are constant."""
        return self.profiles[0].period_ns if self.profiles else None

    @property
    def traces(self) -> list[str]:
        """The names of the files that were read for it, beside the scenario file."""
        of_profiles = [profile.trace for profile in self.profiles if profile.trace is not None]
        peers = (*self.publishers, *self.subscribers)
        of_peers = [peer.connectivity.trace for peer in peers if peer.connectivity is not None]
        return [*of_profiles, *of_peers, *(it.arrivals.trace for it in self.publishers if it.arrivals is not None)]

    @property
    def longest_pass_ns(self) -> int | None:
        """The longest pass of a trace that is repeated as it was recorded; None if there is none."""
        peers = (*self.publishers, *self.subscribers)
        connectivity = [it for peer in peers if (it := peer.connectivity) is not None and not it.is_shuffled]
        passes = [it.pass_ns for it in connectivity if len(it.cycles_ns) > 1]
        passes += [it.arrivals.pass_ns for it in self.publishers if it.arrivals is not None]
        return max(passes, default=None)

    @property
    def peers_roam(self) -> bool:
        """Whether any peer comes back at another broker after it was OFF."""
        return any(peer.roams for peer in (*self.publishers, *self.subscribers))

    @property
    def all_peers(self) -> tuple[Peer, ...]:
        """Each has one MQTT client per copy."""
        return (*self.publishers, *self.subscribers, *self.requesters, *self.responders)

    def exchanges(self) -> list[tuple[Requester, Responder]]:
        """Requesters and those who answer them, in the order of the file."""
        return [
            (requester, responder)
            for requester in self.requesters
            for responder in self.responders
            if matches(responder.topic, requester.topic)
        ]

    @property
    def generators(self) -> tuple[Publisher, ...]:
        """The streams of messages that peers make by themselves: Poisson processes, or recorded arrivals."""
        return (*self.publishers, *(requester.requests for requester in self.requesters))

    @property
    def streams(self) -> tuple[Publisher, ...]:
        """All streams of messages that peers send, with the answers of every responder to every requester."""
        return (*self.generators, *(responder.answers_to(requester) for requester, responder in self.exchanges()))

    @property
    def receivers(self) -> tuple[Subscriber, ...]:
        """All peers that receive, with their filters."""
        inboxes = [requester.inbox for requester in self.requesters]
        inboxes += [responder.inbox for responder in self.responders]
        return (*self.subscribers, *inboxes)

    def pairs(self) -> list[tuple[Publisher, Subscriber]]:
        """Streams and those who receive them, in the order of the file."""
        receivers = self.receivers
        wild = [place for place, receiver in enumerate(receivers) if is_wildcard(receiver.topic)]
        exact: dict[str, list[int]] = {}
        for place, receiver in enumerate(receivers):
            exact.setdefault(receiver.topic, []).append(place)
        return [
            (stream, receivers[place])
            for stream in self.streams
            for place in sorted(
                [*exact.get(stream.topic, ()), *(at for at in wild if matches(receivers[at].topic, stream.topic))]
            )
        ]

    @property
    def topics_of_parts(self) -> list[str]:
        """What the other parts of the workload publish to."""
        return [topic for name, section in self.parts.items() for topic in WORKLOAD[name].topics(self, section)]

    @property
    def filters_of_parts(self) -> list[str]:
        """What the other parts of the workload subscribe to."""
        return [topic for name, section in self.parts.items() for topic in WORKLOAD[name].filters(self, section)]

    @property
    def publication_rates_per_s(self) -> list[float]:
        """What clients that are no peers publish on average, by broker."""
        given, brokers = self.publications, range(len(self.tree))
        spread = [given.spread_per_s if broker in given.places else 0.0 for broker in brokers]
        rates = [rate * self.classes for rate in spread]
        for (broker, _), rate in given.overrides_per_s.items():
            rates[broker] += rate - spread[broker]
        rates = [rate * given.share_on for rate in rates]
        for demand in self.demands():
            rates = [
                rate + len(demand.topics) * more for rate, more in zip(rates, demand.publication_rate, strict=True)
            ]
        return rates

    def demands(self) -> Iterator[Demand]:
        """What the models know of the other parts of the workload."""
        for name, section in self.parts.items():
            if (demand := WORKLOAD[name].demand) is not None:
                yield from demand(self, section)

    @property
    def has_acknowledged_publications(self) -> bool:
        """Whether clients that are no peers publish at QoS 1 or 2."""
        return self.publications.qos > 0 or any(WORKLOAD[name].qos(section) > 0 for name, section in self.parts.items())

    @property
    def publications_are_poisson(self) -> bool:
        """Those of clients that are no peers. Sources that come and go publish in bursts."""
        return self.publications.sources is None and all(WORKLOAD[name].publications_are_poisson for name in self.parts)

    @property
    def subscriptions_are_poisson(self) -> bool:
        return all(WORKLOAD[name].subscriptions_are_poisson for name in self.parts)

    def copy_of(self, peer: P, copy: int) -> P:
        """Copy number `copy` of a peer: an id and a topic of its own, which no other copy's filters match."""
        assert 0 <= copy < self.copies
        if self.copies == 1:
            return peer
        copy_id = "/".join(f"{name}.{copy}" for name in peer.id.split("/"))
        return peer.model_copy(update={"id": copy_id, "topic": self.topic_of_copy(peer.topic, copy)})

    def topic_of_copy(self, topic: str, copy: int) -> str:
        return topic if self.copies == 1 else f"copy{copy}/{topic}"

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
    is_pair: bool = False  # a sweep of one key with two values, whose difference is asked for
    added: str = ""  # lines that the command line adds to the file

    @property
    def text(self) -> bytes:
        """The scenario file as the run directory keeps it."""
        return Path(self.file).read_bytes() + self.added.encode()

    @property
    def files(self) -> list[str]:
        """The names of the files that the scenario file needs beside it."""
        return list(dict.fromkeys(trace for point in self.points for trace in point.traces))


def _number(level: str) -> int | None:
    """The number that a level of a topic is, if it can be that of a class or group."""
    is_number = level.isascii() and level.isdigit() and len(level) <= len(str(CLASSES_MAX))
    return int(level) if is_number else None

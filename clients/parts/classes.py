"""Subscriptions to classes and to groups of them that appear and disappear, and publications to classes."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from heapq import merge
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from brokerbed.broker.values import Message
from brokerbed.clients.actor import Actor
from brokerbed.clients.moves import Move, placed, roaming, roaming_wide
from brokerbed.clients.session import Client
from brokerbed.clients.stage import CLASS, identity, payload_of
from brokerbed.clients.workload import (
    Change,
    Clients,
    Share,
    Switch,
    churn,
    population,
    publications,
    shares_of,
    sources,
    stream,
)
from brokerbed.log.record import Kind
from brokerbed.scenario.classes import Sources
from brokerbed.scenario.model import Scenario
from brokerbed.scenario.profile import Factor
from brokerbed.scenario.subscriptions import Churn, Population
from brokerbed.scenario.workload import WorkloadPart
from brokerbed.topics import ADVERTISE

if TYPE_CHECKING:
    from brokerbed.clients.crowd import Crowd

PUBLISHED, ACKNOWLEDGED = int(Kind.PUBLISHED), int(Kind.ACKNOWLEDGED)


class Publishing(Actor):
    """The client that publishes to the classes at one broker, on behalf of one source for each class.

    If the routing uses advertisements, it advertises each class that it publishes to, while the class's source is on.
    """

    def __init__(
        self, crowd: "Crowd", broker: str, name: str, shares: list[Share], topics: Sequence[str], qos: int,
        laws: Sources | None = None, profile: Factor | None = None,
    ) -> None:  # fmt: skip
        """`topics` are those of all classes, by number; `laws`: when their sources are on, if not always; `profile`:
        how rates vary."""
        self._crowd = crowd
        scenario = crowd.scenario
        self._topics = topics
        self._times = publications(shares, stream(scenario.seed, "publications", broker), profile)
        self._client = crowd.new_client(broker, f"{broker}/{name}", qos == 0)
        self._client.acknowledged = self._acknowledged
        self._qos = qos
        self._payload = payload_of(CLASS.decode(), 0, scenario.payload_bytes)[: scenario.payload_bytes]
        self._number = count(1)
        self._classes = [number for share in shares for number in share.classes]
        self._advertises = scenario.algorithm.advertises
        self._off: set[int] | None = None  # the classes whose source is off; None if all are always on
        self._switches: Iterator[Switch] = iter(())
        self._first_switch: Switch | None = None  # after time zero
        if laws is not None:
            self._off = set(self._classes)
            draws = stream(scenario.seed, "sources", broker)
            self._switches = sources(laws.on, laws.off, sorted(self._classes), draws)

    def connect(self) -> None:
        if not self._classes:
            return
        self._client.connect()
        if self._advertises and self._off is None:
            for number in self._classes:
                self._client.subscribe(ADVERTISE + self._topics[number], self._qos)

    def populate(self) -> None:
        for switch in self._switches:
            if switch.time_ns > 0:
                self._first_switch = switch
                break
            self._switch(switch)

    def begin(self) -> None:
        if self._first_switch is not None:
            self._crowd.each(chain([self._first_switch], self._switches), self._switch)
        self._crowd.each(self._times, self._notify if self._qos == 0 else self._publish)

    def _switch(self, switch: Switch) -> None:
        assert self._off is not None
        advertisement = ADVERTISE + self._topics[switch.class_number]
        if switch.is_on:
            self._off.discard(switch.class_number)
            if self._advertises:
                self._client.subscribe(advertisement, self._qos)
        else:
            self._off.add(switch.class_number)
            if self._advertises:
                self._client.unsubscribe(advertisement)

    def _notify(self, publication: tuple[int, int]) -> None:
        if self._off is None or publication[1] not in self._off:
            self._client.notify(self._topics[publication[1]], self._payload)

    def _publish(self, publication: tuple[int, int]) -> None:
        if self._off is not None and publication[1] in self._off:
            return
        crowd, topic = self._crowd, self._topics[publication[1]]
        publisher, number = self._client.client_id, next(self._number)
        payload = payload_of(publisher, number, crowd.scenario.payload_bytes)
        recorder = crowd.recorder_of(publisher, topic, publisher, self._qos)
        recorder.add(publication[0], PUBLISHED, number, len(payload))
        self._client.publish(topic, payload, self._qos)

    def _acknowledged(self, message: Message) -> None:
        publisher, message_identity = self._client.client_id, identity(message.payload)
        assert message_identity is not None
        recorder = self._crowd.recorder_of(publisher, message.topic, publisher, self._qos)
        recorder.add(self._crowd.clock.now_ns, ACKNOWLEDGED, message_identity[1], len(message.payload))

    @property
    def clients(self) -> list[Client]:
        return [self._client]


class Subscribing(Actor):
    """The clients whose subscriptions come and go at one broker.

    A client can subscribe to a filter only once, so a second subscription to the same filter at the same broker belongs
    to another client. The slash in their client ids distinguishes these clients from peers, whose names have none.
    """

    def __init__(
        self, crowd: "Crowd", broker: str, prefix: str, changes: Iterator[Change], filter_of: Callable[[int], str]
    ) -> None:
        self._crowd = crowd
        self._broker = broker
        self._prefix = prefix  # of the client ids
        self._changes = changes
        self._filter_of = filter_of  # by the number of a class or group
        self._clients: list[Client] = []
        self._qos = crowd.scenario.subscriptions.qos
        self._first_change: Change | None = None  # after time zero

    def populate(self) -> None:
        for change in self._changes:
            if change.time_ns > 0:
                self._first_change = change
                break
            self.change(change)

    def begin(self) -> None:
        if self._first_change is not None:
            self._crowd.each(chain([self._first_change], self._changes), self.change)

    def change(self, change: Change) -> None:
        while len(self._clients) <= change.slot:
            name = f"{self._broker}/{self._prefix}{len(self._clients)}"
            client = self._crowd.new_client(self._broker, name, self._qos == 0)
            client.connect()
            self._clients.append(client)
        topic_filter = self._filter_of(change.class_number)
        if change.is_subscribed:
            self._clients[change.slot].subscribe(topic_filter, self._qos)
        else:
            self._clients[change.slot].unsubscribe(topic_filter)

    @property
    def clients(self) -> list[Client]:
        return self._clients


class Pool(Actor):
    """All clients of the classes at one broker: they belong to one process."""

    def __init__(self, crowd: "Crowd", broker: str, position: int) -> None:
        scenario = crowd.scenario
        shares, published = _publication_shares(scenario, position), scenario.publications
        self._publishing = Publishing(
            crowd, broker, "pub", shares, crowd.classes, published.qos, published.sources, published.profile
        )
        self._subscribing: list[Subscribing] = []
        if scenario.subscriptions.roam:
            return  # one actor has the subscriptions of all brokers
        profile, draws = scenario.subscriptions.profile, stream(scenario.seed, "subscriptions", broker)
        narrow = churn(_churn_shares(scenario, position), draws, profile)
        if members := _members(scenario, position):
            narrow = merge(narrow, population(members, stream(scenario.seed, "population", broker)))
        self._subscribing.append(Subscribing(crowd, broker, "sub", narrow, crowd.classes.__getitem__))
        if scenario.subscriptions.wide is not None:
            draws = stream(scenario.seed, "wide subscriptions", broker)
            wide = churn(_wide_shares(scenario, position), draws, profile)
            self._subscribing.append(Subscribing(crowd, broker, "wide", wide, scenario.group_filter))

    def connect(self) -> None:
        self._publishing.connect()

    def populate(self) -> None:
        for part in self._subscribing:
            part.populate()
        self._publishing.populate()

    def begin(self) -> None:
        for part in self._subscribing:
            part.begin()
        self._publishing.begin()

    @property
    def clients(self) -> list[Client]:
        subscribing = [client for part in self._subscribing for client in part.clients]
        return [*subscribing, *self._publishing.clients]


class Moving(Actor):
    """The clients whose subscriptions appear at one broker after the other: those that roam, or are placed anew.

    One actor has them all, because what happens at one broker depends on the others.
    """

    def __init__(
        self, crowd: "Crowd", prefix: str, moves: Callable[[Scenario], Iterator[Move]], filter_of: Callable[[int], str]
    ) -> None:
        self._crowd = crowd
        self._moves = moves(crowd.scenario)
        names = crowd.scenario.tree.names
        self._at = [Subscribing(crowd, broker, prefix, iter(()), filter_of) for broker in names]
        self._first_move: Move | None = None  # after time zero

    def populate(self) -> None:
        for move in self._moves:
            if move.time_ns > 0:
                self._first_move = move
                break
            self._move(move)

    def begin(self) -> None:
        if self._first_move is not None:
            self._crowd.each(chain([self._first_move], self._moves), self._move)

    def _move(self, move: Move) -> None:
        self._at[move.broker].change(move.change)

    @property
    def clients(self) -> list[Client]:
        return [client for part in self._at for client in part.clients]


def _churn_shares(scenario: Scenario, position: int) -> list[Share]:
    subscriptions = scenario.subscriptions
    overrides = {
        number: Share(churned.arrival_rate_per_s, (number,), churned.lifetime)
        if isinstance(churned, Churn)
        else Share(0.0, (number,))
        for (broker, number), churned in subscriptions.overrides.items()
        if broker == position
    }
    spread = subscriptions.spread if position in subscriptions.places else None
    rest = Share(spread.arrival_rate_per_s, (), spread.lifetime) if isinstance(spread, Churn) else None
    return shares_of(rest, overrides, scenario.classes)


def _members(scenario: Scenario, position: int) -> list[Clients]:
    subscriptions = scenario.subscriptions
    given = subscriptions.overrides.values()
    if not any(isinstance(it, Population) for it in (subscriptions.spread, *given)):
        return []
    found = [(number, subscriptions.of(position, number)) for number in range(scenario.classes)]
    return [Clients(number, it.size, it.on, it.off) for number, it in found if isinstance(it, Population)]


def _wide_shares(scenario: Scenario, position: int) -> list[Share]:
    wide, groups = scenario.subscriptions.wide, scenario.groups
    if wide is None or groups is None or position not in scenario.subscriptions.places:
        return []
    return [Share(wide.arrival_rate_per_s, range(groups), wide.lifetime)]


def _publication_shares(scenario: Scenario, position: int) -> list[Share]:
    rates = scenario.publications
    overrides = {
        number: Share(rate, (number,)) for (broker, number), rate in rates.overrides_per_s.items() if broker == position
    }
    spread_per_s = rates.spread_per_s if position in rates.places else 0.0
    return shares_of(Share(spread_per_s, ()), overrides, scenario.classes)


def _actors(scenario: Scenario, _: None) -> list[Callable[..., Any]]:
    actors = [partial(Pool, broker=name, position=position) for position, name in enumerate(scenario.tree.names)]
    return [*actors, *(partial(Moving, **moving) for moving in _moving(scenario))]


def _moving(scenario: Scenario) -> Iterator[dict[str, Any]]:
    subscriptions = scenario.subscriptions
    if subscriptions.placement is not None:
        yield {"prefix": "static", "moves": placed, "filter_of": scenario.class_topic}
    if subscriptions.roam:
        yield {"prefix": "sub", "moves": roaming, "filter_of": scenario.class_topic}
    if subscriptions.roam and subscriptions.wide is not None:
        yield {"prefix": "wide", "moves": roaming_wide, "filter_of": scenario.group_filter}


PART = WorkloadPart(
    "classes", "Subscriptions to classes and groups that appear and disappear, and publications to classes.", _actors
)

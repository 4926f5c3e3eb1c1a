"""Subscriptions to classes that appear and disappear, and publications to classes, at every broker."""

from collections.abc import Callable
from functools import partial
from itertools import chain, count
from typing import TYPE_CHECKING, Any

from brokerbed.broker.values import Message
from brokerbed.clients.actor import Actor
from brokerbed.clients.session import Client
from brokerbed.clients.stage import CLASS, identity, payload_of
from brokerbed.clients.workload import Change, Share, churn, publications, shares_of, stream
from brokerbed.log.record import Kind
from brokerbed.scenario.model import Scenario
from brokerbed.scenario.workload import WorkloadPart

if TYPE_CHECKING:
    from brokerbed.clients.crowd import Crowd

PUBLISHED, ACKNOWLEDGED = int(Kind.PUBLISHED), int(Kind.ACKNOWLEDGED)


class Pool(Actor):
    """The clients that subscribe and publish to the classes at one broker.

    A client can subscribe to a filter only once, so a second subscription to the same class at the same broker belongs
    to another client. The slash in their client ids distinguishes these clients from peers, whose names have none.
    """

    def __init__(self, crowd: "Crowd", broker: str, position: int) -> None:
        self._crowd = crowd
        self._broker = broker
        self._clients: list[Client] = []
        scenario = crowd.scenario
        self._changes = churn(_churn_shares(scenario, position), stream(scenario.seed, "subscriptions", broker))
        shares = _publication_shares(scenario, position)
        self._times = publications(shares, stream(scenario.seed, "publications", broker))
        self._publisher = crowd.new_client(broker, f"{broker}/pub", scenario.publications.qos == 0)
        self._publisher.acknowledged = self._acknowledged
        self._qos = scenario.publications.qos
        self._payload = payload_of(CLASS.decode(), 0, scenario.payload_bytes)[: scenario.payload_bytes]
        self._number = count(1)
        self._is_needed = bool(shares)
        self._first_change: Change | None = None  # after time zero

    def connect(self) -> None:
        if self._is_needed:
            self._publisher.connect()

    def populate(self) -> None:
        for change in self._changes:
            if change.time_ns > 0:
                self._first_change = change
                break
            self._change(change)

    def begin(self) -> None:
        crowd = self._crowd
        if self._first_change is not None:
            crowd.each(chain([self._first_change], self._changes), self._change)
        crowd.each(self._times, self._notify if self._qos == 0 else self._publish)

    def _change(self, change: Change) -> None:
        scenario = self._crowd.scenario
        while len(self._clients) <= change.slot:
            name = f"{self._broker}/sub{len(self._clients)}"
            client = self._crowd.new_client(self._broker, name, scenario.subscriptions.qos == 0)
            client.connect()
            self._clients.append(client)
        topic = self._crowd.classes[change.class_number]
        if change.is_subscribed:
            self._clients[change.slot].subscribe(topic, scenario.subscriptions.qos)
        else:
            self._clients[change.slot].unsubscribe(topic)

    def _notify(self, publication: tuple[int, int]) -> None:
        self._publisher.notify(self._crowd.classes[publication[1]], self._payload)

    def _publish(self, publication: tuple[int, int]) -> None:
        crowd, topic = self._crowd, self._crowd.classes[publication[1]]
        publisher, number = self._publisher.client_id, next(self._number)
        payload = payload_of(publisher, number, crowd.scenario.payload_bytes)
        recorder = crowd.recorder_of(publisher, topic, publisher, self._qos)
        recorder.add(publication[0], PUBLISHED, number, len(payload))
        self._publisher.publish(topic, payload, self._qos)

    def _acknowledged(self, message: Message) -> None:
        publisher, message_identity = self._publisher.client_id, identity(message.payload)
        assert message_identity is not None
        recorder = self._crowd.recorder_of(publisher, message.topic, publisher, self._qos)
        recorder.add(self._crowd.clock.now_ns, ACKNOWLEDGED, message_identity[1], len(message.payload))

    @property
    def clients(self) -> list[Client]:
        return [*self._clients, self._publisher]


def _churn_shares(scenario: Scenario, position: int) -> list[Share]:
    subscriptions = scenario.subscriptions
    overrides = {
        number: Share(override.arrival_rate_per_s, (number,), override.lifetime)
        for (broker, number), override in subscriptions.overrides.items()
        if broker == position
    }
    spread = subscriptions.spread if position in subscriptions.places else None
    rest = None if spread is None else Share(spread.arrival_rate_per_s, (), spread.lifetime)
    return shares_of(rest, overrides, scenario.classes)


def _publication_shares(scenario: Scenario, position: int) -> list[Share]:
    rates = scenario.publications
    overrides = {
        number: Share(rate, (number,)) for (broker, number), rate in rates.overrides_per_s.items() if broker == position
    }
    spread_per_s = rates.spread_per_s if position in rates.places else 0.0
    return shares_of(Share(spread_per_s, ()), overrides, scenario.classes)


def _actors(scenario: Scenario, _: None) -> list[Callable[..., Any]]:
    return [partial(Pool, broker=name, position=position) for position, name in enumerate(scenario.tree.names)]


PART = WorkloadPart(
    "classes", "Subscriptions to classes that appear and disappear, and publications to classes.", _actors
)

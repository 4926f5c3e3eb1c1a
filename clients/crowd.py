"""All clients of a scenario, or a share of them: the actors of every part of the workload (clients/parts).

The actors follow their generators, on the clock and the connections that a ground provides.
"""

from collections.abc import Callable, Iterator
from typing import Any

from brokerbed.broker.config import Demand
from brokerbed.broker.laws import sampler
from brokerbed.clients.actor import Actor, NewClient, NewPeer, PeerClient
from brokerbed.clients.parts.peers import ConnectedPeer
from brokerbed.clients.session import SharedClock
from brokerbed.clients.stage import MessageRecorder
from brokerbed.clients.workload import Law, stream
from brokerbed.log.record import Log
from brokerbed.scenario.model import Scenario
from brokerbed.scenario.workload import WORKLOAD


class Crowd:
    """Plays a scenario's workload, or a share of it."""

    def __init__(
        self, scenario: Scenario, clock: SharedClock, log: Log | None, new_client: NewClient, new_peer: NewPeer,
        part: int = 0, parts: int = 1,
    ) -> None:  # fmt: skip
        """Holds the clients of `part` of `parts`, so that several processes can share them."""
        self.scenario = scenario
        self.clock = clock
        self.log = log
        self.new_client = new_client
        self.new_peer = new_peer
        self.connecting_shares: list[float] = []  # parts of a mean ON period that peers needed to connect
        self.end_ns = scenario.clock.warmup + scenario.clock.measure
        self.classes = [scenario.class_topic(number) for number in range(scenario.classes)]
        actors: list[Actor] = [make(self) for makers in _makers(scenario) for make in makers[part::parts]]
        self.peers = [actor for actor in actors if isinstance(actor, ConnectedPeer)]
        self.others = [actor for actor in actors if not isinstance(actor, ConnectedPeer)]

    @property
    def clients(self) -> Iterator[PeerClient]:
        for actor in (*self.peers, *self.others):
            yield from actor.clients

    def connect(self) -> None:
        for actor in (*self.peers, *self.others):
            actor.connect()

    def populate(self) -> None:
        for actor in (*self.peers, *self.others):
            actor.populate()

    def watch(self) -> None:
        """From now on subscribers collect delivery statistics."""
        copies = [copy for stream in self.scenario.streams for copy in copies_of(self.scenario, stream)]
        for actor in (*self.peers, *self.others):
            actor.watch({copy.id: copy for copy in copies})

    def begin(self) -> None:
        """At time zero, or a little before. The peers begin last, so that their messages find the subscriptions."""
        for actor in (*self.others, *self.peers):
            actor.begin()

    def stop(self) -> None:
        """Connects all peers after the measured time, so that waiting messages can arrive. Nothing new is published.

        The measured time may end earlier than was planned.
        """
        self.end_ns = min(self.end_ns, self.clock.now_ns)
        for actor in (*self.peers, *self.others):
            actor.stop()

    def demand(self, law: Law | None, *name: str) -> Demand | None:
        """A sampler that draws from the law, with a random stream of its own."""
        return demand_of(self.scenario, law, *name)

    def recorder_of(self, client_id: str, topic: str, publisher: str, qos: int) -> MessageRecorder:
        return MessageRecorder(self.log, client_id, topic, publisher, qos)

    def each(self, items: Iterator[Any], act: Callable[[Any], None]) -> None:
        """Calls `act` with each item of a generator at the item's time, until the measured time is over.

        Items are tuples that begin with their time.
        """
        at, end_ns = self.clock.at, self.end_ns

        def step(item: Any) -> None:
            if item[0] >= self.end_ns:  # the measured time has ended early
                return
            act(item)
            item = next(items, None)
            if item is not None and item[0] < end_ns:
                at(item[0], step, item)

        item = next(items, None)
        if item is not None and item[0] < end_ns:
            at(item[0], step, item)


def _makers(scenario: Scenario) -> Iterator[list[Callable[..., Any]]]:
    """For each part of the workload that the scenario has: what makes its actors."""
    for part in WORKLOAD.all.values():
        if part.section is None or part.name in scenario.parts:
            yield list(part.actors(scenario, scenario.parts.get(part.name)))


def copies_of(scenario: Scenario, peer: Any) -> list[Any]:
    return [scenario.copy_of(peer, copy) for copy in range(scenario.copies)]


def demand_of(scenario: Scenario, law: Law | None, *name: str) -> Demand | None:
    if law is None:
        return None
    return sampler(law.law, law.mean, stream(scenario.seed, *name), law.cv if law.cv is not None else 1.0)

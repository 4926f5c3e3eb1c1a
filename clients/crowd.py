"""All clients of a scenario, or a part of them: subscriptions that come and go, publications, peers with their queues.

They do what the generators of workload.py say, on whatever clock and connections a ground gives them.
"""

from collections.abc import Callable, Iterator
from itertools import chain, count
from typing import Any, Protocol

from brokerbed.broker.config import Demand
from brokerbed.broker.laws import sampler
from brokerbed.broker.values import Message
from brokerbed.clients.session import Client, Clock
from brokerbed.clients.sight import Sight
from brokerbed.clients.stage import CLASS, Notes, Stage, identity, payload_of
from brokerbed.clients.workload import Change, Law, Share, churn, messages, on_off, publications, shares_of, stream
from brokerbed.log.record import Kind, Log
from brokerbed.scenario.format import Peer, Publisher, Subscriber
from brokerbed.scenario.model import Scenario, class_topic

PUBLISHED, SENT, RECEIVED, PROCESSED = map(int, (Kind.PUBLISHED, Kind.SENT, Kind.RECEIVED, Kind.PROCESSED))
ACKNOWLEDGED = int(Kind.ACKNOWLEDGED)
CONNECTING_SHARES_MAX = 10_000  # enough for a median

NewClient = Callable[[str, str, bool], Client]  # at which broker, with which id, whether it starts clean


class PeerClient(Protocol):
    """The MQTT client of a publisher or subscriber: it keeps its session, and stays connected while it is told to."""

    received: Callable[[str, bytes, int], None] | None  # topic, payload, QoS
    taken: Callable[[Message], None] | None  # the broker has acknowledged a publication
    is_accepted_changed: Callable[[bool], None] | None  # the broker accepted it, or the connection ended

    def connect(self) -> None: ...
    def disconnect(self) -> None:
        """The connection breaks, without a DISCONNECT, and is not made again until `connect`."""

    def subscribe(self, topic_filter: str, qos: int, /) -> None: ...
    def publish(self, topic: str, payload: bytes, qos: int, /) -> None: ...
    @property
    def is_connected(self) -> bool: ...
    @property
    def is_settled(self) -> bool:
        """It is as it is to be: not connected, or connected with every subscription confirmed."""

    @property
    def under_way(self) -> int:
        """Publications that it has taken on and the broker has not acknowledged."""

    @property
    def held(self) -> int:
        """Publications that wait although there is a connection."""

    @property
    def unsent_bytes(self) -> int:
        """What its socket has not taken."""


NewPeer = Callable[[str, str], PeerClient]  # at which broker, with which id


class Crowd:
    def __init__(
        self, scenario: Scenario, clock: Clock, log: Log | None, new_client: NewClient, new_peer: NewPeer,
        part: int = 0, parts: int = 1,
    ) -> None:  # fmt: skip
        """`part` of `parts`: so that several processes can have a share each."""
        self.scenario = scenario
        self.clock = clock
        self.log = log
        self.new_client = new_client
        self.new_peer = new_peer
        self.connecting_shares: list[float] = []  # of a mean ON period that passed before the broker accepted a peer
        self.end_ns = scenario.clock.warmup + scenario.clock.measure
        self.classes = [class_topic(number) for number in range(scenario.classes)]
        peers = [(kind, copy) for kind, peer in self._peers() for copy in copies_of(scenario, peer)]
        self.peers: list[ConnectedPeer] = [kind(self, copy) for kind, copy in peers[part::parts]]
        brokers = list(enumerate(scenario.tree.names))
        self.pools = [Pool(self, name, position) for position, name in brokers[part::parts]]

    def _peers(self) -> "Iterator[tuple[Any, Any]]":
        yield from ((PublishingPeer, peer) for peer in self.scenario.publishers)
        yield from ((SubscribingPeer, peer) for peer in self.scenario.subscribers)

    @property
    def clients(self) -> "Iterator[PeerClient]":
        yield from (it.client for it in self.peers)
        for pool in self.pools:
            yield from pool.clients

    def connect(self) -> None:
        for peer in self.peers:
            peer.connect()
        for pool in self.pools:
            pool.connect()

    def populate(self) -> None:
        """What is subscribed at time zero is so a little before."""
        for pool in self.pools:
            pool.populate()

    def watch(self) -> None:
        """From now on subscribing peers remember what they have seen."""
        publishers = {it.id: it for peer in self.scenario.publishers for it in copies_of(self.scenario, peer)}
        for peer in self.peers:
            if isinstance(peer, SubscribingPeer):
                peer.sight = Sight(self.scenario.seed, publishers)

    def begin(self) -> None:
        """At time zero, or a little before."""
        for pool in self.pools:
            pool.begin()
        for peer in self.peers:
            peer.begin()

    def stop(self) -> None:
        """Nothing new comes after the measured time, and everybody is connected so that what waits can arrive."""
        for peer in self.peers:
            peer.stop()

    def demand(self, law: Law | None, *name: str) -> Demand | None:
        """Draws service times, or whatever else a law is for, from a stream of its own."""
        return demand_of(self.scenario, law, *name)

    def notes_of(self, client_id: str, topic: str, publisher: str, qos: int) -> Notes:
        return Notes(self.log, client_id, topic, publisher, qos)

    def each(self, items: Iterator[Any], act: Callable[[Any], None]) -> None:
        """Do what a generator says, one thing after the other, until the measured time is over.

        Its items are tuples that begin with their time.
        """
        at, end_ns = self.clock.at, self.end_ns

        def step(item: Any) -> None:
            act(item)
            item = next(items, None)
            if item is not None and item[0] < end_ns:
                at(item[0], step, item)

        item = next(items, None)
        if item is not None and item[0] < end_ns:
            at(item[0], step, item)


def copies_of(scenario: Scenario, peer: Any) -> list[Any]:
    return [scenario.copy_of(peer, copy) for copy in range(scenario.copies)]


def demand_of(scenario: Scenario, law: Law | None, *name: str) -> Demand | None:
    if law is None:
        return None
    return sampler(law.law, law.mean, stream(scenario.seed, *name), law.cv if law.cv is not None else 1.0)


class Pool:
    """The subscriptions and publications of the classes at one broker.

    A client has a filter once; so the second subscription to one class at one broker is another client's. The slash in
    their client ids keeps them apart from peers, whose names have none.
    """

    def __init__(self, crowd: Crowd, broker: str, position: int) -> None:
        self._crowd = crowd
        self._broker = broker
        self._clients: list[Client] = []
        scenario = crowd.scenario
        self._changes = churn(_churn_shares(scenario, position), stream(scenario.seed, "subscriptions", broker))
        shares = _publication_shares(scenario, position)
        self._times = publications(shares, stream(scenario.seed, "publications", broker))
        self._publisher = crowd.new_client(broker, f"{broker}/pub", scenario.publications.qos == 0)
        self._publisher.taken = self._taken
        self._qos = scenario.publications.qos
        self._payload = payload_of(CLASS.decode(), 0, scenario.payload_bytes)[: scenario.payload_bytes]
        self._number = count(1)
        self._is_needed = bool(shares)
        self._next: Change | None = None  # the first change after time zero

    def connect(self) -> None:
        if self._is_needed:
            self._publisher.connect()

    def populate(self) -> None:
        for change in self._changes:
            if change.time_ns > 0:
                self._next = change
                break
            self._change(change)

    def begin(self) -> None:
        crowd = self._crowd
        if self._next is not None:
            crowd.each(chain([self._next], self._changes), self._change)
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
        crowd.notes_of(publisher, topic, publisher, self._qos).add(publication[0], PUBLISHED, number, len(payload))
        self._publisher.publish(topic, payload, self._qos)

    def _taken(self, message: Message) -> None:
        publisher, known = self._publisher.client_id, identity(message.payload)
        assert known is not None
        notes = self._crowd.notes_of(publisher, message.topic, publisher, self._qos)
        notes.add(self._crowd.clock.now_ns, ACKNOWLEDGED, known[1], len(message.payload))

    @property
    def clients(self) -> list[Client]:
        return [*self._clients, self._publisher]


class ConnectedPeer:
    """A peer that comes and goes, or stays."""

    def __init__(self, crowd: Crowd, peer: Peer) -> None:
        self.crowd = crowd
        self.peer = peer
        self.client = crowd.new_peer(peer.broker, peer.id)
        self.client.is_accepted_changed = self._accepted_changed
        self._is_on = True
        self._is_kept_off = False  # by a fault
        self._on_since_ns: int | None = None  # it has come, and the broker has not accepted it yet
        self.stage: Stage

    def connect(self) -> None:
        self.client.connect()

    def begin(self) -> None:
        if self.peer.on is not None and self.peer.off is not None:
            times = on_off(self.peer.on, self.peer.off, stream(self.crowd.scenario.seed, "on-off", self.peer.id))
            self.crowd.each(times, self._turn)

    def _turn(self, change: tuple[int, bool]) -> None:
        time_ns, self._is_on = change
        self._on_since_ns = time_ns if self._is_on and not self.client.is_connected else None
        self._apply()

    def _accepted_changed(self, is_accepted: bool) -> None:
        since_ns, self._on_since_ns = self._on_since_ns, None
        if is_accepted and since_ns is not None and len(self.crowd.connecting_shares) < CONNECTING_SHARES_MAX:
            assert self.peer.on is not None
            self.crowd.connecting_shares.append((self.crowd.clock.now_ns - since_ns) / self.peer.on.mean)
        self.accepted(is_accepted)

    def accepted(self, is_accepted: bool) -> None:
        """For those who work only while the broker has accepted them."""

    def keep_off(self, is_kept_off: bool) -> None:
        self._is_kept_off = is_kept_off
        self._apply()

    def stop(self) -> None:
        self._is_on, self._is_kept_off = True, False
        self._apply()

    def _apply(self) -> None:
        is_on = self._is_on and not self._is_kept_off
        if is_on:
            self.client.connect()
        else:
            self.client.disconnect()


class PublishingPeer(ConnectedPeer):
    """Makes messages all the time; they wait in its own queue, which is served while the broker has accepted it.

    A message that left the queue before the CONNACK would be lost at QoS 0.
    """

    def __init__(self, crowd: Crowd, peer: Publisher) -> None:
        super().__init__(crowd, peer)
        self._rate_per_s = peer.rate
        self._number = 0  # of the last message
        self._payload_bytes = crowd.scenario.payload_bytes
        self._note = crowd.notes_of(peer.id, peer.topic, peer.id, peer.qos).add
        self.client.taken = self._taken
        self.stage = Stage(crowd.clock, crowd.demand(peer.service, "publisher", peer.id), self._send)

    def accepted(self, is_accepted: bool) -> None:
        self.stage.switch(is_accepted)

    def begin(self) -> None:
        super().begin()
        self.crowd.each(messages(self.crowd.scenario.seed, self.peer.id, self._rate_per_s), self._make)

    @property
    def sent(self) -> int:
        """The number of the last message that has left its own queue."""
        return self._number - len(self.stage)

    def _make(self, made: tuple[int, int]) -> None:
        number = self._number = self._number + 1
        payload = payload_of(self.peer.id, number, self._payload_bytes)
        self._note(made[0], PUBLISHED, number, len(payload))
        self.stage.put((number, payload), made[0])

    def _send(self, item: Any, time_ns: int) -> None:
        number, payload = item
        self._note(time_ns, SENT, number, len(payload))
        self.client.publish(self.peer.topic, payload, self.peer.qos)

    def _taken(self, message: Message) -> None:
        known = identity(message.payload)
        assert known is not None
        self._note(self.crowd.clock.now_ns, ACKNOWLEDGED, known[1], len(message.payload))


class SubscribingPeer(ConnectedPeer):
    """Works on what it receives, one message after the other."""

    def __init__(self, crowd: Crowd, peer: Subscriber) -> None:
        super().__init__(crowd, peer)
        self.client.received = self._received
        self.client.subscribe(peer.topic, peer.qos)
        self.stage = Stage(crowd.clock, crowd.demand(peer.service, "subscriber", peer.id), self._processed)
        self.stage.switch(True)
        self._notes: dict[tuple[bytes, str, int], Notes] = {}  # by publisher, topic and QoS
        self.sight: Sight | None = None  # if somebody watches

    def _received(self, topic: str, payload: bytes, qos: int) -> None:
        known = identity(payload)
        if known is None:  # its filter may match what a class's publisher sends
            return
        publisher, number = known
        notes = self._notes.get((publisher, topic, qos))
        if notes is None:
            notes = self.crowd.notes_of(self.peer.id, topic, publisher.decode(), qos)
            self._notes[publisher, topic, qos] = notes
        now_ns = self.crowd.clock.now_ns
        notes.add(now_ns, RECEIVED, number, len(payload))
        self.stage.put((notes, number, len(payload)), now_ns)

    def _processed(self, item: Any, time_ns: int) -> None:
        notes, number, size = item
        notes.add(time_ns, PROCESSED, number, size)
        if self.sight is not None:
            self.sight.note(notes.publisher, number, time_ns)


def _churn_shares(scenario: Scenario, position: int) -> list[Share]:
    given = scenario.subscriptions
    overrides = {
        number: Share(it.arrival_rate_per_s, (number,), it.lifetime)
        for (broker, number), it in given.overrides.items()
        if broker == position
    }
    everywhere = given.everywhere
    rest = None if everywhere is None else Share(everywhere.arrival_rate_per_s, (), everywhere.lifetime)
    return shares_of(rest, overrides, scenario.classes)


def _publication_shares(scenario: Scenario, position: int) -> list[Share]:
    given = scenario.publications
    overrides = {
        number: Share(rate, (number,)) for (broker, number), rate in given.overrides_per_s.items() if broker == position
    }
    return shares_of(Share(given.everywhere_per_s, ()), overrides, scenario.classes)

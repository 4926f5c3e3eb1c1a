"""A scenario on the virtual ground: hosts, links, clients and faults, and the story from set-up to drain.

Model time zero is the beginning of the warm-up. Before it, brokers start, links are made and those subscriptions appear
that are there at time zero; after the measured time what is under way may still arrive.
"""

import gc
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

from broker.config import BrokerConfig, Demand
from broker.laws import sampler
from broker.log_record import Kind, Log
from broker.values import NS_PER_S, Message
from clients.workload import Change, Share, arrivals, churn, on_off, publications, shares_of, stream
from orchestrator.scenario.format import Law, Peer, Publisher, Subscriber
from orchestrator.scenario.model import Scenario, class_topic
from orchestrator.simulator.clients import CLASS, Client, Notes, Stage, identity, payload_of
from orchestrator.simulator.faults import Faults
from orchestrator.simulator.loop import Loop
from orchestrator.simulator.network import Host, LogWriter, Uplink
from orchestrator.simulator.wire import NO_DELAY, Quality

STARTS_NS, CONNECT_NS, SUBSCRIBE_NS = -10 * NS_PER_S, -8 * NS_PER_S, -5 * NS_PER_S
DRAIN_NS = 60 * NS_PER_S  # at most, after the measured time
GC_ALLOCATIONS = 100_000  # between two looks for garbage in circles, of which there is little
LOG_BYTES = 1 << 16  # kept in memory, of each broker, before they are written
SLICE_EVENTS = 20_000  # between two looks at the progress
CLIENTS = "clients"  # the name under which clients log
PUBLISHED, SENT, RECEIVED, PROCESSED = map(int, (Kind.PUBLISHED, Kind.SENT, Kind.RECEIVED, Kind.PROCESSED))
ACKNOWLEDGED = int(Kind.ACKNOWLEDGED)
UNLIMITED = 1 << 40


class Simulation:
    def __init__(self, scenario: Scenario, write_log: LogWriter | None = None, commit_ns: int = 0) -> None:
        self.scenario = scenario
        self.loop = Loop()
        self.loop.now_ns = STARTS_NS
        self.end_ns = scenario.clock.warmup + scenario.clock.measure
        self.classes = [class_topic(number) for number in range(scenario.classes)]
        self._write_log = write_log
        self._is_stopped = False
        self.client_log = Log() if write_log is not None else None
        self.hosts = {name: self._host(name, commit_ns) for name in scenario.tree.names}
        self.links = {child: self._link(child, parent) for child, parent in scenario.tree.links}
        self.peers = [*self._publishers(), *self._subscribers()]
        self.pools = [Pool(self, host, position) for position, host in enumerate(self.hosts.values())]
        self.faults = Faults(self, self.peers)

    # -- building ---------------------------------------------------------------------------------------------

    def _host(self, name: str, commit_ns: int) -> Host:
        scenario = self.scenario
        position = scenario.tree.index[name]
        parent = None if position == 0 else scenario.tree.names[int(scenario.tree.parents[position])]
        service = scenario.service
        stages = {
            copy.id: demand
            for peer in scenario.subscribers
            if peer.broker == name and peer.session_service is not None
            for copy in self._copies(peer)
            if (demand := self.demand(peer.session_service, "session", copy.id)) is not None
        }
        shared: dict[str, Any] = {
            "name": name, "is_testbed": True, "routing": scenario.routing,
            "refresh_s": (scenario.refresh_ns or 0) / NS_PER_S, "keep_alive_max_s": 0,
            "connections_max": UNLIMITED, "partial_bytes_max": UNLIMITED,
            "queue_messages_max": scenario.limits.messages, "queue_bytes_max": scenario.limits.bytes,
            "queue_policy": scenario.limits.policy, "service_in": self.demand(service.broker_in, "broker_in", name),
            "service_link": self.demand(service.link, "link", name), "service_per_copy": scenario.copies > 1,
            "session_service": stages,
        }  # fmt: skip

        def config(life: int) -> BrokerConfig:
            return BrokerConfig(incarnation=str(life), id_token=f"{name}/{life}", **shared)

        is_durable = scenario.durability != "memory" and any(it.verb == "crash" for it in scenario.faults)
        return Host(self.loop, name, config, parent, is_durable, self._write_log, commit_ns)

    def demand(self, law: Law | None, *name: str) -> Demand | None:
        """Draws service times, or whatever else a law is for, from a stream of its own."""
        if law is None:
            return None
        draws = stream(self.scenario.seed, *name)
        return sampler(law.law, law.mean, draws, law.cv if law.cv is not None else 1.0)

    def _link(self, child: str, parent: str) -> Uplink:
        named = [it for it in self.scenario.links if set(it.between) == {child, parent}]
        up = down = NO_DELAY
        if named:
            up, down = (
                Quality(self.demand(named[0].delay, "delay", *ends), named[0].bandwidth)
                for ends in ((child, parent), (parent, child))
            )
        return Uplink(self.hosts[child], self.hosts[parent], up, down)

    def _copies(self, peer: Any) -> list[Any]:
        return [self.scenario.copy_of(peer, copy) for copy in range(self.scenario.copies)]

    def _publishers(self) -> Iterator["PublishingPeer"]:
        return (PublishingPeer(self, copy) for peer in self.scenario.publishers for copy in self._copies(peer))

    def _subscribers(self) -> Iterator["SubscribingPeer"]:
        return (SubscribingPeer(self, copy) for peer in self.scenario.subscribers for copy in self._copies(peer))

    # -- the story --------------------------------------------------------------------------------------------

    def run(self, progress: Callable[[float], None] = lambda _: None) -> None:
        """From set-up to drain; `progress` gets the part of the model time that is done. What was logged is written."""
        try:
            self._play(progress)
        finally:
            self._close_logs()

    def stop(self) -> None:
        """Soon, as if by Ctrl-C."""
        self._is_stopped = True

    def _play(self, progress: Callable[[float], None]) -> None:
        for host in self.hosts.values():
            host.start()
        self._run_until(CONNECT_NS)
        everybody: list[_Connected | Pool] = [*self.peers, *self.pools]
        for client in everybody:
            client.connect()
        self._run_until(SUBSCRIBE_NS)
        for pool in self.pools:
            pool.begin()
        self._run_until(0)
        gc.collect()
        gc.freeze()  # what is there now stays for long
        gc.set_threshold(GC_ALLOCATIONS, 50, 100)
        for peer in self.peers:
            peer.begin()
        self.faults.begin()
        self._run_until(self.end_ns, progress)
        self.faults.heal()
        for client in everybody:
            client.stop()
        self._run_until(self.end_ns + DRAIN_NS)

    def _run_until(self, until_ns: int, progress: Callable[[float], None] = lambda _: None) -> None:
        while not self.loop.run(until_ns, SLICE_EVENTS):
            if self._is_stopped:
                raise KeyboardInterrupt
            progress(self.loop.now_ns / self.end_ns)
            for host in self.hosts.values():
                if host.is_up:
                    host.write_log(LOG_BYTES)
            self._write_client_log(LOG_BYTES)

    def _write_client_log(self, bytes_min: int = 0) -> None:
        log = self.client_log
        if self._write_log is not None and log is not None and len(log.records) >= bytes_min:
            self._write_log(CLIENTS, 1, log)

    def clients_at(self, host: Host) -> list[Client]:
        ours = [it.client for it in self.peers] + [client for pool in self.pools for client in pool.clients]
        return [client for client in ours if client.host is host]

    def _close_logs(self) -> None:
        for host in self.hosts.values():
            host.close_log()
        self._write_client_log()

    def notes_of(self, client_id: str, topic: str, publisher: str, qos: int) -> Notes:
        return Notes(self.loop, self.client_log, client_id, topic, publisher, qos)

    def each(self, items: Iterator[Any], act: Callable[[Any], None]) -> None:
        """Do what a generator says, one thing after the other, until the measured time is over.

        Its items are tuples that begin with their time.
        """
        at, end_ns = self.loop.at, self.end_ns

        def step(item: Any) -> None:
            act(item)
            item = next(items, None)
            if item is not None and item[0] < end_ns:
                at(item[0], step, item)

        item = next(items, None)
        if item is not None and item[0] < end_ns:
            at(item[0], step, item)


class Pool:
    """The subscriptions and publications of the classes at one broker.

    A client has a filter once; so the second subscription to one class at one broker is another client's.
    """

    def __init__(self, simulation: Simulation, host: Host, position: int) -> None:
        self._simulation = simulation
        self._host = host
        self._clients: list[Client] = []
        scenario = simulation.scenario
        self._changes = churn(_churn_shares(scenario, position), stream(scenario.seed, "subscriptions", host.name))
        shares = _publication_shares(scenario, position)
        self._times = publications(shares, stream(scenario.seed, "publications", host.name))
        self._publisher = Client(simulation.loop, host, f"{host.name}-pub", scenario.publications.qos == 0)
        self._publisher.taken = self._taken
        self._qos = scenario.publications.qos
        self._payload = payload_of(CLASS.decode(), 0, scenario.payload_bytes)[: scenario.payload_bytes]
        self._number = count(1)
        self._is_needed = bool(shares)

    def connect(self) -> None:
        if self._is_needed:
            self._publisher.connect()

    def begin(self) -> None:
        """What is subscribed at time zero is so a little before; the rest in its time."""
        simulation = self._simulation
        for change in self._changes:
            if change.time_ns > 0:
                simulation.loop.at(change.time_ns, self._first, change)
                break
            self._change(change)
        if self._qos == 0:
            simulation.each(self._times, self._notify)
        else:
            simulation.each(self._times, self._publish)

    def _first(self, change: Change) -> None:
        if change.time_ns < self._simulation.end_ns:
            self._change(change)
            self._simulation.each(self._changes, self._change)

    def _change(self, change: Change) -> None:
        scenario = self._simulation.scenario
        while len(self._clients) <= change.slot:
            name = f"{self._host.name}-sub{len(self._clients)}"
            client = Client(self._simulation.loop, self._host, name, scenario.subscriptions.qos == 0)
            client.connect()
            self._clients.append(client)
        topic = self._simulation.classes[change.class_number]
        if change.is_subscribed:
            self._clients[change.slot].subscribe(topic, scenario.subscriptions.qos)
        else:
            self._clients[change.slot].unsubscribe(topic)

    def _notify(self, publication: tuple[int, int]) -> None:
        self._publisher.notify(self._simulation.classes[publication[1]], self._payload)

    def _publish(self, publication: tuple[int, int]) -> None:
        simulation, topic = self._simulation, self._simulation.classes[publication[1]]
        publisher, number = self._publisher.client_id, next(self._number)
        payload = payload_of(publisher, number, simulation.scenario.payload_bytes)
        simulation.notes_of(publisher, topic, publisher, self._qos).add(PUBLISHED, number, len(payload))
        self._publisher.publish(topic, payload, self._qos)

    def _taken(self, message: Message) -> None:
        publisher, known = self._publisher.client_id, identity(message.payload)
        assert known is not None
        notes = self._simulation.notes_of(publisher, message.topic, publisher, self._qos)
        notes.add(ACKNOWLEDGED, known[1], len(message.payload))

    def stop(self) -> None:
        """Nothing new comes after the measured time."""

    @property
    def clients(self) -> list[Client]:
        return [*self._clients, self._publisher]


class _Connected:
    """A peer that comes and goes, or stays."""

    def __init__(self, simulation: Simulation, peer: Peer) -> None:
        self.simulation = simulation
        self.peer = peer
        self.client = Client(simulation.loop, simulation.hosts[peer.broker], peer.id, is_clean=False)
        self._is_on = True
        self._is_kept_off = False  # by a fault

    def connect(self) -> None:
        self.client.connect()

    def begin(self) -> None:
        if self.peer.on is not None and self.peer.off is not None:
            times = on_off(self.peer.on, self.peer.off, stream(self.simulation.scenario.seed, "on-off", self.peer.id))
            self.simulation.each(times, self._turn)
        else:
            self.switched(True)

    def _turn(self, change: tuple[int, bool]) -> None:
        self._is_on = change[1]
        self._apply()

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
        self.switched(is_on)

    def switched(self, is_on: bool) -> None:
        """For those who work only while they are connected."""


class PublishingPeer(_Connected):
    """Makes messages all the time; they wait in its own queue, which is served while it is connected."""

    def __init__(self, simulation: Simulation, peer: Publisher) -> None:
        super().__init__(simulation, peer)
        self._rate_per_s = peer.rate
        self._number = 0  # of the last message
        self._payload_bytes = simulation.scenario.payload_bytes
        self._note = simulation.notes_of(peer.id, peer.topic, peer.id, peer.qos).add
        self.client.taken = self._taken
        self._stage = Stage(simulation.loop, simulation.demand(peer.service, "publisher", peer.id), self._send)

    def begin(self) -> None:
        super().begin()
        times = arrivals([self._rate_per_s], stream(self.simulation.scenario.seed, "messages", self.peer.id))
        self.simulation.each(times, self._make)

    def switched(self, is_on: bool) -> None:
        self._stage.switch(is_on)

    def _make(self, _: tuple[int, int]) -> None:
        number = self._number = self._number + 1
        payload = payload_of(self.peer.id, number, self._payload_bytes)
        self._note(PUBLISHED, number, len(payload))
        self._stage.put((number, payload))

    def _send(self, item: Any) -> None:
        number, payload = item
        self._note(SENT, number, len(payload))
        self.client.publish(self.peer.topic, payload, self.peer.qos)

    def _taken(self, message: Message) -> None:
        known = identity(message.payload)
        assert known is not None
        self._note(ACKNOWLEDGED, known[1], len(message.payload))


class SubscribingPeer(_Connected):
    """Works on what it receives, one message after the other."""

    def __init__(self, simulation: Simulation, peer: Subscriber) -> None:
        super().__init__(simulation, peer)
        self.client.received = self._received
        self.client.subscribe(peer.topic, peer.qos)
        demand = simulation.demand(peer.service, "subscriber", peer.id)
        stage = Stage(simulation.loop, demand, self._processed)
        stage.switch(True)
        self._work = stage.put if demand is not None else self._processed
        self._notes: dict[tuple[bytes, str, int], Notes] = {}  # by publisher, topic and QoS

    def _received(self, topic: str, payload: bytes, qos: int) -> None:
        known = identity(payload)
        if known is None:  # its filter may match what a class's publisher sends
            return
        publisher, number = known
        notes = self._notes.get((publisher, topic, qos))
        if notes is None:
            notes = self.simulation.notes_of(self.peer.id, topic, publisher.decode(), qos)
            self._notes[publisher, topic, qos] = notes
        notes.add(RECEIVED, number, len(payload))
        self._work((notes, number, len(payload)))

    def _processed(self, item: Any) -> None:
        notes, number, size = item
        notes.add(PROCESSED, number, size)


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

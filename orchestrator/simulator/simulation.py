"""A scenario on the virtual ground: hosts, links, clients and faults, and the phases from set-up to drain.

Model time zero is the beginning of the warm-up. Before it, brokers start, links are made and those subscriptions appear
that are there at time zero; after the measured time what is under way may still arrive.
"""

import gc
from collections.abc import Callable
from typing import Any

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.placement.config import PlacementConfig
from brokerbed.broker.values import NS_PER_S
from brokerbed.clients import session
from brokerbed.clients.crowd import Crowd, copies_of, demand_of
from brokerbed.clients.whereabouts import Whereabouts
from brokerbed.clients.workload import stream
from brokerbed.log.record import CLIENTS, Log
from brokerbed.orchestrator.faults import Faults
from brokerbed.orchestrator.pacer import Pacer
from brokerbed.orchestrator.simulator.byte_counts import ByteCounts
from brokerbed.orchestrator.simulator.clients import Client
from brokerbed.orchestrator.simulator.link_schedule import Quality
from brokerbed.orchestrator.simulator.loop import Loop
from brokerbed.orchestrator.simulator.network import Host, LogWriter, Uplink
from brokerbed.orchestrator.simulator.wire import NO_DELAY
from brokerbed.scenario.model import Scenario
from brokerbed.scenario.peers import Subscriber

STARTS_NS, CONNECT_NS, SUBSCRIBE_NS = -10 * NS_PER_S, -8 * NS_PER_S, -5 * NS_PER_S
DRAIN_NS = 60 * NS_PER_S  # the longest drain after the measured time
GC_ALLOCATIONS = 100_000  # between two searches for cyclic garbage, of which there is little
COMMIT_NS = 200_000  # about what SQLite takes; so a crash may fall between storing and sending, as on real grounds
LOG_BYTES = 1 << 16  # buffered per broker before they are written
SLICE_EVENTS = 20_000  # between two reports of progress
UNLIMITED = 1 << 40
MOVE_TIMEOUT_S = 86_400.0  # peers that roam wait for their sessions as long as faults last, so that order is kept


class Simulation:
    def __init__(self, scenario: Scenario, write_log: LogWriter | None = None) -> None:
        self.scenario = scenario
        self.loop = Loop()
        self.loop.now_ns = STARTS_NS
        self.clock = self.loop
        self.end_ns = scenario.clock.warmup + scenario.clock.measure
        self.is_ended_early = False
        self._write_log = write_log
        self._is_stopped = False
        self.client_log = Log() if write_log is not None else None
        self.hosts = {name: self._host(name) for name in scenario.tree.names}
        self._known_qualities: dict[tuple[str, str], tuple[Quality, Quality]] = {}  # whose random numbers go on
        self.links = {
            child: Uplink(self.hosts[child], self.hosts[parent], self.hosts, self._qualities)
            for child, parent in scenario.tree.links
        }
        self._clients = Whereabouts[session.Client]()
        self.crowd = Crowd(scenario, self.loop, self.client_log, self._client, self._peer)
        self.faults = Faults(self, self.crowd.peers)
        self._byte_counts = ByteCounts(scenario, self.loop, self.client_log, self.links)

    # -- building ---------------------------------------------------------------------------------------------

    def _host(self, name: str) -> Host:
        scenario = self.scenario
        position = scenario.tree.index[name]
        parent = None if position == 0 else scenario.tree.names[int(scenario.tree.parents[position])]
        service = scenario.service
        stages = {
            copy.id: demand
            for peer in scenario.subscribers
            if name in peer.places and peer.session_service is not None
            for copy in copies_of(scenario, peer)
            if (demand := demand_of(scenario, peer.session_service, "session", copy.id, *roaming_at(peer, name)))
        }
        shared: dict[str, Any] = {
            "name": name, "is_testbed": True, "routing": scenario.routing,
            "routing_parameters": scenario.routing_parameters, "placement": placement_of(scenario, name),
            "refresh_s": (scenario.refresh_ns or 0) / NS_PER_S, "keep_alive_max_s": 0,
            **({"move_timeout_s": MOVE_TIMEOUT_S} if scenario.peers_roam else {}),
            "connections_max": UNLIMITED, "partial_bytes_max": UNLIMITED,
            "queue_messages_max": scenario.limits.messages, "queue_bytes_max": scenario.limits.bytes,
            "queue_policy": scenario.limits.policy,
            "service_in": demand_of(scenario, service.broker_in, "broker_in", name),
            "service_link": demand_of(scenario, service.link, "link", name), "service_per_copy": scenario.copies > 1,
            "session_service": stages,
        }  # fmt: skip

        def config(life: int) -> BrokerConfig:
            return BrokerConfig(incarnation=str(life), id_token=f"{name}/{life}", **shared)

        is_durable = scenario.durability != "memory" and any(fault.kind.kills_brokers for fault in scenario.faults)
        return Host(self.loop, name, config, parent, is_durable, self._write_log, COMMIT_NS if is_durable else 0)

    def _client(self, broker: str, client_id: str, is_clean: bool) -> Client:
        client = Client(self.loop, self.hosts[broker], client_id, is_clean, self.hosts, self._moved)
        self._clients.add(client, broker)
        return client

    def _moved(self, client: session.Client, from_broker: str) -> None:
        self._clients.move(client, from_broker, client.broker)

    def _peer(self, broker: str, client_id: str) -> Client:
        return self._client(broker, client_id, False)

    def _qualities(self, child: str, parent: str) -> tuple[Quality, Quality]:
        """Of the two directions of a link between these brokers."""
        if (child, parent) not in self._known_qualities:
            self._known_qualities[child, parent] = self._drawn_qualities(child, parent)
        return self._known_qualities[child, parent]

    def _drawn_qualities(self, child: str, parent: str) -> tuple[Quality, Quality]:
        named = [link for link in self.scenario.links if set(link.between) == {child, parent}]
        if not named:
            return NO_DELAY, NO_DELAY
        up, down = (
            Quality(demand_of(self.scenario, named[0].delay, "delay", *ends), named[0].bandwidth)
            for ends in ((child, parent), (parent, child))
        )
        return up, down

    # -- the phases -------------------------------------------------------------------------------------------

    def run(self, progress: Callable[[float], None] = lambda _: None, pacer: Pacer | None = None) -> None:
        """Runs all phases; `progress` gets the fraction of model time that is done. Logs are written in any case. The
        `pacer` may end the measured time early.
        """
        gc.collect()  # frees an earlier simulation in this process
        try:
            self._play(progress, pacer)
        finally:
            gc.unfreeze()
            self._close_logs()

    def stop(self) -> None:
        """Makes `run` raise KeyboardInterrupt soon."""
        self._is_stopped = True

    def _play(self, progress: Callable[[float], None], pacer: Pacer | None) -> None:
        for host in self.hosts.values():
            host.start()
        self._run_until(CONNECT_NS)
        self.crowd.connect()
        self._run_until(SUBSCRIBE_NS)
        self.crowd.populate()
        self._run_until(0)
        gc.collect()
        gc.freeze()  # these objects live long
        gc.set_threshold(GC_ALLOCATIONS, 50, 100)
        self.crowd.begin()
        self.faults.begin()
        self._byte_counts.begin()
        self._measure(progress, pacer)
        self.faults.heal()
        self.crowd.stop()
        self._run_until(self.end_ns + DRAIN_NS)

    def _measure(self, progress: Callable[[float], None], pacer: Pacer | None) -> None:
        while pacer is not None and (look_ns := pacer.next_ns) is not None:
            self._run_until(look_ns, progress)
            self._write_logs(0)
            if pacer.is_over(look_ns, None):
                self.end_ns, self.is_ended_early = look_ns, True
                return
        self._run_until(self.end_ns, progress)

    def _run_until(self, until_ns: int, progress: Callable[[float], None] = lambda _: None) -> None:
        while not self.loop.run(until_ns, SLICE_EVENTS):
            if self._is_stopped:
                raise KeyboardInterrupt
            progress(self.loop.now_ns / self.end_ns)
            self._write_logs(LOG_BYTES)

    def _write_logs(self, bytes_min: int) -> None:
        for host in self.hosts.values():
            if host.is_up:
                host.write_log(bytes_min)
        self._write_client_log(bytes_min)

    def _write_client_log(self, bytes_min: int = 0) -> None:
        log = self.client_log
        if self._write_log is not None and log is not None and len(log.records) >= bytes_min:
            self._write_log(CLIENTS, 1, log)

    def clients_at(self, broker: str) -> list[session.Client]:
        return self._clients.at(broker)

    def _close_logs(self) -> None:
        for host in self.hosts.values():
            host.close_log()
        self._write_client_log()


def roaming_at(peer: Subscriber, broker: str) -> tuple[str, ...]:
    """What tells the random streams of a peer's session apart that is at one broker and then at another."""
    return (broker,) if peer.roams else ()


def placement_of(scenario: Scenario, broker: str) -> PlacementConfig | None:
    """How this broker looks for a cheaper tree; None if links stay where they are."""
    given, costs = scenario.placement, scenario.costs
    if given is None:
        return None
    assert costs is not None, "with placement, traffic has costs"
    return PlacementConfig(
        stream(scenario.seed, "placement", broker), given.period, given.alpha, given.beta, given.moves,
        given.iterations, given.tenure, given.gain, costs.link, costs.links, costs.broker, costs.brokers,
    )  # fmt: skip

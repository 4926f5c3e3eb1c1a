"""The phases of a run in real time: start of brokers and clients, measured time with faults, drain.

All grounds with real processes share this module; each has its own network of brokers.
"""

import asyncio
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import Any, Protocol

import uvloop

from brokerbed.broker.values import NS_PER_S
from brokerbed.clients.crowd import copies_of
from brokerbed.clients.raw_log import append
from brokerbed.clients.sockets import RealClock
from brokerbed.log.record import CLIENTS, Log
from brokerbed.orchestrator.faults import Faults, skipped_warnings
from brokerbed.orchestrator.grounds.base import GroundError, Notify, Place, Played, Progress
from brokerbed.orchestrator.grounds.clients import ClientProcess, ClientProcesses, RemotePeer, RemoteSessions
from brokerbed.orchestrator.grounds.clocks import Reading
from brokerbed.orchestrator.grounds.lateness import Lateness, short_demands, warnings_of, watch_loop
from brokerbed.orchestrator.grounds.machine import check_space
from brokerbed.orchestrator.grounds.network import all_of, cancel_all
from brokerbed.orchestrator.grounds.processes import StderrLines, stderr_warnings
from brokerbed.orchestrator.grounds.quiescence import QUIET_LOOKS
from brokerbed.orchestrator.grounds.relay import Relay
from brokerbed.orchestrator.simulator.byte_counts import ByteCounts, CountedLink
from brokerbed.scenario import Scenario
from brokerbed.scenario.faults.network import Host, Link

START_S = 0.3  # from the end of the preparations to model time zero
STEP_S = 0.05  # how often the run is checked
PROBE_S = 0.02
DRAIN_MODEL_S = 60  # the longest drain in model time, but at least this wall time:
DRAIN_S_MIN = 10.0
PARTS_MAX = 4  # the largest number of processes with clients
CLIENTS_S_MAX = 120.0  # how long all clients may take to connect


class WatchedHost(Host, Protocol):
    @property
    def address(self) -> tuple[str, int]: ...
    @property
    def is_paused(self) -> bool: ...
    @property
    def state(self) -> Any: ...
    @property
    def changed_s(self) -> float: ...
    @property
    def metrics(self) -> tuple[str, int]:
        """The address of its metrics."""

    async def look(self) -> None: ...


class RelayedLink(Link, CountedLink, Protocol):
    """A link whose bytes are counted if it has a relay."""


class RealNetwork(Protocol):
    """The brokers of a scenario, on any ground with real processes."""

    @property
    def hosts(self) -> Mapping[str, WatchedHost]: ...
    @property
    def links(self) -> Mapping[str, RelayedLink]: ...
    @property
    def relays(self) -> Sequence[Relay]: ...
    async def start(self) -> None: ...
    async def look(self) -> None: ...
    async def listen(self) -> None:
        """Reads everything that was written to stderr so far."""

    @property
    def stderr(self) -> Mapping[str, StderrLines]: ...
    def check(self) -> None: ...
    async def clients(self, part: int, parts: int, /) -> ClientProcess: ...
    async def cause(self, error: GroundError, /) -> GroundError:
        """The cause of an error, or the error itself."""

    async def clocks(self) -> Mapping[str, Reading]:
        """The clocks of brokers on other machines, and of the clients if they are there."""

    async def close(self) -> None: ...


def parts_of(scenario: Scenario) -> int:
    """The number of processes with clients: at most the number of cores, and of peers or brokers to distribute."""
    peers = len(scenario.all_peers) * scenario.copies
    return max(1, min(PARTS_MAX, os.cpu_count() or 1, max(peers, len(scenario.tree.names))))


Watcher = Callable[["RealRun"], AbstractAsyncContextManager[None]]  # entered during the measured time


class RealRun:
    """A run of one scenario on one network. It is the network that faults.Faults acts on."""

    def __init__(
        self,
        scenario: Scenario,
        place: Place,
        network: RealNetwork,
        progress: Progress,
        played: Played,
        watcher: Watcher | None = None,
    ) -> None:
        self.scenario = scenario
        self._played = played
        self.clock = RealClock(scenario.clock.speedup)
        self.end_ns = scenario.clock.warmup + scenario.clock.measure
        self.client_log = Log()
        self._place = place
        self._network = network
        self._progress = progress
        self._parts = parts_of(scenario)
        self._clients = ClientProcesses([])
        self._faults: Faults | None = None
        self._watcher = watcher
        self._loop_lateness = Lateness()

    @property
    def hosts(self) -> Mapping[str, WatchedHost]:
        return self._network.hosts

    @property
    def links(self) -> Mapping[str, Link]:
        return self._network.links

    @property
    def faults(self) -> Faults:
        assert self._faults is not None
        return self._faults

    async def peers(self, since_ns: int) -> list[dict[str, Any]]:
        """Every copy of every peer, as the processes with the clients report them."""
        answers = await self._clients.ask_all("peers", since_ns=since_ns)
        return [peer for answer in answers for peer in answer]

    def clients_at(self, broker: str) -> Iterable[RemoteSessions]:
        return [RemoteSessions(broker, self._clients, self.hosts[broker].changed_s)]

    async def play(self) -> None:
        network, begun_s = self._network, time.monotonic()
        await network.start()
        up_s = time.monotonic() - begun_s
        clocks = self._played.clocks
        clocks.at_start.update(await network.clocks())
        self._place.announce({name: host.metrics for name, host in self.hosts.items()})
        processes = [await network.clients(part, self._parts) for part in range(self._parts)]
        self._clients = ClientProcesses(processes)
        await self._connect()
        start_ns = time.time_ns() + round(START_S * NS_PER_S)
        self._played.start_ns, self._played.has_begun = start_ns, True
        self.clock.start(start_ns)
        theirs_ns = start_ns + clocks.offsets_ns(CLIENTS)[0]
        await self._clients.ask_all("begin", start_ns=theirs_ns, is_watched=self._watcher is not None)
        peers = [copy for peer in self.scenario.all_peers for copy in copies_of(self.scenario, peer)]
        remote = [RemotePeer(peer, self._clients) for peer in peers]
        self._faults = Faults(self, remote, round(PROBE_S * NS_PER_S * self.clock.speedup))
        self._faults.begin()
        ByteCounts(self.scenario, self.clock, self.client_log, network.links).begin()
        watching = asyncio.create_task(watch_loop(self._loop_lateness))
        try:
            async with nullcontext() if self._watcher is None else self._watcher(self):
                await self._measure()
            await cancel_all([watching])
            held = (await self._clients.look()).held if self._faults.is_quiet else 0
            is_drained = await self._drain()
            self._played.until_ns = time.time_ns()
            clocks.at_end.update(await network.clocks())
            late = await self._clients.ask_all("lateness")
            for process in processes:
                process.end()
            for process in processes:
                await process.ended()
        except BaseException:
            with suppress(OSError):  # the reason for the failure of the run is more important
                self._write_log()
            raise
        finally:
            await cancel_all([watching])
            self.clock.close()
        self._write_log()
        relays = self._relay_lateness()
        self._played.notes |= {
            "brokers_up_s": up_s,
            "clients": late,
            "held": held,
            "broker_lag_s": self._lags(),
            "orchestrator_lag": self._loop_lateness.as_json(),
            "relay_lag": relays.as_json(),
            "is_drained": is_drained,
        }
        self._played.warnings += [*short_demands(self.scenario), *clocks.warnings()]
        self._played.warnings += warnings_of(late, held, self._lags(), self._loop_lateness, relays, is_drained)
        self._played.warnings += skipped_warnings(self._faults.skipped)
        await network.listen()
        self._played.warnings += stderr_warnings(network.stderr)

    def _write_log(self) -> None:
        append(self._place.raw / CLIENTS, self._parts + 1, self.client_log)

    def _check(self) -> None:
        """Raises GroundError if the run cannot continue."""
        self._network.check()
        check_space(self._place.raw)

    async def _connect(self) -> None:
        addresses = {name: host.address for name, host in self.hosts.items()}
        connecting = asyncio.ensure_future(self._clients.ask_all("connect", brokers=addresses))
        end_s = time.monotonic() + CLIENTS_S_MAX
        try:
            while not (await asyncio.wait([connecting], timeout=STEP_S))[0]:
                self._check()
                if time.monotonic() > end_s:
                    raise GroundError(f"the clients were not all connected within {CLIENTS_S_MAX:.0f} s")
            await connecting
        finally:
            connecting.cancel()

    async def _measure(self) -> None:
        assert self._faults is not None
        looking: list[asyncio.Task[None]] = []  # the query in progress
        pacing = asyncio.create_task(self._pace())
        try:
            while (now_ns := self.clock.now_ns) < self.end_ns:
                self._check()
                if pacing.done():
                    pacing.result()
                self._progress(max(0.0, now_ns / self.end_ns))
                if self._faults.is_probing and all(task.done() for task in looking):
                    looking = [asyncio.create_task(self._look())]
                left_s = (self.end_ns - now_ns) / NS_PER_S / self.clock.speedup
                await asyncio.sleep(min(STEP_S, max(0.0, left_s)))
            await all_of(looking)
        finally:
            await cancel_all([pacing, *looking])

    async def _pace(self) -> None:
        """Ends the measured time as soon as the pacer says so."""
        pacer = self._place.pacer
        while pacer is not None and (look_ns := pacer.next_ns) is not None:
            await asyncio.sleep(max(0.0, (look_ns - self.clock.now_ns) / NS_PER_S / self.clock.speedup))
            now_ns = self.clock.now_ns
            if await asyncio.to_thread(pacer.is_over, now_ns, self._played.start_ns):
                self.end_ns = self._played.end_ns = min(self.end_ns, self.clock.now_ns)
                return

    async def _look(self) -> None:
        """Queries the clients, and the brokers whose state the probes of faults need."""
        assert self._faults is not None
        names = self._faults.probed_brokers
        await asyncio.gather(*(self.hosts[name].look() for name in names), self._clients.look())

    async def _drain(self) -> bool:
        """Waits until everything has arrived; False if that takes too long."""
        assert self._faults is not None
        self._faults.heal()
        await self._clients.ask_all("stop")
        end_s = time.monotonic() + max(DRAIN_S_MIN, DRAIN_MODEL_S / self.clock.speedup)
        quiet_looks = 0
        while quiet_looks < QUIET_LOOKS and time.monotonic() < end_s:
            self._check()
            await self._network.look()
            for name, host in self.hosts.items():
                if host.state is not None and host.state.is_store_blocked:
                    raise GroundError(
                        f"broker {name} cannot write its store any more: is its disk full?", is_missing=True
                    )
            state = await self._clients.look()
            brokers = [host.state for host in self.hosts.values()]
            is_quiet = (
                not self._faults.is_probing
                and state.under_way == 0
                and not state.unsettled
                and all(broker is not None and broker.under_way == 0 for broker in brokers)
                and all(link.is_connected for link in self.links.values())
            )
            quiet_looks = quiet_looks + 1 if is_quiet else 0
            await asyncio.sleep(STEP_S)
        return quiet_looks >= QUIET_LOOKS

    def _relay_lateness(self) -> Lateness:
        """The lateness of all relays of delayed links together."""
        lateness = Lateness()
        for relay in self._network.relays:
            for way in relay.ways.values():
                lateness.merge(way.lateness)
        return lateness

    def _lags(self) -> dict[str, float]:
        states = {name: host.state for name, host in self.hosts.items() if host.state is not None}
        return {name: state.lag_s / state.lag_samples for name, state in states.items() if state.lag_samples}


class RealGround(ABC):
    """A ground with real processes. It plays a run in its own event loop."""

    def __init__(self, watcher: Watcher | None = None) -> None:
        self._watcher = watcher
        self._stop: tuple[asyncio.AbstractEventLoop, asyncio.Event] | None = None
        self._is_stopped = False
        self.played = Played(has_begun=False)

    @abstractmethod
    def network(self, scenario: Scenario, place: Place) -> RealNetwork:
        """Creates the network; does not start it."""

    @abstractmethod
    def check(self, scenario: Scenario) -> None:
        """See base.Ground."""

    def prepare(self, notify: Notify) -> None:  # noqa: B027 - most have nothing to prepare
        """See base.Ground."""

    def play(self, scenario: Scenario, place: Place, progress: Progress) -> None:
        uvloop.run(self._play(scenario, place, progress))

    async def _play(self, scenario: Scenario, place: Place, progress: Progress) -> None:
        stopping = asyncio.Event()
        self._stop = asyncio.get_running_loop(), stopping
        try:
            await self._play_until(stopping, scenario, place, progress)
        finally:
            self._stop = None  # another signal must not wake a closed loop

    async def _play_until(self, stopping: asyncio.Event, scenario: Scenario, place: Place, progress: Progress) -> None:
        if self._is_stopped:
            raise KeyboardInterrupt
        place.raw.mkdir(parents=True, exist_ok=True)
        network = self.network(scenario, place)
        try:
            playing = asyncio.create_task(
                RealRun(scenario, place, network, progress, self.played, self._watcher).play()
            )
            stop = asyncio.create_task(stopping.wait())
            await asyncio.wait({playing, stop}, return_when=asyncio.FIRST_COMPLETED)
            stop.cancel()
            if not playing.done():
                playing.cancel()
                with suppress(asyncio.CancelledError):
                    await playing
                raise KeyboardInterrupt
            playing.result()
        except GroundError as error:
            raise await network.cause(error) from None
        finally:
            await network.close()

    def stop(self) -> None:
        self._is_stopped = True
        if self._stop is not None:
            loop, stopping = self._stop
            loop.call_soon_threadsafe(stopping.set)

"""A tree of real brokers for tests of other programs: plain calls that strike, heal, and wait until it is so.

It is the network of a ground without a run, in an event loop of its own in a thread. What a verb does has happened,
and was seen, when the verb returns; if it does not happen, GroundError says so in a sentence. ValueError is for what
cannot be meant: an unknown name, a broker that is crashed twice.
"""

import asyncio
import os
import threading
import time
from collections.abc import Coroutine, Iterable, Mapping
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import uvloop

from brokerbed.orchestrator.grounds.base import GroundError, Place
from brokerbed.orchestrator.grounds.calm import STOP_S_MAX, obstacles, until_stopped, wait_until_calm
from brokerbed.orchestrator.grounds.described import FILE, described, prepare
from brokerbed.orchestrator.grounds.door import Door
from brokerbed.orchestrator.grounds.local import LocalHost, LocalLink, LocalNetwork
from brokerbed.orchestrator.grounds.losses import described_losses, losses
from brokerbed.orchestrator.grounds.network import look_until
from brokerbed.orchestrator.grounds.relay import DOWN, UP

if TYPE_CHECKING:
    from brokerbed.orchestrator.grounds.container import DockerHost, DockerLink
    from brokerbed.orchestrator.grounds.docker import DockerNetwork

    AnyHost = LocalHost | DockerHost
    AnyLink = LocalLink | DockerLink

__all__ = ["BrokerNetwork", "GroundError"]

CALM_S_MAX = 30.0  # unless the caller waits longer
NAMES_SHOWN_MAX = 10
LINES_TOLD = 10  # of what a broker said last
END_S_MAX = 10.0  # for calls that were given up

NOT_RUNNING = "the network does not run: it was not started, or is closed"

LOCAL, DOCKER = GROUNDS = "local", "docker"

T = TypeVar("T")


__tracebackhide__ = methodcaller("errisinstance", (GroundError, ValueError))
"""pytest shows the tester's line and the sentence, and not what is behind it, unless that is wrong."""


class BrokerNetwork:
    """Brokers as processes or containers of this machine, joined to a tree. Between `start` and `close` they run."""

    def __init__(
        self,
        parents: Mapping[str, str | None] | None = None,
        *,
        folder: Path,
        topology: Mapping[str, Any] | None = None,
        routing: str = "identity",
        durability: str = "process",
        on: str = "local",
        **settings: Any,
    ) -> None:
        """`parents` maps each broker to its parent, or `topology` is one of the scenario format's. `settings` are that
        format's keys refresh, limits, links and service. Data and logs of the brokers go to `folder`. `on` is the
        ground, local or docker."""
        if on not in GROUNDS:
            raise ValueError(f"brokers run on {' or '.join(GROUNDS)}, not on {on}")
        if (parents is None) == (topology is None):
            raise ValueError("give either the parent of every broker, like {'root': None, 'a': 'root'}, or a topology")
        tree = topology if parents is None else {"tree": "explicit", "parents": dict(parents)}
        self._scenario = described(folder, {"topology": tree, "routing": routing, "durability": durability, **settings})
        self.folder = folder
        self._on = on
        self.names: tuple[str, ...] = self._scenario.tree.names
        self.history: list[tuple[float, str]] = []  # when what was done: seconds since the start
        self._network: LocalNetwork | DockerNetwork | None = None  # until it is started
        self._last_states: list[str] | None = None  # of the brokers, when they were ended
        self._pid = os.getpid()
        self._doors: dict[str, Door] = {}
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="brokerbed", daemon=True)
        self._calls: set[asyncio.Task[Any]] = set()  # under way
        self._closing = threading.RLock()  # calls may come from several threads
        self._start_s = time.monotonic()
        self._calm_ns: list[int] = []  # when nothing was under way

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- life -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """All brokers serve, and are linked to their parents."""
        if self._network is not None or self._loop.is_closed():
            raise ValueError("a network can be started only once: make another one")
        prepare(self._scenario, is_local=self._on == LOCAL)
        place = Place(self.folder / FILE, 0, self.folder)
        if self._on == DOCKER:
            from brokerbed.orchestrator.grounds.docker import DockerGround  # only where it is wanted

            self._network = DockerGround().network(self._scenario, place)
        else:
            self._network = LocalNetwork(self._scenario, place, is_relayed=True)
        self._thread.start()
        try:
            self._do("start", self._start())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends all brokers. What they left on disk stays."""
        if os.getpid() != self._pid:  # in a forked process the brokers are not ours
            return
        with self._closing:
            if self._loop.is_closed():
                return
            self._last_states = self._states()
            try:
                if self._thread.is_alive():
                    self._call(self._close())
            finally:
                if self._thread.is_alive():
                    self._loop.call_soon_threadsafe(self._loop.stop)
                    self._thread.join()
                self._loop.close()

    def is_running(self) -> bool:
        """Whether it was started and not closed; only then there are brokers to do something to."""
        return self._thread.is_alive() and not self._loop.is_closed()

    def check(self) -> None:
        """Raises GroundError if a broker is dead and nobody killed it."""

        async def check() -> None:
            network = self._started
            for host in network.hosts.values():
                await host.buried()
            network.check()

        self._call(check())

    # -- what there is ----------------------------------------------------------------------------------------

    def address(self, broker: str) -> tuple[str, int]:
        """Host and port for clients; they stay the same when the broker is crashed and restarted."""
        self._host(broker)
        return self._doors[broker].address

    def state(self, broker: str) -> str:
        """serving, paused, crashed or dead."""
        host = self._host(broker)
        if not host.is_up:
            return "crashed"
        return "paused" if host.is_paused else "serving" if host.serving else "dead"

    def under_way(self, broker: str) -> int:
        """Messages (and changes of interest) that the broker has and is not done with, be it that they wait for a link
        or for a client, or that somebody has not acknowledged them."""
        host = self._up(broker)
        if host.is_paused:
            raise ValueError(f"broker {broker} is paused: it cannot be asked")
        self._call(host.look())
        return 0 if host.state is None else int(host.state.under_way)

    def told(self) -> str:
        """For people: the brokers, what was done to them, and the last lines of what they said."""
        if self._network is None:
            return "the network was not started"
        lines = self._states() if self._last_states is None else [*self._last_states]
        lines += [f"{at_s:8.3f} s  {what}" for at_s, what in self.history]
        network: LocalNetwork | DockerNetwork = self._network
        for name, host in [*network.hosts.items()]:
            lines += [f"{name}: {line}" for line in list(host.said.lines)[-LINES_TOLD:]]
        return "\n".join(lines)

    def _states(self) -> list[str]:
        doors = list(self._doors.items())
        return [f"{name} {host}:{port} {self.state(name)}" for name, door in doors for host, port in [door.address]]

    # -- faults -----------------------------------------------------------------------------------------------

    def crash(self, broker: str) -> None:
        """kill -9. The data stays, as far as `durability` says."""
        self._do(f"crash {broker}", self._crash(self._up(broker)))

    def restart(self, broker: str) -> None:
        """A crashed broker serves again, on its data, and its links are connected."""
        host = self._host(broker)
        if host.is_up:
            raise ValueError(f"broker {broker} is not crashed: it cannot be restarted")
        if host.is_paused:
            raise ValueError(f"broker {broker} was paused before it crashed: resume it first")
        self._do(f"restart {broker}", self._restart(host))

    def pause(self, broker: str) -> None:
        """It is stopped where it is (SIGSTOP): its connections stay, nobody is answered."""
        host = self._up(broker)
        if host.is_paused:
            raise ValueError(f"broker {broker} is paused already")
        self._do(f"pause {broker}", self._pause(host, True))

    def resume(self, broker: str) -> None:
        """Ends the pause, also that of a broker that was crashed meanwhile, which stays crashed."""
        host = self._host(broker)
        if not host.is_paused:
            raise ValueError(f"broker {broker} is not paused: it cannot be resumed")
        self._do(f"resume {broker}", self._pause(host, False))

    def cut(self, one: str, other: str, way: str | None = None) -> None:
        """Nothing passes their link any more, both ways or one, as in way="a>root". What is under way is held."""
        link = self._link(one, other)
        ways = {None: (UP, DOWN), f"{link.child.name}>{link.parent.name}": (UP,),
                f"{link.parent.name}>{link.child.name}": (DOWN,)}  # fmt: skip
        if way not in ways:
            raise ValueError(f"way must be {one}>{other} or {other}>{one}, not {way}")
        self._do(f"cut {way or f'{one}-{other}'}", self._cut(link, ways[way]))

    def repair(self, one: str, other: str) -> None:
        """Their link is whole again and connected; what was held goes on."""
        link = self._link(one, other)
        if not link.is_cut:
            raise ValueError(f"the link between {one} and {other} is not cut: it cannot be repaired")
        self._do(f"repair {one}-{other}", self._repair(link))

    def disconnect(self, broker: str, client_id: str | None = None) -> int:
        """Resets the connections of all its clients, or of one; returns how many. They may connect again at once."""
        host = self._up(broker)
        who = "" if client_id is None else f" client {client_id}"
        return self._do(f"disconnect {broker}{who}", self._disconnect(host, client_id))

    def wait_until_calm(self, timeout_s: float = CALM_S_MAX) -> None:
        """All links are connected and no message or change of interest is under way; those for clients that are not
        connected may wait."""
        self._call(self._calm(timeout_s))

    def heal(self) -> None:
        """Everything that is paused, crashed or cut is whole again."""
        for name in self.names:
            if self._host(name).is_paused:
                self.resume(name)
            if not self._host(name).is_up:
                self.restart(name)
        for link in self._started.links.values():
            if link.is_cut:
                self.repair(link.child.name, link.parent.name)

    def assert_nothing_lost(self, timeout_s: float = CALM_S_MAX) -> None:
        """Waits until it is calm; then every message at QoS 1 or 2 that a broker took was acknowledged by all its
        subscribers, or waits for those that are absent. AssertionError names those that are lost."""
        __tracebackhide__ = True
        self.wait_until_calm(timeout_s)
        states = {name: host.state for name, host in self._started.hosts.items()}
        waiting = {name: 0 if it is None else int(it.offline) for name, it in states.items()}
        folders = {name: self.folder / name for name in self.names}
        lost = losses(folders, waiting, self._calm_ns, self._scenario.service.broker_in is not None)
        if lost:
            raise AssertionError(described_losses(lost))

    # -- names ------------------------------------------------------------------------------------------------

    def _host(self, broker: str) -> "AnyHost":
        if broker not in self.names:
            more = " ..." if len(self.names) > NAMES_SHOWN_MAX else ""
            raise ValueError(f"there is no broker {broker}; there are {', '.join(self.names[:NAMES_SHOWN_MAX])}{more}")
        if broker not in self._doors or not self.is_running():
            raise ValueError(NOT_RUNNING)
        return self._started.hosts[broker]

    @property
    def _started(self) -> "LocalNetwork | DockerNetwork":
        assert self._network is not None
        return self._network

    def _up(self, broker: str) -> "AnyHost":
        host = self._host(broker)
        if not host.is_up:
            raise ValueError(f"broker {broker} is crashed: restart it first")
        return host

    def _link(self, one: str, other: str) -> "AnyLink":
        ends = {self._host(one).name, self._host(other).name}
        for link in self._started.links.values():
            if {link.child.name, link.parent.name} == ends:
                return link
        raise ValueError(f"there is no link between {one} and {other}")

    # -- in the event loop ------------------------------------------------------------------------------------

    def _do(self, what: str, work: Coroutine[Any, Any, T]) -> T:
        self.history.append((time.monotonic() - self._start_s, what))
        return self._call(work)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        is_inside = threading.current_thread() is self._thread
        if is_inside or not self.is_running():
            work.close()
            raise ValueError("the network cannot be called from its own event loop" if is_inside else NOT_RUNNING)
        future = asyncio.run_coroutine_threadsafe(self._known(work), self._loop)
        try:
            return future.result()
        except GroundError as error:
            raise error.with_traceback(None) from None  # what is behind it tells a tester nothing
        except BaseException:
            future.cancel()
            raise

    async def _known(self, work: Coroutine[Any, Any, T]) -> T:
        call = asyncio.current_task()
        assert call is not None
        self._calls.add(call)
        try:
            return await work
        finally:
            self._calls.discard(call)

    async def _start(self) -> None:
        network = self._started
        await network.start()
        for name, host in network.hosts.items():
            self._doors[name] = Door(host.address)
            await self._doors[name].open()
        await self._until_linked("linked to their parents")

    async def _close(self) -> None:
        calls = self._calls - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls, timeout=END_S_MAX)
        for door in self._doors.values():
            door.close()
        await self._started.close()

    async def _crash(self, host: "AnyHost") -> None:
        host.crash()
        await host.done()
        self._doors[host.name].shut()

    async def _restart(self, host: "AnyHost") -> None:
        host.start()
        await host.done()
        await self._doors[host.name].open()
        await self._until_linked(f"all linked after the restart of {host.name}")

    async def _pause(self, host: "AnyHost", is_paused: bool) -> None:
        host.pause(is_paused)
        await host.done()
        if is_paused:
            await until_stopped(host)
        else:
            await self._until_linked(f"all linked after {host.name} was resumed")

    async def _cut(self, link: "AnyLink", ways: Iterable[str]) -> None:
        link.cut(*ways)
        await link.done()
        if not all(map(link.is_held, ways)):
            raise GroundError(f"the link of {link.child.name} to {link.parent.name} was not cut")

    async def _repair(self, link: "AnyLink") -> None:
        link.repair(UP, DOWN)
        await link.done()
        await self._until_linked(f"linked after the repair of {link.child.name}-{link.parent.name}")

    async def _disconnect(self, host: "AnyHost", client_id: str | None) -> int:
        wait_s_max = 0.0 if host.is_paused else STOP_S_MAX
        try:
            count = await self._doors[host.name].disconnect(client_id, wait_s_max)
        except TimeoutError:
            raise GroundError(f"broker {host.name} did not end the connections within {STOP_S_MAX:.0f} s") from None
        if not count:
            who = "no client" if client_id is None else f"no client {client_id}"
            raise GroundError(f"{who} is connected to broker {host.name}: there is nothing to disconnect")
        return count

    async def _until_linked(self, what: str) -> None:
        """Those that can be."""
        network = self._started
        links = [it for it in network.links.values() if not obstacles([it.child, it.parent], [it])]
        hosts = [it for it in network.hosts.values() if it.is_up and not it.is_paused]
        await look_until(
            network.hosts, lambda: all(it.serving for it in hosts) and all(it.is_confirmed for it in links), what
        )

    async def _calm(self, timeout_s: float) -> None:
        network = self._started
        await wait_until_calm(network, [*network.hosts.values()], [*network.links.values()], timeout_s)
        self._calm_ns.append(time.time_ns())

"""A tree of real brokers for tests of other programs, with blocking calls that inject and heal faults.

It is the network of a ground without a run, in an event loop of its own in a thread. When a call returns, its effect
has happened and was observed; if the effect does not happen, GroundError says so in one sentence. ValueError is raised
for calls that cannot be meant: an unknown name, or a broker that is crashed twice.
"""

import asyncio
import os
import threading
import time
from collections.abc import Coroutine, Mapping
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import uvloop

from brokerbed.broker.routing.registry import ALGORITHMS, DEFAULT
from brokerbed.orchestrator.grounds.base import GroundError, Place
from brokerbed.orchestrator.grounds.client_proxy import ClientProxy
from brokerbed.orchestrator.grounds.linking import cut, move, repair, until_linked
from brokerbed.orchestrator.grounds.local import LocalLink, LocalNetwork
from brokerbed.orchestrator.grounds.local_host import LocalHost
from brokerbed.orchestrator.grounds.losses import losses, losses_text
from brokerbed.orchestrator.grounds.network_scenario import FILE, network_scenario, prepare
from brokerbed.orchestrator.grounds.quiescence import STOP_S_MAX, until_stopped, wait_until_quiet
from brokerbed.orchestrator.grounds.relay import DOWN, UP

if TYPE_CHECKING:
    from brokerbed.orchestrator.grounds.container import DockerHost, DockerLink
    from brokerbed.orchestrator.grounds.docker import DockerNetwork

    AnyHost = LocalHost | DockerHost
    AnyLink = LocalLink | DockerLink

__all__ = ["BrokerNetwork", "GroundError"]

CALM_S_MAX = 30.0  # how long we wait for a calm network, unless the caller says otherwise
NAMES_SHOWN_MAX = 10
STDERR_LINES_MAX = 10  # the last lines of each broker that a failed test shows
END_S_MAX = 10.0  # how long cancelled calls may take to end

NOT_RUNNING = "the network does not run: it was not started, or is closed"

LOCAL, DOCKER = GROUNDS = "local", "docker"

T = TypeVar("T")


__tracebackhide__ = methodcaller("errisinstance", (GroundError, ValueError))
"""pytest shows the line of the test and the sentence, but none of our own frames unless the error is our bug."""


class BrokerNetwork:
    """A tree of brokers, each a process or a container of this machine. They run between `start` and `close`."""

    def __init__(
        self,
        parents: Mapping[str, str | None] | None = None,
        *,
        folder: Path,
        topology: Mapping[str, Any] | None = None,
        routing: str | None = None,
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
        self._scenario = network_scenario(
            folder, {"topology": tree, "routing": routing or DEFAULT, "durability": durability, **settings}
        )
        self.folder = folder
        self._on = on
        self.names: tuple[str, ...] = self._scenario.tree.names
        self.history: list[tuple[float, str]] = []  # seconds since the start, and what was done then
        self._network: LocalNetwork | DockerNetwork | None = None  # None until it is started
        self._last_states: list[str] | None = None  # the states of the brokers when the network was closed
        self._pid = os.getpid()
        self._proxies: dict[str, ClientProxy] = {}
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="brokerbed", daemon=True)
        self._calls: set[asyncio.Task[Any]] = set()  # under way
        self._closing = threading.RLock()  # calls may come from several threads
        self._start_s = time.monotonic()
        self._calm_ns: list[int] = []  # times at which nothing was under way

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- life -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Starts all brokers, and returns when they serve and are linked to their parents."""
        if self._network is not None or self._loop.is_closed():
            raise ValueError("a network can be started only once: make another one")
        prepare(self._scenario, is_local=self._on == LOCAL)
        place = Place(self.folder / FILE, 0, self.folder)
        may_move = ALGORITHMS[self._scenario.routing].lets_links_move
        if self._on == DOCKER:
            from brokerbed.orchestrator.grounds.docker import DockerGround  # the SDK may not be installed

            self._network = DockerGround().network(self._scenario, place, may_move and not self._scenario.links)
        else:
            self._network = LocalNetwork(self._scenario, place, is_relayed=True, may_move=may_move)
        self._thread.start()
        try:
            self._do("start", self._start())
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Ends all brokers. What they left on disk stays."""
        if os.getpid() != self._pid:  # a forked process does not own the brokers
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
        """Whether the network was started and not closed yet."""
        return self._thread.is_alive() and not self._loop.is_closed()

    def check(self) -> None:
        """Raises GroundError if a broker is dead and nobody killed it."""

        async def check() -> None:
            network = self._started
            for host in network.hosts.values():
                await host.wait_if_dead()
            network.check()

        self._call(check())

    # -- queries ----------------------------------------------------------------------------------------------

    def address(self, broker: str) -> tuple[str, int]:
        """Host and port for clients; they stay the same when the broker is crashed and restarted."""
        self._host(broker)
        return self._proxies[broker].address

    def state(self, broker: str) -> str:
        """serving, paused, crashed or dead."""
        host = self._host(broker)
        if not host.is_up:
            return "crashed"
        return "paused" if host.is_paused else "serving" if host.serving else "dead"

    def under_way(self, broker: str) -> int:
        """How many messages and changes of interest wait at the broker, or are not acknowledged by their receivers."""
        host = self._up(broker)
        if host.is_paused:
            raise ValueError(f"broker {broker} is paused: it cannot be asked")
        self._call(host.look())
        return 0 if host.state is None else int(host.state.under_way)

    def told(self) -> str:
        """A summary for people: the brokers, what was done to them, and the last lines they wrote to stderr."""
        if self._network is None:
            return "the network was not started"
        lines = self._states() if self._last_states is None else [*self._last_states]
        lines += [f"{at_s:8.3f} s  {what}" for at_s, what in self.history]
        network: LocalNetwork | DockerNetwork = self._network
        for name, host in [*network.hosts.items()]:
            lines += [f"{name}: {line}" for line in list(host.stderr.lines)[-STDERR_LINES_MAX:]]
        return "\n".join(lines)

    def _states(self) -> list[str]:
        proxies = list(self._proxies.items())
        return [f"{name} {host}:{port} {self.state(name)}" for name, proxy in proxies for host, port in [proxy.address]]

    # -- faults -----------------------------------------------------------------------------------------------

    def crash(self, broker: str) -> None:
        """Kills the broker (kill -9). Its data survives as far as `durability` says."""
        self._do(f"crash {broker}", self._crash(self._up(broker)))

    def restart(self, broker: str) -> None:
        """Starts a crashed broker on its data, and returns when it serves and its links are connected."""
        host = self._host(broker)
        if host.is_up:
            raise ValueError(f"broker {broker} is not crashed: it cannot be restarted")
        if host.is_paused:
            raise ValueError(f"broker {broker} was paused before it crashed: resume it first")
        self._do(f"restart {broker}", self._restart(host))

    def pause(self, broker: str) -> None:
        """Suspends the broker (SIGSTOP): its connections stay open, but nobody is answered."""
        host = self._up(broker)
        if host.is_paused:
            raise ValueError(f"broker {broker} is paused already")
        self._do(f"pause {broker}", self._pause(host, True))

    def resume(self, broker: str) -> None:
        """Ends the pause. A broker that was crashed meanwhile stays crashed."""
        host = self._host(broker)
        if not host.is_paused:
            raise ValueError(f"broker {broker} is not paused: it cannot be resumed")
        self._do(f"resume {broker}", self._pause(host, False))

    def cut(self, one: str, other: str, way: str | None = None) -> None:
        """Cuts the link between two brokers, both ways or one way (way="a>root"). What is under way is held."""
        link = self._link(one, other)
        ways = {None: (UP, DOWN), f"{link.child.name}>{link.parent.name}": (UP,),
                f"{link.parent.name}>{link.child.name}": (DOWN,)}  # fmt: skip
        if way not in ways:
            raise ValueError(f"way must be {one}>{other} or {other}>{one}, not {way}")
        self._do(f"cut {way or f'{one}-{other}'}", cut(link, ways[way]))

    def repair(self, one: str, other: str) -> None:
        """Repairs the link, and returns when it is connected; what was held is passed on."""
        link = self._link(one, other)
        if not link.is_cut:
            raise ValueError(f"the link between {one} and {other} is not cut: it cannot be repaired")
        self._do(f"repair {one}-{other}", repair(self._started, link))

    def move(self, child: str, parent: str) -> None:
        """Has a broker get another parent, a neighbour of its present one, and returns when that link is connected."""
        self._host(child), self._host(parent)
        link = self._started.links.get(child)
        if link is None:
            raise ValueError(f"{child} is the root: it has no link that could move")
        self._up(link.parent.name)
        self._do(f"move {child} to {parent}", move(self._started, child, parent))

    def parents(self) -> dict[str, str | None]:
        """The parent of every broker at the moment."""
        links = self._started.links
        return {name: links[name].parent.name if name in links else None for name in self.names}

    def disconnect(self, broker: str, client_id: str | None = None) -> int:
        """Resets the connections of one client or of all, and returns how many. They may connect again at once."""
        host = self._up(broker)
        who = "" if client_id is None else f" client {client_id}"
        return self._do(f"disconnect {broker}{who}", self._disconnect(host, client_id))

    def wait_until_calm(self, timeout_s: float = CALM_S_MAX) -> None:
        """Waits until all links are connected and nothing is under way, except to clients that are not connected."""
        self._call(self._calm(timeout_s))

    def heal(self) -> None:
        """Resumes, restarts and repairs everything that is paused, crashed or cut."""
        for name in self.names:
            if self._host(name).is_paused:
                self.resume(name)
            if not self._host(name).is_up:
                self.restart(name)
        for link in self._cut_links():
            self.repair(link.child.name, link.parent.name)

    def assert_nothing_lost(self, timeout_s: float = CALM_S_MAX) -> None:
        """Waits until the network is calm, then checks that every message at QoS 1 or 2 that a broker accepted was
        acknowledged by all its subscribers, or waits for those that are absent. AssertionError names the lost ones."""
        __tracebackhide__ = True
        self.wait_until_calm(timeout_s)
        states = {name: host.state for name, host in self._started.hosts.items()}
        waiting = {name: 0 if state is None else int(state.offline) for name, state in states.items()}
        folders = {name: self.folder / name for name in self.names}
        lost = losses(folders, waiting, self._calm_ns, self._scenario.service.broker_in is not None)
        if lost:
            raise AssertionError(losses_text(lost))

    # -- names ------------------------------------------------------------------------------------------------

    def _host(self, broker: str) -> "AnyHost":
        if broker not in self.names:
            more = " ..." if len(self.names) > NAMES_SHOWN_MAX else ""
            raise ValueError(f"there is no broker {broker}; there are {', '.join(self.names[:NAMES_SHOWN_MAX])}{more}")
        if broker not in self._proxies or not self.is_running():
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

    def _cut_links(self) -> "list[AnyLink]":
        """Also those whose child has got another parent since."""
        return [link for link in self._started.pairs.values() if link.is_cut]

    def _link(self, one: str, other: str) -> "AnyLink":
        ends = {self._host(one).name, self._host(other).name}
        links: list[AnyLink] = [*self._cut_links(), *self._started.links.values()]
        for link in links:
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
        future = asyncio.run_coroutine_threadsafe(self._registered(work), self._loop)
        try:
            return future.result()
        except GroundError as error:
            raise error.with_traceback(None) from None  # our own frames do not help the author of a test
        except BaseException:
            future.cancel()
            raise

    async def _registered(self, work: Coroutine[Any, Any, T]) -> T:
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
            self._proxies[name] = ClientProxy(host.address)
            await self._proxies[name].open()
        await until_linked(self._started, "linked to their parents")

    async def _close(self) -> None:
        calls = self._calls - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        if calls:
            await asyncio.wait(calls, timeout=END_S_MAX)
        for proxy in self._proxies.values():
            proxy.close()
        await self._started.close()

    async def _crash(self, host: "AnyHost") -> None:
        host.crash()
        await host.done()
        self._proxies[host.name].shut()

    async def _restart(self, host: "AnyHost") -> None:
        host.start()
        await host.done()
        await self._proxies[host.name].open()
        await until_linked(self._started, f"all linked after the restart of {host.name}")

    async def _pause(self, host: "AnyHost", is_paused: bool) -> None:
        host.pause(is_paused)
        await host.done()
        if is_paused:
            await until_stopped(host)
        else:
            await until_linked(self._started, f"all linked after {host.name} was resumed")

    async def _disconnect(self, host: "AnyHost", client_id: str | None) -> int:
        wait_s_max = 0.0 if host.is_paused else STOP_S_MAX
        try:
            count = await self._proxies[host.name].disconnect(client_id, wait_s_max)
        except TimeoutError:
            raise GroundError(f"broker {host.name} did not end the connections within {STOP_S_MAX:.0f} s") from None
        if not count:
            who = "no client" if client_id is None else f"no client {client_id}"
            raise GroundError(f"{who} is connected to broker {host.name}: there is nothing to disconnect")
        return count

    async def _calm(self, timeout_s: float) -> None:
        network = self._started
        await wait_until_quiet(network, timeout_s)
        self._calm_ns.append(time.time_ns())

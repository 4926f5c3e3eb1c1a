"""A tree of real brokers for tests of other programs: plain calls that strike, heal, and wait until it is so.

It is the network of a ground without a run, in an event loop of its own in a thread. What a verb does has happened,
and was seen, when the verb returns; if it does not happen, GroundError says so in a sentence. ValueError is for what
cannot be meant: an unknown name, a broker that is crashed twice.
"""

import asyncio
import threading
import time
from collections.abc import Coroutine, Iterable, Mapping
from operator import methodcaller
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import uvloop

from orchestrator.grounds.base import GroundError, Place
from orchestrator.grounds.described import FILE, described, prepare
from orchestrator.grounds.door import Door
from orchestrator.grounds.local import LocalHost, LocalLink, LocalNetwork
from orchestrator.grounds.network import LOOK_S, look_until
from orchestrator.grounds.relay import DOWN, UP

if TYPE_CHECKING:
    from orchestrator.grounds.container import DockerHost, DockerLink
    from orchestrator.grounds.docker import DockerNetwork

    AnyHost = LocalHost | DockerHost
    AnyLink = LocalLink | DockerLink

__all__ = ["BrokerNetwork", "GroundError"]

CALM_S_MAX = 30.0  # unless the caller waits longer
CALM_LOOKS = 3  # so many times in a row nothing is under way
STOP_S_MAX = 10.0
NAMES_SHOWN_MAX = 10
LINES_TOLD = 10  # of what a broker said last
END_S_MAX = 10.0  # for calls that were given up

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
        self._network: LocalNetwork | DockerNetwork
        self._doors: dict[str, Door] = {}
        self._loop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="brokerbed", daemon=True)
        self._calls: set[asyncio.Task[Any]] = set()  # under way
        self._start_s = time.monotonic()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- life -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """All brokers serve, and are linked to their parents."""
        prepare(self._scenario, is_local=self._on == LOCAL)
        place = Place(self.folder / FILE, 0, self.folder)
        if self._on == DOCKER:
            from orchestrator.grounds.docker import DockerGround  # only where it is wanted

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
        if self._loop.is_closed():
            return
        if self._thread.is_alive():
            self._call(self._close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def check(self) -> None:
        """Raises GroundError if a broker is dead and nobody killed it."""

        async def check() -> None:
            for host in self._network.hosts.values():
                await host.buried()
            self._network.check()

        if self._thread.is_alive():
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
        lines = [
            f"{name} {host}:{port} {self.state(name)}" for name in self._doors for host, port in [self.address(name)]
        ]
        lines += [f"{at_s:8.3f} s  {what}" for at_s, what in self.history]
        for name, host in self._network.hosts.items():
            lines += [f"{name}: {line}" for line in list(host.said.lines)[-LINES_TOLD:]]
        return "\n".join(lines)

    # -- faults -----------------------------------------------------------------------------------------------

    def crash(self, broker: str) -> None:
        """kill -9. The data stays, as far as `durability` says."""
        self._do(f"crash {broker}", self._crash(self._up(broker)))

    def restart(self, broker: str) -> None:
        """A crashed broker serves again, on its data, and its links are connected."""
        host = self._host(broker)
        if host.is_up:
            raise ValueError(f"broker {broker} is not crashed: it cannot be restarted")
        self._do(f"restart {broker}", self._restart(host))

    def pause(self, broker: str) -> None:
        """It is stopped where it is (SIGSTOP): its connections stay, nobody is answered."""
        host = self._up(broker)
        if host.is_paused:
            raise ValueError(f"broker {broker} is paused already")
        self._do(f"pause {broker}", self._pause(host, True))

    def resume(self, broker: str) -> None:
        host = self._up(broker)
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
        self._call(self._wait_until_calm(timeout_s))

    # -- names ------------------------------------------------------------------------------------------------

    def _host(self, broker: str) -> "AnyHost":
        if broker not in self.names:
            more = " ..." if len(self.names) > NAMES_SHOWN_MAX else ""
            raise ValueError(f"there is no broker {broker}; there are {', '.join(self.names[:NAMES_SHOWN_MAX])}{more}")
        if broker not in self._doors or self._loop.is_closed():
            raise ValueError("the network does not run: it was not started, or is closed")
        return self._network.hosts[broker]

    def _up(self, broker: str) -> "AnyHost":
        host = self._host(broker)
        if not host.is_up:
            raise ValueError(f"broker {broker} is crashed: restart it first")
        return host

    def _link(self, one: str, other: str) -> "AnyLink":
        ends = {self._host(one).name, self._host(other).name}
        for link in self._network.links.values():
            if {link.child.name, link.parent.name} == ends:
                return link
        raise ValueError(f"there is no link between {one} and {other}")

    # -- in the event loop ------------------------------------------------------------------------------------

    def _do(self, what: str, work: Coroutine[Any, Any, T]) -> T:
        self.history.append((time.monotonic() - self._start_s, what))
        return self._call(work)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
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
        await self._network.start()
        for name, host in self._network.hosts.items():
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
        await self._network.close()

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
            await _until_stopped(host)
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
        if not host.is_paused:
            await host.look()
        before = _closed(host)
        count = self._doors[host.name].disconnect(client_id)
        if not count:
            who = "no client" if client_id is None else f"no client {client_id}"
            raise GroundError(f"{who} is connected to broker {host.name}: there is nothing to disconnect")
        if not host.is_paused:
            await look_until(
                self._network.hosts, lambda: _closed(host) >= before + count, f"rid of the clients of {host.name}"
            )
        return count

    async def _until_linked(self, what: str) -> None:
        """Those that can be."""
        links = [it for it in self._network.links.values() if not self._obstacles([it.child, it.parent], [it])]
        hosts = [it for it in self._network.hosts.values() if it.is_up and not it.is_paused]
        await look_until(
            self._network.hosts, lambda: all(it.serving for it in hosts) and all(it.is_confirmed for it in links), what
        )

    def _obstacles(self, hosts: "Iterable[AnyHost]", links: "Iterable[AnyLink]") -> list[str]:
        """What keeps them from being linked."""
        crashed = [f"broker {it.name} is crashed" for it in hosts if not it.is_up]
        paused = [f"broker {it.name} is paused" for it in hosts if it.is_paused]
        return crashed + paused + [f"the link {it.child.name}-{it.parent.name} is cut" for it in links if it.is_cut]

    async def _wait_until_calm(self, timeout_s: float) -> None:
        network = self._network
        hosts: list[AnyHost] = [*network.hosts.values()]
        links: list[AnyLink] = [*network.links.values()]
        if obstacles := self._obstacles(hosts, links):
            raise GroundError(f"the network cannot come to rest: {', '.join(obstacles)}")
        end_s, calm, busy = time.monotonic() + timeout_s, 0, list[str]()
        while calm < CALM_LOOKS:
            if time.monotonic() > end_s:
                raise GroundError(f"the network did not come to rest within {timeout_s:g} s: {', '.join(busy)}")
            network.check()
            await network.look()
            busy = [f"{it.child.name}-{it.parent.name} is not connected" for it in links if not it.is_confirmed]
            busy += [f"{left:.0f} under way at {it.name}" for it in hosts if (left := _under_way(it))]
            slow = [(link, relay.size_bytes) for link in links if (relay := link.relay) is not None]
            busy += [f"{size} bytes on {it.child.name}-{it.parent.name}" for it, size in slow if size]
            calm = 0 if busy else calm + 1
            await asyncio.sleep(LOOK_S)


async def _until_stopped(host: "AnyHost") -> None:
    """It cannot be asked, but the system knows."""
    try:
        async with asyncio.timeout(STOP_S_MAX):
            while host.serving:  # noqa: ASYNC110 - only /proc knows
                await asyncio.sleep(LOOK_S / 10)
    except TimeoutError:
        raise GroundError(f"broker {host.name} was not stopped within {STOP_S_MAX:.0f} s") from None


def _closed(host: "AnyHost") -> float:
    return 0.0 if host.state is None else host.state.closed


def _under_way(host: "AnyHost") -> float:
    return 1.0 if host.state is None else host.state.under_way - host.state.offline

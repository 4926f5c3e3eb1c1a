"""Brokers in containers, and the links between them: what faults do to them, and what can be seen of that."""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from docker.models.containers import Container

from brokerbed.orchestrator.grounds import watch
from brokerbed.orchestrator.grounds.base import GroundError
from brokerbed.orchestrator.grounds.engine import Engine
from brokerbed.orchestrator.grounds.network import READY_S_MAX, all_of, end_all, is_linked
from brokerbed.orchestrator.grounds.processes import KEPT_LINES, Said
from brokerbed.orchestrator.grounds.relay import Relay

PORT, METRICS_PORT = 1883, 9100
FAILURES = {  # of a helper
    "cut": "the link of {} to its parent could not be cut",
    "repair": "the link of {} to its parent could not be repaired",
    "settle": "it is unknown whether the links of {} carry data again",
}
DEAD = ("exited", "dead")  # as the engine calls it
Address = tuple[str, int]
Ports = dict[str, Address]  # of a container, and where they are published


class DockerHost:
    """The container of one broker, in one life after the other."""

    def __init__(self, engine: Engine, name: str, ip: str, metrics: Address, ports: Ports) -> None:
        """`ip` is its own, on the run's network; `metrics` is for us."""
        self.name = name
        self.is_up = False  # it is meant to run
        self.is_paused = False
        self.state: watch.BrokerState | None = None
        self.changed_s = 0.0
        self.container: Container | None = None
        self.links: list[DockerLink] = []  # to its parent: what is cut there must be cut again in another life
        self.ip = ip
        self.address = (ip, PORT)  # for clients
        self.ports = ports
        self.metrics = metrics
        self.said = Said()
        self._engine = engine
        self._status = ""  # as the engine said after the last thing that was done
        self._is_ready = False
        self._doing: asyncio.Task[None] | None = None
        self._getting_ready: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()

    @property
    def serving(self) -> int:
        return int(self._is_ready and self._status == "running")

    @property
    def is_dead(self) -> bool:
        return not self.is_up and self._status in DEAD

    @property
    def is_stopped(self) -> bool:
        return self.is_dead or (self.is_paused and self._status == "paused")

    def start(self) -> None:
        self.is_up = True
        self._is_ready = False
        self._do(self._start)

    def crash(self) -> None:
        self.is_up = False
        self._is_ready = False
        self._do(self._kill)

    def pause(self, is_paused: bool) -> None:
        self.is_paused = is_paused
        self._do(self._pause)

    def _do(self, action: Callable[[], Any]) -> None:
        """One thing after the other."""
        before = self._doing
        self.changed_s = asyncio.get_running_loop().time()

        async def act() -> None:
            if before is not None:
                await asyncio.wait([before])
                before.result()
            await action()
            self.changed_s = asyncio.get_running_loop().time()

        self._doing = asyncio.create_task(act())

    async def done(self) -> None:
        """What was last asked for has happened: it serves, is stopped, or is gone."""
        if self._doing is not None:
            await self._doing
        if self._getting_ready is not None and self.is_up and not self.is_paused:
            await self._getting_ready

    async def _kill(self) -> None:
        assert self.container is not None
        await end_all([] if self._getting_ready is None else [self._getting_ready])
        self._getting_ready = None
        if await self._look_at() not in DEAD:
            await self._act("kill", *DEAD)

    async def _pause(self) -> None:
        """The container is paused if it is to be and runs; a dead one has nothing to pause."""
        status = await self._look_at()
        if self.is_paused and status == "running":
            await self._act("pause", "paused", *DEAD)
        elif not self.is_paused and status == "paused":
            await self._act("unpause", "running", *DEAD)

    async def _act(self, verb: str, *becomes: str) -> None:
        assert self.container is not None
        with suppress(GroundError):  # it may have ended by itself
            await self._engine.do(getattr(self.container, verb))
        end_s = time.monotonic() + READY_S_MAX
        while await self._look_at() not in becomes and time.monotonic() < end_s:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    async def _look_at(self) -> str:
        assert self.container is not None
        async with self._looking:  # so that an answer never replaces a newer one
            await self._engine.do(self.container.reload)
            self._status = str(self.container.status)
        return self._status

    async def _start(self) -> None:
        assert self.container is not None
        await self._engine.do(self.container.start)
        self._getting_ready = asyncio.create_task(self._until_ready())  # meanwhile it can be paused, or killed
        cut = [it for it in self.links if it.is_cut and it.relay is None]
        if cut:
            await self._act("pause", "paused", *DEAD)  # so that it does not connect before its link is cut
        for link in self.links:
            await link.apply()
        if cut and not self.is_paused:
            await self._act("unpause", "running", *DEAD)

    async def _until_ready(self) -> None:
        """The time that it is paused for does not count."""
        left_s, before_s = READY_S_MAX, time.monotonic()
        while (state := await watch.look(self.metrics)) is None:
            left_s -= 0 if self.is_paused else time.monotonic() - before_s
            before_s = time.monotonic()
            if await self._look_at() == "exited" or left_s < 0:
                raise GroundError(f"broker {self.name} did not start{await self._last()}")
            await asyncio.sleep(0.05)
        self.state = state
        await self._look_at()
        self.changed_s = asyncio.get_running_loop().time()
        self._is_ready = True

    async def listen(self) -> None:
        """To what it has said so far."""
        if self.container is not None:
            told: Any = await self._engine.do(self.container.logs, stdout=False, tail=KEPT_LINES)
            self.said.lines.clear()
            self.said.lines.extend(it.removeprefix("brokerbed broker: ") for it in told.decode().splitlines())

    async def _last(self) -> str:
        await self.listen()
        return self.said.last

    def check(self) -> None:
        for task in (self._doing, self._getting_ready):
            if task is not None and task.done() and not task.cancelled():
                task.result()

    async def end(self) -> None:
        await end_all([it for it in (self._doing, self._getting_ready) if it is not None])

    async def look(self) -> None:
        if self.serving:
            self.state = await watch.look(self.metrics) or self.state

    async def buried(self) -> None:
        """Raises GroundError if it is dead and nobody killed it."""
        if await self._look_at() in DEAD:
            await self.died()

    async def died(self) -> None:
        """The engine says that it does not run."""
        self._status = "exited"
        if self.is_up and self._is_ready and (self._doing is None or self._doing.done()):
            raise GroundError(f"broker {self.name} died{await self._last()}")


class DockerLink:
    """Between a broker and its parent: cut in the child's network, or by the relay of a slow or narrow link."""

    def __init__(
        self, helper: "Helper", parents_helper: "Helper", child: DockerHost, parent: DockerHost, address: Address
    ) -> None:
        """The helpers are for the networks of the child and of the parent; `address` is the parent's, as the child
        sees it."""
        self.child = child
        self.parent = parent
        self.address = address
        self.relay: Relay | None = None
        self._helper = helper
        self._parents_helper = parents_helper
        self._held: set[str] = set()  # as it is to be
        self._applied: set[str] = set()  # as it is
        self._is_shut = False  # a probe saw that no connection can be made
        self._changed_s = 0.0
        self._lock = asyncio.Lock()
        self._changes: list[asyncio.Task[None]] = []  # the last of them, and those that failed
        child.links.append(self)

    @property
    def is_connected(self) -> bool:
        """As the child said after the last thing that was done to either end, or to the link."""
        return is_linked(self.child, self.parent, self._changed_s)

    @property
    def is_confirmed(self) -> bool:
        """The parent says so, too."""
        return self.is_connected and is_linked(self.parent, self.child, self._changed_s)

    @property
    def is_cut(self) -> bool:
        return bool(self._held)

    def cut(self, *ways: str) -> None:
        self._change(self._held | set(ways))

    def repair(self, *ways: str) -> None:
        self._change(self._held - set(ways))

    def is_held(self, way: str) -> bool:
        if self.relay is not None:
            return self.relay.is_held(way)
        return (way in self._applied and self._is_shut) or (way in self._held and self.child.is_dead)

    def _change(self, held: set[str]) -> None:
        self._changed_s = asyncio.get_running_loop().time()
        if self.relay is not None:
            self.relay.hold(*held - self._held)
            self.relay.release(*self._held - held)
        self._held = held
        if self.relay is None:
            left = [it for it in self._changes if not it.done() or it.exception() is not None]
            self._changes = [*left, asyncio.create_task(self._apply_now())]

    async def done(self) -> None:
        """What was last asked for has happened."""
        await all_of(self._changes)

    def check(self) -> None:
        """Raises GroundError if it could not be cut, or repaired."""
        for change in self._changes:
            if change.done():
                change.result()

    async def end(self) -> None:
        await end_all(self._changes)

    async def apply(self) -> None:
        """The child has a new network namespace."""
        self._applied = set()
        if self.relay is None and self._held:
            await self._apply_now()

    async def _apply_now(self) -> None:
        async with self._lock:
            for verb, ways in (("cut", self._held - self._applied), ("repair", self._applied - self._held)):
                if ways:
                    said = await self._helper.run(self.child, verb, self.address, *sorted(ways))
                    if verb == "repair":  # the parent may have something to send, too
                        await self._parents_helper.run(self.parent, "settle", (self.child.ip, PORT))
                    if said:
                        self._is_shut = said == "shut"
                        self._applied = self._applied | ways if verb == "cut" else self._applied - ways
            self._changed_s = asyncio.get_running_loop().time()


class Helper:
    """Short-lived containers that change the network of another one."""

    def __init__(self, engine: Engine, tag: str, labels: dict[str, str]) -> None:
        self._engine = engine
        self._tag = tag
        self._labels = labels

    async def run(self, host: DockerHost, verb: str, address: Address, *ways: str) -> str:
        """open or shut; nothing if the broker is not there, whose network then is not there either."""
        assert host.container is not None
        try:
            said = await self._engine.do(
                self._engine.client.containers.run,
                self._tag, ["brokerbed.orchestrator.grounds.cutter", verb, *map(str, address), *ways],
                network_mode=f"container:{host.container.id}", user="0", cap_drop=["ALL"],
                cap_add=["NET_ADMIN", "NET_RAW"], read_only=True, tmpfs={"/run": ""}, labels=self._labels, remove=True,
            )  # fmt: skip
        except GroundError as error:
            if host.is_up and host.serving:
                raise GroundError(f"{FAILURES[verb].format(host.name)} ({error})") from None
            return ""
        return str(said.decode()).strip()

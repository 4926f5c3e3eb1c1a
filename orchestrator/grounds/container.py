"""Brokers in containers and the links between them: how faults act on them, and how their effect is observed."""

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from docker.errors import ContainerError
from docker.models.containers import Container

from brokerbed.orchestrator.grounds import watch
from brokerbed.orchestrator.grounds.attached_container import AttachedContainer, raw_socket
from brokerbed.orchestrator.grounds.base import GroundError
from brokerbed.orchestrator.grounds.engine import Engine
from brokerbed.orchestrator.grounds.network import READY_S_MAX, all_of, cancel_all, is_linked
from brokerbed.orchestrator.grounds.processes import KEPT_LINES, StderrLines
from brokerbed.orchestrator.grounds.relay import Relay

PORT, METRICS_PORT = 1883, 9100
FAILURES = {  # what a helper failed to do
    "cut": "the link of {} to its parent could not be cut",
    "repair": "the link of {} to its parent could not be repaired",
    "settle": "it is unknown whether the links of {} carry data again",
}
ANSWERS = "moving ", "refused: "  # how answers to instructions begin
DEAD = ("exited", "dead")  # states of a container, in the words of the engine
Address = tuple[str, int]
Ports = dict[str, Address]  # ports of a container, and the addresses at which they are published


class DockerHost:
    """The container of one broker, over all its lives."""

    def __init__(self, engine: Engine, name: str, ip: str, metrics: Address, ports: Ports) -> None:
        """`ip` is its address on the network of the run; `metrics` is the address at which we read its metrics."""
        self.name = name
        self.first_parent: str | None = None  # its parent in the scenario
        self.takes_instructions = False
        self.is_up = False  # whether the broker should run
        self.is_paused = False
        self.state: watch.BrokerState | None = None
        self.changed_s = 0.0
        self.container: Container | None = None
        self.links: list[DockerLink] = []  # links whose cuts must be repeated when the broker is restarted
        self.ip = ip
        self.address = (ip, PORT)  # the address for clients
        self.ports = ports
        self.metrics = metrics
        self.stderr = StderrLines()
        self._engine = engine
        self._attached: AttachedContainer | None = None
        self._status = ""  # the state that the engine reported after the last action
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

    @property
    def parent(self) -> str | None:
        """The name of its parent, as the broker has last reported it; None for the root."""
        reported = None if self.state is None else self.state.parent
        return reported or self.first_parent

    async def instruct(self, line: str) -> str:
        """The broker's answer to an instruction, see broker/runtime/control.py."""
        if self._attached is None:
            raise GroundError(f"broker {self.name} takes no instructions, because its links do not move")
        self._attached.write(line.encode() + b"\n")
        while data := await self._attached.stdout.readline():
            if (answer := data.decode().strip()).startswith(ANSWERS):
                return answer
        raise GroundError(f"broker {self.name} has not answered")

    async def _attach(self) -> None:
        """Connects to the standard streams of a container that is about to start, which ends when they are closed."""
        assert self.container is not None
        if self._attached is not None:
            self._attached.end()
        stream = {"stdin": 1, "stdout": 1, "stream": 1}
        attach = self._engine.client.api.attach_socket
        self._attached = AttachedContainer(raw_socket(await self._engine.do(attach, self.container.id, stream)))
        await self._attached.open()

    def _do(self, action: Callable[[], Any]) -> None:
        """Performs actions one after the other."""
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
        """Waits until the last action has taken effect: the broker serves, is stopped, or is gone."""
        if self._doing is not None:
            await self._doing
        if self._getting_ready is not None and self.is_up and not self.is_paused:
            await self._getting_ready

    async def _kill(self) -> None:
        assert self.container is not None
        await cancel_all([] if self._getting_ready is None else [self._getting_ready])
        self._getting_ready = None
        if await self._look_at() not in DEAD:
            await self._act("kill", *DEAD)

    async def _pause(self) -> None:
        """Pauses or resumes the container as intended, unless it is dead."""
        status = await self._look_at()
        if self.is_paused and status == "running":
            await self._act("pause", "paused", *DEAD)
        elif not self.is_paused and status == "paused":
            await self._act("unpause", "running", *DEAD)

    async def _act(self, verb: str, *becomes: str) -> None:
        assert self.container is not None
        with suppress(GroundError):  # it may have exited already
            await self._engine.do(getattr(self.container, verb))
        end_s = time.monotonic() + READY_S_MAX
        while await self._look_at() not in becomes and time.monotonic() < end_s:  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    async def _look_at(self) -> str:
        assert self.container is not None
        async with self._looking:  # so that an old answer never replaces a newer one
            await self._engine.do(self.container.reload)
            self._status = str(self.container.status)
        return self._status

    async def _start(self) -> None:
        assert self.container is not None
        if self.takes_instructions:
            await self._attach()
        await self._engine.do(self.container.start)
        self._getting_ready = asyncio.create_task(self._until_ready())  # meanwhile the broker can be paused or killed
        cut = [link for link in self.links if link.is_cut and link.relay is None]
        if cut:
            await self._act("pause", "paused", *DEAD)  # so that it does not connect before its link is cut
        for link in self.links:
            await link.apply()
        if cut and not self.is_paused:
            await self._act("unpause", "running", *DEAD)

    async def _until_ready(self) -> None:
        """Waits until the broker answers. Time during which it is paused does not count."""
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
        """Reads what the broker has written to stderr so far."""
        if self.container is not None:
            output: Any = await self._engine.do(self.container.logs, stdout=False, tail=KEPT_LINES)
            self.stderr.lines.clear()
            self.stderr.lines.extend(line.removeprefix("brokerbed broker: ") for line in output.decode().splitlines())

    async def _last(self) -> str:
        await self.listen()
        return self.stderr.last

    def check(self) -> None:
        for task in (self._doing, self._getting_ready):
            if task is not None and task.done() and not task.cancelled():
                task.result()

    async def end(self) -> None:
        await cancel_all([task for task in (self._doing, self._getting_ready) if task is not None])
        if self._attached is not None:
            self._attached.end()

    async def look(self) -> None:
        if self.serving:
            self.state = await watch.look(self.metrics) or self.state

    async def wait_if_dead(self) -> None:
        """Raises GroundError if the broker died and nobody killed it."""
        if await self._look_at() in DEAD:
            await self.died()

    async def died(self) -> None:
        """Called when the engine reports that the container does not run."""
        self._status = "exited"
        if self.is_up and self._is_ready and (self._doing is None or self._doing.done()):
            raise GroundError(f"broker {self.name} died{await self._last()}")


class DockerLink:
    """The link of a broker to its parent. It is cut in the network of the child, or by the relay if it has one."""

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
        self._held: set[str] = set()  # directions that should be cut
        self._applied: set[str] = set()  # directions that are cut
        self._is_shut = False  # a probe found that no connection can be made
        self._changed_s = 0.0
        self._lock = asyncio.Lock()
        self._changes: list[asyncio.Task[None]] = []  # the last change, and those that failed
        child.links.append(self)

    @property
    def is_present(self) -> bool:
        return self.child.parent == self.parent.name

    def of_both(self) -> "DockerLink":
        return self

    @property
    def is_connected(self) -> bool:
        """Whether the child has reported the link as connected since the last change to either end or to the link."""
        return is_linked(self.child, self.parent, self._changed_s)

    @property
    def is_confirmed(self) -> bool:
        """Whether both ends have reported the link as connected."""
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

    def crossed_bytes(self, way: str) -> int:
        return 0 if self.relay is None else self.relay.crossed_bytes(way)

    def _change(self, held: set[str]) -> None:
        self._changed_s = asyncio.get_running_loop().time()
        if self.relay is not None:
            self.relay.hold(*held - self._held)
            self.relay.release(*self._held - held)
        self._held = held
        if self.relay is None:
            left = [change for change in self._changes if not change.done() or change.exception() is not None]
            self._changes = [*left, asyncio.create_task(self._apply_now())]

    async def done(self) -> None:
        """Waits until the last change has taken effect."""
        await all_of(self._changes)

    def check(self) -> None:
        """Raises GroundError if the link could not be cut or repaired."""
        for change in self._changes:
            if change.done():
                change.result()

    async def end(self) -> None:
        await cancel_all(self._changes)

    async def apply(self) -> None:
        """Called when the child has a new network namespace, in which nothing is cut."""
        self._applied = set()
        if self.relay is None and self._held:
            await self._apply_now()

    async def _apply_now(self) -> None:
        async with self._lock:
            for verb, ways in (("cut", self._held - self._applied), ("repair", self._applied - self._held)):
                if ways:
                    answer = await self._helper.run(self.child, verb, self.address, *sorted(ways))
                    if verb == "repair":  # the parent may also have unsent data
                        await self._parents_helper.run(self.parent, "settle", (self.child.ip, PORT))
                    if answer:
                        self._is_shut = answer == "shut"
                        self._applied = self._applied | ways if verb == "cut" else self._applied - ways
            self._changed_s = asyncio.get_running_loop().time()


class PresentLinks(Mapping[str, DockerLink]):
    """The links as the brokers have last reported them, by child."""

    def __init__(self, hosts: Mapping[str, DockerHost], pair: Callable[[str, str], DockerLink]) -> None:
        self._hosts = hosts
        self._pair = pair

    def __getitem__(self, child: str) -> DockerLink:
        parent = self._hosts[child].parent
        if parent is None:
            raise KeyError(child)
        return self._pair(child, parent)

    def __iter__(self) -> Iterator[str]:
        return (name for name, host in self._hosts.items() if host.parent is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class Helper:
    """Starts short-lived containers that change the network of another container."""

    def __init__(self, engine: Engine, tag: str, labels: dict[str, str]) -> None:
        self._engine = engine
        self._tag = tag
        self._labels = labels

    async def run(self, host: DockerHost, verb: str, address: Address, *ways: str) -> str:
        """Returns `open` or `shut`; empty if the broker, and thus its network, does not exist."""
        assert host.container is not None
        try:
            answer = await self._engine.do(
                self._run, host.container.id, ["brokerbed.orchestrator.grounds.cutter", verb, *map(str, address), *ways]
            )
        except GroundError as error:
            if host.is_up and host.serving:
                raise GroundError(f"{FAILURES[verb].format(host.name)} ({error})") from None
            return ""
        return answer.decode().strip()

    def _run(self, container_id: str, command: list[str]) -> bytes:
        """Unlike `run` of the SDK, this removes a helper that cannot start because the other container has died."""
        helper = self._engine.client.containers.create(
            self._tag, command, network_mode=f"container:{container_id}", user="0", cap_drop=["ALL"],
            cap_add=["NET_ADMIN", "NET_RAW"], read_only=True, tmpfs={"/run": ""}, labels=self._labels,
        )  # fmt: skip
        try:
            helper.start()
            status = helper.wait()["StatusCode"]
            if status:
                raise ContainerError(helper, status, command, self._tag, helper.logs(stdout=False).decode())
            return bytes(helper.logs(stderr=False))
        finally:
            helper.remove(force=True)

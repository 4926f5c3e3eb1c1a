"""The process of one broker on the loopback interface, over all its lives."""

import asyncio
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from brokerbed.broker.runtime.command import MISSING
from brokerbed.orchestrator.grounds import journal, watch
from brokerbed.orchestrator.grounds.base import GroundError
from brokerbed.orchestrator.grounds.network import READY_S_MAX
from brokerbed.orchestrator.grounds.processes import StderrLines, how_it_ended
from brokerbed.orchestrator.grounds.settings import CONFIG

if TYPE_CHECKING:
    from brokerbed.orchestrator.grounds.local import LocalNetwork

LOOPBACK = "127.0.0.1"
READY_POLL_S = 1.0  # how often we check whether a broker that starts has used up its time


class LocalHost:
    """The process of one broker, over all its lives."""

    def __init__(self, network: "LocalNetwork", name: str, folder: Path, routing: str, durability: str) -> None:
        self.name = name
        self.is_up = False  # whether the broker should run
        self.is_paused = False
        self.parent: tuple[str, int] | None = None
        self.state: watch.BrokerState | None = None
        self.changed_s = 0.0  # when the broker was last started, crashed or paused
        self.stderr = StderrLines()
        self._network = network
        self._folder = folder
        self._options = ["--routing", routing, "--durability", durability]
        self._ports = [reserve_port(), reserve_port()]  # held while the broker is dead
        self._process: asyncio.subprocess.Process | None = None
        self._ready = asyncio.Event()
        self._starting: asyncio.Task[None] | None = None
        self._is_spawning = False  # a process is being created, and has no id yet
        self._life = 0

    @property
    def address(self) -> tuple[str, int]:
        return LOOPBACK, self._ports[0].getsockname()[1]

    @property
    def metrics(self) -> tuple[str, int]:
        return LOOPBACK, self._ports[1].getsockname()[1]

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None else None

    @property
    def serving(self) -> int:
        """Whether the process is ready, and neither dead nor stopped."""
        return int(self._ready.is_set() and self._process_state not in ("", "T", "Z"))

    @property
    def is_dead(self) -> bool:
        return not self._is_spawning and self._process_state in ("", "Z")

    @property
    def is_stopped(self) -> bool:
        return self.is_dead or self._process_state == "T"

    @property
    def _process_state(self) -> str:
        """The state in the notation of /proc; empty if there is no process."""
        if self._process is None or self._process.returncode is not None:
            return ""
        return journal.state(self._process.pid)

    def start(self) -> None:
        self.is_up = True
        self._ready.clear()
        self._life += 1
        self.changed_s = self._network.now_s
        self._starting = asyncio.create_task(self._start(self._life, self._starting))

    async def done(self) -> None:
        """Waits until the last action has taken effect: the broker serves, or its process is gone."""
        if self.is_up and self._starting is not None:
            await self._starting
        elif self._process is not None:
            await self._process.wait()

    async def _start(self, life: int, before: "asyncio.Task[None] | None") -> None:
        if before is not None:
            await asyncio.wait([before])
        if self._process is not None:
            await self._process.wait()
        if not self.is_up or life != self._life:
            return
        host, port = self.address
        options = ["--name", self.name, "--host", host, "--port", str(port), "--metrics-port", str(self.metrics[1])]
        options += [*self._options, "--data", str(self._folder), "--config", str(self._folder / CONFIG)]
        if self.parent is not None:
            options += ["--parent", f"{self.parent[0]}:{self.parent[1]}"]
        self._is_spawning = True
        try:
            process = self._process = await self._network.processes.spawn(
                f"broker {self.name}", self.stderr, "brokerbed.broker.runtime.command", *options
            )
        finally:
            self._is_spawning = False
        if not self.is_up:  # it was crashed before the process existed
            process.kill()
        elif self.is_paused:  # it was paused before the process existed
            self._signal(signal.SIGSTOP)
        first_line = await self._first_line(process)
        if not self.is_up or life != self._life:
            return
        if not first_line:
            code = await process.wait()
            await self.stderr.wait_closed()
            why = self.stderr.last or f" ({how_it_ended(code)})"
            raise GroundError(f"broker {self.name} did not start{why}", is_missing=code == MISSING)
        self.changed_s = self._network.now_s
        self._ready.set()

    async def _first_line(self, process: asyncio.subprocess.Process) -> bytes:
        """The line that the broker prints when it is ready, or nothing if it exited. Pauses do not count as time."""
        assert process.stdout is not None
        reading = asyncio.ensure_future(process.stdout.readline())
        left_s = READY_S_MAX
        try:
            while not (await asyncio.wait([reading], timeout=READY_POLL_S))[0]:
                left_s -= 0 if self.is_paused else READY_POLL_S
                if left_s <= 0:
                    raise GroundError(f"broker {self.name} was not ready within {READY_S_MAX:.0f} s{self.stderr.last}")
            return reading.result()
        finally:
            reading.cancel()

    async def instruct(self, line: str) -> str:
        """The broker's answer to an instruction, see broker/runtime/control.py."""
        process = self._process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(line.encode() + b"\n")
        return (await process.stdout.readline()).decode().strip()

    def crash(self) -> None:
        self.is_up = False
        self.changed_s = self._network.now_s
        self._signal(signal.SIGKILL)

    def pause(self, is_paused: bool) -> None:
        self.is_paused = is_paused
        self.changed_s = self._network.now_s
        self._signal(signal.SIGSTOP if is_paused else signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.pid, number)

    def check(self) -> None:
        """Raises GroundError if the broker died and nobody killed it."""
        if self._starting is not None and self._starting.done() and not self._starting.cancelled():
            self._starting.result()
        if not (self.is_up and self._ready.is_set() and self.stderr.is_closed):
            return
        if self._process is not None and (code := self._process.returncode) is not None:
            raise GroundError(f"broker {self.name} died ({how_it_ended(code)}){self.stderr.last}")

    async def wait_if_dead(self) -> None:
        """If the process is dead, waits until its exit code and its stderr are known."""
        if self._process is not None and journal.state(self._process.pid) in ("", "Z"):
            await self._process.wait()
            await self.stderr.wait_closed()

    async def look(self) -> None:
        if self.serving:
            self.state = await watch.look(self.metrics) or self.state

    async def end(self) -> None:
        self.is_up = False
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait([self._starting])
        for port in self._ports:
            port.close()


def reserve_port() -> socket.socket:
    """Reserves a free port: the socket is bound but does not listen, so a broker that knows the port can use it."""
    reservation = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    reservation.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reservation.bind((LOOPBACK, 0))
    return reservation

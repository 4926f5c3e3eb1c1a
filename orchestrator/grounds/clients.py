"""The processes that run the clients of a run, seen from the orchestrator."""

import asyncio
import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from brokerbed.clients.process import MISSING
from brokerbed.orchestrator.grounds.attached_container import AttachedContainer
from brokerbed.orchestrator.grounds.base import GroundError
from brokerbed.orchestrator.grounds.processes import StderrLines, how_it_ended
from brokerbed.scenario.peers import Peer


class ClientProcess:
    """A process with clients. Each command is a line of JSON, and so is each answer."""

    def __init__(self, name: str, process: asyncio.subprocess.Process | AttachedContainer, stderr: StderrLines) -> None:
        self.name = name
        self.process = process
        self.stderr = stderr
        self._is_ended = False  # we have ended it
        self._death = GroundError(f"{name} died")
        self._pending: deque[asyncio.Future[Any]] = deque()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            future = self._pending.popleft()
            if not future.done():
                future.set_result(json.loads(line))
        await self.stderr.wait_closed()
        try:
            code = await self.process.wait()
            self._death = GroundError(f"{self.name} died ({how_it_ended(code)}){self.stderr.last}")
        except GroundError as error:  # its engine is gone, so the exit code is unknown
            self._death = error
        for future in self._pending:
            self._fail(future)

    def _fail(self, future: asyncio.Future[Any]) -> None:
        if not future.done():
            future.set_exception(self._death)
            future.exception()  # marks the exception as retrieved; perhaps nobody awaits it

    def check(self) -> None:
        """Raises GroundError if the process died unexpectedly."""
        if self._reading.done() and not self._is_ended:
            raise self._death

    def ask(self, do: str, **with_: Any) -> asyncio.Future[Any]:
        assert self.process.stdin is not None
        future = asyncio.get_running_loop().create_future()
        if self._reading.done():
            self._fail(future)
            return future
        self._pending.append(future)
        self.process.stdin.write(json.dumps({"do": do, "with": with_}).encode() + b"\n")
        return future

    def end(self) -> None:
        """Makes the process write its log and exit."""
        assert self.process.stdin is not None
        self._is_ended = True
        self.process.stdin.close()

    async def ended(self) -> None:
        """Waits for the exit. Raises GroundError if the process could not write its log."""
        code = await self.process.wait()
        if code:
            await self.stderr.wait_closed()
            raise GroundError(
                f"{self.name} failed ({how_it_ended(code)}){self.stderr.last}", is_missing=code == MISSING
            )


@dataclass
class ClientState:
    """The answers of all processes to the last query, and when it was sent."""

    asked_s: float = 0.0
    unsettled: set[str] = field(default_factory=set)  # brokers with unsettled clients
    unsettled_peers: set[str] = field(default_factory=set)
    connected_peers: set[str] = field(default_factory=set)
    under_way: int = 0
    held: int = 0  # publications that wait because brokers do not accept them


class ClientProcesses:
    def __init__(self, processes: Sequence[ClientProcess]) -> None:
        self._processes = processes
        self.state = ClientState()

    async def ask_all(self, do: str, **with_: Any) -> list[Any]:
        return await asyncio.gather(*self.send_all(do, **with_))

    def send_all(self, do: str, **with_: Any) -> list[asyncio.Future[Any]]:
        return [process.ask(do, **with_) for process in self._processes]

    async def look(self) -> ClientState:
        state = ClientState(asyncio.get_running_loop().time())
        for answer in await self.ask_all("state"):
            state.unsettled.update(answer["unsettled"])
            state.unsettled_peers.update(answer["unsettled_peers"])
            state.connected_peers.update(answer["connected_peers"])
            state.under_way += answer["under_way"]
            state.held += answer["held"]
        self.state = state
        return state


class RemotePeer:
    """A peer in one of the processes, which faults can keep from connecting."""

    def __init__(self, peer: Peer, clients: ClientProcesses) -> None:
        self.peer = peer
        self._clients = clients
        self._changed_s = 0.0

    @property
    def client(self) -> "RemotePeer":
        return self

    @property
    def _state(self) -> ClientState | None:
        """The last state; None until a query was sent after the last change."""
        return self._clients.state if self._clients.state.asked_s > self._changed_s else None

    @property
    def is_connected(self) -> bool:
        return self._state is None or self.peer.id in self._state.connected_peers

    @property
    def is_settled(self) -> bool:
        return self._state is not None and self.peer.id not in self._state.unsettled_peers

    def keep_off(self, is_kept_off: bool) -> None:
        self._changed_s = asyncio.get_running_loop().time()
        self._clients.send_all("keep_off", peers=[self.peer.id], is_kept_off=is_kept_off)


class RemoteSessions:
    """All clients of one broker."""

    def __init__(self, broker: str, clients: ClientProcesses, since_s: float) -> None:
        self._broker = broker
        self._clients = clients
        self._since_s = since_s

    @property
    def is_settled(self) -> bool:
        state = self._clients.state
        return state.asked_s > self._since_s and self._broker not in state.unsettled

    @property
    def is_connected(self) -> bool:
        return self.is_settled

"""The processes with a run's clients, as the orchestrator sees them."""

import asyncio
import json
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from brokerbed.clients.process import MISSING
from brokerbed.orchestrator.grounds.attached import Attached
from brokerbed.orchestrator.grounds.base import GroundError
from brokerbed.orchestrator.grounds.processes import Said, how_it_ended
from brokerbed.scenario.format import Peer


class ClientProcess:
    """One of them: a command is a line, and so is its answer."""

    def __init__(self, name: str, process: asyncio.subprocess.Process | Attached, said: Said) -> None:
        self.name = name
        self.process = process
        self.said = said
        self._is_ended = False  # on our behalf
        self._death = GroundError(f"{name} died")
        self._asked: deque[asyncio.Future[Any]] = deque()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stdout is not None
        while line := await self.process.stdout.readline():
            answered = self._asked.popleft()
            if not answered.done():
                answered.set_result(json.loads(line))
        await self.said.over()
        try:
            code = await self.process.wait()
            self._death = GroundError(f"{self.name} died ({how_it_ended(code)}){self.said.last}")
        except GroundError as error:  # nobody knows: its engine is gone
            self._death = error
        for asked in self._asked:
            self._fail(asked)

    def _fail(self, asked: asyncio.Future[Any]) -> None:
        if not asked.done():
            asked.set_exception(self._death)
            asked.exception()  # it may be that nobody waits for it

    def check(self) -> None:
        """Raises GroundError if it is dead and nobody ended it."""
        if self._reading.done() and not self._is_ended:
            raise self._death

    def ask(self, do: str, **with_: Any) -> asyncio.Future[Any]:
        assert self.process.stdin is not None
        asked = asyncio.get_running_loop().create_future()
        if self._reading.done():
            self._fail(asked)
            return asked
        self._asked.append(asked)
        self.process.stdin.write(json.dumps({"do": do, "with": with_}).encode() + b"\n")
        return asked

    def end(self) -> None:
        """It writes its log and goes."""
        assert self.process.stdin is not None
        self._is_ended = True
        self.process.stdin.close()

    async def ended(self) -> None:
        """Raises GroundError if it could not write its log."""
        code = await self.process.wait()
        if code:
            await self.said.over()
            raise GroundError(f"{self.name} failed ({how_it_ended(code)}){self.said.last}", is_missing=code == MISSING)


@dataclass
class ClientState:
    """What all of them said when last asked, and when that was."""

    asked_s: float = 0.0
    unsettled: set[str] = field(default_factory=set)  # brokers
    unsettled_peers: set[str] = field(default_factory=set)
    connected_peers: set[str] = field(default_factory=set)
    under_way: int = 0
    held: int = 0  # publications that brokers do not take


class ClientProcesses:
    def __init__(self, processes: Sequence[ClientProcess]) -> None:
        self._processes = processes
        self.state = ClientState()

    async def ask_all(self, do: str, **with_: Any) -> list[Any]:
        return await asyncio.gather(*self.tell_all(do, **with_))

    def tell_all(self, do: str, **with_: Any) -> list[asyncio.Future[Any]]:
        return [process.ask(do, **with_) for process in self._processes]

    async def look(self) -> ClientState:
        state = ClientState(asyncio.get_running_loop().time())
        for told in await self.ask_all("state"):
            state.unsettled.update(told["unsettled"])
            state.unsettled_peers.update(told["unsettled_peers"])
            state.connected_peers.update(told["connected_peers"])
            state.under_way += told["under_way"]
            state.held += told["held"]
        self.state = state
        return state


class RemotePeer:
    """A peer in one of the processes, for faults that keep it off."""

    def __init__(self, peer: Peer, clients: ClientProcesses) -> None:
        self.peer = peer
        self._clients = clients
        self._told_s = 0.0

    @property
    def client(self) -> "RemotePeer":
        return self

    @property
    def _state(self) -> ClientState | None:
        """None until they were asked after what was told them last."""
        return self._clients.state if self._clients.state.asked_s > self._told_s else None

    @property
    def is_connected(self) -> bool:
        return self._state is None or self.peer.id in self._state.connected_peers

    @property
    def is_settled(self) -> bool:
        return self._state is not None and self.peer.id not in self._state.unsettled_peers

    def keep_off(self, is_kept_off: bool) -> None:
        self._told_s = asyncio.get_running_loop().time()
        self._clients.tell_all("keep_off", peers=[self.peer.id], is_kept_off=is_kept_off)


class RemoteSessions:
    """All clients at one broker."""

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

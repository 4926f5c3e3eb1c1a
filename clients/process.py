"""A process with a part of a scenario's clients: `python -m brokerbed.clients.process SCENARIO --point N --seed S ...`.

The orchestrator tells it what to do, one JSON object per line on standard input, and gets one line back for each. When
standard input ends, so does the process.
"""

import argparse
import asyncio
import gc
import json
import signal
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import uvloop

from brokerbed.clients.crowd import Crowd, PeerClient, PublishingPeer, SubscribingPeer
from brokerbed.clients.raw_log import append
from brokerbed.clients.session import Client
from brokerbed.clients.sight import Sight
from brokerbed.clients.sockets import BACKOFF_S, Line, RealClock
from brokerbed.clients.stock import StockClient
from brokerbed.log.record import Log
from brokerbed.scenario import Scenario, load

WRITE_S = 0.5  # between two writings of the log
SETTLE_S = 0.01  # between two looks whether all are connected
GC_ALLOCATIONS = 50_000
MISSING = 3  # exit code: the log could not be written
CONNECTING_MAX = 32  # threads in which stock clients connect: one that gets no answer must not keep the others waiting
PACKET_BYTES = 20  # of a publication, beside its payload


class Clients:
    """What the orchestrator can ask for: each public coroutine is a command."""

    def __init__(self, scenario: Scenario, part: int, parts: int) -> None:
        self._log = Log()
        self._clock = RealClock(scenario.clock.speedup)
        self._addresses: dict[str, tuple[str, int]] = {}
        self._at: dict[str, list[PeerClient]] = {}  # by broker
        self._retry: Callable[..., Any] = asyncio.get_running_loop().call_later
        new_peer = partial(kind_of_peers(scenario).new, self)
        self.crowd = Crowd(scenario, self._clock, self._log, self._client, new_peer, part, parts)

    def _client(self, broker: str, client_id: str, is_clean: bool) -> Client:
        client = Client(
            lambda it: Line(it, self._addresses[broker]),
            client_id,
            is_clean,
            lambda dial, number: self._retry(BACKOFF_S, dial, number),
        )
        self._at.setdefault(broker, []).append(client)
        return client

    def light_peer(self, broker: str, client_id: str) -> PeerClient:
        return self._client(broker, client_id, False)

    def stock_peer(self, broker: str, client_id: str) -> PeerClient:
        client = StockClient(lambda: self._addresses[broker], client_id)
        self._at.setdefault(broker, []).append(client)
        return client

    @property
    def log(self) -> Log:
        return self._log

    async def connect(self, brokers: dict[str, list[Any]]) -> None:
        """Returns when all are connected and what is subscribed at time zero is so."""
        self._addresses = {name: (host, port) for name, (host, port) in brokers.items()}
        self.crowd.connect()
        await self._settle()
        self.crowd.populate()
        await self._settle()
        gc.collect()
        gc.freeze()  # what is there now stays for long
        gc.set_threshold(GC_ALLOCATIONS, 50, 100)

    async def _settle(self) -> None:
        while not all(client.is_settled for client in self.crowd.clients):  # noqa: ASYNC110
            await asyncio.sleep(SETTLE_S)

    async def begin(self, start_ns: int, is_watched: bool) -> None:
        """At this wall time, which is to come."""
        self._clock.start(start_ns)
        if is_watched:
            self.crowd.watch()
        self.crowd.begin()

    async def keep_off(self, peers: list[str], is_kept_off: bool) -> None:
        for peer in self.crowd.peers:
            if peer.peer.id in peers:
                peer.keep_off(is_kept_off)

    async def state(self) -> dict[str, Any]:
        """Where somebody is not as he is to be, and which peers are on."""
        return {
            "unsettled": [broker for broker, it in self._at.items() if not all(client.is_settled for client in it)],
            "unsettled_peers": [it.peer.id for it in self.crowd.peers if not it.client.is_settled],
            "connected_peers": [it.peer.id for it in self.crowd.peers if it.client.is_connected],
            "under_way": sum(client.under_way for client in self.crowd.clients)
            + sum(len(peer.stage) for peer in self.crowd.peers),
            "held": self._held,
        }

    @property
    def _held(self) -> int:
        """Publications that wait because brokers do not take them; those that sockets hold are reckoned from bytes."""
        clients = list(self.crowd.clients)
        unsent_bytes = sum(client.unsent_bytes for client in clients)
        return sum(client.held for client in clients) + unsent_bytes // (
            self.crowd.scenario.payload_bytes + PACKET_BYTES
        )

    async def peers(self, since_ns: int) -> list[dict[str, Any]]:
        """For who watches; from now on messages that were made before `since_ns` have no delay.

        `queue` is a peer's own; of publishers the last number `sent`; of subscribers what they have `seen` of each
        publisher: last number, how many, seconds of delay of all together.
        """
        for it in self.crowd.peers:
            if isinstance(it, SubscribingPeer) and it.sight is not None:
                it.sight.since_ns = since_ns
        return [
            {
                "id": it.peer.id, "connected": it.client.is_connected, "queue": len(it.stage) + it.client.under_way,
                "sent": it.sent if isinstance(it, PublishingPeer) else None,
                "seen": _seen(it.sight) if isinstance(it, SubscribingPeer) and it.sight is not None else {},
            }
            for it in self.crowd.peers
        ]  # fmt: skip

    async def stop(self) -> None:
        """The measured time is over."""
        self.crowd.stop()

    async def lateness(self) -> dict[str, Any]:
        """Of what was done, in wall time."""
        clock = self._clock
        return {
            "done": clock.done,
            "done_late": clock.done_late,
            "mean_s": clock.late_ns / 1e9 / max(1, clock.done),
            "max_s": clock.late_ns_max / 1e9,
            "connecting_share": median(self.crowd.connecting_shares or [0.0]),
        }


class PeerKind(NamedTuple):
    """What a scenario's `peers` can be: how such a client is made, and the event loop that it needs."""

    new: Callable[[Clients, str, str], PeerClient]
    run: Callable[[Coroutine[Any, Any, int]], int]


PEER_KINDS = {
    "stock": PeerKind(Clients.stock_peer, asyncio.run),  # clients/stock.py says why it cannot be uvloop
    "light": PeerKind(Clients.light_peer, uvloop.run),
}


def kind_of_peers(scenario: Scenario) -> PeerKind:
    has_peers = bool(scenario.publishers or scenario.subscribers)
    return PEER_KINDS[scenario.peers if has_peers else "light"]


def _seen(sight: Sight) -> dict[str, tuple[int, int, float]]:
    return {name: (it.number, it.count, it.delay_ns / 1e9) for name, it in sight.of.items()}


class _Input(asyncio.StreamReaderProtocol):
    """Sets `ended` when there is nothing more to come, also while a command is being done."""

    def __init__(self, commands: asyncio.StreamReader, ended: asyncio.Event) -> None:
        super().__init__(commands)
        self._ended = ended

    def eof_received(self) -> bool | None:
        self._ended.set()
        return super().eof_received()

    def connection_lost(self, error: Exception | None) -> None:
        self._ended.set()
        super().connection_lost(error)


async def _answer(commands: asyncio.StreamReader, clients: Clients) -> None:
    while line := await commands.readline():
        wanted = json.loads(line)
        answer = await getattr(clients, wanted["do"])(**wanted.get("with", {}))
        print(json.dumps(answer), flush=True)


async def _serve(scenario: Scenario, options: argparse.Namespace) -> int:
    """The exit code."""
    clients = Clients(scenario, options.part, options.parts)
    write_log = partial(append, options.log, options.part + 1, clients.log)
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(CONNECTING_MAX))
    commands, ended = asyncio.StreamReader(limit=1 << 24), asyncio.Event()
    await loop.connect_read_pipe(lambda: _Input(commands, ended), sys.stdin)
    loop.add_signal_handler(signal.SIGTERM, ended.set)

    async def write() -> None:
        while True:
            await asyncio.sleep(WRITE_S)
            with suppress(OSError):  # a full disk: what is to be written waits
                write_log()

    working = [asyncio.create_task(it) for it in (write(), _answer(commands, clients), ended.wait())]
    code = 0
    try:
        done, _ = await asyncio.wait(working, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in working:
            task.cancel()
        try:
            write_log()
        except OSError as error:
            print(f"the log of these clients ends too early ({error.strerror})", file=sys.stderr)
            code = MISSING
    return code


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m brokerbed.clients.process", description=__doc__)
    parser.add_argument("scenario", type=Path, help="the file")
    parser.add_argument("--point", type=int, default=0, help="of its sweep")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--part", type=int, default=0, help="which part of the clients")
    parser.add_argument("--parts", type=int, default=1, help="how many parts there are")
    parser.add_argument("--log", type=Path, required=True, help="folder of the raw log")
    options = parser.parse_args()
    scenario = replace(load(options.scenario).points[options.point], seed=options.seed)
    sys.exit(kind_of_peers(scenario).run(_serve(scenario, options)))


if __name__ == "__main__":
    main()

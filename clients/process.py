"""A process with a part of a scenario's clients: `python -m brokerbed.clients.process SCENARIO --point N --seed S ...`.

The orchestrator sends commands, one JSON object per line on standard input, and gets one line back for each. When
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

from brokerbed.clients.actor import PeerClient
from brokerbed.clients.crowd import Crowd
from brokerbed.clients.delivery_stats import DeliveryStats
from brokerbed.clients.raw_log import append
from brokerbed.clients.session import Client
from brokerbed.clients.sockets import BACKOFF_S, RealClock, SocketConnection
from brokerbed.clients.stock import StockClient
from brokerbed.clients.whereabouts import Whereabouts
from brokerbed.log.record import Log
from brokerbed.scenario import Scenario, load

WRITE_S = 0.5  # how often the log is written
SETTLE_S = 0.01  # how often we check whether all clients are connected
GC_ALLOCATIONS = 50_000
MISSING = 3  # exit code: the log could not be written
CONNECTING_MAX = 32  # threads in which stock clients connect, so that one without an answer does not delay the others
PACKET_BYTES = 20  # of a publication without its payload


class Clients:
    """The commands of the orchestrator: each public coroutine is one."""

    def __init__(self, scenario: Scenario, part: int, parts: int) -> None:
        self._log = Log()
        self._clock = RealClock(scenario.clock.speedup)
        self._addresses: dict[str, tuple[str, int]] = {}
        self._whereabouts = Whereabouts[PeerClient]()
        self._retry: Callable[..., Any] = asyncio.get_running_loop().call_later
        new_peer = partial(kind_of_peers(scenario).new, self)
        self.crowd = Crowd(scenario, self._clock, self._log, self._client, new_peer, part, parts)

    def _client(self, broker: str, client_id: str, is_clean: bool) -> Client:
        client = Client(
            lambda owner: SocketConnection(owner, self._addresses[owner.broker]),
            client_id,
            is_clean,
            lambda dial, attempt: self._retry(BACKOFF_S, dial, attempt),
            broker,
            self._moved,
        )
        self._whereabouts.add(client, broker)
        return client

    def _moved(self, client: PeerClient, from_broker: str) -> None:
        self._whereabouts.move(client, from_broker, client.broker)

    def light_peer(self, broker: str, client_id: str) -> PeerClient:
        return self._client(broker, client_id, False)

    def stock_peer(self, broker: str, client_id: str) -> PeerClient:
        client = StockClient(lambda broker: self._addresses[broker], client_id, broker, self._moved)
        self._whereabouts.add(client, broker)
        return client

    @property
    def log(self) -> Log:
        return self._log

    async def connect(self, brokers: dict[str, list[Any]]) -> None:
        """Connects all clients. Returns when the subscriptions of time zero exist."""
        self._addresses = {name: (host, port) for name, (host, port) in brokers.items()}
        self.crowd.connect()
        await self._settle()
        self.crowd.populate()
        await self._settle()
        gc.collect()
        gc.freeze()  # objects that exist now live long
        gc.set_threshold(GC_ALLOCATIONS, 50, 100)

    async def _settle(self) -> None:
        while not all(client.is_settled for client in self.crowd.clients):  # noqa: ASYNC110
            await asyncio.sleep(SETTLE_S)

    async def begin(self, start_ns: int, is_watched: bool) -> None:
        """Starts the workload at this wall time, which is in the future."""
        self._clock.start(start_ns)
        if is_watched:
            self.crowd.watch()
        self.crowd.begin()

    async def keep_off(self, peers: list[str], is_kept_off: bool) -> None:
        for peer in self.crowd.peers:
            if peer.peer.id in peers:
                peer.keep_off(is_kept_off)

    async def state(self) -> dict[str, Any]:
        """Which clients are not in their intended state, which peers are connected, and what is under way."""
        return {
            "unsettled": list(self._whereabouts.brokers_with(lambda client: not client.is_settled)),
            "unsettled_peers": [peer.peer.id for peer in self.crowd.peers if not peer.client.is_settled],
            "connected_peers": [peer.peer.id for peer in self.crowd.peers if peer.client.is_connected],
            "under_way": sum(client.under_way for client in self.crowd.clients)
            + sum(peer.waiting for peer in self.crowd.peers),
            "held": self._held,
        }

    @property
    def _held(self) -> int:
        """Publications that wait because brokers do not accept them; those held by sockets are estimated from bytes."""
        clients = list(self.crowd.clients)
        unsent_bytes = sum(client.unsent_bytes for client in clients)
        return sum(client.held for client in clients) + unsent_bytes // (
            self.crowd.scenario.payload_bytes + PACKET_BYTES
        )

    async def peers(self, since_ns: int) -> list[dict[str, Any]]:
        """The state of all peers, for the live page. Delays of messages published before `since_ns` are not counted.

        `queue` is the length of the peer's own queue, `sent` the number of a publisher's last message, and `seen` what
        a subscriber has observed of each publisher: the last number, the count, and the sum of delays in seconds.
        """
        for peer in self.crowd.peers:
            if peer.inbox is not None and peer.inbox.delivery_stats is not None:
                peer.inbox.delivery_stats.since_ns = since_ns
        return [
            {
                "id": peer.peer.id,
                "broker": peer.client.broker,
                "connected": peer.client.is_connected,
                "queue": peer.waiting + peer.client.under_way,
                "sent": peer.sent,
                "seen": {} if peer.inbox is None else _observed(peer.inbox.delivery_stats),
            }
            for peer in self.crowd.peers
        ]

    async def stop(self) -> None:
        """Ends the workload; the measured time is over."""
        self.crowd.stop()

    async def lateness(self) -> dict[str, Any]:
        """How late actions were, in wall time."""
        clock = self._clock
        return {
            "done": clock.done,
            "done_late": clock.done_late,
            "mean_s": clock.late_ns / 1e9 / max(1, clock.done),
            "max_s": clock.late_ns_max / 1e9,
            "connecting_share": median(self.crowd.connecting_shares or [0.0]),
        }


class PeerKind(NamedTuple):
    """A value of the scenario's key `peers`: how such a client is made, and the event loop that it needs."""

    new: Callable[[Clients, str, str], PeerClient]
    run: Callable[[Coroutine[Any, Any, int]], int]


PEER_KINDS = {
    "stock": PeerKind(Clients.stock_peer, asyncio.run),  # clients/stock.py explains why this cannot be uvloop
    "light": PeerKind(Clients.light_peer, uvloop.run),
}


def kind_of_peers(scenario: Scenario) -> PeerKind:
    has_peers = bool(scenario.all_peers)
    return PEER_KINDS[scenario.peers if has_peers else "light"]


def _observed(delivery_stats: DeliveryStats | None) -> dict[str, tuple[int, int, float]]:
    if delivery_stats is None:
        return {}
    by_publisher = delivery_stats.by_publisher.items()
    return {name: (stats.last_number, stats.count, stats.delay_sum_ns / 1e9) for name, stats in by_publisher}


class _Input(asyncio.StreamReaderProtocol):
    """Sets `ended` at the end of the input, even while a command is being executed."""

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
        command = json.loads(line)
        answer = await getattr(clients, command["do"])(**command.get("with", {}))
        print(json.dumps(answer), flush=True)


async def _serve(scenario: Scenario, options: argparse.Namespace) -> int:
    """Executes commands until the input ends; returns the exit code."""
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
            with suppress(OSError):  # the disk is full; the records stay in the buffer
                write_log()

    tasks = [asyncio.create_task(work) for work in (write(), _answer(commands, clients), ended.wait())]
    code = 0
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        try:
            write_log()
        except OSError as error:
            print(f"the log of these clients ends too early ({error.strerror})", file=sys.stderr)
            code = MISSING
    return code


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m brokerbed.clients.process", description=__doc__)
    parser.add_argument("scenario", type=Path, help="the scenario file")
    parser.add_argument("--point", type=int, default=0, help="the point of its sweep")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--measure-ns", type=int, help="how long to measure, instead of the scenario's clock.measure")
    parser.add_argument("--part", type=int, default=0, help="which part of the clients")
    parser.add_argument("--parts", type=int, default=1, help="how many parts there are")
    parser.add_argument("--log", type=Path, required=True, help="folder of the raw log")
    options = parser.parse_args()
    scenario = replace(load(options.scenario).points[options.point], seed=options.seed)
    if options.measure_ns is not None:
        scenario = replace(scenario, clock=scenario.clock.model_copy(update={"measure": options.measure_ns}))
    sys.exit(kind_of_peers(scenario).run(_serve(scenario, options)))


if __name__ == "__main__":
    main()

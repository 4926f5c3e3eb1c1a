"""Notifications and bytes counted on the wire: a proxy in every link that knows MQTT's framing and nothing else of brokerbed.

`python -m tests.local.wire`, part of `make algorithms-campaign`: a tree of seven running brokers under peer routing, or
under the algorithms that are given. Exit code 1 if the packets differ from the prediction by more than 3%, or the bytes
of all links from those of the predicted utilisations by more than 2%.
"""

import argparse
import asyncio
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from brokerbed.analysis.predict import predict
from brokerbed.broker.routing.registry import ALGORITHMS
from brokerbed.orchestrator.grounds import local
from brokerbed.orchestrator.grounds.relay import Relay
from brokerbed.orchestrator.run import run
from brokerbed.scenario import load

PUBLISH = 3
WITHIN, BYTES_WITHIN = 0.03, 0.02
BANDWIDTH = 100_000_000  # bits per second, of which little is used
CHURN = """
scenario: 1
name: wire
clock: {{measure: {measure_s}s}}
topology: {{tree: regular, arity: 2, depth: 3}}
routing: {routing}
classes: 200
subscriptions: {{mean_active: 250, lifetime: {{mean: 1s}}}}
publications: {{rate: 400/s}}
links: [{links}]
durability: memory
"""
LINKS = ", ".join(
    f"{{between: [b{parent}, b{child}], bandwidth: {BANDWIDTH}bit/s}}"
    for child, parent in enumerate((0, 0, 1, 1, 2, 2), 1)
)


class Notifications:
    """Counts the PUBLISH packets of one direction whose topic is not under $, and remembers the first and last time."""

    def __init__(self) -> None:
        self.count = 0
        self.size_bytes = 0  # of everything, packets of other kinds included
        self.sizes_bytes = [0, 0]  # the same before the first notification, and up to the last one
        self.times_s: list[float] = []
        self._bytes = bytearray()

    def feed(self, data: bytes, now_s: float) -> None:
        self._bytes += data
        self.size_bytes += len(data)
        while (size := self._packet_bytes()) is not None:
            packet = bytes(self._bytes[:size])
            del self._bytes[:size]
            if packet[0] >> 4 == PUBLISH and not self._topic(packet).startswith(b"$"):
                self.count += 1
                first_bytes = self.size_bytes - len(data) if self.count == 1 else self.sizes_bytes[0]
                self.sizes_bytes = [first_bytes, self.size_bytes]
                self.times_s = [*self.times_s[:1], now_s]

    def _packet_bytes(self) -> int | None:
        """The size of the first packet with its header, if all of it is there."""
        length, position = 0, 1
        while position < len(self._bytes):
            length |= (self._bytes[position] & 127) << 7 * (position - 1)
            if self._bytes[position] < 128:
                size = position + 1 + length
                return size if size <= len(self._bytes) else None
            position += 1
        return None

    @staticmethod
    def _topic(packet: bytes) -> bytes:
        position = 1
        while packet[position] & 128:
            position += 1
        length = int.from_bytes(packet[position + 1 : position + 3], "big")
        return packet[position + 3 : position + 3 + length]


class CountingRelay(Relay):
    """A relay of the local ground behind which a proxy counts what passes."""

    made: "list[CountingRelay]"

    def __init__(self, target: tuple[str, int], *qualities: Any) -> None:
        super().__init__(target, *qualities)
        self._parent = target
        self._tasks = set[asyncio.Task[None]]()
        self.ways_seen = Notifications(), Notifications()
        self.made.append(self)

    async def open(self, port: int = 0) -> int:
        server = await asyncio.start_server(self._passed, "127.0.0.1", 0)
        self._target_name = "127.0.0.1", server.sockets[0].getsockname()[1]
        self._tasks.add(asyncio.create_task(server.serve_forever()))
        return await super().open(port)

    async def _passed(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            other_reader, other_writer = await asyncio.open_connection(*self._parent)
        except OSError:
            writer.close()
            return
        up, down = self.ways_seen
        for pump in (self._pump(reader, other_writer, up), self._pump(other_reader, writer, down)):
            self._tasks.add(asyncio.create_task(pump))

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, seen: Notifications) -> None:
        try:
            while data := await reader.read(65536):
                seen.feed(data, asyncio.get_running_loop().time())
                writer.write(data)
                await writer.drain()
        except ConnectionError:
            pass  # of a broker that has ended
        finally:
            writer.close()

    def close(self) -> None:
        super().close()
        for task in self._tasks:
            task.cancel()


@contextmanager
def counting() -> Iterator[list[CountingRelay]]:
    """All links of runs on the local ground have such a relay."""
    with pytest.MonkeyPatch.context() as patch:
        CountingRelay.made = []
        patch.setattr(local, "has_quality", lambda *_: True)
        patch.setattr(local, "Relay", CountingRelay)
        yield CountingRelay.made


@dataclass(frozen=True, slots=True)
class Counted:
    """What crossed the links of a run: notifications, the seconds from the first to the last, and all bytes meanwhile."""

    count: int
    seconds: float
    size_bytes: int


def counted(text: str, folder: Path) -> Counted:
    file = folder / "wire.yaml"
    file.write_text(text, encoding="utf-8")
    with counting() as relays:
        run(load(file), "local", None, 1, folder / "runs", lambda _: None)
    seen = [way for relay in relays for way in relay.ways_seen]
    times_s = [time_s for way in seen for time_s in way.times_s]
    size_bytes = sum(last - first for first, last in (way.sizes_bytes for way in seen))
    return Counted(sum(way.count for way in seen), max(times_s) - min(times_s), size_bytes)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.local.wire", description=__doc__)
    parser.add_argument("--routing", choices=[*ALGORITHMS.all], action="append", help="may be given several times")
    parser.add_argument("--measure", type=int, default=60, help="seconds")
    given = parser.parse_args()
    wrong = 0
    for routing in given.routing or ["peer"]:
        with TemporaryDirectory() as place:
            text = CHURN.format(routing=routing, measure_s=given.measure, links=LINKS)
            found = counted(text, Path(place))
            rows = predict(load(Path(place) / "wire.yaml").points[0]).rows
        expected = next(row.predicted for row in rows if row.metric == "rate.notifications")
        used = [row.predicted or 0.0 for row in rows if row.metric == "link.utilisation"]
        assert expected is not None
        wrong += _differs(f"{routing}, packets", found.count / found.seconds, expected, WITHIN)
        expected_bytes = sum(used) * BANDWIDTH / 8
        wrong += _differs(f"{routing}, bytes", found.size_bytes / found.seconds, expected_bytes, BYTES_WITHIN)
    return 1 if wrong else 0


def _differs(what: str, measured_per_s: float, expected_per_s: float, within: float) -> bool:
    error = measured_per_s / expected_per_s - 1
    print(f"{what}: {measured_per_s:.1f}/s; predicted {expected_per_s:.1f}/s, {error:+.2%}", flush=True)
    return abs(error) > within


if __name__ == "__main__":
    sys.exit(main())

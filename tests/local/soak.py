"""A tree of real brokers under half its maximum rate, watched for drift: `python -m tests.local.soak [--minutes 10]`.

Messages at QoS 1 climb from a publisher at one leaf over the root to a subscriber at the other. First the maximum rate
is measured, then half of it is kept. Each broker's resident memory, open files and timers, and the latency of the
messages, are sampled; what they were in the first fifth of the time, once it has settled, is compared with the last
fifth. Everything runs on loopback. Exit code 1 if something drifts or a message is lost. The pictures go to `--out`.
"""

import argparse
import asyncio
import html
import statistics
import struct
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench import packets
from tests.broker.running import metric, until
from tests.broker.tree import ENTRIES, Tree

PARENTS = {"root": None, "left": "root", "right": "root"}
TOPIC, PAYLOAD_BYTES = "soak/t", 64
WINDOW, TICK_S, MAXIMUM_S = 1000, 0.01, 10.0
BEHIND_MAX = 20_000  # messages under way: with more, the publisher waits, and the rate was too high
SAMPLES, SAMPLE_S_MIN = 360, 2.0
SETTLE_S_MAX = 300.0  # or a fifth of the time
MEMORY_GROWTH_MAX, TIMERS_MORE_MAX, P99_RATIO_MAX = 0.02, 20, 2.0
WIDTH, HEIGHT = 900, 160


class Publisher(asyncio.Protocol):
    def __init__(self) -> None:
        self.sent = self.acknowledged = 0
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        transport.write(packets.connect("soak-publisher", packets.LEVEL_311, True, 0))

    def data_received(self, data: bytes) -> None:
        self.acknowledged += len(data) // packets.PUBACK_BYTES  # the CONNACK counts, too: it has the same size

    def publish(self, count: int) -> None:
        assert self.transport is not None
        topic = struct.pack(">H", len(TOPIC)) + TOPIC.encode()
        size = len(topic) + 2 + PAYLOAD_BYTES
        now = struct.pack(">Q", time.monotonic_ns()) + bytes(PAYLOAD_BYTES - 8)
        head = bytes((0x32, size)) + topic
        self.transport.write(b"".join(
            head + struct.pack(">H", (self.sent + number) % 65_535 + 1) + now for number in range(count)
        ))  # fmt: skip
        self.sent += count


class Subscriber(asyncio.Protocol):
    def __init__(self) -> None:
        self.received = 0
        self.latencies_ns: list[int] = []
        self.is_subscribed = False
        self._data = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(packets.connect("soak-subscriber", packets.LEVEL_311, True, 0))
        transport.write(packets.subscribe(1, [TOPIC], 1, packets.LEVEL_311))

    def data_received(self, data: bytes) -> None:
        data, now_ns, at, answers = self._data + data, time.monotonic_ns(), 0, bytearray()
        while at + 2 <= len(data) and (end := at + 2 + data[at + 1]) <= len(data):
            if data[at] >> 4 == packets.PUBLISH:
                answers += b"\x40\x02" + data[end - PAYLOAD_BYTES - 2 : end - PAYLOAD_BYTES]
                (sent_ns,) = struct.unpack_from(">Q", data, end - PAYLOAD_BYTES)
                self.latencies_ns.append(now_ns - sent_ns)
                self.received += 1
            self.is_subscribed = self.is_subscribed or data[at] >> 4 == packets.SUBACK
            at = end
        self._data = data[at:]
        assert self._transport is not None
        self._transport.write(answers)


@dataclass
class Series:
    """What was sampled: one list per line of a picture, beside `at_s`."""

    at_s: list[float] = field(default_factory=list)
    lines: dict[str, list[float]] = field(default_factory=dict)

    def add(self, at_s: float, values: dict[str, float]) -> None:
        self.at_s.append(at_s)
        for name, value in values.items():
            self.lines.setdefault(name, []).append(value)

    def ends(self, name: str, settled_s: float) -> tuple[float, float]:
        """The medians of the first and the last fifth, once everything has settled."""
        settled = [value for at_s, value in zip(self.at_s, self.lines[name], strict=True) if at_s >= settled_s]
        part = max(1, len(settled) // 5)
        return statistics.median(settled[:part]), statistics.median(settled[-part:])


async def maximum_rate(publisher: Publisher, subscriber: Subscriber) -> float:
    begun, before = time.monotonic(), subscriber.received
    while time.monotonic() - begun < MAXIMUM_S:
        if publisher.sent - subscriber.received < WINDOW // 2:  # acknowledged is too early: it may wait for the link
            publisher.publish(WINDOW // 2)
        await asyncio.sleep(0)
    return (subscriber.received - before) / (time.monotonic() - begun)


def sample(tree: Tree, subscriber: Subscriber) -> dict[str, float]:
    values: dict[str, float] = {}
    for name, running in tree.running.items():
        process = psutil.Process(running.process.pid)
        values[f"memory of {name}, MB"] = process.memory_info().rss / 2**20
        values[f"handles of {name}"] = process.num_fds()
        values[f"timers of {name}"] = metric(running, "brokerbed_timers")
    latencies, subscriber.latencies_ns = sorted(subscriber.latencies_ns), []
    for percent in (50, 99):
        values[f"latency p{percent}, ms"] = latencies[len(latencies) * percent // 100] / 1e6 if latencies else 0.0
    return values


async def soak(tree: Tree, seconds: float, share: float) -> tuple[Series, str]:
    loop = asyncio.get_running_loop()
    _, subscriber = await loop.create_connection(Subscriber, "127.0.0.1", tree.ports["right"])
    _, publisher = await loop.create_connection(Publisher, "127.0.0.1", tree.ports["left"])
    while not subscriber.is_subscribed or publisher.acknowledged == 0:  # noqa: ASYNC110 - they signal no events
        await asyncio.sleep(TICK_S)
    await asyncio.to_thread(until, lambda: bool(metric(tree.running["root"], ENTRIES, scope="remote")), "the interest")
    maximum = await maximum_rate(publisher, subscriber)
    rate = maximum * share
    print(f"at most {maximum:,.0f} messages/s; going on with {rate:,.0f}", flush=True)
    while subscriber.received < publisher.sent:  # noqa: ASYNC110 - as above
        await asyncio.sleep(TICK_S)
    subscriber.latencies_ns = []
    series, begun, published = Series(), time.monotonic(), 0
    every_s, held = max(SAMPLE_S_MIN, seconds / SAMPLES), 0
    next_s = every_s
    while (now_s := time.monotonic() - begun) < seconds:
        due = int(now_s * rate) - published
        under_way = publisher.sent - subscriber.received
        if due > 0 and under_way < BEHIND_MAX:
            publisher.publish(min(due, BEHIND_MAX))
            published += min(due, BEHIND_MAX)
        held += under_way >= BEHIND_MAX
        if now_s >= next_s:
            series.add(now_s, await asyncio.to_thread(sample, tree, subscriber))
            next_s += every_s
        await asyncio.sleep(TICK_S)
    for _ in range(1000):
        if subscriber.received == publisher.sent:
            break
        await asyncio.sleep(TICK_S)
    lost = publisher.sent - subscriber.received
    print(f"{published:,} messages in {seconds:.0f} s; {lost} missing; the publisher was held {held} times", flush=True)
    return series, f"{lost} messages are missing or came twice" if lost else ""


def drifts(series: Series, settled_s: float) -> list[str]:
    """A line for everything that was sampled, and which of it drifts."""
    found = []
    for name in series.lines:
        first, last = series.ends(name, settled_s)
        if name.startswith("memory"):
            is_drift = last > first * (1 + MEMORY_GROWTH_MAX)
        elif name.startswith("latency"):
            is_drift = "p99" in name and last > first * P99_RATIO_MAX
        else:
            is_drift = last > first + (TIMERS_MORE_MAX if name.startswith("timers") else 0)
        growth = f"{100 * (last / first - 1):+.1f}%" if first else ""
        print(f"{name:28}{first:12.2f}{last:12.2f}{growth:>9}  {'DRIFTS' if is_drift else 'steady'}")
        if is_drift:
            found.append(name)
    return found


def page(series: Series) -> str:
    charts = "".join(_chart(name, series.at_s, values) for name, values in series.lines.items())
    return f'<!doctype html><meta charset="utf-8"><title>Soak</title><h1>Soak</h1>{charts}'


def _chart(name: str, at_s: Sequence[float], values: Sequence[float]) -> str:
    top = max(values) or 1.0
    points = " ".join(
        f"{WIDTH * x / at_s[-1]:.1f},{HEIGHT * (1 - y / top / 1.1):.1f}" for x, y in zip(at_s, values, strict=True)
    )
    line = f'<polyline fill="none" stroke="#06c" points="{points}"/>'
    frame = f'<rect width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#999"/>'
    title = f"{html.escape(name)}: {min(values):.2f} to {max(values):.2f} in {at_s[-1]:.0f} s, from 0"
    return f'<h2>{title}</h2><svg width="{WIDTH}" height="{HEIGHT}">{frame}{line}</svg>'


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.local.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="how long (10)")
    parser.add_argument("--share", type=float, default=0.5, help="of the maximum rate (0.5)")
    parser.add_argument("--out", type=Path, default=Path("soak.html"), help="where the pictures go (soak.html)")
    chosen = parser.parse_args()
    seconds = chosen.minutes * 60
    with Tree(PARENTS) as tree:
        series, problem = asyncio.run(soak(tree, seconds, chosen.share))
    if len(series.at_s) < 2:
        print("too short for a judgement", file=sys.stderr)
        return 1
    print(f"{'':28}{'first fifth':>12}{'last fifth':>12}")
    found = drifts(series, min(SETTLE_S_MAX, seconds / 5))
    chosen.out.write_text(page(series), encoding="utf-8")
    print(f"pictures: {chosen.out}")
    if problem:
        print(problem, file=sys.stderr)
    return 1 if found or problem else 0


if __name__ == "__main__":
    sys.exit(main())

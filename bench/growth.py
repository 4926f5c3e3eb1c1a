"""Costs that grow with what a broker holds: many filters that end, topics that many filters match, retained messages.

`python -m bench.growth [--runs 3] [--only NAME]...`, where NAME is a case or a broker.

- `endings`: 100 clients with 1000 exact filters each lose their connections at the same time.
- `patterns`: one client has 30 000 filters of 15 levels, with `+` in different places. 20 new topics that match 15 000
  of them are published, each when the one before has arrived.
- `sharing`: 1000 clients have the same 30 filters of 5 levels, half of which match 20 new topics.
- `retained`: 200 000 retained messages of 64 bytes, each on its own topic.

Times are the processor time that the broker takes, and the longest round trip of another client's PINGREQ meanwhile.
Memory is what the resident set has grown by. All processes share the cores of this machine.
"""

import argparse
import itertools
import resource
import socket
import statistics
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass

from bench import packets
from bench.broker_memory import memory_bytes
from bench.brokers import MOSQUITTO, OURS, Broker, BrokerError, Running, only_present, running, stop_on_sigterm
from bench.clients import LoadError, connect, subscribe
from bench.load import cpu_s
from bench.workloads import PAYLOAD

ENDING_CLIENTS, FILTERS_EACH = 100, 1000
PATTERN_LEVELS, PATTERNS = 15, 30_000
SHARING_CLIENTS, SHARED_LEVELS, SHARED_FILTERS = 1000, 5, 30
NEW_TOPICS = 20
RETAINED_TOPICS, RETAINED_PER_WRITE = 200_000, 1000
SETTLE_S = 0.5  # a broker that takes no processor time for so long has done its work
SETTLE_S_MAX = 60.0
IDLE_CPU_S = 0.02  # processor time of a broker that only answers PINGREQs, while it settles
PAUSE_S = 0.01  # between two PINGREQs
RUNS_MAX = 100
DESCRIPTORS = 4096  # open files on either side


@dataclass(frozen=True)
class Cost:
    cpu_s: float
    longest_s: float  # round trip of the other client
    grown_bytes: float


Load = Callable[[], None]


def endings(port: int, stack: ExitStack) -> Load:
    clients = [stack.enter_context(connect(port, f"ending{number}")) for number in range(ENDING_CLIENTS)]
    for number, client in enumerate(clients):
        subscribe(client, [f"site/{number}/sensor/{each}" for each in range(FILTERS_EACH)])

    def end() -> None:
        for client in clients:
            client.close()

    return end


def patterns(port: int, stack: ExitStack) -> Load:
    client = stack.enter_context(connect(port, "patterns"))
    subscribe(client, _filters(PATTERN_LEVELS, PATTERNS))
    return _new_topics(port, stack, PATTERN_LEVELS, client)


def sharing(port: int, stack: ExitStack) -> Load:
    clients = [stack.enter_context(connect(port, f"sharing{number}")) for number in range(SHARING_CLIENTS)]
    for client in clients:
        subscribe(client, _filters(SHARED_LEVELS, SHARED_FILTERS))
    return _new_topics(port, stack, SHARED_LEVELS, clients[-1])


def retained(port: int, stack: ExitStack) -> Load:
    publisher = stack.enter_context(connect(port, "retainer"))
    topics = (f"retained/{number % 100:02d}/{number:06d}" for number in range(RETAINED_TOPICS))
    stream = [packets.publish(topic, PAYLOAD, is_retained=True) for topic in topics]

    def retain() -> None:
        for first in range(0, len(stream), RETAINED_PER_WRITE):
            publisher.sendall(b"".join(stream[first : first + RETAINED_PER_WRITE]))
        publisher.sendall(packets.PINGREQ)
        packets.read_packet(publisher)

    return retain


CASES: dict[str, Callable[[int, ExitStack], Load]] = {
    "endings": endings, "patterns": patterns, "sharing": sharing, "retained": retained,
}  # fmt: skip


def _filters(levels: int, count: int) -> list[str]:
    """Filters that differ in where they have `+`. All but the first one have a wildcard."""
    return ["/".join(places) for places in itertools.islice(itertools.product("x+", repeat=levels), count)]


def _new_topics(port: int, stack: ExitStack, levels: int, subscriber: socket.socket) -> Load:
    """Publishes to topics that match the filters of which the last level is `+`."""
    publisher = stack.enter_context(connect(port, "publisher"))

    def publish() -> None:
        for number in range(NEW_TOPICS):
            publisher.sendall(packets.publish("x/" * (levels - 1) + f"new{number}", PAYLOAD))
            if not packets.read_packet(subscriber).endswith(PAYLOAD):
                raise LoadError("not the message that was published")

    return publish


class Bystander:
    """A client that only pings."""

    def __init__(self, port: int, stack: ExitStack) -> None:
        self._client = stack.enter_context(connect(port, "bystander"))

    def longest_s(self, pid: int) -> float:
        """The longest round trip until the broker has nothing to do any more."""
        longest = 0.0
        end = time.monotonic() + SETTLE_S_MAX
        busy_at, busy_cpu_s = time.monotonic(), cpu_s([pid])
        while (now := time.monotonic()) - busy_at < SETTLE_S:
            if now > end:
                raise LoadError(f"the broker has been busy for {SETTLE_S_MAX:g} s")
            begun = time.perf_counter()
            self._client.sendall(packets.PINGREQ)
            packets.read_packet(self._client)
            longest = max(longest, time.perf_counter() - begun)
            if (used_s := cpu_s([pid])) > busy_cpu_s + IDLE_CPU_S:
                busy_at, busy_cpu_s = time.monotonic(), used_s
            time.sleep(PAUSE_S)
        return longest


def measured(broker: Broker, case: str) -> Cost:
    with running(broker) as process, ExitStack() as stack:
        return _measured_on(process, case, stack)


def _measured_on(process: Running, case: str, stack: ExitStack) -> Cost:
    load = CASES[case](process.port, stack)
    bystander = Bystander(process.port, stack)
    bystander.longest_s(process.pid)
    before_bytes, before_s = memory_bytes(process.pid).rss, cpu_s([process.pid])
    load()
    longest_s = bystander.longest_s(process.pid)
    return Cost(cpu_s([process.pid]) - before_s, longest_s, memory_bytes(process.pid).rss - before_bytes)


def report(case: str, brokers: list[Broker], runs: int) -> None:
    for broker in brokers:
        try:
            costs = [measured(broker, case) for _ in range(runs)]
        except (BrokerError, LoadError, OSError) as error:
            print(f"{case:10} {broker.name:10} failed: {error or type(error).__name__}", flush=True)
            continue
        cpu, longest, grown = (
            statistics.median(getattr(cost, field) for cost in costs) for field in ("cpu_s", "longest_s", "grown_bytes")
        )
        print(f"{case:10} {broker.name:10} {cpu:>10.2f} {longest * 1e3:>14.0f} {grown / 1e6:>12.1f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.growth", description="Costs that grow.")
    parser.add_argument("--runs", type=int, default=3)
    brokers = {broker.name: broker for broker in (OURS, MOSQUITTO)}
    parser.add_argument("--only", action="append", default=[], choices=[*CASES, *brokers], help="may be repeated")
    options = parser.parse_args()
    if not 1 <= options.runs <= RUNS_MAX:
        parser.error(f"1 to {RUNS_MAX} runs")
    stop_on_sigterm()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard) if hard >= 0 else DESCRIPTORS, hard))
    present = only_present([brokers[name] for name in brokers if name in options.only] or list(brokers.values()))
    print(f"{'':10} {'':10} {'CPU time, s':>10} {'longest ping, ms':>14} {'memory, MB':>12}", flush=True)
    for case in [name for name in CASES if name in options.only] or list(CASES):
        report(case, present, options.runs)


if __name__ == "__main__":
    main()

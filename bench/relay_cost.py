"""The cost of a link's relay: a root with two leaves, one linked to it directly, the other through a relay.

`python -m bench.relay_cost [--runs 5] [--seconds 1] [--trips 5000]` measures from leaf to root at QoS 0 with MQTT 5 and
64-byte payloads. Throughput is measured with a window of messages under way; runs with and without the relay take
turns, and the medians are printed. A round trip is the time of one message, from before it is sent at a leaf until the
subscriber at the root has received it; the two leaves take turns message by message, so that other work on this machine
affects both.

The relay is a process of its own here. Brokers, relay and load generator share the cores of this machine; if there are
few cores, the relay takes time from the others.
"""

import argparse
import asyncio
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import uvloop

from bench import packets
from bench.broker_speed import RUNS_MAX, SECONDS_MAX
from bench.brokers import OURS, Running, running, stop_on_sigterm
from bench.clients import HOST, LoadError, connect, subscribe
from bench.load import ROOT, Result, measure
from bench.workloads import PAYLOAD
from brokerbed.orchestrator.grounds.relay import Relay

THROUGHPUT = "one-to-one-v5"
DIRECT, RELAYED = "direct", "relayed"
TOPIC = "trip/0"
TRIPS_MAX = 100_000
US_PER_S = 1e6


async def serve(port: int) -> None:
    """Runs a relay to this port; prints the relay's own port, and ends with its standard input."""
    relay = Relay((HOST, port))
    print(await relay.open(), flush=True)
    await asyncio.to_thread(sys.stdin.read)
    relay.close()


@contextmanager
def relay_to(port: int) -> Iterator[tuple[int, int]]:
    """Runs a relay in a process of its own; yields its process id and port."""
    command = [sys.executable, "-m", "bench.relay_cost", "--relay-to", str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.pid, int(process.stdout.readline())


def trips(root: Running, leaves: dict[str, Running], count: int) -> dict[str, list[float]]:
    """Round trips by leaf, in microseconds."""
    subscriber = connect(root.port, "subscriber", packets.LEVEL_5)
    subscribe(subscriber, [TOPIC], level=packets.LEVEL_5)
    publishers = {link: connect(leaf.port, "publisher", packets.LEVEL_5) for link, leaf in leaves.items()}
    message = packets.publish(TOPIC, PAYLOAD, level=packets.LEVEL_5)
    trips_us: dict[str, list[float]] = {link: [] for link in leaves}
    for _ in range(count):
        for link, publisher in publishers.items():
            begin = time.perf_counter()
            publisher.sendall(message)
            received = subscriber.recv(len(message), socket.MSG_WAITALL)
            trips_us[link].append((time.perf_counter() - begin) * US_PER_S)
            if received != message:
                raise LoadError(f"a message did not arrive as it was sent: {received[:20].hex(' ')}")
    for client in (subscriber, *publishers.values()):
        client.close()
    return trips_us


def throughput(root: Running, leaves: dict[str, Running], relay: int, runs: int, seconds: float) -> list[list[Result]]:
    """The throughput of every leaf, with the CPU time of the relay's process. Links are up afterwards."""
    results: list[list[Result]] = [[] for _ in leaves]
    for _ in range(runs):
        for leaf, of_leaf in zip(leaves.values(), results, strict=True):
            of_leaf.append(measure(THROUGHPUT, root.port, seconds, [relay], publish_port=leaf.port))
    return results


def row(title: str, direct: float, relayed: float) -> None:
    print(f"{title:20} {direct:>12,.0f} {relayed:>12,.0f} {relayed / direct:>8.2f}", flush=True)


def report(runs: int, seconds: float, count: int) -> None:
    print(f"{'':20} {DIRECT:>12} {RELAYED:>12} {'ratio':>8}")
    with (
        running(OURS) as root,
        relay_to(root.port) as (relay, port),
        running(OURS, parent=root.port) as direct,
        running(OURS, parent=port) as relayed,
    ):
        leaves = {DIRECT: direct, RELAYED: relayed}
        results = throughput(root, leaves, relay, runs, seconds)
        medians = (statistics.median(result.deliveries_per_s for result in of_leaf) for of_leaf in results)
        row("throughput, 1/s", *medians)
        samples = [sorted(trips_us) for trips_us in trips(root, leaves, count).values()]
    for percent in (50, 99):
        row(f"round trip, p{percent}, us", *(of_leaf[len(of_leaf) * percent // 100] for of_leaf in samples))
    cpu_us = statistics.median(result.cpu_us_per_delivery for result in results[-1])
    print(f"CPU time of the relay per message of the throughput: {cpu_us:.2f} us")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.relay_cost", description="A link with and without a relay.")
    parser.add_argument("--runs", type=int, default=5, help="runs of the throughput for each link")
    parser.add_argument("--seconds", type=float, default=1.0, help="how long a run measures")
    parser.add_argument("--trips", type=int, default=5000, help="round trips over each link")
    parser.add_argument("--relay-to", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.relay_to:
        uvloop.run(serve(options.relay_to))
        return
    if not (1 <= options.runs <= RUNS_MAX and 0 < options.seconds <= SECONDS_MAX and 1 <= options.trips <= TRIPS_MAX):
        parser.error(f"1 to {RUNS_MAX} runs of up to {SECONDS_MAX} seconds, 1 to {TRIPS_MAX} round trips")
    stop_on_sigterm()
    cores = len(os.sched_getaffinity(0))
    print(f"leaf to root, QoS 0, all on {cores} cores; median of {options.runs} runs, {options.trips} round trips")
    report(options.runs, options.seconds, options.trips)


if __name__ == "__main__":
    main()

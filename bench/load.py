"""The load generator: clients on raw sockets, in a process of their own.

`python -m bench.load WORKLOAD --port PORT` loads the broker on that port and prints one JSON object; `measure` does so
from another program. Most workloads are closed loops (bench/loop.py) that keep a window of messages under way:
publishers send again when subscribers have received messages (and, with QoS 1 and 2, when the broker has acknowledged
them). In this way a broker is kept busy and never flooded. Other workloads publish at a given rate, and measure the
latency. Durable clients have persistent sessions; an offline one gets its messages after all have been published. In a
tree, publisher and subscriber have different brokers; the load begins when a message has crossed the tree.
"""

import argparse
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from bench import packets
from bench.clients import LoadError, connect, drain, subscribe
from bench.loop import DRAIN_S_MAX, MESSAGES_MAX, Loop, subscriber
from bench.workloads import WORKLOADS, Workload

WARM_UP_S = 0.2  # fills caches and opens TCP windows
SET_UP_S_MAX = 120  # for 100 000 subscriptions; everything else takes milliseconds
BYSTANDERS = 10  # connections that share the subscriptions nobody publishes to
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True)
class Result:
    messages: int
    deliveries: int
    seconds: float
    load_cpu_s: float
    broker_cpu_s: float  # of all brokers, if there are several
    broker_waited_s: float  # it was ready to run, but other processes had the cores
    p50_us: float | None = None
    p99_us: float | None = None
    drain_s: float | None = None  # until a subscriber that was offline had received everything

    @property
    def deliveries_per_s(self) -> float:
        return self.deliveries / self.seconds

    @property
    def drained_per_s(self) -> float | None:
        return self.deliveries / self.drain_s if self.drain_s else None

    @property
    def cpu_us_per_delivery(self) -> float:
        return self.broker_cpu_s * 1e6 / self.deliveries

    @property
    def broker_busy(self) -> float:
        return self.broker_cpu_s / self.seconds

    @property
    def broker_waited(self) -> float:
        return self.broker_waited_s / self.seconds


def measure(
    name: str, port: int, seconds: float, pids: Sequence[int], bystanders: int = 0, publish_port: int | None = None
) -> Result:
    """Runs a workload in a process of its own against the broker on `port`; `pids` are all brokers at work."""
    command = [sys.executable, "-m", "bench.load", name, "--port", str(port), "--seconds", str(seconds)]
    command += ["--publish-port", str(publish_port or port), "--bystanders", str(bystanders)]
    command += [word for pid in pids for word in ("--pid", str(pid))]
    limit_s = SET_UP_S_MAX + WARM_UP_S + seconds + 2 * DRAIN_S_MAX
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired:
        raise LoadError(f"no end after {limit_s:.0f} s") from None
    if done.returncode:
        raise LoadError((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1])
    return Result(**json.loads(done.stdout))


def generate(
    workload: Workload, port: int, publish_port: int, seconds: float, pids: Sequence[int], bystanders: int
) -> Result:
    """Connects, warms up, measures, disconnects."""
    with ExitStack() as stack:
        _subscribe_bystanders(port, bystanders, stack)
        if workload.offline:
            with subscriber(workload, port, 0) as client:
                client.sendall(packets.DISCONNECT)
        loop = Loop(replace(workload, subscribers=0) if workload.offline else workload, port, publish_port, stack)
        gc.disable()
        with loop.stalls_named():
            if not workload.offline:
                play(loop, WARM_UP_S)
            before, own_cpu, cpu, waited = loop.sent, time.process_time(), cpu_s(pids), waited_s(pids)
            elapsed, samples = play(loop, seconds, workload.offline or MESSAGES_MAX)
        messages = loop.sent - before
        result = Result(
            messages=messages,
            deliveries=messages * workload.copies,
            seconds=elapsed,
            load_cpu_s=time.process_time() - own_cpu,
            broker_cpu_s=cpu_s(pids) - cpu,
            broker_waited_s=waited_s(pids) - waited,
            p50_us=samples[len(samples) // 2] / 1e3 if samples else None,
            p99_us=samples[len(samples) * 99 // 100] / 1e3 if samples else None,
        )
        return replace(result, drain_s=drain(port, "sub0", messages)) if workload.offline else result


def play(loop: Loop, seconds: float, messages_max: int = MESSAGES_MAX) -> tuple[float, list[int]]:
    """Loads the broker in the way of the workload; returns the seconds it took, and sorted latencies if it has any."""
    if loop.workload.is_round_trip:
        samples = loop.round_trips(seconds)
        return sum(samples) / 1e9, sorted(samples)
    if loop.workload.rate_per_s:
        elapsed, samples = loop.run_at_rate(seconds)
        return elapsed, sorted(samples)
    return loop.run(seconds, messages_max), []


def cpu_s(pids: Sequence[int]) -> float:
    """Seconds of CPU that processes have used so far, in user and kernel mode."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(values[11]) + int(values[12]) for values in fields) / os.sysconf("SC_CLK_TCK")


def waited_s(pids: Sequence[int]) -> float:
    """Seconds that the threads of processes were ready to run and had no core."""
    threads = [thread for pid in pids for thread in Path(f"/proc/{pid}/task").glob("*/schedstat")]
    return sum(int(thread.read_text().split()[1]) for thread in threads) / 1e9


def _subscribe_bystanders(port: int, count: int, stack: ExitStack) -> None:
    """Subscriptions that no message matches; every second one has a wildcard."""
    for index in range(BYSTANDERS if count else 0):
        client = stack.enter_context(connect(port, f"bystander{index}"))
        subscribe(client, [f"other/{i}/{'+' if i // BYSTANDERS % 2 else 'a'}" for i in range(index, count, BYSTANDERS)])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.load", description="Load a broker and print the result.")
    parser.add_argument("workload", choices=WORKLOADS)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument(
        "--publish-port", type=int, help="port of the publishers' broker, if it is another one of a tree"
    )
    parser.add_argument(
        "--pid", type=int, action="append", help="process id of a broker, to read its CPU time; may be repeated"
    )
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--bystanders", type=int, default=0, help="subscriptions that match nothing")
    options = parser.parse_args()
    try:
        pids = options.pid or [os.getpid()]
        result = generate(
            WORKLOADS[options.workload],
            options.port,
            options.publish_port or options.port,
            options.seconds,
            pids,
            options.bystanders,
        )
    except (LoadError, OSError) as error:
        sys.exit(f"{options.workload}: {error or type(error).__name__}")
    print(json.dumps(asdict(result)))


if __name__ == "__main__":
    main()

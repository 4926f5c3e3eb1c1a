"""The memory of a broker, and the cost of a delivery: idle, with 5000 connections, and with 100 000 subscriptions.

`python -m bench.broker_memory [--runs 3] [--seconds 1] [--only BROKER]`. brokerbed runs with its message log and its
metrics port, scraped once. Memory is the resident set (RSS) of the broker's process and its children, if any; the PSS
counts pages that other programs share, such as Python's, only in part. The cost of a delivery is the broker's CPU time
while one publisher sends to one subscriber, and other clients hold subscriptions that match nothing.
"""

import argparse
import resource
import statistics
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.brokers import MOSQUITTO, OURS, Broker, BrokerError, only_present, running, stop_on_sigterm
from bench.clients import LoadError, connect
from bench.load import measure

CONNECTIONS = 5000
FEW, MANY = 10, 100_000  # subscriptions
WORKLOADS = {"one-to-one": "one topic", "many-topics": "50 000 topics in turn"}
DESCRIPTORS = CONNECTIONS + 1000  # open files on either side: the connections, and what a process needs besides
SETTLE_S = 1.0  # time for buffers to be released
PROCESSES_MAX = 100  # children of a broker; none has any so far
RUNS_MAX = 100
SECONDS_MAX = 60
MB, KB = 1e6, 1e3


@dataclass(frozen=True)
class Memory:
    rss: float
    pss: float


def memory_bytes(pid: int) -> Memory:
    """The memory of a process and all its descendants."""
    kilobytes = {"Rss:": 0, "Pss:": 0}
    pids = [pid]
    for each in pids:
        for line in Path(f"/proc/{each}/smaps_rollup").read_text().splitlines():
            if (name := line.split()[0]) in kilobytes:
                kilobytes[name] += int(line.split()[1])
        children = Path(f"/proc/{each}/task/{each}/children").read_text().split()
        pids += map(int, children[: PROCESSES_MAX - len(pids)])
    return Memory(kilobytes["Rss:"] * 1024, kilobytes["Pss:"] * 1024)


def idle_and_crowded(broker: Broker) -> tuple[Memory, Memory]:
    """The memory before any client connects, and with all idle connections."""
    with running(broker, metrics=True) as process, ExitStack() as stack:
        time.sleep(SETTLE_S)
        idle = memory_bytes(process.pid)
        for number in range(CONNECTIONS):
            stack.enter_context(connect(process.port, f"idle{number}"))
        time.sleep(SETTLE_S)
        return idle, memory_bytes(process.pid)


def delivery_cost_us(broker: Broker, workload: str, subscriptions: int, seconds: float) -> float:
    with running(broker, metrics=True) as process:
        return measure(workload, process.port, seconds, [process.pid], bystanders=subscriptions).cpu_us_per_delivery


def report(broker: Broker, runs: int, seconds: float) -> None:
    print(broker.name, flush=True)
    idle, crowded = (_median(list(each)) for each in zip(*(idle_and_crowded(broker) for _ in range(runs)), strict=True))
    print(f"  memory, idle: {idle.rss / MB:.1f} MB resident (PSS {idle.pss / MB:.1f} MB)")
    print(f"  with {CONNECTIONS} idle connections: {crowded.rss / MB:.1f} MB (PSS {crowded.pss / MB:.1f} MB),", end=" ")
    print(f"{(crowded.rss - idle.rss) / CONNECTIONS / KB:.1f} kB each", flush=True)
    for workload, title in WORKLOADS.items():
        costs: dict[int, list[float]] = {FEW: [], MANY: []}
        for _ in range(runs):
            for subscriptions, values in costs.items():
                values.append(delivery_cost_us(broker, workload, subscriptions, seconds))
        few, many = statistics.median(costs[FEW]), statistics.median(costs[MANY])
        print(f"  CPU per delivery, {title}: {few:.2f} us with {FEW} subscriptions that do not match,", end=" ")
        print(f"{many:.2f} us with {MANY}: ratio {many / few:.2f}", flush=True)


def _median(samples: list[Memory]) -> Memory:
    return Memory(
        statistics.median(sample.rss for sample in samples), statistics.median(sample.pss for sample in samples)
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.broker_memory", description="Brokers as they fill.")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0, help="how long a run measures deliveries")
    brokers = {broker.name: broker for broker in (OURS, MOSQUITTO)}
    parser.add_argument("--only", choices=brokers, help="only this broker")
    options = parser.parse_args()
    if not (1 <= options.runs <= RUNS_MAX and 0 < options.seconds <= SECONDS_MAX):
        parser.error(f"1 to {RUNS_MAX} runs of up to {SECONDS_MAX} seconds")
    stop_on_sigterm()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < DESCRIPTORS:
        parser.exit(3, f"{CONNECTIONS} connections need {DESCRIPTORS} open files, the limit is {hard} (ulimit -Hn)\n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))  # brokers inherit the limit
    for broker in only_present([brokers[options.only]] if options.only else list(brokers.values())):
        try:
            report(broker, options.runs, options.seconds)
        except (BrokerError, LoadError, OSError) as error:
            print(f"  failed: {error}", flush=True)


if __name__ == "__main__":
    main()

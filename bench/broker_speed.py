"""How fast a broker delivers 64-byte messages, compared with Mosquitto and NATS.

`python -m bench.broker_speed [--runs 3] [--seconds 2] [--only NAME]...`, where NAME is a workload or a broker.
brokerbed has its message log on. Every run starts a broker of its own, and the brokers take turns, so that a busy
period of the machine affects all of them. The output has medians, the broker's CPU time per delivery, and the ratios to
Mosquitto and NATS. A row that a broker has no support for shows "-".

A window is the number of messages under way. In a pair, one publisher sends to one subscriber, and has a topic and a
window of its own. The latency is that of messages published at a fixed rate, from before a message is sent until it is
received. NATS uses all cores of the machine, the other brokers one, and stores messages of QoS 1 in files.

The load generator is a Python program: where a broker needs less CPU time per message, the generator is the limit.
Where there are few cores, broker and generator may wait for each other, or for other programs. Lines below the tables
name these cases, in which the CPU time per delivery is the figure to compare. The broker `relay` (bench/relay.py) shows
the highest rate of the generator. It and `amqtt` run only if they are named.
"""

import argparse
import resource
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from bench.brokers import (
    AMQTT,
    MOSQUITTO,
    NATS,
    OURS,
    RELAY,
    Broker,
    BrokerError,
    only_present,
    running,
    stop_on_sigterm,
)
from bench.clients import LoadError
from bench.load import Result, measure
from bench.workloads import PAYLOAD, WORKLOADS

RUNS_MAX = 100
SECONDS_MAX = 60
DESCRIPTORS = 4000  # open files of a broker or the generator; the largest workload has 1001 connections
TITLES = {
    "one-to-one": "1 to 1, QoS 0, window 1000",
    "one-to-one-v5": "1 to 1, MQTT 5, QoS 0, window 1000",
    "topics-wild": "1000 topics, wildcard, QoS 0, window 1000",
    "topics-exact": "1000 topics, exact filters, QoS 0, window 1000",
    "fan-out-50": "1 to 50, QoS 0, window 200",
    "fan-in-20": "20 to 1, QoS 0, window 20 x 50",
    "pairs-20": "100 pairs, QoS 0, window 20",
    "pairs-1": "100 pairs, QoS 0, window 1",
    "pairs-20-qos1": "100 pairs, QoS 1, window 20",
    "pairs-1-qos1": "100 pairs, QoS 1, window 1",
    "qos1": "1 to 1, QoS 1, window 100",
    "qos2": "1 to 1, QoS 2, window 20",
    "fan-out-1000-qos1": "1 to 1000, QoS 1, window 10",
    "shared-qos1": "10 to 10 sharing, QoS 1, window 10 x 20",
    "latency": "10 pairs, 5000/s, QoS 0",
    "latency-qos1": "10 pairs, 5000/s, QoS 1",
    "round-trip": "1 to 1, QoS 0, one message at a time",
}
BROKERS = {broker.name: broker for broker in (OURS, MOSQUITTO, NATS, AMQTT, RELAY)}
DEFAULT_BROKERS = [OURS, MOSQUITTO, NATS]
WAITED_MAX = 0.1  # part of the time; beyond it, other programs influence the figure
SATURATED = 0.85  # part of a core; a broker that used less has waited for the load generator
KEPT = 0.98  # part of the rate that the generator should publish at

Results = dict[tuple[str, str], list[Result]]
PAIRS = {  # ratios that are shown, by their title
    "ours/Mosquitto": (OURS.name, MOSQUITTO.name),
    "ours/NATS": (OURS.name, NATS.name),
}
RunOnce = Callable[[str, Broker, float], Result]  # a workload, a broker, seconds


def measure_once(workload: str, broker: Broker, seconds: float) -> Result:
    with running(broker) as process:
        return measure(workload, process.port, seconds, [process.pid])


def collect(
    workloads: list[str], brokers: list[Broker], runs: int, seconds: float, run_once: RunOnce = measure_once
) -> Results:
    """Runs all workloads with all brokers. Failed runs are reported and left out."""
    results: Results = defaultdict(list)
    for run in range(runs):
        first = run % len(brokers)
        for workload in workloads:
            for broker in brokers[first:] + brokers[:first]:
                if not broker.supports(WORKLOADS[workload]):
                    continue
                try:
                    results[workload, broker.name].append(run_once(workload, broker, seconds))
                except (BrokerError, LoadError) as error:
                    print(f"run {run + 1} of {broker.name} failed: {error}", flush=True)
    return results


def report(results: Results, workloads: list[str], brokers: list[Broker]) -> None:
    names = [broker.name for broker in brokers]
    header("", names)
    for workload in workloads:
        if has_latency(workload):
            row(f"{TITLES[workload]}: p50, us", medians(results, workload, names, "p50_us"))
            row(f"{TITLES[workload]}: p99, us", medians(results, workload, names, "p99_us"))
        else:
            row(f"{TITLES[workload]}: 1/s", medians(results, workload, names, "deliveries_per_s"))
    print("\nthe broker's CPU time per delivery, us")
    for workload in workloads:
        row(TITLES[workload], medians(results, workload, names, "cpu_us_per_delivery"))
    print()
    for name in names:
        for limit, cases in limited_by(results, workloads, name).items():
            print(f"{name} {limit}: {', '.join(cases)}")


def has_latency(workload: str) -> bool:
    return WORKLOADS[workload].is_round_trip or WORKLOADS[workload].rate_per_s > 0


def limited_by(results: Results, workloads: list[str], name: str) -> dict[str, list[str]]:
    """The workloads in which something other than the broker limited the figure, by what it was."""
    limits: dict[str, list[str]] = defaultdict(list)
    for workload in workloads:
        fields = ("broker_busy", "broker_waited", "deliveries_per_s")
        busy, waited, rate_per_s = (medians(results, workload, [name], field)[name] for field in fields)
        if busy is None or waited is None or rate_per_s is None:
            continue
        if waited > WAITED_MAX:
            limits["waited for a core, part of the time (threads add up)"].append(f"{workload} {waited:.0%}")
        elif rate_per_s < KEPT * WORKLOADS[workload].rate_per_s:
            limits["got fewer messages/s than planned"].append(f"{workload} {rate_per_s:,.0f}")
        elif busy < SATURATED and not has_latency(workload):
            limits["waited for the load generator, and used only a part of a core"].append(f"{workload} {busy:.0%}")
    return limits


def medians(results: Results, workload: str, names: list[str], field: str) -> dict[str, float | None]:
    values = {name: [getattr(result, field) for result in results.get((workload, name), [])] for name in names}
    return {name: statistics.median(samples) if samples else None for name, samples in values.items()}


def header(title: str, names: list[str], pairs: Iterable[str] = PAIRS) -> None:
    print(f"\n{title:52}", *(f"{name:>12}" for name in names), *(f"{pair:>15}" for pair in pairs))


def row(title: str, figures: dict[str, float | None], pairs: Mapping[str, tuple[str, str]] = PAIRS) -> None:
    ratios = (_ratio(figures.get(ours), figures.get(theirs)) for ours, theirs in pairs.values())
    cells = (
        "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.2f}" for value in figures.values()
    )
    print(f"{title:52}", *(f"{cell:>12}" for cell in cells), *(f"{ratio:>15}" for ratio in ratios))


def _ratio(ours: float | None, theirs: float | None) -> str:
    return f"{ours / theirs:.2f}" if ours is not None and theirs else "-"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.broker_speed", description="Brokers, side by side.")
    parser.add_argument("--runs", type=int, default=3, help="runs of every workload with every broker")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long a run measures")
    names = f"a workload ({', '.join(TITLES)}) or a broker ({', '.join(BROKERS)}); may be repeated"
    parser.add_argument("--only", action="append", default=[], metavar="NAME", choices=[*TITLES, *BROKERS], help=names)
    options = parser.parse_args()
    if not (1 <= options.runs <= RUNS_MAX and 0 < options.seconds <= SECONDS_MAX):
        parser.error(f"1 to {RUNS_MAX} runs of up to {SECONDS_MAX} seconds")
    stop_on_sigterm()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    is_limited = hard != resource.RLIM_INFINITY
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, hard) if is_limited else DESCRIPTORS, hard))
    workloads = [name for name in TITLES if name in options.only] or list(TITLES)
    brokers = only_present([BROKERS[name] for name in BROKERS if name in options.only] or DEFAULT_BROKERS)
    if brokers:
        print(f"median of {options.runs} runs of {options.seconds:g} s, payloads of {len(PAYLOAD)} bytes", flush=True)
        report(collect(workloads, brokers, options.runs, options.seconds), workloads, brokers)


if __name__ == "__main__":
    main()

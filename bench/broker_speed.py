"""How fast a broker delivers 64-byte messages, compared with Mosquitto and amqtt.

`python -m bench.broker_speed [--runs 5] [--seconds 2] [--only NAME]...`, where NAME is a workload or a broker.
brokerbed has its message log on. Every run starts a broker of its own, and the brokers take turns, so that a busy
period of the machine affects all of them. The output has medians, the broker's CPU time per delivery, and the ratio to
Mosquitto.

In all workloads but `mixed` a publisher's messages have one topic and one length, and a broker may use that to forward
several of them as one piece (brokerbed does at QoS 0). In `mixed` the topic changes with every message.

The broker `relay` (bench/relay.py) runs only if it is named; it shows the highest rate of the load generator.
"""

import argparse
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from bench.brokers import AMQTT, MOSQUITTO, OURS, RELAY, Broker, BrokerError, only_present, running, stop_on_sigterm
from bench.clients import PAYLOAD, LoadError
from bench.load import WINDOW_MESSAGES, WORKLOADS, Result, measure

RUNS_MAX = 100
SECONDS_MAX = 60
TITLES = {
    "one-to-one": "QoS 0, 1 publisher, 1 subscriber",
    "fan-out-50": "QoS 0, 1 publisher, 50 subscribers",
    "fan-in-20": "QoS 0, 20 publishers, 1 subscriber",
    "qos1": "QoS 1, 1 publisher, 1 subscriber",
    "round-trip": "QoS 0, one message at a time",
    "one-to-one-v5": "MQTT 5, QoS 0, 1 publisher, 1 subscriber",
    "mixed": "QoS 0, 1 to 1, next message, next topic",
}
BROKERS = {broker.name: broker for broker in (OURS, MOSQUITTO, AMQTT, RELAY)}
WAITED_MAX = 0.1  # part of the time; beyond it, other programs influence the figure
SATURATED = 0.85  # part of a core; a broker that used less has waited for the load generator

Results = dict[tuple[str, str], list[Result]]
PAIRS = {"ours/Mosquitto": (OURS.name, MOSQUITTO.name)}  # ratios that are shown, by their title
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
                if WORKLOADS[workload].level not in broker.levels:
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
        if workload == "round-trip":
            row(f"{TITLES[workload]}: p50, us", medians(results, workload, names, "p50_us"))
            row(f"{TITLES[workload]}: p99, us", medians(results, workload, names, "p99_us"))
        else:
            row(f"{TITLES[workload]}, 1/s", medians(results, workload, names, "deliveries_per_s"))
    print("\nthe broker's CPU time per delivery, us")
    for workload in workloads:
        row(TITLES[workload], medians(results, workload, names, "cpu_us_per_delivery"))
    print()
    for workload in workloads:
        for name in names:
            _warn_of_limits(results, workload, name)


def _warn_of_limits(results: Results, workload: str, name: str) -> None:
    """Prints a warning if something other than the broker limited the figure."""
    busy = medians(results, workload, [name], "broker_busy")[name]
    waited = medians(results, workload, [name], "broker_waited")[name]
    if workload == "round-trip" or busy is None or waited is None:
        return
    if waited > WAITED_MAX:
        print(f"{workload}: {name} waited for a core {waited:.0%} of the time; something else kept this machine busy")
    elif busy < SATURATED:
        print(f"{workload}: {name} used only {busy:.0%} of a core; the load generator was the limit")


def medians(results: Results, workload: str, names: list[str], field: str) -> dict[str, float | None]:
    values = {name: [getattr(result, field) for result in results.get((workload, name), [])] for name in names}
    return {name: statistics.median(samples) if samples else None for name, samples in values.items()}


def header(title: str, names: list[str], pairs: Iterable[str] = PAIRS) -> None:
    print(f"\n{title:46}", *(f"{name:>12}" for name in names), *(f"{pair:>15}" for pair in pairs))


def row(title: str, figures: dict[str, float | None], pairs: Mapping[str, tuple[str, str]] = PAIRS) -> None:
    ratios = (_ratio(figures.get(ours), figures.get(theirs)) for ours, theirs in pairs.values())
    cells = (
        "-" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.2f}" for value in figures.values()
    )
    print(f"{title:46}", *(f"{cell:>12}" for cell in cells), *(f"{ratio:>15}" for ratio in ratios))


def _ratio(ours: float | None, theirs: float | None) -> str:
    return f"{ours / theirs:.2f}" if ours is not None and theirs else "-"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.broker_speed", description="Brokers, side by side.")
    parser.add_argument("--runs", type=int, default=5, help="runs of every workload with every broker")
    parser.add_argument("--seconds", type=float, default=2.0, help="how long a run measures")
    names = f"a workload ({', '.join(TITLES)}) or a broker ({', '.join(BROKERS)}); may be repeated"
    parser.add_argument("--only", action="append", default=[], metavar="NAME", choices=[*TITLES, *BROKERS], help=names)
    options = parser.parse_args()
    if not (1 <= options.runs <= RUNS_MAX and 0 < options.seconds <= SECONDS_MAX):
        parser.error(f"1 to {RUNS_MAX} runs of up to {SECONDS_MAX} seconds")
    stop_on_sigterm()
    workloads = [name for name in TITLES if name in options.only] or list(TITLES)
    brokers = only_present([BROKERS[name] for name in BROKERS if name in options.only] or [OURS, MOSQUITTO, AMQTT])
    if brokers:
        print(f"median of {options.runs} runs of {options.seconds:g} s, payloads of {len(PAYLOAD)} bytes,", end=" ")
        print(f"window of {WINDOW_MESSAGES} messages", flush=True)
        report(collect(workloads, brokers, options.runs, options.seconds), workloads, brokers)


if __name__ == "__main__":
    main()

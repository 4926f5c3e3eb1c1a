"""How fast a broker delivers 64-byte messages, beside Mosquitto and amqtt.

`python -m bench.broker_speed [--runs 5] [--seconds 2] [--only NAME]...`, where NAME is a workload or a broker. Ours has
its message log on. Every run starts a broker of its own, and the brokers take turns, so that a busy spell of the
machine strikes all of them. Printed: medians, the broker's CPU time per delivery, and ours beside Mosquitto.

In all workloads but `mixed` a publisher's messages have one topic and one length, and a broker may use that to pass
them on in runs (ours does at QoS 0). In `mixed` the topic changes with every message.

The broker `relay` (bench/relay.py) is run only when it is named: it shows the most that the load generator can do.
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
WAITED_MAX = 0.1  # of the time; more, and the figure is also that of other programs
SATURATED = 0.85  # of a core; a broker that used less waited for the load generator

Results = dict[tuple[str, str], list[Result]]
PAIRS = {"ours/Mosquitto": (OURS.name, MOSQUITTO.name)}  # ratios that are shown, by their title
RunOnce = Callable[[str, Broker, float], Result]  # a workload, a broker, seconds


def measure_once(workload: str, broker: Broker, seconds: float) -> Result:
    with running(broker) as it:
        return measure(workload, it.port, seconds, [it.pid])


def collect(
    workloads: list[str], brokers: list[Broker], runs: int, seconds: float, run_once: RunOnce = measure_once
) -> Results:
    """Failed runs are told and left out."""
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
            _doubt(results, workload, name)


def _doubt(results: Results, workload: str, name: str) -> None:
    """A figure that may not be the broker's own, and why."""
    busy = medians(results, workload, [name], "broker_busy")[name]
    waited = medians(results, workload, [name], "broker_waited")[name]
    if workload == "round-trip" or busy is None or waited is None:
        return
    if waited > WAITED_MAX:
        print(f"{workload}: {name} waited for a core {waited:.0%} of the time; something else kept this machine busy")
    elif busy < SATURATED:
        print(f"{workload}: {name} used only {busy:.0%} of a core; the load was the limit, it can do more")


def medians(results: Results, workload: str, names: list[str], field: str) -> dict[str, float | None]:
    values = {name: [getattr(each, field) for each in results.get((workload, name), [])] for name in names}
    return {name: statistics.median(each) if each else None for name, each in values.items()}


def header(title: str, names: list[str], pairs: Iterable[str] = PAIRS) -> None:
    print(f"\n{title:46}", *(f"{name:>12}" for name in names), *(f"{pair:>15}" for pair in pairs))


def row(title: str, figures: dict[str, float | None], pairs: Mapping[str, tuple[str, str]] = PAIRS) -> None:
    ratios = (_ratio(figures.get(ours), figures.get(theirs)) for ours, theirs in pairs.values())
    shown = ("-" if it is None else f"{it:,.0f}" if it >= 100 else f"{it:.2f}" for it in figures.values())
    print(f"{title:46}", *(f"{it:>12}" for it in shown), *(f"{it:>15}" for it in ratios))


def _ratio(ours: float | None, theirs: float | None) -> str:
    return f"{ours / theirs:.2f}" if ours is not None and theirs else "-"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.broker_speed", description="Brokers, side by side.")
    parser.add_argument("--runs", type=int, default=5, help="of every workload with every broker")
    parser.add_argument("--seconds", type=float, default=2.0, help="that a run measures")
    names = f"a workload ({', '.join(TITLES)}) or a broker ({', '.join(BROKERS)}); may be repeated"
    parser.add_argument("--only", action="append", default=[], metavar="NAME", choices=[*TITLES, *BROKERS], help=names)
    chosen = parser.parse_args()
    if not (1 <= chosen.runs <= RUNS_MAX and 0 < chosen.seconds <= SECONDS_MAX):
        parser.error(f"1 to {RUNS_MAX} runs of up to {SECONDS_MAX} seconds")
    stop_on_sigterm()
    workloads = [name for name in TITLES if name in chosen.only] or list(TITLES)
    brokers = only_present([BROKERS[name] for name in BROKERS if name in chosen.only] or [OURS, MOSQUITTO, AMQTT])
    if brokers:
        print(f"median of {chosen.runs} runs of {chosen.seconds:g} s, payloads of {len(PAYLOAD)} bytes,", end=" ")
        print(f"window of {WINDOW_MESSAGES} messages", flush=True)
        report(collect(workloads, brokers, chosen.runs, chosen.seconds), workloads, brokers)


if __name__ == "__main__":
    main()

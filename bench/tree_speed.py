"""How fast messages cross a tree of brokers, compared with bridged Mosquitto brokers, and for paths of several lengths.

`python -m bench.tree_speed [--runs 5] [--seconds 2] [--only NAME]...`, where NAME is one of the parts:

- `leaf-to-leaf`: a publisher at one leaf, the root, and a subscriber at another leaf. brokerbed has its message log on
  and identity routing; every Mosquitto leaf has a bridge to its root, for all topics in both directions. Every run
  starts a tree of its own, and the two take turns. The output has medians, and the CPU time per delivery of the three
  brokers together.
- `depths`: chains of 1 to 8 brokers of brokerbed, one run each, from the deepest leaf to the root (climbing) and back
  (descending). A hop is a broker that a message passes: the time per hop is that of a single message, from before it
  is sent until it is received, divided by the depth.
- `placement`: a tree of seven brokers with peer routing, from leaf to leaf over the root, with adaptive placement and
  without; no change would save enough, so no link moves. The two take turns.

All messages have QoS 0 and 64-byte payloads. In all rows but those that say otherwise they have one topic, which a
broker may use to forward several messages as one piece (brokerbed does). Clients on both sides speak the version that
is named, links MQTT 5.

A window of messages is under way (bench/load.py), so that no broker drops any; a run in which a message is lost or
repeated fails with an error. All brokers and the load generator share the cores of this machine, so the figures are
those of the machine, not of one broker.
"""

import argparse
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager

from bench.broker_speed import RUNS_MAX, SECONDS_MAX, Results, collect, header, medians, row
from bench.brokers import (
    MOSQUITTO,
    OURS,
    PLACING,
    STILL,
    Broker,
    BrokerError,
    Running,
    only_present,
    running,
    stop_on_sigterm,
)
from bench.clients import LoadError
from bench.load import Result, measure
from bench.workloads import PAYLOAD, WINDOW_MESSAGES

LEAF_TO_LEAF, DEPTHS, PLACEMENT = "leaf-to-leaf", "depths", "placement"
TITLES = {
    "one-to-one-v5": "MQTT 5",
    "one-to-one": "MQTT 3.1.1",
    "mixed-v5": "MQTT 5, next message, next topic",
    "mixed": "MQTT 3.1.1, next message, next topic",
}
PAIRS = {"ours/Mosquitto": (OURS.name, MOSQUITTO.name)}
PLACING_PAIRS = {"with/without": (PLACING.name, STILL.name)}
ROOT_AND_TWO_LEAVES = (None, 0, 0)
SEVEN = (None, 0, 0, 1, 1, 2, 2)
DEPTH_MAX = 8
THROUGHPUT, THROUGHPUT_S = "one-to-one-v5", 0.5  # on a chain; short, because there are 16 such runs
ROUND_TRIP, ROUND_TRIP_S = "round-trip-v5", 1.0  # about 1000 samples for the longest chain


@contextmanager
def running_tree(broker: Broker, parents: Sequence[int | None]) -> Iterator[list[Running]]:
    """Runs a tree. `parents` has the index of each broker's parent, or None for the root, which comes first."""
    with ExitStack() as stack:
        tree: list[Running] = []
        for parent in parents:
            port = None if parent is None else tree[parent].port
            tree.append(stack.enter_context(running(broker, parent=port)))
        yield tree


def measure_path(workload: str, tree: list[Running], publisher: int, subscriber: int, seconds: float) -> Result:
    """Measures from a publisher at one broker of the tree to a subscriber at another."""
    pids = [broker.pid for broker in tree]
    return measure(workload, tree[subscriber].port, seconds, pids, publish_port=tree[publisher].port)


def leaf_to_leaf(workload: str, broker: Broker, seconds: float) -> Result:
    with running_tree(broker, ROOT_AND_TWO_LEAVES) as tree:
        return measure_path(workload, tree, 1, 2, seconds)


def over_seven(workload: str, broker: Broker, seconds: float) -> Result:
    with running_tree(broker, SEVEN) as tree:
        return measure_path(workload, tree, 3, 6, seconds)


def report_path(title: str, results: Results, names: list[str], pairs: Mapping[str, tuple[str, str]]) -> None:
    header(title, names, pairs)
    for workload, title in TITLES.items():
        row(f"{title}, 1/s", medians(results, workload, names, "deliveries_per_s"), pairs)
    print("\nCPU time of all these brokers per delivery, us")
    for workload, title in TITLES.items():
        row(title, medians(results, workload, names, "cpu_us_per_delivery"), pairs)


def report_depths() -> None:
    """Prints a line for every depth as soon as it is measured."""
    print(f"\n{OURS.name}, chains, MQTT 5, one run each; p50 and p99 are us per hop")
    print(f"{'':7} {'from leaf to root':>32} {'from root to leaf':>32}")
    print(f"{'brokers':7}", *[f"{'1/s':>14}{'p50':>9}{'p99':>9}"] * 2)
    for depth in range(1, DEPTH_MAX + 1):
        try:
            with running_tree(OURS, [None, *range(depth - 1)]) as chain:
                cells = depth_cells(chain, depth - 1, 0), depth_cells(chain, 0, depth - 1)
            print(f"{depth:<7}", *cells, flush=True)
        except (BrokerError, LoadError) as error:
            print(f"{depth:<7} failed: {error}", flush=True)


def depth_cells(chain: list[Running], publisher: int, subscriber: int) -> str:
    throughput = measure_path(THROUGHPUT, chain, publisher, subscriber, THROUGHPUT_S)
    single = measure_path(ROUND_TRIP, chain, publisher, subscriber, ROUND_TRIP_S)
    assert single.p50_us is not None
    assert single.p99_us is not None
    per_hop = f"{single.p50_us / len(chain):>9,.0f}{single.p99_us / len(chain):>9,.0f}"
    return f"{throughput.deliveries_per_s:>14,.0f}{per_hop}"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.tree_speed", description="Trees of brokers.")
    parser.add_argument(
        "--runs", type=int, default=5, help="runs from leaf to leaf, of every workload with every broker"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="how long a run from leaf to leaf measures")
    parts = (LEAF_TO_LEAF, DEPTHS, PLACEMENT)
    parser.add_argument("--only", action="append", default=[], choices=parts, help="only this part")
    options = parser.parse_args()
    if not (1 <= options.runs <= RUNS_MAX and 0 < options.seconds <= SECONDS_MAX):
        parser.error(f"1 to {RUNS_MAX} runs of up to {SECONDS_MAX} seconds")
    stop_on_sigterm()
    brokers = only_present([OURS, MOSQUITTO])
    print(f"payloads of {len(PAYLOAD)} bytes, QoS 0, window of {WINDOW_MESSAGES} messages,", end=" ")
    print(f"all brokers and the load generator on {len(os.sched_getaffinity(0))} cores", flush=True)
    if brokers and LEAF_TO_LEAF in (options.only or parts):
        print(f"median of {options.runs} runs of {options.seconds:g} s", flush=True)
        results = collect(list(TITLES), brokers, options.runs, options.seconds, leaf_to_leaf)
        report_path("leaf to root to leaf", results, [broker.name for broker in brokers], PAIRS)
    if OURS in brokers and PLACEMENT in (options.only or parts):
        results = collect(list(TITLES), [STILL, PLACING], options.runs, options.seconds, over_seven)
        report_path("seven brokers, leaf to leaf", results, [STILL.name, PLACING.name], PLACING_PAIRS)
    if OURS in brokers and DEPTHS in (options.only or parts):
        report_depths()


if __name__ == "__main__":
    main()

"""Peers that roam, judged by the command: `python -m tests.analysis.roaming`, part of `make roaming-campaign`.

A publisher at QoS 1 and one at QoS 2, a subscriber to each of them that roams, and exponential ON and OFF periods. Exit
code 1 if a headline row does not agree with its prediction within 3%, or an invariant is broken. `--on local` and
`--on docker` run real brokers, with OFF periods of one length: for five or ten minutes each, and for half an hour at
100 messages/s. The machine must do nothing else, because what a move takes there (3 ms on a quiet machine) adds to the
delays. On the virtual ground there are also publishers that roam, and routing without a root.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from tests.analysis.algorithms import run_and_tell

TREES = {
    "line": ("{tree: line, brokers: 3}", "[b0, b1, b2]"),
    "seven": ("{tree: regular, arity: 2, depth: 3}", "[b3, b0, b6, b2]"),
}
GROUNDS = ("virtual", "local", "docker")


class Size(NamedTuple):
    on_ms: int
    off_ms: int
    copies: int
    measure_s: int
    off_law: str = "exponential"

    @property
    def periods(self) -> str:
        return f"on: {{mean: {self.on_ms}ms}}, off: {{mean: {self.off_ms}ms, law: {self.off_law}}}"


SIMULATED = {1: Size(1000, 4000, 50, 5200), 10: Size(125, 500, 50, 650), 100: Size(25, 100, 50, 130)}  # by messages/s
# The mean delay after N exponential OFF periods is known to about 3.3 / sqrt(N), relatively; after fixed ones, to a fifth
# of that or less. Real brokers would need an hour for what takes minutes so.
REAL = {
    1: Size(3000, 6000, 300, 300, "deterministic"),
    10: Size(2000, 4000, 70, 600, "deterministic"),
    100: Size(1000, 2000, 10, 1800, "deterministic"),
}


def head(topology: str, size: Size) -> str:
    return (
        "scenario: 1\nname: roaming\ntolerance: 3%\ndurability: memory\npeers: light\n"
        f"clock: {{warmup: 10s, measure: {size.measure_s}s}}\ncopies: {size.copies}\ntopology: {topology}\n"
    )


def pairs(tree: str, rate: int, size: Size) -> str:
    topology, places = TREES[tree]
    publishers, subscribers = "publishers:\n", "subscribers:\n"
    for qos in (1, 2):
        publishers += f"  - {{id: p{qos}, broker: b1, topic: t/{qos}, rate: {rate}/s, qos: {qos}}}\n"
        subscribers += f"  - {{id: s{qos}, brokers: {places}, topic: t/{qos}, qos: {qos}, {size.periods}}}\n"
    return head(topology, size) + publishers + subscribers


def writer(routing: str) -> str:
    """Publisher and subscriber roam, among brokers of which they share one."""
    topology, _ = TREES["seven"]
    size, often = Size(1000, 4000, 50, 1200, "deterministic"), Size(4000, 1000, 0, 0, "deterministic")
    return head(topology, size) + (
        f"routing: {routing}\n"
        f"publishers: [{{id: w, brokers: [b4, b5, b0], topic: t, rate: 1/s, qos: 2, {often.periods}}}]\n"
        f"subscribers: [{{id: s, brokers: [b3, b0, b6], topic: t, qos: 2, {size.periods}}}]\n"
    )


def cases(ground: str) -> Iterator[tuple[str, str]]:
    sizes = SIMULATED if ground == "virtual" else REAL
    for tree in TREES:
        for rate, size in sizes.items():
            yield f"{rate}/s on {tree}", pairs(tree, rate, size)
    if ground == "virtual":
        for routing in ("identity", "peer", "peer-advertisement"):
            yield f"writer, {routing}", writer(routing)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.analysis.roaming", description=__doc__)
    parser.add_argument("--only", action="append", help="cases whose name has this in it; may be given several times")
    parser.add_argument("--on", choices=GROUNDS, default="virtual", help="the ground")
    given, wrong = parser.parse_args(), 0
    for name, described in cases(given.on):
        if given.only is not None and not any(it in name for it in given.only):
            continue
        begun = time.monotonic()
        with TemporaryDirectory() as folder:
            code = run_and_tell(described, given.on, Path(folder))
        print(f"{name}: exit code {code}, {time.monotonic() - begun:.0f} s", flush=True)
        wrong += code != 0
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

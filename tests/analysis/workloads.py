"""Workloads of JEDI and of van Vliet's thesis, on trees of different shapes.

`python -m tests.analysis.workloads`, `make workloads-campaign`: runs all on the virtual ground, on two trees. Exit code 1
if a headline row does not agree with its prediction within 2%, or an invariant is broken. `--on local` and `--on docker`
run seven real brokers instead, with a tolerance of 3%.
"""

import argparse
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.analysis.algorithms import run_and_tell

TREES = {
    "seven": "{tree: regular, arity: 2, depth: 3}",
    "uneven": "{tree: explicit, parents: {b0: null, b1: b0, b2: b1, b3: b2, b4: b2, b5: b4, b6: b0, b7: b6, b8: b6}}",
}
PUBLISHED = "publications: {rate: 150/s}\n"
WORKLOADS = {
    "population": "classes: 100\n" + PUBLISHED
    + "subscriptions: {population: {size: 2, on: {mean: 1s, law: uniform}, off: {mean: 5s}}}\n",
    "static": "classes: 100\n" + PUBLISHED
    + "subscriptions: {static: {count: 2, place: random, redraw: 4s}}\n",
    "roam": "classes: 400\n" + PUBLISHED  # many, as a subscription stays for 10 s with all its moves
    + "subscriptions: {where: leaves, mean_active: 600, lifetime: {mean: 4s}, roam: 0.6}\n",
    "sine": "classes: 200\npublications: {rate: 150/s, profile: {sine: {period: 5s, amplitude: 0.5}}}\n"
     "subscriptions: {mean_active: 150, lifetime: {mean: 1s}, profile: {sine: {period: 5s, amplitude: 0.8}}}\n",
    "steps": "classes: 200\n" + PUBLISHED
    + "subscriptions: {mean_active: 100, lifetime: {mean: 1s, law: uniform},"
    + " profile: {steps: [[0s, 1], [2s, 3]], period: 5s}}\n",
    "media": "classes: 100\nmedia: [b1]\n" + PUBLISHED
    + "subscriptions: {mean_active: 100, lifetime: {mean: 2s}}\n",
    **{
        f"spreading, {routing}": f"routing: {routing}\n"
        "spreading: {coefficient: 0.6, rate: 20/s, types: 120, redraw: 8s}\n"  # the old leave 8 ms after the new came
        for routing in ("identity", "peer", "advertisement")
    },
    "requests": "service: {broker_in: {mean: 100ms}, link: {mean: 100ms}}\ncopies: 100\npeers: light\n"
     "requesters: [{id: q1, broker: b3, topic: ask, rate: 0.8/s}, {id: q2, broker: b4, topic: ask, rate: 0.5/s}]\n"
     "responders: [{id: r, broker: b5, topic: ask, service: {mean: 200ms}}]\n",
}  # fmt: skip
MEASURE_S = {"virtual": 3000, "local": 240, "docker": 240}
TOLERANCE = {"virtual": "2%", "local": "3%", "docker": "3%"}


def text(workload: str, tree: str, measure_s: int, tolerance: str) -> str:
    return (
        f"scenario: 1\nname: workload\ntolerance: {tolerance}\nclock: {{warmup: 20s, measure: {measure_s}s}}\n"
        f"topology: {TREES[tree]}\ndurability: memory\n{WORKLOADS[workload]}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.analysis.workloads", description=__doc__)
    parser.add_argument("--only", choices=WORKLOADS, action="append", help="may be given several times")
    parser.add_argument("--on", choices=MEASURE_S, default="virtual", help="the ground")
    parser.add_argument("--measure", type=int, help="model seconds")
    given = parser.parse_args()
    wrong = 0
    for workload in given.only or WORKLOADS:
        for tree in TREES if given.on == "virtual" else ("seven",):
            begun = time.monotonic()
            with TemporaryDirectory() as folder:
                described = text(workload, tree, given.measure or MEASURE_S[given.on], TOLERANCE[given.on])
                code = run_and_tell(described, given.on, Path(folder))
            print(f"{workload} on {tree}: exit code {code}, {time.monotonic() - begun:.0f} s", flush=True)
            wrong += code != 0
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""All routing algorithms as a sweep, on three trees, with rates that differ by broker and class.

`python -m tests.analysis.algorithms`, `make algorithms-campaign`: runs all on the virtual ground. Exit code 1 if a headline
row does not agree with its prediction within 2%, or an invariant is broken.
"""

import argparse
import random
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

UNEVEN = (-1, 0, 0, 0, 1, 1, 2, 4, 4, 4, 7, 8, 10, 10, 12, 6, 15, 3, 17, 0)  # parents of 20 brokers: deep and shallow
TREES = {
    "line": tuple(range(-1, 7)),
    "star": (-1, *(0 for _ in range(9))),
    "uneven": UNEVEN,
}
ROUTINGS = (
    "flooding", "simple", "identity", "covering", "{algorithm: merging, threshold: 2}", "peer", "advertisement",
    "peer-advertisement",
)  # fmt: skip
CLASSES, GROUPS = 24, 4
MEASURE_S = 16_000  # so that the intervals of the rarest rows are about half of the tolerance
PER_S = {"subscriptions": 45.0, "publications": 200.0}  # in the whole network


def text(tree: str, measure_s: int, tolerance: str = "2%", rates: float = 1.0, seed: int = 1) -> str:
    """`rates`: a factor for all publications."""
    draw = random.Random(seed)
    parents = TREES[tree]
    cells = [(broker, number) for broker in range(len(parents)) for number in range(CLASSES)]
    lines = [
        f"scenario: 1\nname: algorithms-{tree}\nseed: {seed}\ntolerance: {tolerance}",
        f"clock: {{warmup: 20s, measure: {measure_s}s}}",
        "topology:\n  tree: explicit\n  parents:\n    b0: null",
        *(f"    b{broker}: b{parent}" for broker, parent in enumerate(parents) if broker),
        f"classes: {{count: {CLASSES}, groups: {GROUPS}}}",
        "subscriptions:\n  lifetime: {mean: 1s}\n  wide: {mean_active: 4}\n  at:",
    ]
    weights = {cell: draw.random() ** 2 for cell in cells}
    for (broker, number), weight in weights.items():
        rate = PER_S["subscriptions"] * weight / sum(weights.values())
        lines.append(f"  - {{broker: b{broker}, class: {number}, arrival_rate: {rate:.6f}/s}}")
    lines.append("publications:\n  sources: {on: {mean: 1s}, off: {mean: 1s}}\n  at:")
    weights = {cell: draw.random() for cell in cells if draw.random() < 0.5}
    for (broker, number), weight in weights.items():
        rate = rates * PER_S["publications"] * weight / sum(weights.values())
        lines.append(f"  - {{broker: b{broker}, class: {number}, rate: {rate:.6f}/s}}")
    lines.append(f"sweep: {{routing: [{', '.join(ROUTINGS)}]}}")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.analysis.algorithms", description=__doc__)
    parser.add_argument("--only", choices=TREES, action="append", help="a tree; may be given several times")
    parser.add_argument("--measure", type=int, default=MEASURE_S, help="model seconds")
    given = parser.parse_args()
    wrong = 0
    for tree in given.only or TREES:
        for routing in ROUTINGS:  # one after the other, because all logs of a tree together fill the heap of Spark
            begun = time.monotonic()
            with TemporaryDirectory() as folder:
                file = Path(folder) / f"{tree}.yaml"
                sweep, one = f"sweep: {{routing: [{', '.join(ROUTINGS)}]}}", f"routing: {routing}"
                file.write_text(text(tree, given.measure).replace(sweep, one), encoding="utf-8")
                command = [Path(sys.prefix) / "bin" / "brokerbed", "run", file, "--on", "virtual", "--out", folder]
                done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True, check=False)
            print(done.stdout)
            seconds = time.monotonic() - begun
            print(f"{tree}, {routing}: exit code {done.returncode}, {seconds:.0f} s", flush=True)
            wrong += done.returncode != 0
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

"""All routing algorithms on three trees, with rates that differ by broker and class.

`python -m tests.analysis.algorithms`, `make algorithms-campaign`: runs all on the virtual ground. Exit code 1 if a headline
row does not agree with its prediction within 2%, or an invariant is broken. `--on local` and `--on docker` run a tree of
seven real brokers instead, with a tolerance of 3%.
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
    "seven": (-1, 0, 0, 1, 1, 2, 2),
}
SIMULATED, REAL = ("line", "star", "uneven"), ("seven",)
ROUTINGS = (
    "flooding", "simple", "identity", "covering", "{algorithm: merging, threshold: 2}", "peer", "advertisement",
    "peer-advertisement",
)  # fmt: skip
CLASSES, CLASSES_PER_GROUP = 24, 3  # a subscription to a whole group moves all its classes, so groups are small
MEASURE_S = {"virtual": 12_000, "local": 270, "docker": 330}  # the intervals are then about half of the tolerance
LONGER = {"virtual": 3, "local": 8, "docker": 8}  # merging: what it sends down for nobody is rare, and comes in bursts
TOLERANCE = {"virtual": "2%", "local": "3%", "docker": "3%"}
LOAD_AND_SLOWER = {"virtual": (1, 1), "local": (5, 2), "docker": (5, 4)}  # round trips take longer in containers
PER_S = {"subscriptions": 48.0, "publications": 48.0}  # in the whole network


def text(tree: str, measure_s: int, tolerance: str, load: int = 1, slower: int = 1, seed: int = 1) -> str:
    """There are `load` times `slower` times more classes, in each of which everything changes `slower` times less often.

    Between real brokers, what is under way matters less the slower things change.
    """
    draw = random.Random(seed)
    classes = CLASSES * load * slower
    parents, groups = TREES[tree], classes // CLASSES_PER_GROUP
    cells = [(broker, number) for broker in range(len(parents)) for number in range(classes)]
    lines = [
        f"scenario: 1\nname: algorithms-{tree}\nseed: {seed}\ntolerance: {tolerance}",
        f"clock: {{warmup: 20s, measure: {measure_s}s}}",
        "topology:\n  tree: explicit\n  parents:\n    b0: null",
        *(f"    b{broker}: b{parent}" for broker, parent in enumerate(parents) if broker),
        f"classes: {{count: {classes}, groups: {groups}}}",
        f"subscriptions:\n  lifetime: {{mean: {slower}s}}\n  wide: {{mean_active: {groups}}}\n  at:",
    ]
    weights = {cell: draw.random() ** 2 for cell in cells}
    for (broker, number), weight in weights.items():
        rate = PER_S["subscriptions"] * load * weight / sum(weights.values())
        lines.append(f"  - {{broker: b{broker}, class: {number}, arrival_rate: {rate:.6f}/s}}")
    period = f"{{mean: {400 * slower}ms}}"
    lines.append(f"publications:\n  sources: {{on: {period}, off: {period}}}\n  at:")
    weights = {cell: draw.random() for cell in cells if draw.random() < 0.5}
    for (broker, number), weight in weights.items():
        rate = PER_S["publications"] * load * weight / sum(weights.values())
        lines.append(f"  - {{broker: b{broker}, class: {number}, rate: {rate:.6f}/s}}")
    lines.append(f"sweep: {{routing: [{', '.join(ROUTINGS)}]}}")
    return "\n".join(lines) + "\n"


def run_and_tell(described: str, on: str, folder: Path) -> int:
    """Run a scenario, print what the command says, and return its exit code."""
    file = folder / "scenario.yaml"
    file.write_text(described, encoding="utf-8")
    command = [Path(sys.prefix) / "bin" / "brokerbed", "run", file, "--on", on, "--out", folder]
    done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True, check=False)
    print(done.stdout)
    return done.returncode


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.analysis.algorithms", description=__doc__)
    parser.add_argument("--only", choices=TREES, action="append", help="a tree; may be given several times")
    parser.add_argument("--routing", choices=ROUTINGS, action="append", help="an algorithm; may be given several times")
    parser.add_argument("--on", choices=MEASURE_S, default="virtual", help="the ground")
    parser.add_argument("--measure", type=int, help="model seconds")
    given = parser.parse_args()
    is_simulated = given.on == "virtual"
    load, slower = LOAD_AND_SLOWER[given.on]
    wrong = 0
    for tree in given.only or (SIMULATED if is_simulated else REAL):
        for routing in (
            given.routing or ROUTINGS
        ):  # one after the other, because all logs of a tree together fill the heap of Spark
            begun = time.monotonic()
            longer = LONGER[given.on] if "merging" in routing else 1
            measure_s = given.measure or MEASURE_S[given.on] * longer
            with TemporaryDirectory() as folder:
                sweep, one = f"sweep: {{routing: [{', '.join(ROUTINGS)}]}}", f"routing: {routing}"
                described = text(tree, measure_s, TOLERANCE[given.on], load, slower).replace(sweep, one)
                code = run_and_tell(described, given.on, Path(folder))
            seconds = time.monotonic() - begun
            print(f"{tree}, {routing}: exit code {code}, {seconds:.0f} s", flush=True)
            wrong += code != 0
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

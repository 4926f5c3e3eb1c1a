"""Scenarios with all routing algorithms as a sweep, on three trees, with rates that differ by broker and class.

`python -m tests.analysis.algorithms TREE` prints one of them.
"""

import random
import sys

UNEVEN = (-1, 0, 0, 0, 1, 1, 2, 4, 4, 4, 7, 8, 10, 10, 12, 6, 15, 3, 17, 0)  # parents of 20 brokers: deep and shallow
TREES = {
    "line": tuple(range(-1, 7)),
    "star": (-1, *(0 for _ in range(9))),
    "uneven": UNEVEN,
}
CLASSES, GROUPS = 24, 4
PER_S = {"subscriptions": 45.0, "publications": 200.0}  # in the whole network


def text(tree: str, measure_s: int, tolerance: str = "2%", seed: int = 1) -> str:
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
        rate = PER_S["publications"] * weight / sum(weights.values())
        lines.append(f"  - {{broker: b{broker}, class: {number}, rate: {rate:.6f}/s}}")
    routings = "flooding, simple, identity, covering, {algorithm: merging, threshold: 2}, peer, advertisement, peer-advertisement"
    lines.append(f"sweep: {{routing: [{routings}]}}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text(sys.argv[1], int(sys.argv[2])))

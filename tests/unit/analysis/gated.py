"""Gates over drawn runs: how often they raise an alarm where nothing has changed, and find a change of 5%.

`python -m tests.unit.analysis.gated` draws thousands of gates (part of `make gate-campaign`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from brokerbed.analysis.batches import Batches
from brokerbed.analysis.changes import WORSE, Comparison, judged
from brokerbed.analysis.estimates import Numbers
from brokerbed.metrics import (
    CONTROL_MESSAGES,
    DELIVERED_MESSAGES,
    DELIVERY_RATIO,
    END_TO_END_DELAY,
    NOTIFICATIONS,
    REMOTE_ENTRIES,
    UNWANTED_NOTIFICATIONS,
    Metric,
)
from tests.unit.analysis.drawn import Batches as Drawn
from tests.unit.analysis.drawn import counts, losses, peer, queue, table

GATES = 2000
MARGIN = 0.02
CHANGE = 0.05
ALARMS_MAX = 0.025
POWER_MIN = 0.9
Draw = Callable[[np.random.Generator, int], Drawn]


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a gate: what each measures, and how its batches are drawn."""

    name: str
    of: tuple[tuple[Metric, Draw], ...]

    def __str__(self) -> str:
        return self.name

    def drawn(self, gates: int, seed: int) -> list[list[Batches]]:
        """By row and gate."""
        generator = np.random.default_rng(seed)
        return [[batches(x, n) for x, n in zip(*draw(generator, gates)[:2], strict=True)] for _, draw in self.of]

    def verdicts(self, base: list[list[Batches]], new: list[list[Batches]]) -> list[list[str]]:
        """By gate and row."""
        return [
            judged(
                [
                    Comparison(metric, one[gate], other[gate], MARGIN)
                    for (metric, _), one, other in zip(self.of, base, new, strict=True)
                ]
            )
            for gate in range(len(base[0]))
        ]


def batches(x: Numbers, n: Numbers, seed: int = 0) -> Batches:
    return Batches(tuple((seed, copy) for copy in range(len(x))), x, n, float(x.sum() / n.sum()))


def grown(row: list[Batches], factor: float) -> list[Batches]:
    """The same batches with values that are larger by a factor."""
    return [Batches(each.series, each.x * factor, each.n, each.value * factor) for each in row]


def others(row: list[Batches], seed: int) -> list[Batches]:
    """The same batches as those of a run with another seed."""
    return [batches(each.x, each.n, seed) for each in row]


ALL_KINDS = Rows(
    "all kinds of rows",
    (
        (NOTIFICATIONS, counts(40_000)),
        (CONTROL_MESSAGES, counts(4_000)),
        (UNWANTED_NOTIFICATIONS, counts(20)),
        (DELIVERED_MESSAGES, counts(60_000, 3)),
        (REMOTE_ENTRIES, table(200)),
        (END_TO_END_DELAY, peer(200, 5)),
        (DELIVERY_RATIO, losses(20)),
    ),
)
WIDE = Rows("eight rows with wide intervals", tuple((END_TO_END_DELAY, peer(20, 3)) for _ in range(8)))
QUEUES = Rows("loaded queues", tuple((END_TO_END_DELAY, queue(0.5, 400)) for _ in range(2)))
EXACT = Rows(
    "rows of a run that is long enough",
    ((NOTIFICATIONS, counts(60_000)), (END_TO_END_DELAY, table(1000)), (REMOTE_ENTRIES, table(1000))),
)


def alarms(rows: Rows, gates: int, is_paired: bool = False, seed: int = 1) -> float:
    """The share of gates with an alarm, where base and new are drawn alike."""
    base, new = rows.drawn(gates, seed), rows.drawn(gates, seed + 1)
    if not is_paired:
        new = [others(row, 1) for row in new]
    return float(np.mean([WORSE in verdicts for verdicts in rows.verdicts(base, new)]))


def found(rows: Rows, gates: int, change: float = CHANGE, seed: int = 3) -> dict[str, float]:
    """The share of gates that find that a row is worse, where the mean of this row alone has changed."""
    base, new = rows.drawn(gates, seed), [others(each, 1) for each in rows.drawn(gates, seed + 1)]
    shares = {}
    for row, (metric, _) in enumerate(rows.of):
        changed = [*new[:row], grown(new[row], 1 + change), *new[row + 1 :]]
        shares[metric.name] = float(np.mean([each[row] == WORSE for each in rows.verdicts(base, changed)]))
    return shares


def main() -> int:
    is_right = True
    for rows in (ALL_KINDS, WIDE, QUEUES, EXACT):
        for is_paired in (False, True):
            share = alarms(rows, GATES, is_paired)
            is_right &= share <= ALARMS_MAX
            how = "batch by batch" if is_paired else "independent"
            print(f"{rows.name:<40} {how:<16} false alarms {share:.2%} of {GATES}", flush=True)
    for metric, share in found(EXACT, GATES // 10).items():
        is_right &= share >= POWER_MIN
        print(f"{metric:<40} 5% more found in {share:.1%} of {GATES // 10}", flush=True)
    return 0 if is_right else 1


if __name__ == "__main__":
    raise SystemExit(main())

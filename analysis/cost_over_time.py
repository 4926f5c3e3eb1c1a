"""What the traffic of a run costs while its links have one tree after the other, measured beside predicted. Pure.

The measured costs are those of equal intervals of time (bins). A bin belongs to a tree if no link moved in it, and to a
phase of the period, if rates vary, if it lies within that phase. Neighbours of one tree with one prediction are joined.
"""

from bisect import bisect_right
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from math import isclose
from typing import Any

from brokerbed.analysis.link_moves import parents_over_time
from brokerbed.analysis.predict import predict
from brokerbed.analysis.runs import Run
from brokerbed.metrics import PHASES, ROUTING_COST
from brokerbed.scenario.moved import with_parents
from brokerbed.scenario.units import NS_PER_S


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time in which neither the tree nor the predicted cost changed. Costs are per second."""

    begin_s: float
    end_s: float
    measured: float
    predicted: float | None

    def as_json(self) -> dict[str, Any]:
        return {"seconds": [self.begin_s, self.end_s], "measured": self.measured, "predicted": self.predicted}


def stretches(run: Run, cost_by_bin: Mapping[int, float], bin_ns: int, bins: int) -> list[Stretch]:
    """`cost_by_bin` has the costs of all notifications of a bin; one without notifications is not in it."""
    moved_ns = [move.time_ns for move in run.moves]
    period_ns = run.scenario.period_ns
    cost_of = _predicted_costs(run)
    found: list[tuple[int, tuple[int, float | None]]] = []
    for bin_ in range(bins):
        begin_ns, end_ns = bin_ * bin_ns, (bin_ + 1) * bin_ns
        tree, phase = bisect_right(moved_ns, begin_ns), 0
        if tree != bisect_right(moved_ns, end_ns - 1):
            continue
        if period_ns is not None:
            phase = begin_ns % period_ns * PHASES // period_ns
            if phase != (end_ns - 1) % period_ns * PHASES // period_ns:
                continue
        found.append((bin_, (tree, cost_of(tree, phase))))
    merged: list[tuple[list[int], tuple[int, float | None]]] = []
    for key, members in groupby(found, key=lambda it: it[1]):
        numbers = [bin_ for bin_, _ in members]
        if merged and _are_alike(merged[-1][1], key):
            merged[-1][0].extend(numbers)
        else:
            merged.append((numbers, key))
    width_s = bin_ns / NS_PER_S
    return [
        Stretch(
            numbers[0] * width_s, (numbers[-1] + 1) * width_s,
            sum(cost_by_bin.get(bin_, 0.0) for bin_ in numbers) / (len(numbers) * width_s), predicted,
        )
        for numbers, (_, predicted) in merged
    ]  # fmt: skip


def _are_alike(one: tuple[int, float | None], other: tuple[int, float | None]) -> bool:
    if one[0] != other[0] or one[1] is None or other[1] is None:
        return one == other
    return isclose(one[1], other[1], rel_tol=1e-9)


def _predicted_costs(run: Run) -> Callable[[int, int], float | None]:
    """A function from the number of a tree, and of a phase, to its cost."""
    begin = run.begin or run.scenario
    trees = parents_over_time(begin.tree, run.moves)
    has_phases = begin.period_ns is not None

    @cache
    def costs(tree: int) -> dict[str, float | None]:
        rows = predict(with_parents(begin, trees[tree]), detail=has_phases, tree_is_final=True).rows
        return {row.labels.get("phase", ""): row.predicted for row in rows if row.kind is ROUTING_COST}

    return lambda tree, phase: costs(tree)[str(phase) if has_phases else ""]

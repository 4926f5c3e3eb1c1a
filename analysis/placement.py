"""Predictions for runs in which links moved: for the tree that each of them had in compared time. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from brokerbed.analysis.cost_over_time import Stretch
from brokerbed.analysis.link_moves import parents_after
from brokerbed.analysis.predict import Prediction, predict
from brokerbed.analysis.runs import Run
from brokerbed.metrics import ROUTING_COST, Row, Statistic
from brokerbed.scenario import Scenario
from brokerbed.scenario.moved import parents_of, with_parents
from brokerbed.scenario.units import NS_PER_S

Weighted = Sequence[tuple[Prediction, float]]
SETTLED_SHARE = 0.25  # of the measured time, at its end: links that move then have not come to rest
DIFFERENT = "the runs ended with different trees; predictions are means over these trees, and quantiles have none"


@dataclass(frozen=True, slots=True)
class Placement:
    """The trees at the beginning and at the end of one run, and what its traffic costs in them by the models."""

    initial: Mapping[str, str]  # the parents of all brokers but the root
    final: Mapping[str, str]
    moves: int
    cost_initial: float | None
    cost_final: float | None
    costs: tuple[Stretch, ...] = ()  # measured beside predicted, from one move to the next

    def as_json(self) -> dict[str, Any]:
        return {
            "initial": dict(self.initial), "final": dict(self.final), "moves": self.moves,
            "cost_initial": self.cost_initial, "cost_final": self.cost_final,
            "costs": [stretch.as_json() for stretch in self.costs],
        }  # fmt: skip


def placement_of(run: Run, costs: Sequence[Stretch] = ()) -> Placement | None:
    """None if links cannot move."""
    begin = run.begin
    if begin is None:
        return None
    end = with_parents(begin, parents_after(begin.tree, run.moves))
    cost_initial = _cost_of(begin)
    cost_final = cost_initial if end.tree is begin.tree else _cost_of(end)
    return Placement(
        dict(begin.tree.links), dict(end.tree.links), len(run.moves), cost_initial, cost_final, tuple(costs)
    )


def _cost_of(scenario: Scenario) -> float | None:
    rows = predict(scenario, detail=False, tree_is_final=True).rows
    return next(row.predicted for row in rows if row.kind is ROUTING_COST and row.is_headline)


def predict_runs(runs: Sequence[Run], seconds: Sequence[float]) -> Prediction:
    """For the runs of one point, of which so many seconds are compared, in the trees that they had then."""
    first = runs[0].scenario
    if first.placement is None:
        return predict(first)
    by_tree: dict[tuple[tuple[str, str | None], ...], tuple[Prediction, float]] = {}
    for run, compared_s in zip(runs, seconds, strict=True):
        parents = tuple(sorted(parents_of(run.scenario.tree).items()))
        if parents not in by_tree:
            by_tree[parents] = predict(run.scenario, tree_is_final=True), 0.0
        prediction, seconds_before = by_tree[parents]
        by_tree[parents] = prediction, seconds_before + compared_s
    several = list(by_tree.values())
    prediction = several[0][0] if len(several) == 1 else _mean(several)
    found = [note_of(run, compared_s, len(runs) > 1) for run, compared_s in zip(runs, seconds, strict=True)]
    notes = [note for note in found if note is not None]
    return replace(prediction, notes=(*prediction.notes, *notes, *((DIFFERENT,) if len(several) > 1 else ())))


def _mean(several: Weighted) -> Prediction:
    """A row of a link that a tree does not have is 0 there."""
    first = several[0][0]
    found: dict[tuple[str, tuple[tuple[str, str], ...]], list[tuple[Row, float]]] = {}
    for prediction, weight in several:
        for row in prediction.rows:
            found.setdefault((row.metric, tuple(row.labels.items())), []).append((row, weight))
    total = sum(weight for _, weight in several)
    rows = [_mean_row(rows, total) for rows in found.values()]
    return replace(first, rows=(*filter(_is_headline, rows), *(row for row in rows if not row.is_headline)))


def _is_headline(row: Row) -> bool:
    return row.is_headline


def _mean_row(rows: Sequence[tuple[Row, float]], total: float) -> Row:
    first = rows[0][0]
    values = [row.predicted for row, _ in rows]
    errors = [row.standard_error for row, _ in rows if row.standard_error is not None]
    known = [value for value in values if value is not None]
    if len(known) < len(values) or total == 0:
        mean = None
    elif first.kind.statistic is Statistic.QUANTILE and len(set(known)) > 1:
        mean = None  # the quantile of a mixture is not the mean of quantiles
    else:
        weight = total if first.kind.statistic.is_over_time else sum(weight for _, weight in rows)
        products = [value * part for value, (_, part) in zip(known, rows, strict=True)]
        mean = sum(products) / weight if weight else None
    return Row(first.kind, first.labels, mean, max(errors, default=None) if mean is not None else None)


def note_of(run: Run, compared_s: float, is_one_of_several: bool) -> str | None:
    """How the moves of a run bear on its comparison."""
    begin_ns, end_ns = run.measured_ns
    if not run.moves:
        return None
    whose = f" with seed {run.scenario.seed}" if is_one_of_several else ""
    number, last_ns = len(run.moves), run.moves[-1].time_ns
    last_s = f"{last_ns / NS_PER_S:g} s"
    if last_ns > end_ns - SETTLED_SHARE * (end_ns - begin_ns):
        when = "after the measured time" if last_ns >= end_ns else f"at {last_s}"
        return (
            f"the tree{whose} was still changing at the end, as the last of {number} moves came {when}; to compare it"
            " with the prediction for one tree, run it longer or with a larger placement.gain"
        )
    times = f"once{whose}," if number == 1 else f"{number} times{whose}, the last time"
    if compared_s == 0:
        return f"links moved {times} at {last_s}; nothing is compared, as too little time without moves was measured"
    compared = "all of the measured time" if last_ns < begin_ns else "only the time from then on"
    return f"links moved {times} at {last_s}; {compared} is compared, with the prediction for the final tree"

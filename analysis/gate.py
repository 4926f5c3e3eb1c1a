"""`brokerbed gate`: whether a run is shown to be worse than another run of the same scenario.

It reads what the analysis of each run has written, and needs neither Spark nor the message logs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brokerbed.analysis import batches
from brokerbed.analysis.batches import Batches, Key
from brokerbed.analysis.changes import CANNOT_TELL, NOT_WORSE, SAME, WORSE, Change, Comparison, judged
from brokerbed.analysis.errors import RunError
from brokerbed.analysis.metrics.registry import metrics
from brokerbed.analysis.runs import experiment_of, summary_of
from brokerbed.metrics import Metric
from brokerbed.scenario import Experiment, Scenario
from brokerbed.scenario.document import read_document

NOT_COMPARED = ("seed", "clock", "tolerance")  # keys of a scenario that change what is measured by chance only


@dataclass(frozen=True, slots=True)
class Row:
    """One row of one point."""

    metric: str
    labels: dict[str, str]
    unit: str
    margin: float
    change: Change

    @property
    def verdict(self) -> str:
        return self.change.verdict

    def as_json(self) -> dict[str, Any]:
        found = self.change
        entry = {
            "metric": self.metric, "labels": self.labels, "unit": self.unit, "margin": self.margin,
            "base": found.base, "new": found.new, "change": found.change,
            "ci_low": found.ci_low, "ci_high": found.ci_high, "verdict": found.verdict,
        }  # fmt: skip
        return entry if found.longer is None else entry | {"longer": found.longer}


@dataclass(frozen=True, slots=True)
class Held:
    """Whether an invariant held in each run; one that is broken for the first time is worse."""

    name: str
    base: bool
    new: bool

    @property
    def verdict(self) -> str:
        return WORSE if self.base and not self.new else SAME

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "base": self.base, "new": self.new, "verdict": self.verdict}


@dataclass(frozen=True, slots=True)
class Point:
    at: Mapping[str, Any]
    rows: tuple[Row, ...]
    invariants: tuple[Held, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "metrics": [row.as_json() for row in self.rows],
            "invariants": [invariant.as_json() for invariant in self.invariants],
        }


@dataclass(frozen=True, slots=True)
class Gate:
    """The comparison of two run directories."""

    scenario: str
    base: Path
    new: Path
    is_sweep: bool
    points: tuple[Point, ...]
    warnings: tuple[str, ...]

    @property
    def verdict(self) -> str:
        """Worse if anything is shown to be, `cannot tell` if there is nothing, or not everything is shown not to be."""
        rows = [row.verdict for point in self.points for row in point.rows]
        if WORSE in rows or any(held.verdict == WORSE for point in self.points for held in point.invariants):
            return WORSE
        return NOT_WORSE if rows and CANNOT_TELL not in rows else CANNOT_TELL

    def as_json(self) -> dict[str, Any]:
        points = [point.as_json() for point in self.points]
        found = {"points": [{"at": dict(point.at)} | entry for point, entry in zip(self.points, points, strict=True)]}
        head = {"scenario": self.scenario, "base": str(self.base), "new": str(self.new), "verdict": self.verdict}
        return head | (found if self.is_sweep else points[0]) | {"warnings": list(self.warnings)}


def gate(base: Path, new: Path, margin: float | None = None) -> Gate:
    """RunError if one of them is not the directory of an analysed run, or if their scenarios are not the same.

    Without a margin, it is the tolerance that the scenario of the base has for each metric.
    """
    experiments = experiment_of(base), experiment_of(new)
    _need_same(base, new, *experiments)
    points = experiments[0].points
    sides = batches.read(base, len(points)), batches.read(new, len(points))
    summaries = _summaries(base, len(points)), _summaries(new, len(points))
    paired = [
        list(_comparisons(one, other, scenario, margin))
        for one, other, scenario in zip(sides[0], sides[1], points, strict=True)
    ]
    verdicts = iter(judged([comparison for rows in paired for _, comparison in rows]))
    found = tuple(
        Point(
            scenario.at,
            tuple(_row(key, comparison, next(verdicts), scenario, margin) for key, comparison in rows),
            tuple(_invariants(one, other)),
        )
        for scenario, rows, one, other in zip(points, paired, summaries[0], summaries[1], strict=True)
    )
    warnings = tuple(_differences(*experiments, *(str(summary[0]["on"]) for summary in summaries)))
    return Gate(experiments[0].name, base, new, experiments[0].is_sweep, found, warnings)


def _need_same(base: Path, new: Path, first: Experiment, second: Experiment) -> None:
    if first.name != second.name:
        raise RunError(
            f"{new}: this is a run of the scenario {second.name}, and {base} of {first.name}; compare two runs of one"
            " scenario"
        )
    for one, other in zip(first.points, second.points, strict=False):
        if one.at != other.at or one.tree.names != other.tree.names:
            break
    else:
        if len(first.points) == len(second.points):
            return
    raise RunError(
        f"{new}: its scenario {second.name} has other points or other brokers than that of {base}; run both anew"
    )


def _summaries(folder: Path, points: int) -> list[dict[str, Any]]:
    summary = summary_of(folder)
    found = [] if summary is None else summary.get("points", [summary])
    if len(found) != points:
        raise batches.not_analysed(folder)
    return list(found)


def _comparisons(
    base: dict[Key, Batches], new: dict[Key, Batches], scenario: Scenario, margin: float | None
) -> Iterator[tuple[Key, Comparison | None]]:
    """All rows that one of the runs has, in the order of the metrics."""
    known = metrics()
    order = {name: place for place, name in enumerate(known)}
    for key in sorted({**base, **new}, key=lambda key: order[key[0]]):
        metric = known[key[0]]
        sides = [side.get(key) or (batches.unseen(side) if metric.statistic.is_over_time else None)
                 for side in (base, new)]  # fmt: skip
        if sides[0] is None or sides[1] is None:
            yield key, None
        else:
            yield key, Comparison(metric, sides[0], sides[1], _margin(metric, scenario, margin))


def _margin(metric: Metric, scenario: Scenario, margin: float | None) -> float:
    return scenario.tolerance.of(metric.name) if margin is None else margin


def _row(key: Key, comparison: Comparison | None, verdict: str, scenario: Scenario, margin: float | None) -> Row:
    name, labels = key
    metric = metrics()[name]
    found = Change(None, None, None, None, None, verdict) if comparison is None else comparison.change(verdict)
    names = metric.gated or ()
    return Row(name, dict(zip(names, labels, strict=True)), metric.unit, _margin(metric, scenario, margin), found)


def _invariants(base: dict[str, Any], new: dict[str, Any]) -> Iterator[Held]:
    held = {entry["name"]: bool(entry["holds"]) for entry in base["invariants"]}
    for entry in new["invariants"]:
        yield Held(entry["name"], held.get(entry["name"], True), bool(entry["holds"]))


def _differences(base: Experiment, new: Experiment, base_on: str, new_on: str) -> Iterator[str]:
    """What else differs: whoever compares two configurations wants that, and others should know."""
    documents = [read_document(Path(experiment.file)).plain() for experiment in (base, new)]
    one, other = (document if isinstance(document, dict) else {} for document in documents)
    differing = [key for key in {**one, **other} if key not in NOT_COMPARED and one.get(key) != other.get(key)]
    if base_on != new_on:
        yield f"the base ran on {base_on} and the new run on {new_on}, so delays differ by what the machine takes"
    if differing:
        yield f"the scenarios of the runs differ in {', '.join(differing)}; what that changes counts as a change"


def text_of(row: Row) -> str:
    """What was found, as one line of a test report."""
    found = row.change
    if found.base is None or found.new is None:
        return "only one of the runs has measured this"
    limits = ["?" if limit is None else f"{limit:+.2%}" for limit in (found.ci_low, found.ci_high)]
    change = "new" if found.change is None else f"{found.change:+.2%} (95% interval {limits[0]} to {limits[1]})"
    advice = "" if found.longer is None else f"; measure {found.longer:.3g} times longer"
    return f"{found.base:.6g} in the base, {found.new:.6g} now: {change}, margin {100 * row.margin:.3g}%{advice}"

"""Reads the data of a report from a run directory: description, analysis and series, without log or Spark."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from brokerbed.analysis import series
from brokerbed.analysis.errors import RunError
from brokerbed.analysis.metrics.registry import metrics
from brokerbed.analysis.runs import described, experiment_of, place_of, seeds_in, summary_of
from brokerbed.analysis.verdicts import AGREES, DIFFERS, INCONCLUSIVE
from brokerbed.metrics import PER_PHASE, Labels, Metric, labels_text
from brokerbed.scenario import Experiment, Scenario
from brokerbed.scenario.moved import with_parents
from brokerbed.scenario.sampling import sampled_points

Pairs = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the comparison."""

    kind: Metric
    names: Labels  # the names of its labels
    labels: tuple[str, ...]  # the values of its labels
    predicted: float | None
    measured: float | None
    low: float | None
    high: float | None
    error: float | None
    verdict: str | None
    longer: float | None = None  # how many times longer to measure an inconclusive row
    standard_error: float | None = None  # of a prediction by recursion

    @property
    def metric(self) -> str:
        return self.kind.name

    @property
    def is_headline(self) -> bool:
        return self.names == self.kind.headline

    @property
    def place(self) -> str:
        return labels_text(dict(zip(self.names, self.labels, strict=True)))


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a sweep, or the whole run."""

    number: int
    scenario: Scenario  # if links moved, with the tree at the end
    summary: dict[str, Any]  # its part of summary.json
    rows: list[Row]
    series: dict[str, dict[str, Pairs]] = field(default_factory=dict)  # kind -> name -> pairs

    @property
    def first_scenario(self) -> Scenario:
        """With the tree at the beginning."""
        placement = self.summary.get("placement")
        return self.scenario if placement is None else with_parents(self.scenario, _parents(placement["initial"]))

    @property
    def costs_over_time(self) -> list[tuple[float, float, float, float | None]]:
        """From and to (s), measured and predicted cost per second, from one move of a link to the next."""
        found = self.summary.get("placement", {}).get("costs", [])
        return [(*stretch["seconds"], stretch["measured"], stretch["predicted"]) for stretch in found]

    @property
    def headline(self) -> list[Row]:
        return [row for row in self.rows if row.is_headline]

    @property
    def at(self) -> str:
        return ", ".join(f"{key} = {'null' if value is None else value}" for key, value in self.scenario.at.items())

    def detail(self, metric: Metric) -> list[Row]:
        return [row for row in self.rows if row.kind == metric and row.names == metric.detail]

    def phases(self, metric: Metric) -> list[Row]:
        """The rows of the phases of a period, in order."""
        return [row for row in self.rows if row.kind == metric and row.names == PER_PHASE]

    def values(self, metric: Metric) -> dict[str, float]:
        """The measured values of the detail rows, by their only label."""
        return {row.labels[0]: row.measured for row in self.detail(metric) if row.measured is not None}


@dataclass(frozen=True, slots=True)
class Report:
    folder: Path
    experiment: Experiment
    run: dict[str, Any]  # run.json of the first run
    seeds: int
    scenario_file: str
    points: list[Point]
    chosen: list[int]  # the points with drawings of their own

    @property
    def is_sweep(self) -> bool:
        return self.experiment.is_sweep

    def count(self, verdict: str | None) -> int:
        return sum(row.verdict == verdict for point in self.points for row in point.headline)

    @property
    def broken(self) -> list[tuple[Point, dict[str, Any]]]:
        return [
            (point, invariant)
            for point in self.points
            for invariant in point.summary["invariants"]
            if not invariant["holds"]
        ]

    @property
    def verdict(self) -> str:
        """The worst verdict of all rows and invariants."""
        if self.broken or self.count(DIFFERS) or self.count(None):
            return DIFFERS
        return INCONCLUSIVE if self.count(INCONCLUSIVE) else AGREES


def is_analysed(folder: Path) -> bool:
    """Whether the run directory contains everything that a report needs."""
    return summary_of(folder) is not None and (folder / "analysis" / series.FILE).is_file()


def read(folder: Path) -> Report:
    """Reads a run directory; RunError if it is not one, or its analysis cannot be read."""
    experiment = experiment_of(folder)
    first = place_of(folder, experiment, 0)
    seeds = seeds_in(first / "seeds")
    summary = summary_of(folder) or {}
    try:
        summaries = summary["points"] if experiment.is_sweep else [summary]
        rows = _rows(folder / "analysis" / "compared.parquet", len(summaries))
        samples = series.by_kind(series.read(folder / "analysis"))
        points = [
            Point(
                number,
                _at_end(scenario, summaries[number]),
                summaries[number],
                rows[number],
                _of_point(samples, number),
            )
            for number, scenario in enumerate(experiment.points)
        ]
    except (OSError, ValueError, LookupError, TypeError, pa.ArrowException):
        raise RunError(f"{folder / 'analysis'}: it cannot be read, or is of another version; analyse again") from None
    text = Path(experiment.file).read_text(encoding="utf-8")
    run = described(seeds[0] if seeds else first)
    return Report(folder, experiment, run, max(1, len(seeds)), text, points, sampled_points(experiment.points))


def _at_end(scenario: Scenario, summary: dict[str, Any]) -> Scenario:
    placement = summary.get("placement")
    return scenario if placement is None else with_parents(scenario, _parents(placement["final"]))


def _parents(of_others: dict[str, str]) -> dict[str, str | None]:
    """The parents of all brokers, from those of all but the root."""
    (root,) = {*of_others.values()} - {*of_others} if of_others else ("",)
    return {root: None, **of_others}


def _of_point(samples: dict[tuple[int, str], dict[str, Pairs]], number: int) -> dict[str, dict[str, Pairs]]:
    return {kind: names for (point, kind), names in samples.items() if point == number}


def _rows(file: Path, points: int) -> list[list[Row]]:
    """The rows of each point; KeyError if the package that registered a metric is no longer installed."""
    metrics_by_name = metrics()
    rows: list[list[Row]] = [[] for _ in range(points)]
    for entry in pq.read_table(file).to_pylist():
        labels = _labels(entry["labels"])
        rows[entry["point"]].append(
            Row(metrics_by_name[entry["metric"]], tuple(labels), tuple(labels.values()), entry["predicted"],
                entry["measured"], entry["ci_low"], entry["ci_high"], entry["relative_error"], entry["verdict"],
                entry.get("longer"), entry.get("standard_error"))
        )  # fmt: skip
    return rows


def _labels(flat: str) -> dict[str, str]:
    """Parses `publisher=p,subscriber=s`; names contain neither commas nor equals signs."""
    pairs = (part.partition("=") for part in flat.split(",") if part)
    return {name: value for name, _, value in pairs}

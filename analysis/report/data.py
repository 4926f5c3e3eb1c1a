"""What the report is made of, read from a run directory: description, analysis, series. No log, no Spark."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from brokerbed.analysis import series
from brokerbed.analysis.errors import RunError
from brokerbed.analysis.runs import described, experiment_of, place_of, seeds_in, summary_of
from brokerbed.analysis.verdicts import AGREES, DIFFERS, INCONCLUSIVE, LABELS
from brokerbed.metrics import HEADLINE_PER_PAIR
from brokerbed.scenario import Experiment, Scenario
from brokerbed.scenario.sampling import chosen_points

Pairs = list[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the comparison."""

    metric: str
    labels: tuple[str, ...]  # their values
    unit: str
    predicted: float | None
    measured: float | None
    low: float | None
    high: float | None
    error: float | None
    verdict: str | None
    longer: float | None = None  # of an inconclusive row: how many times longer to measure

    @property
    def is_headline(self) -> bool:
        return not self.labels or self.metric in HEADLINE_PER_PAIR

    @property
    def of(self) -> str:
        return " ".join(self.labels) if self.metric == "delay.stage" else " -> ".join(self.labels)


@dataclass(frozen=True, slots=True)
class Point:
    """A point of a sweep, or the whole run."""

    number: int
    scenario: Scenario
    told: dict[str, Any]  # its part of summary.json
    rows: list[Row]
    series: dict[str, dict[str, Pairs]] = field(default_factory=dict)  # kind -> name -> pairs

    @property
    def headline(self) -> list[Row]:
        return [row for row in self.rows if row.is_headline]

    @property
    def at(self) -> str:
        return ", ".join(f"{key} = {'null' if value is None else value}" for key, value in self.scenario.at.items())

    def values(self, metric: str) -> dict[str, float]:
        """What was measured, by the one label of its rows."""
        return {
            row.labels[0]: row.measured
            for row in self.rows
            if row.metric == metric and len(row.labels) == 1 and row.measured is not None
        }


@dataclass(frozen=True, slots=True)
class Report:
    folder: Path
    experiment: Experiment
    run: dict[str, Any]  # run.json of the first run
    seeds: int
    scenario_file: str
    points: list[Point]
    chosen: list[int]  # points that are drawn one by one

    @property
    def is_sweep(self) -> bool:
        return self.experiment.is_sweep

    def count(self, verdict: str | None) -> int:
        return sum(row.verdict == verdict for point in self.points for row in point.headline)

    @property
    def broken(self) -> list[tuple[Point, dict[str, Any]]]:
        return [(point, it) for point in self.points for it in point.told["invariants"] if not it["holds"]]

    @property
    def verdict(self) -> str:
        """Of everything: the worst that was found."""
        if self.broken or self.count(DIFFERS) or self.count(None):
            return DIFFERS
        return INCONCLUSIVE if self.count(INCONCLUSIVE) else AGREES


def is_analysed(folder: Path) -> bool:
    """Whether all is there that a report needs."""
    return summary_of(folder) is not None and (folder / "analysis" / series.FILE).is_file()


def read(folder: Path) -> Report:
    """RunError if it is no run directory, or its analysis cannot be read."""
    experiment = experiment_of(folder)
    first = place_of(folder, experiment, 0)
    seeds = seeds_in(first / "seeds")
    summary = summary_of(folder) or {}
    try:
        told = summary["points"] if experiment.is_sweep else [summary]
        rows = _rows(folder / "analysis" / "compared.parquet", len(told))
        samples = series.by_kind(series.read(folder / "analysis"))
        points = [
            Point(number, scenario, told[number], rows[number], _of_point(samples, number))
            for number, scenario in enumerate(experiment.points)
        ]
    except (OSError, ValueError, LookupError, TypeError, pa.ArrowException):
        raise RunError(f"{folder / 'analysis'}: it cannot be read, or is of another version; analyse again") from None
    text = Path(experiment.file).read_text(encoding="utf-8")
    run = described(seeds[0] if seeds else first)
    return Report(folder, experiment, run, max(1, len(seeds)), text, points, chosen_points(experiment.points))


def _of_point(samples: dict[tuple[int, str], dict[str, Pairs]], number: int) -> dict[str, dict[str, Pairs]]:
    return {kind: names for (point, kind), names in samples.items() if point == number}


def _rows(file: Path, points: int) -> list[list[Row]]:
    found: list[list[Row]] = [[] for _ in range(points)]
    for it in pq.read_table(file).to_pylist():
        labels = _labels(it["metric"], it["labels"])
        found[it["point"]].append(
            Row(it["metric"], labels, it["unit"], it["predicted"], it["measured"], it["ci_low"], it["ci_high"],
                it["relative_error"], it["verdict"], it.get("longer"))
        )  # fmt: skip
    return found


def _labels(metric: str, flat: str) -> tuple[str, ...]:
    """The values of `publisher=p,subscriber=s`; names have neither commas nor equals signs."""
    if not flat:
        return ()
    names: Sequence[str] = LABELS.get(metric) or LABELS[metric.split(".", 1)[0]]
    return tuple(part.partition("=")[2] for part in flat.split(",", len(names) - 1))

"""`brokerbed analyse`: measure, judge and audit a run directory, set it beside the predictions, write it all down."""

import csv
import json
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from analysis import series
from analysis.assumptions import Assumption
from analysis.faults import Fault
from analysis.jobs.audit import audit
from analysis.jobs.frames import Frames
from analysis.jobs.judge import Invariant, judge
from analysis.jobs.measure import Facts, Key, cells, measure
from analysis.jobs.series import gather
from analysis.jobs.session import session
from analysis.predict import Prediction, predict
from analysis.runs import Finished, Run
from analysis.verdicts import AGREES, INCONCLUSIVE, Compared, Measured, compare
from analysis.windows import compared_ns
from orchestrator.scenario.units import NS_PER_S

WITH_ZERO = ("rate", "table")  # of which a log without a word says: none
PORTION_ROWS = 15_000_000  # of a sweep's points together: sorts of many runs at once fill the heap
Progress = Callable[[float], None]  # told the part that is done
COLUMNS = ("metric", "labels", "unit", "predicted", "measured", "ci_low", "ci_high", "relative_error", "verdict")


@dataclass(frozen=True, slots=True)
class Point:
    """The comparison of one point of an experiment."""

    runs: tuple[Run, ...]
    prediction: Prediction
    rows: tuple[Compared, ...]
    invariants: tuple[Invariant, ...]
    assumptions: tuple[Assumption, ...]
    faults: tuple[Fault, ...]
    compared_s: float

    @property
    def headline(self) -> list[Compared]:
        return [row for row in self.rows if row.is_headline]

    @property
    def agrees(self) -> bool:
        return all(row.verdict == AGREES for row in self.headline) and all(it.holds for it in self.invariants)

    @property
    def is_tolerable(self) -> bool:
        """Nothing differs and nothing is broken; something may be inconclusive."""
        verdicts = {row.verdict for row in self.headline}
        return verdicts <= {AGREES, INCONCLUSIVE} and all(it.holds for it in self.invariants)

    def as_json(self, detail: bool) -> dict[str, Any]:
        first, predicted = self.runs[0], self.prediction.as_json(detail=False)
        told = {
            "scenario": first.scenario.name, "on": first.ground, "seed": first.scenario.seed,
            "model_seconds": sum(run.model_s for run in self.runs),
            "wall_seconds": sum(run.wall_s for run in self.runs),
            "compared_seconds": self.compared_s,
            "metrics": [row.as_json() for row in self.rows if detail or row.is_headline],
            "invariants": [it.as_json() for it in self.invariants],
            "assumptions": [it.as_json() for it in self.assumptions],
            "faults": [_fault_as_json(it) for it in self.faults],
            "unstable": predicted["unstable"], "notes": predicted["notes"],
            "agrees": self.agrees,
        }  # fmt: skip
        if len(self.runs) > 1:
            told["seeds"] = [run.scenario.seed for run in self.runs]
        return told


@dataclass(frozen=True, slots=True)
class Analysis:
    """The comparison of a whole run directory."""

    finished: Finished
    points: tuple[Point, ...]
    samples: tuple[series.Sample, ...]  # for pictures

    @property
    def agrees(self) -> bool:
        return all(point.agrees for point in self.points)

    def as_json(self, detail: bool) -> dict[str, Any]:
        """The JSON contract: one object, or for a sweep its points."""
        folder = {"run_directory": str(self.finished.folder)}
        if not self.finished.experiment.is_sweep:
            return self.points[0].as_json(detail=True) | folder
        points = [{"at": dict(it.runs[0].scenario.at), **it.as_json(detail)} for it in self.points]
        name = self.finished.experiment.name
        return {"scenario": name, "points": points, "agrees": self.agrees} | folder


def analyse(
    found: Iterable[Finished],
    master: str | None = None,
    verbose: bool = False,
    archive: Path | None = None,
    progress: Progress = lambda _: None,
) -> Iterator[Analysis]:
    """One run directory after the other, with one session; what is found out is written into each.

    Progress is told from 0, when Spark is there, to 1.
    """
    all_ = list(found)
    with session(master, max(it.rows for it in all_), verbose, archive) as spark:
        done, total = 0, max(1, sum(it.rows for it in all_))
        progress(0.0)
        for finished in all_:
            parts = []
            for portion in portions(finished):
                within = _within(progress, done / total, (done + portion.rows) / total)
                parts.append(_analysis(Facts(Frames(spark, portion)), within))
                done += portion.rows
                spark.catalog.clearCache()
            points = tuple(point for part in parts for point in part.points)
            analysis = Analysis(finished, points, tuple(it for part in parts for it in part.samples))
            write(analysis)
            yield analysis


def portions(finished: Finished) -> Iterator[Finished]:
    """Points of a sweep that are analysed together: many, as a job takes its time, and not too many for the memory."""
    runs: list[Run] = []
    for number in range(len(finished.experiment.points)):
        more = finished.of_point(number)
        if runs and sum(run.rows for run in (*runs, *more)) > PORTION_ROWS:
            yield replace(finished, runs=tuple(runs))
            runs = []
        runs += more
    yield replace(finished, runs=tuple(runs))


def _within(progress: Progress, begin: float, end: float) -> Progress:
    """What is told of a part of the whole."""
    return lambda part: progress(begin + part * (end - begin))


def _analysis(facts: Facts, progress: Progress) -> Analysis:
    finished = facts.frames.finished
    _ = facts.lives, facts.passed  # what both sides need is found before they begin
    with ThreadPoolExecutor(3) as pool:  # small logs keep no core busy by themselves
        judging = pool.submit(judge, facts)
        timed, counted = cells(facts)
        auditing = pool.submit(audit, facts, timed, counted)
        measuring = pool.submit(measure, facts, timed, counted)
        gathering = pool.submit(gather, facts)
        jobs = judging, auditing, measuring, gathering
        for done, _ in enumerate(as_completed(jobs), 1):
            progress(done / len(jobs))
    invariants, assumptions, measured = judging.result(), auditing.result(), measuring.result()
    points = []
    for number in sorted({run.point for run in finished.runs}):
        runs = tuple(finished.of_point(number))
        prediction = predict(runs[0].scenario)
        rows = tuple(
            compare(row, _measured(measured, number, row.metric, row.labels), runs[0].scenario.tolerance)
            for row in prediction.rows
        )
        numbers = [run.number for run in runs]
        seconds = sum(compared_ns(facts.intervals[it]) for it in numbers) / NS_PER_S
        faults = tuple(it for it in facts.faults if it.run in numbers)
        point = Point(runs, prediction, rows, tuple(invariants[number]), tuple(assumptions[number]), faults, seconds)
        points.append(point)
    return Analysis(finished, tuple(points), tuple(gathering.result()))


def _measured(found: dict[Key, Measured], point: int, metric: str, labels: dict[str, str]) -> Measured | None:
    value = found.get((point, metric, tuple(labels.values())))
    if value is None and metric.startswith(WITH_ZERO) and (point, "table.local_entries", ()) in found:
        return Measured(0.0, 0.0, 0.0)
    return value


def _fault_as_json(fault: Fault) -> dict[str, Any]:
    end_ns = fault.until_ns if fault.confirmed_ns is not None else None
    return {
        "what": fault.what,
        "seconds": [fault.struck_ns / NS_PER_S, None if fault.healed_ns is None else fault.healed_ns / NS_PER_S],
        "not_compared_until": None if end_ns is None else end_ns / NS_PER_S,
        "confirmed": fault.has_effect and fault.confirmed_ns is not None,
    }


def write(analysis: Analysis) -> None:
    folder = analysis.finished.folder / "analysis"
    folder.mkdir(exist_ok=True)
    rows = [
        {"point": number, **row.as_json(), "labels": _flat(row.labels)}
        for number, point in enumerate(analysis.points)
        for row in point.rows
    ]
    schema = pa.schema(
        [("point", pa.int32()), *((name, pa.string() if name in _TEXTS else pa.float64()) for name in COLUMNS)]
    )
    tables = {
        "compared": ("point", *COLUMNS),
        "predicted": ("point", "metric", "labels", "unit", "predicted"),
        "measured": ("point", "metric", "labels", "unit", "measured", "ci_low", "ci_high"),
    }
    table = pa.Table.from_pylist(rows, schema)
    for name, columns in tables.items():
        pq.write_table(table.select(columns), folder / f"{name}.parquet")
        with (folder / f"{name}.csv").open("w", newline="", encoding="utf-8") as out:
            writer = csv.DictWriter(out, columns, extrasaction="ignore")
            writer.writeheader()
            writer.writerows(rows)
    series.write(folder, analysis.samples)
    summary = json.dumps(analysis.as_json(detail=False), allow_nan=False, indent=1)
    (folder / "summary.json").write_text(summary + "\n", encoding="utf-8")


_TEXTS = ("metric", "labels", "unit", "verdict")


def _flat(labels: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in labels.items())

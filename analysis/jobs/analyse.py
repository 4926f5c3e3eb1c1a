"""`brokerbed analyse`: measure, judge and audit a run directory, set it beside the predictions, write it all down."""

import csv
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from brokerbed.analysis import series
from brokerbed.analysis.assumptions import Assumption
from brokerbed.analysis.faults import Fault
from brokerbed.analysis.jobs.audit import audit
from brokerbed.analysis.jobs.frames import Frames
from brokerbed.analysis.jobs.judge import Invariant, judge
from brokerbed.analysis.jobs.measure import Facts, Key, cells, measure
from brokerbed.analysis.jobs.series import gather
from brokerbed.analysis.jobs.session import Progress, session, with_tasks
from brokerbed.analysis.measured import unseen_rate
from brokerbed.analysis.predict import Prediction, predict
from brokerbed.analysis.report.figures import quantity
from brokerbed.analysis.runs import Finished, Run
from brokerbed.analysis.verdicts import AGREES, Compared, Measured, compare
from brokerbed.analysis.windows import compared_ns
from brokerbed.metrics import Row
from brokerbed.scenario.units import NS_PER_S

PORTION_ROWS = 15_000_000  # of a sweep's points together: sorts of many runs at once fill the heap
COLUMNS = (
    "metric", "labels", "unit", "predicted", "measured", "ci_low", "ci_high", "relative_error", "verdict", "longer",
)  # fmt: skip


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
        return self.passes({AGREES})

    def passes(self, allowed: Collection[str | None]) -> bool:
        """Whether every headline row has one of these verdicts (None: no prediction), and every invariant holds."""
        return all(row.verdict in allowed for row in self.headline) and all(it.holds for it in self.invariants)

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
            at = dict(self.points[0].runs[0].scenario.at)  # of a point that is looked at by itself
            return ({"at": at} if at else {}) | self.points[0].as_json(detail=True) | folder
        points = [{"at": dict(it.runs[0].scenario.at), **it.as_json(detail)} for it in self.points]
        name = self.finished.experiment.name
        return {"scenario": name, "points": points, "agrees": self.agrees} | folder


def analyse(
    found: Iterable[Finished],
    master: str | None = None,
    verbose: bool = False,
    archive: Path | None = None,
    progress: Progress = lambda _, __: None,
) -> Iterator[Analysis]:
    """One run directory after the other, with one session; what is found out is written into each.

    Progress is told from 0 to 1, with the steps that are running.
    """
    all_ = list(found)
    progress(0.0, "starting Spark")
    with session(master, max(it.rows for it in all_), verbose, archive) as spark, with_tasks(spark, progress) as report:
        done, total = 0, max(1, sum(it.rows for it in all_))
        for finished in all_:
            parts = []
            for portion in portions(finished):
                within = _within(report, done / total, (done + portion.rows) / total)
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
    return lambda part, step: progress(begin + part * (end - begin), step)


def _analysis(facts: Facts, progress: Progress) -> Analysis:
    finished = facts.frames.finished
    progress(0.0, "reading the log")
    _ = facts.lives, facts.passed  # what both sides need is found before they begin
    with ThreadPoolExecutor(3) as pool:  # small logs keep no core busy by themselves
        judging = pool.submit(judge, facts)
        timed, counted = cells(facts)
        auditing = pool.submit(audit, facts, timed, counted)
        measuring = pool.submit(measure, facts, timed, counted)
        gathering = pool.submit(gather, facts)
        steps: dict[Future[Any], str] = {
            judging: "invariants", auditing: "assumptions", measuring: "measurements", gathering: "time series",
        }  # fmt: skip
        left = list(steps.values())
        progress(0.0, ", ".join(left))
        for job in as_completed(steps):
            left.remove(steps[job])
            progress(1 - len(left) / len(steps), ", ".join(left))
    invariants, assumptions, measured = judging.result(), auditing.result(), measuring.result()
    points = []
    for number in sorted({run.point for run in finished.runs}):
        runs = tuple(finished.of_point(number))
        numbers = [run.number for run in runs]
        seconds = sum(compared_ns(facts.intervals[it]) for it in numbers) / NS_PER_S
        prediction = predict(runs[0].scenario)
        rows = tuple(
            compare(row, _measured(measured, number, row, seconds), runs[0].scenario.tolerance.of(row.metric))
            for row in prediction.rows
        )
        faults = tuple(it for it in facts.faults if it.run in numbers)
        point = Point(runs, prediction, rows, tuple(invariants[number]), tuple(assumptions[number]), faults, seconds)
        points.append(point)
    return Analysis(finished, tuple(points), tuple(gathering.result()))


def _measured(found: dict[Key, Measured], point: int, row: Row, seconds: float) -> Measured | None:
    value = found.get((point, row.metric, tuple(row.labels.values())))
    if value is None and row.metric.startswith("rate") and seconds > 0:
        return unseen_rate(seconds)
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
    swept = _swept(analysis.points)
    rows = [
        {"point": number, **row.as_json(), "labels": _flat(row.labels), "seed": point.runs[0].scenario.seed,
         "seeds_pooled": len(point.runs), **{key: values[number] for key, values in swept.items()}}
        for number, point in enumerate(analysis.points)
        for row in point.rows
    ]  # fmt: skip
    texts = {*_TEXTS, *(key for key, values in swept.items() if any(isinstance(it, str) for it in values))}
    schema = pa.schema(
        [("point", pa.int32())]
        + [(name, pa.string() if name in texts else pa.float64()) for name in (*COLUMNS, *swept)]
        + [("seed", pa.int64()), ("seeds_pooled", pa.int32())]
    )
    whose = *swept, "seed", "seeds_pooled"
    tables = {
        "compared": ("point", *COLUMNS, *whose),
        "predicted": ("point", "metric", "labels", "unit", "predicted", *whose),
        "measured": ("point", "metric", "labels", "unit", "measured", "ci_low", "ci_high", *whose),
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


def _swept(points: Sequence[Point]) -> dict[str, list[float | str | None]]:
    """The swept keys with their values at each point: as numbers (in s, 1/s) if all are, else as they were written."""
    its = [point.runs[0].scenario.at for point in points]
    found: dict[str, list[float | str | None]] = {}
    for key in dict.fromkeys(key for at in its for key in at if key != "seed"):  # the seed has a column anyway
        given = [at.get(key) for at in its]
        numbers = [quantity(it) for it in given]
        if all(number is not None or it is None for number, it in zip(numbers, given, strict=True)):
            found[key] = [*numbers]
        else:
            found[key] = [it if isinstance(it, str) or it is None else json.dumps(it) for it in given]
    return found


def _flat(labels: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in labels.items())

"""`brokerbed analyse`: measures, judges and audits a run directory, compares it with predictions, writes results."""

import csv
import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from brokerbed.analysis import batches, series
from brokerbed.analysis.assumptions import Assumption
from brokerbed.analysis.cost_over_time import stretches
from brokerbed.analysis.faults import Fault
from brokerbed.analysis.invariants import Invariant
from brokerbed.analysis.jobs.audit import audit
from brokerbed.analysis.jobs.facts import Facts
from brokerbed.analysis.jobs.frames import BINS, Frames, bin_ns_of
from brokerbed.analysis.jobs.judge import judge
from brokerbed.analysis.jobs.measure import Key, batches_max, cells, measure, phases_of
from brokerbed.analysis.jobs.series import gather
from brokerbed.analysis.jobs.session import Progress, session, with_tasks
from brokerbed.analysis.measured import phase_key, unseen_rate
from brokerbed.analysis.moved_runs import followed
from brokerbed.analysis.pairs import Pair, Variant, differences
from brokerbed.analysis.placement import Placement, placement_of, predict_runs
from brokerbed.analysis.predict import Prediction
from brokerbed.analysis.report.figures import quantity
from brokerbed.analysis.runs import Finished, Run
from brokerbed.analysis.tallies import cost_by_bin
from brokerbed.analysis.verdicts import AGREES, Compared, Measured, compare
from brokerbed.analysis.windows import compared_ns
from brokerbed.metrics import PER_PHASE, PHASES, Row, Statistic
from brokerbed.scenario.units import NS_PER_S

PORTION_ROWS = 15_000_000  # of the points that are analysed together; sorting more runs at once fills the heap
COLUMNS = (
    "metric", "labels", "unit", "predicted", "measured", "ci_low", "ci_high", "relative_error", "verdict", "longer",
    "method", "standard_error",
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
    placements: tuple[Placement, ...] = ()  # of the runs, if links may move
    batches: pd.DataFrame = field(default_factory=batches.no_lines)  # of the rows that `gate` compares

    @property
    def headline(self) -> list[Compared]:
        return [row for row in self.rows if row.is_headline]

    @property
    def agrees(self) -> bool:
        return self.passes({AGREES})

    def passes(self, allowed: Collection[str | None]) -> bool:
        """Whether every headline row has one of these verdicts (None: no prediction), and every invariant holds.

        If a run never forgets how it began, its rows are for information only, as predictions are means over all runs.
        """
        is_comparable = self.runs[0].scenario.subscriptions.forgets
        are_allowed = all(row.verdict in allowed for row in self.headline) or not is_comparable
        return are_allowed and all(invariant.holds for invariant in self.invariants)

    def as_json(self, detail: bool) -> dict[str, Any]:
        first, predicted = self.runs[0], self.prediction.as_json(detail=False)
        summary = {
            "scenario": first.scenario.name, "on": first.ground, "seed": first.scenario.seed,
            "model_seconds": sum(run.model_s for run in self.runs),
            "wall_seconds": sum(run.wall_s for run in self.runs),
            "compared_seconds": self.compared_s,
            "metrics": [row.as_json() for row in self.rows if detail or row.is_headline],
            "invariants": [invariant.as_json() for invariant in self.invariants],
            "assumptions": [assumption.as_json() for assumption in self.assumptions],
            "faults": [_fault_as_json(fault) for fault in self.faults],
            "unstable": predicted["unstable"], "notes": predicted["notes"],
            "agrees": self.agrees,
        }  # fmt: skip
        if self.placements:
            summary["placement"] = self.placements[0].as_json()
        if len(self.placements) > 1:
            summary["placements"] = [placement.as_json() for placement in self.placements]
        if len(self.runs) > 1:
            summary["seeds"] = [run.scenario.seed for run in self.runs]
        return summary


@dataclass(frozen=True, slots=True)
class Analysis:
    """The comparison of a whole run directory."""

    finished: Finished
    points: tuple[Point, ...]
    samples: tuple[series.Sample, ...]  # what the report draws
    pair: Pair | None = None  # if the two points are variants with the same random numbers

    @property
    def agrees(self) -> bool:
        return all(point.agrees for point in self.points)

    def as_json(self, detail: bool) -> dict[str, Any]:
        """The JSON contract: one object, or for a sweep its points."""
        folder = {"run_directory": str(self.finished.folder)}
        if not self.finished.experiment.is_sweep:
            at = dict(self.points[0].runs[0].scenario.at)  # if only one point of a sweep was analysed
            return ({"at": at} if at else {}) | self.points[0].as_json(detail=True) | folder
        points = [{"at": dict(point.runs[0].scenario.at), **point.as_json(detail)} for point in self.points]
        name = self.finished.experiment.name
        pair = {} if self.pair is None else {"pair": self.pair.as_json()}
        return {"scenario": name, "points": points, **pair, "agrees": self.agrees} | folder


def analyse(
    directories: Iterable[Finished],
    master: str | None = None,
    verbose: bool = False,
    archive: Path | None = None,
    progress: Progress = lambda _, __: None,
) -> Iterator[Analysis]:
    """Analyses one run directory after the other in one session, and writes the results into each.

    `progress` is called with the share of the work that is done, from 0 to 1, and the steps that are running.
    """
    all_finished = list(directories)
    progress(0.0, "starting Spark")
    with (
        session(master, max(finished.rows for finished in all_finished), verbose, archive) as spark,
        with_tasks(spark, progress) as report,
    ):
        done, total = 0, max(1, sum(finished.rows for finished in all_finished))
        for finished in all_finished:
            parts = []
            for portion in portions(finished):
                within = _within(report, done / total, (done + portion.rows) / total)
                parts.append(_analysis(Facts(Frames(spark, followed(portion))), within))
                done += portion.rows
                spark.catalog.clearCache()
            points = tuple(point for part in parts for point in part.points)
            samples = tuple(sample for part in parts for sample in part.samples)
            analysis = Analysis(finished, points, samples, parts[0].pair)
            write(analysis)
            yield analysis


def portions(finished: Finished) -> Iterator[Finished]:
    """Parts of a sweep to analyse together: many points, as each job takes a while, but few enough for the heap. The
    variants of a pair stay together."""
    if finished.experiment.is_pair:
        yield finished
        return
    runs: list[Run] = []
    for number in range(len(finished.experiment.points)):
        more = finished.of_point(number)
        if runs and sum(run.rows for run in (*runs, *more)) > PORTION_ROWS:
            yield replace(finished, runs=tuple(runs))
            runs = []
        runs += more
    yield replace(finished, runs=tuple(runs))


def _within(progress: Progress, begin: float, end: float) -> Progress:
    """Progress of a part of the work, as progress of all of it."""
    return lambda part, step: progress(begin + part * (end - begin), step)


def _analysis(facts: Facts, progress: Progress) -> Analysis:
    finished = facts.frames.finished
    progress(0.0, "reading the log")
    with ThreadPoolExecutor(3) as pool:  # one job on a small log keeps no core busy
        judging = pool.submit(judge, facts)
        measuring = pool.submit(_measurements, facts)
        gathering = pool.submit(gather, facts)
        steps: dict[Future[Any], str] = {
            judging: "invariants", measuring: "measurements", gathering: "time series",
        }  # fmt: skip
        left = list(steps.values())
        progress(0.0, ", ".join(left))
        for job in as_completed(steps):
            left.remove(steps[job])
            progress(1 - len(left) / len(steps), ", ".join(left))
    invariants, (measured_cells, measured), gathered = judging.result(), measuring.result(), gathering.result()
    assumptions = audit(facts, measured_cells, gathered.on_periods)
    points = []
    for number in sorted({run.point for run in finished.runs}):
        runs = tuple(finished.of_point(number))
        numbers = [run.number for run in runs]
        compared_s = [compared_ns(facts.intervals[run]) / NS_PER_S for run in numbers]
        seconds = sum(compared_s)
        prediction = predict_runs(runs, compared_s)
        rows = tuple(
            compare(row, _measured(measured, number, row, seconds), runs[0].scenario.tolerance.of(row.metric))
            for row in prediction.rows
        )
        faults = tuple(fault for fault in facts.faults if fault.run in numbers)
        point = Point(
            runs, prediction, rows, tuple(invariants[number]), tuple(assumptions[number]), faults, seconds,
            tuple(_placements(facts, runs)), _batches(facts, measured_cells, runs),
        )  # fmt: skip
        points.append(point)
    pair = pair_of(facts, measured_cells, points) if finished.experiment.is_pair else None
    return Analysis(finished, tuple(points), tuple(gathered.samples), pair)


def pair_of(facts: Facts, cells: pd.DataFrame, points: Sequence[Point]) -> Pair:
    variants = [
        Variant(
            point.headline,
            cells[cells["point"] == number],
            {run.number: facts.batch_s[run.number] for run in point.runs},
        )
        for number, point in enumerate(points)
    ]
    runs = [run for point in points for run in point.runs]
    ((key, first),) = points[0].runs[0].scenario.at.items()
    values = first, points[1].runs[0].scenario.at[key]
    names = tuple(value if isinstance(value, str) else json.dumps(value) for value in values)
    found = differences(variants[0], variants[1], phases_of(runs), batches_max(runs, facts.batch_s))
    return Pair(key, (names[0], names[1]), tuple(found))


def _batches(facts: Facts, measured_cells: pd.DataFrame, runs: Sequence[Run]) -> pd.DataFrame:
    seeded = {run.number: batches.Seeded(run.scenario.seed, facts.batch_s[run.number]) for run in runs}
    is_here = measured_cells["point"] == runs[0].point
    return batches.stored(measured_cells[is_here], seeded, phases_of(runs), batches_max(runs, facts.batch_s))


def _placements(facts: Facts, runs: Sequence[Run]) -> Iterator[Placement]:
    for run in runs:
        if run.scenario.placement is None:
            continue
        assert run.scenario.costs is not None, "with placement, traffic has costs"
        by_bin = cost_by_bin(facts.tally, run.number, run.scenario.costs)
        found = placement_of(run, stretches(run, by_bin, bin_ns_of(run), BINS))
        assert found is not None, "the moves of this run were not read"
        yield found


def _measurements(facts: Facts) -> tuple[pd.DataFrame, dict[Key, Measured]]:
    measured_cells = cells(facts)
    return measured_cells, measure(facts, measured_cells)


def _measured(measured: dict[Key, Measured], point: int, row: Row, seconds: float) -> Measured | None:
    labels = tuple(row.labels.values())
    if tuple(row.labels) == PER_PHASE:
        labels, seconds = phase_key(*labels), seconds / PHASES
    value = measured.get((point, row.metric, labels))
    if value is None and row.kind.statistic is Statistic.RATE and seconds > 0:
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
    texts = {*_TEXTS, *(key for key, values in swept.items() if any(isinstance(value, str) for value in values))}
    schema = pa.schema(
        [("point", pa.int32())]
        + [(name, pa.string() if name in texts else pa.float64()) for name in (*COLUMNS, *swept)]
        + [("seed", pa.int64()), ("seeds_pooled", pa.int32())]
    )
    whose = *swept, "seed", "seeds_pooled"
    tables = {
        "compared": ("point", *COLUMNS, *whose),
        "predicted": ("point", "metric", "labels", "unit", "predicted", "method", "standard_error", *whose),
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
    batches.write(folder, [point.batches for point in analysis.points])
    summary = json.dumps(analysis.as_json(detail=False), allow_nan=False, indent=1)
    (folder / "summary.json").write_text(summary + "\n", encoding="utf-8")


_TEXTS = ("metric", "labels", "unit", "verdict", "method")


def _swept(points: Sequence[Point]) -> dict[str, list[float | str | None]]:
    """The swept keys with their values at each point: numbers (in s, 1/s) if all are, otherwise as written."""
    settings = [point.runs[0].scenario.at for point in points]
    columns: dict[str, list[float | str | None]] = {}
    for key in dict.fromkeys(key for at in settings for key in at if key != "seed"):  # the seed has a column anyway
        values = [at.get(key) for at in settings]
        numbers = [quantity(value) for value in values]
        if all(number is not None or value is None for number, value in zip(numbers, values, strict=True)):
            columns[key] = [*numbers]
        else:
            columns[key] = [value if isinstance(value, str) or value is None else json.dumps(value) for value in values]
    return columns


def _flat(labels: dict[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in labels.items())

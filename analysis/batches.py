"""The batches behind the rows that `gate` judges, and analysis/batches.parquet, which stores them.

Each line has the sum x and the weight n of one batch of one series (a run with one seed, a copy of the peers); the
value of a row is the sum of x divided by the sum of n. Lines of rates and sizes cover all batches, also those without
events. A quantile has a line for each section of time, whose x is the section's quantile times n, and one for all time
(batch -1).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from brokerbed.analysis.errors import RunError
from brokerbed.analysis.estimates import Numbers
from brokerbed.analysis.metrics.registry import metrics
from brokerbed.analysis.tallies import Integers
from brokerbed.metrics import Metric, Statistic
from brokerbed.scenario.topology import Floats

FILE = "batches.parquet"
SCHEMA = pa.schema(
    [
        ("point", pa.int32()),
        ("metric", pa.string()),
        ("first", pa.string()),
        ("second", pa.string()),
        ("seed", pa.int64()),
        ("copy", pa.int32()),
        ("batch", pa.int32()),
        ("x", pa.float64()),
        ("n", pa.float64()),
    ]
)
ROW = ["metric", "first", "second"]
SERIES = ["seed", "copy"]
WHOLE = -1  # the batch of a line about all compared time

Key = tuple[str, tuple[str, ...]]  # metric, values of the labels


@dataclass(frozen=True, slots=True)
class Batches:
    """One row: x and n by series and batch."""

    series: tuple[tuple[int, int], ...]  # seed and copy
    x: Numbers
    n: Numbers
    value: float  # of a quantile it is not the mean over its sections


@dataclass(frozen=True, slots=True)
class Seeded:
    """What is known of one run: its seed, and the lengths of its batches in seconds."""

    seed: int
    batch_s: Floats


def stored(cells: pd.DataFrame, runs: Mapping[int, Seeded], phases: int, batches_max: int | None) -> pd.DataFrame:
    """The lines for the cells of one point.

    `phases` of a period are one batch; if there are more batches than `batches_max`, neighbours are merged.
    """
    known = metrics()
    is_gated = [
        _is_gated(known[name], first, second)
        for name, first, second in zip(cells["metric"], cells["first"], cells["second"], strict=True)
    ]
    kept = cells[np.array(is_gated, bool)]
    statistics = [known[name].statistic for name in kept["metric"]]
    is_quantile = np.array([statistic is Statistic.QUANTILE for statistic in statistics], bool)
    is_over_time = np.array([statistic.is_over_time for statistic in statistics], bool)
    batches = max(len(run.batch_s) for run in runs.values()) // phases
    batch = kept["batch"].to_numpy(np.int64)
    merged = _merged(batch // phases, batches, batches_max)
    seeds = {WHOLE: WHOLE, **{number: run.seed for number, run in runs.items()}}
    lines = kept.assign(
        batch=np.where(is_quantile, batch, merged),
        x=kept["x"] * np.where(is_quantile & (batch != WHOLE), kept["n"], 1.0),
        seed=kept["run"].map(seeds).astype("int64"),
    )
    parts = [lines[~is_over_time], *_complete(lines[is_over_time], runs, phases, batches, batches_max)]
    filled = [part for part in parts if len(part)]
    if not filled:  # nothing was compared
        return no_lines()
    summed = pd.concat(filled).groupby([*ROW, *SERIES, "batch"], sort=False)
    return summed[["x", "n"]].sum().reset_index()


def _is_gated(metric: Metric, first: str, second: str) -> bool:
    return metric.gated is not None and len(metric.gated) == bool(first) + bool(second)


def _merged(batch: Integers, batches: int, batches_max: int | None) -> Integers:
    if batches_max is None or batches_max >= batches:
        return batch
    first_of_each = np.arange(batches_max) * batches // batches_max
    merged: Integers = np.searchsorted(first_of_each, batch, side="right") - 1
    return merged


def _complete(
    cells: pd.DataFrame, runs: Mapping[int, Seeded], phases: int, batches: int, batches_max: int | None
) -> Iterator[pd.DataFrame]:
    """Rates and sizes, with all time in which there was nothing to count, also if there never was."""
    yield cells.assign(n=0.0, copy=-1)
    rows = cells[ROW].drop_duplicates()
    for run in runs.values():
        whole = len(run.batch_s) // phases
        seconds = run.batch_s[: whole * phases].reshape(whole, phases).sum(1)
        batch = _merged(np.arange(whole), batches, batches_max)
        time = pd.DataFrame({"seed": run.seed, "copy": -1, "batch": batch, "x": 0.0, "n": seconds})
        yield rows.merge(time, how="cross")


def no_lines() -> pd.DataFrame:
    lines: pd.DataFrame = SCHEMA.empty_table().to_pandas()
    return lines


def write(folder: Path, points: Sequence[pd.DataFrame]) -> None:
    """The lines of all points."""
    parts = [
        pa.Table.from_pandas(lines.assign(point=number), SCHEMA, preserve_index=False)
        for number, lines in enumerate(points)
    ]
    pq.write_table(pa.concat_tables(parts), folder / FILE, compression="zstd")


def read(folder: Path, points: int) -> list[dict[Key, Batches]]:
    """The rows of each point of an analysed run directory; RunError if there are none."""
    file = folder / "analysis" / FILE
    if not file.is_file():
        raise not_analysed(folder)
    try:
        lines = pq.read_table(file, schema=SCHEMA).to_pandas()
    except (pa.ArrowException, OSError):
        raise RunError(f"{file}: this file is damaged; analyse the run again") from None
    known = metrics()
    found: list[dict[Key, Batches]] = [{} for _ in range(points)]
    for _, row in lines.groupby(["point", *ROW], sort=False):
        point, metric, first, second = (row[name].iat[0] for name in ("point", *ROW))
        if metric in known and point < points:  # otherwise the package that measured it is no longer installed
            found[point][metric, tuple(filter(None, (first, second)))] = _batches(row, known[metric])
    return found


def not_analysed(folder: Path) -> RunError:
    if (folder / "analysis" / "summary.json").is_file():
        why, when = "was analysed by an older version of brokerbed", "again"
    else:
        why, when = "has not been analysed", "first"
    return RunError(f"{folder}: this run {why}; run brokerbed analyse {folder} {when}")


def _batches(row: pd.DataFrame, metric: Metric) -> Batches:
    in_time = row[row["batch"] >= 0]
    series = in_time.groupby(SERIES)
    x, n = np.zeros((2, series.ngroups, int(in_time["batch"].max()) + 1))
    places = series.ngroup(), in_time["batch"]
    x[places], n[places] = in_time["x"], in_time["n"]
    if metric.statistic is Statistic.QUANTILE:
        value = float(row.loc[row["batch"] < 0, "x"].iloc[0])
    else:
        value = float(x.sum() / n.sum())
    names = tuple((int(seed), int(copy)) for seed, copy in series.size().index.tolist())
    return Batches(names, x, n, value)


def unseen(others: Mapping[Key, Batches]) -> Batches | None:
    """A rate or size of which nothing was seen: 0 during all the time that the other rows cover."""
    known = metrics()
    for (metric, _), batches in others.items():
        if known[metric].statistic.is_over_time:
            return Batches(batches.series, np.zeros_like(batches.x), batches.n, 0.0)
    return None

"""From cells (sums per run, copy of the peers and batch of time) to the measured rows of one point. Pure."""

from collections.abc import Callable, Iterator, Mapping
from math import isnan

import numpy as np
import pandas as pd

from brokerbed.analysis.estimates import Estimates, Numbers, estimates, poisson_limits, rates, shares, tables
from brokerbed.analysis.verdicts import Measured, labels_of
from brokerbed.analysis.windows import BATCHES

KEY = ["metric", "first", "second"]
ESTIMATES: Mapping[str, Callable[[Numbers, Numbers], Estimates]] = {
    "rate": rates, "table": tables, "delay": estimates, "delivery": shares,
}  # fmt: skip

Row = tuple[str, tuple[str, ...]]  # metric, values of its labels


def measured_by_time(cells: pd.DataFrame, seconds: Mapping[int, float]) -> Iterator[tuple[Row, Measured]]:
    """Where `n` is time, as long as a batch of that run: one in which nothing happened has no cell, and counts, too."""
    runs = {run: place for place, run in enumerate(run for run, its in seconds.items() if its > 0)}
    lengths = np.array([seconds[run] for run in runs])[:, None] * np.ones(BATCHES)
    for _, its in cells.groupby("metric", sort=False):
        rows = its.groupby(KEY, sort=False)
        shape = rows.ngroups, len(runs), BATCHES
        x = np.zeros(shape)
        x[rows.ngroup(), its["run"].map(runs), its["batch"]] = its["x"]
        yield from _told(its[KEY].drop_duplicates(), x, np.broadcast_to(lengths, shape))


def measured_by_count(cells: pd.DataFrame) -> Iterator[tuple[Row, Measured]]:
    """Where `n` counts what was observed: runs and copies without any are none."""
    for _, its in cells.groupby(KEY, sort=False):
        x, n = by_series(its)
        yield from _told(its[KEY].drop_duplicates(), x[None], n[None])


def by_series(cells: pd.DataFrame) -> tuple[Numbers, Numbers]:
    """x and n of one row: per series (run and copy) and batch."""
    series = cells.groupby(["run", "copy"])
    x, n = np.zeros((2, series.ngroups, BATCHES))
    for numbers, name in ((x, "x"), (n, "n")):
        numbers[series.ngroup(), cells["batch"]] = cells[name]
    return x, n


def unseen_rate(seconds: float) -> Measured:
    """Of something that did not happen once in all that time."""
    (high,) = poisson_limits(np.zeros(1), np.ones(1))[1]
    return Measured(0.0, 0.0, float(high) / seconds)


def _told(keys: pd.DataFrame, x: Numbers, n: Numbers) -> Iterator[tuple[Row, Measured]]:
    """Rows of one metric."""
    metric = str(keys["metric"].iat[0])
    found = ESTIMATES[metric.partition(".")[0]](x, n)
    for first, second, value, low, high in zip(keys["first"], keys["second"], *found, strict=True):
        limits = (None, None) if isnan(low) or isnan(high) else (float(low), float(high))
        yield (metric, tuple(labels_of(metric, first, second).values())), Measured(float(value), *limits)

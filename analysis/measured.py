"""Turns cells (sums per run, copy of the peers and batch of time) into the measured rows of one point. Pure."""

from collections.abc import Callable, Iterator, Mapping
from math import isnan

import numpy as np
import pandas as pd

from brokerbed.analysis.estimates import Estimates, Numbers, estimates, poisson_limits, rates, shares, tables
from brokerbed.analysis.metrics.registry import metrics
from brokerbed.analysis.verdicts import Measured
from brokerbed.analysis.windows import BATCHES
from brokerbed.metrics import Statistic

KEY = ["metric", "first", "second"]
ESTIMATES: Mapping[Statistic, Callable[[Numbers, Numbers], Estimates]] = {
    Statistic.RATE: rates, Statistic.SIZE: tables, Statistic.MEAN: estimates, Statistic.SHARE: shares,
}  # fmt: skip

Row = tuple[str, tuple[str, ...]]  # metric, values of its labels


def measured_by_time(cells: pd.DataFrame, seconds: Mapping[int, float]) -> Iterator[tuple[Row, Measured]]:
    """Rows whose `n` is the length of a batch. A batch in which nothing happened has no cell, but its time counts."""
    runs = {run: place for place, run in enumerate(run for run, batch_s in seconds.items() if batch_s > 0)}
    lengths = np.array([seconds[run] for run in runs])[:, None] * np.ones(BATCHES)
    for _, metric_cells in cells.groupby("metric", sort=False):
        rows = metric_cells.groupby(KEY, sort=False)
        shape = rows.ngroups, len(runs), BATCHES
        x = np.zeros(shape)
        x[rows.ngroup(), metric_cells["run"].map(runs), metric_cells["batch"]] = metric_cells["x"]
        yield from _estimated_rows(metric_cells[KEY].drop_duplicates(), x, np.broadcast_to(lengths, shape))


def measured_by_count(cells: pd.DataFrame) -> Iterator[tuple[Row, Measured]]:
    """Rows whose `n` counts observations. Runs and copies without observations are left out."""
    for _, row_cells in cells.groupby(KEY, sort=False):
        x, n = by_series(row_cells)
        yield from _estimated_rows(row_cells[KEY].drop_duplicates(), x[None], n[None])


def by_series(cells: pd.DataFrame) -> tuple[Numbers, Numbers]:
    """The x and n of one row, by series (run and copy) and batch."""
    series = cells.groupby(["run", "copy"])
    x, n = np.zeros((2, series.ngroups, BATCHES))
    for numbers, name in ((x, "x"), (n, "n")):
        numbers[series.ngroup(), cells["batch"]] = cells[name]
    return x, n


def unseen_rate(seconds: float) -> Measured:
    """The rate of an event that did not happen once in this time."""
    (high,) = poisson_limits(np.zeros(1), np.ones(1))[1]
    return Measured(0.0, 0.0, float(high) / seconds)


def _estimated_rows(keys: pd.DataFrame, x: Numbers, n: Numbers) -> Iterator[tuple[Row, Measured]]:
    """The rows of one metric, with their estimates."""
    metric = str(keys["metric"].iat[0])
    estimated = ESTIMATES[metrics()[metric].statistic](x, n)
    for first, second, value, low, high in zip(keys["first"], keys["second"], *estimated, strict=True):
        limits = (None, None) if isnan(low) or isnan(high) else (float(low), float(high))
        yield (metric, tuple(filter(None, (first, second)))), Measured(float(value), *limits)

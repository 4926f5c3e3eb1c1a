"""Turns cells (sums per run, copy of the peers and batch of time) into the measured rows of one point. Pure."""

from collections.abc import Iterator, Mapping
from math import isnan

import numpy as np
import pandas as pd

from brokerbed.analysis.estimates import ESTIMATES, Numbers, estimates, poisson_limits, with_fewer_batches
from brokerbed.analysis.metrics.registry import metrics
from brokerbed.analysis.verdicts import Measured
from brokerbed.metrics import PER_PHASE, PHASES

KEY = ["metric", "first", "second"]
BEYOND_LEAST = 10  # observations of a section on either side of a quantile, so that it is more than an extreme value
Row = tuple[str, tuple[str, ...]]  # metric, values of its labels


def measured_by_time(
    cells: pd.DataFrame, seconds: Mapping[int, Numbers], has_phases: bool = False
) -> Iterator[tuple[Row, Measured]]:
    """Rows whose `n` is the length of a batch. A batch in which nothing happened has no cell, but its time counts.

    `seconds` are the lengths of the batches of each run. If these are phases of periods, totals have a row for each.
    """
    runs = {run: place for place, run in enumerate(run for run, batch_s in seconds.items() if len(batch_s))}
    batches = max(map(len, seconds.values()))
    lengths = np.zeros((len(runs), batches))
    for run, place in runs.items():
        lengths[place, : len(seconds[run])] = seconds[run]
    for _, metric_cells in cells.groupby("metric", sort=False):
        rows = metric_cells.groupby(KEY, sort=False)
        shape = rows.ngroups, len(runs), batches
        x = np.zeros(shape)
        x[rows.ngroup(), metric_cells["run"].map(runs), metric_cells["batch"]] = metric_cells["x"]
        keys, n = metric_cells[KEY].drop_duplicates(), np.broadcast_to(lengths, shape)
        if not has_phases:
            yield from _estimated_rows(keys, x, n)
            continue
        by_phase = [numbers.reshape(*shape[:2], -1, PHASES) for numbers in (x, n)]
        yield from _estimated_rows(keys, by_phase[0].sum(3), by_phase[1].sum(3))
        is_total = ((keys["first"] == "") & (keys["second"] == "")).to_numpy()
        for phase in range(PHASES) if is_total.any() else ():
            for (metric, _), value in _estimated_rows(keys[is_total], *(it[is_total, ..., phase] for it in by_phase)):
                yield (metric, phase_key(str(phase))), value


def measured_by_count(
    cells: pd.DataFrame, batches: int, phases: int = 1, per_series_max: int | None = None
) -> Iterator[tuple[Row, Measured]]:
    """Rows whose `n` counts observations. Runs and copies without observations are left out.

    If there are more batches than `per_series_max`, neighbours are merged.
    """
    for _, row_cells in cells.groupby(KEY, sort=False):
        x, n = with_fewer_batches(*by_series(row_cells, batches, phases), per_series_max)
        yield from _estimated_rows(row_cells[KEY].drop_duplicates(), x[None], n[None])


def measured_by_quantile(cells: pd.DataFrame) -> Iterator[tuple[Row, Measured]]:
    """Rows whose cells are quantiles: of everything (batch -1), and of sections of time, which give the interval.

    The scatter of the sections' quantiles is that of means (sectioning), but the quantile of everything has less bias.
    """
    for _, row_cells in cells.groupby(KEY, sort=False):
        metric, *labels = (str(row_cells[column].iat[0]) for column in KEY)
        sections = row_cells[row_cells["batch"] >= 0]
        share = metrics()[metric].share
        assert share is not None
        (value,) = row_cells.loc[row_cells["batch"] < 0, "x"].tolist()
        limits: tuple[float | None, float | None] = None, None
        if (sections["n"] * min(share, 1 - share) >= BEYOND_LEAST).all():
            shape = sections["run"].nunique(), int(sections["batch"].max()) + 1
            x, n = np.zeros(shape), np.zeros(shape)
            places = pd.factorize(sections["run"])[0], sections["batch"].to_numpy()
            x[places], n[places] = sections["x"] * sections["n"], sections["n"]
            mean, low, high = (float(each[0]) for each in estimates(x[None], n[None]))
            if not isnan(low) and not isnan(high):
                limits = max(value + low - mean, 0.0), value + high - mean
        yield (metric, tuple(filter(None, labels))), Measured(value, *limits)


def by_series(cells: pd.DataFrame, batches: int, phases: int = 1) -> tuple[Numbers, Numbers]:
    """The x and n of one row, by series (run and copy) and batch; the phases of a block of periods are one batch."""
    series = cells.groupby(["run", "copy"])
    x, n = np.zeros((2, series.ngroups, batches // phases))
    for numbers, name in ((x, "x"), (n, "n")):
        np.add.at(numbers, (series.ngroup(), cells["batch"] // phases), cells[name])
    return x, n


def phase_key(phase: str) -> tuple[str, ...]:
    """The labels of a phase, which no broker's or link's can be."""
    return (*PER_PHASE, phase)


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

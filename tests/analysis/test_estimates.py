"""Measured values and their intervals, against textbooks and against a computation of their own."""

from typing import Any

import numpy as np
import pytest
from pyspark.sql import DataFrame
from scipy import stats

from analysis.transforms.estimates import estimates, sums_by_count, sums_by_exposure
from tests.analysis.frames import Small, plain

CELL = "run int, point int, metric string, first string, second string, unit string, batch int, x double, n double"


def cell(metric: str, unit: Any, x: float, n: float, run: int = 0) -> tuple[Any, ...]:
    return run, 0, metric, "", "", str(unit), int(unit), float(x), float(n)


def found(sums: DataFrame) -> dict[str, tuple[Any, ...]]:
    return {row[0]: row[1:] for row in plain(estimates(sums), "metric", "measured", "ci_low", "ci_high", "units")}


def ratio_interval(x: np.ndarray, n: np.ndarray) -> tuple[float, float, float]:
    """The ratio of two means, its variance by linearisation (as for cluster samples), Student's quantile."""
    ratio = x.mean() / n.mean()
    error = np.std(x - ratio * n, ddof=1) / (np.sqrt(len(x)) * n.mean())
    half = stats.t(len(x) - 1).ppf(0.975) * error
    return ratio, ratio - half, ratio + half


def test_batches_of_equal_time_give_the_textbook_interval(small: Small) -> None:
    """20 batches of 3 s. Of `seldom` only two batches have a cell; the others are zeros, and count."""
    counts = np.random.default_rng(1).poisson(40, 20)
    seldom = np.zeros(20)
    seldom[[3, 11]] = 5, 1
    rows = [cell("often", unit, x, 3) for unit, x in enumerate(counts)]
    rows += [cell("seldom", unit, seldom[unit], 3) for unit in (3, 11)]
    exposures = small.table("point int, units bigint, sn double, snn double", (0, 20, 60.0, 180.0))
    got = found(sums_by_exposure(small.table(CELL, *rows), exposures))
    for name, values in (("often", counts), ("seldom", seldom)):
        rates = values / 3
        low, high = stats.t.interval(0.95, 19, loc=rates.mean(), scale=stats.sem(rates))
        assert got[name] == (pytest.approx(rates.mean()), pytest.approx(low), pytest.approx(high), 20)


def test_batches_that_are_alike_have_a_wider_interval(small: Small) -> None:
    """An autoregressive process, with a coefficient of 0.8: its mean scatters as if there were nine times fewer batches."""
    rng, values = np.random.default_rng(9), [10.0]
    for noise in rng.normal(0, 1, 19):
        values.append(10 + 0.8 * (values[-1] - 10) + noise)
    x = np.array(values)
    around = x - x.mean()
    likeness = (around[:-1] * around[1:]).sum() / (around**2).sum()
    assert likeness > 2 / np.sqrt(20)
    half = stats.t(19).ppf(0.975) * stats.sem(x) * np.sqrt((1 + likeness) / (1 - likeness))
    exposures = small.table("point int, units bigint, sn double, snn double", (0, 20, 40.0, 80.0))
    rows = [cell("alike", unit, 2 * value, 2) for unit, value in enumerate(x)]
    got = found(sums_by_exposure(small.table(CELL, *rows), exposures))["alike"]
    assert got == (pytest.approx(x.mean()), pytest.approx(x.mean() - half), pytest.approx(x.mean() + half), 20)


def test_units_of_unequal_size(small: Small) -> None:
    """Delays: a unit with more messages weighs more; a unit may have several cells (of several batches)."""
    rng = np.random.default_rng(2)
    n = rng.integers(1, 50, 30)
    x = np.array([rng.exponential(2, it).sum() for it in n])
    rows = [cell("delay", unit, sum_, number) for unit, (sum_, number) in enumerate(zip(x, n, strict=True))]
    halves = [cell("halves", unit, sum_ / 2, number / 2) for unit, (sum_, number) in enumerate(zip(x, n, strict=True))]
    # the same unit of another run is another unit; one unit alone has no interval
    pooled = [cell("runs", 0, 10, 5), cell("runs", 0, 30, 5, run=1), cell("alone", 0, 12, 4), cell("same", 0, 4, 2),
              cell("same", 1, 6, 3)]  # fmt: skip
    got = found(sums_by_count(small.table(CELL, *rows, *halves, *halves, *pooled)))
    wanted = (*map(pytest.approx, ratio_interval(x, n)), 30)
    assert got["delay"] == wanted
    assert got["halves"] == wanted
    # means 2 and 6 of 5 each: 4 with a half-width of 12.7062 * 4 / sqrt(2) / sqrt(2)
    assert got["runs"] == (4, pytest.approx(4 - 2 * 12.7062, rel=1e-5), pytest.approx(4 + 2 * 12.7062, rel=1e-5), 2)
    assert got["alone"] == (3, None, None, 1)
    assert got["same"] == (2, pytest.approx(2), pytest.approx(2), 2)


def test_many_units_have_the_normal_quantile(small: Small) -> None:
    values = np.random.default_rng(3).normal(10, 1, 1000)
    _, low, high, units = found(sums_by_count(small.table(CELL, *(cell("m", i, x, 1) for i, x in enumerate(values)))))[
        "m"
    ]
    assert units == 1000
    assert (high - low) / 2 == pytest.approx(stats.norm.ppf(0.975) * stats.sem(values), rel=0.004)


def test_nothing_observed_is_no_row(small: Small) -> None:
    assert found(sums_by_count(small.table(CELL, cell("none", 0, 0, 0)))) == {}

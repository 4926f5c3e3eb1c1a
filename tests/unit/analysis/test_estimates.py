"""Measured values and their intervals: against textbooks, by hand, and by how often they hold a true value."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from brokerbed.analysis.estimates import Numbers, estimates, independent, poisson_limits, rates, shares, tables
from brokerbed.analysis.measured import measured_by_count, measured_by_quantile, measured_by_time
from brokerbed.analysis.verdicts import AGREES, DIFFERS
from brokerbed.analysis.windows import BATCHES
from tests.unit.analysis import drawn

Cell = tuple[int, str, str, int, int, float, float]  # run, metric, first label, copy, batch, x, n


def frame(*cells: Cell) -> pd.DataFrame:
    table = pd.DataFrame(cells, columns=["run", "metric", "first", "copy", "batch", "x", "n"])
    return table.assign(point=0, second="")


def merged(x: Numbers, count: int) -> Numbers:
    return np.asarray(x.reshape(count, -1).sum(1), dtype=float)


def textbook(x: Numbers, n: Numbers) -> tuple[float, float, float]:
    """The ratio of two means, its variance by linearisation (as for cluster samples), Student's quantile."""
    ratio = x.mean() / n.mean()
    error = np.std(x - ratio * n, ddof=1) / (np.sqrt(len(x)) * n.mean())
    half = stats.t(len(x) - 1).ppf(0.975) * error
    return ratio, ratio - half, ratio + half


def unlike(x: Numbers, n: Numbers, count: int) -> float:
    """By how much the variance is larger as neighbours are still alike, by chance or not."""
    around = merged(x, count) - x.sum() / n.sum() * merged(n, count)
    alike = (around[:-1] * around[1:]).sum() / (around**2).sum() + 1 / count
    assert alike < 0, "the drawn batches should not be alike"
    return float(alike)


def test_symmetric_batches_give_the_textbook_interval() -> None:
    """Residuals that come in pairs of plus and minus have no skewness; neighbours are rather unlike than alike."""
    values = np.repeat(stats.norm.ppf((np.arange(16) + 0.5) / 16), 2) * np.tile([1, -1], 16)
    x = 10 + np.repeat(values, 2) / 2  # 64 batches, merged to 32 in any case
    (value,), (low,), (high,) = estimates(x[None, None], np.ones((1, 1, 64)))
    assert unlike(x, np.ones(64), 32) < 0
    around = x - x.mean()  # neighbours of 64 are alike, as each value stands twice
    implied = (around[:-1] * around[1:]).sum() / (around**2).sum() + 1 / 64
    implied = max(0.0, implied) * (1 + implied) / 2
    wanted = textbook(merged(x, 32), np.full(32, 2.0))
    widened = ((1 + implied) / (1 - implied)) ** 0.5
    assert value == pytest.approx(10)
    assert (low, high) == (
        pytest.approx(10 - (10 - wanted[1]) * widened),
        pytest.approx(10 + (wanted[2] - 10) * widened),
    )


def test_skewed_batches_have_a_longer_arm_where_the_long_tail_is() -> None:
    x = np.random.default_rng(4).exponential(1, (1, 20, BATCHES))
    (value,), (low,), (high,) = estimates(x**2, np.ones_like(x))
    assert high - value > 1.05 * (value - low)


def test_batches_are_merged_until_neighbours_are_no_longer_alike() -> None:
    """Values that stand in a row for half of the time: one series leaves too few. Of 12 copies each is one unit."""
    halves = np.repeat(np.random.default_rng(1).normal(10, 1, (1, 12, 2)), BATCHES // 2, axis=2)
    alone = halves[:, :1]
    (value,), (low,), (high,) = estimates(alone, np.ones_like(alone))
    assert value == pytest.approx(alone.mean())
    assert np.isnan([low, high]).all()
    (value,), (low,), (high,) = estimates(halves, np.ones_like(halves))
    means = halves[0].mean(1)
    assert (high - low) / 2 == pytest.approx(stats.t(11).ppf(0.975) * stats.sem(means), rel=0.1)
    assert independent(halves[0], np.ones((12, BATCHES))) == [pytest.approx(means.mean())]


@pytest.mark.parametrize("case", drawn.CASES, ids=str)
def test_intervals_hold_the_true_value(case: drawn.Case) -> None:
    """The short version of `make coverage-campaign`: 92 to 98%, but for the scatter of 400 draws (3 deviations of 1%)."""
    found = case.cover(400)
    assert 0.89 <= found.covered <= 1
    assert found.without_interval <= 0.05


@pytest.mark.parametrize("width", drawn.WIDTHS)
def test_verdicts_are_rarely_wrong(width: float) -> None:
    """At most 2.5%, whatever the width of the interval is beside the tolerance; enough of them are told at all."""
    wrong, right = drawn.verdicts(2 * drawn.TOLERANCE, width), drawn.verdicts(0.0, width)
    assert wrong[AGREES] <= 0.025
    assert right[DIFFERS] <= 0.025
    if width < 0.5:
        assert wrong[DIFFERS] > 0.9
        assert right[AGREES] > 0.9


def test_nothing_seen_in_a_rate_row_has_the_exact_upper_limit() -> None:
    """No event in 100 s: at a rate of 3.689 / 100 s that happens in 2.5% of all cases."""
    none = np.zeros((1, 1, BATCHES))
    found = rates(none, np.full_like(none, 100 / BATCHES))
    assert found.value == found.low == 0
    assert np.exp(-found.high * 100) == pytest.approx(0.025)


@pytest.mark.parametrize("count", [1, 2, 5, 20])
def test_small_counts_have_exact_limits(count: int) -> None:
    """With the mean at a limit, as few or as many are seen in 2.5% of all cases."""
    x = np.zeros((1, 1, BATCHES))
    x[0, 0, np.linspace(0, BATCHES - 1, count).astype(int)] = 1
    found = rates(x, np.full_like(x, 10 / BATCHES))
    assert stats.poisson.sf(count - 1, found.low * 10) == pytest.approx(0.025)
    assert stats.poisson.cdf(count, found.high * 10) == pytest.approx(0.025)


def test_events_that_come_in_bursts_are_fewer() -> None:
    """Twelve events in four bursts of three say about as much as four."""
    x = np.zeros((1, 1, BATCHES))
    x[0, 0, [5, 21, 37, 53]] = 3
    found, singles = rates(x, np.ones_like(x)), poisson_limits(np.array([4.0]), np.ones(1))
    assert found.high * BATCHES == pytest.approx(3 * singles[1], rel=0.15)
    assert found.low * BATCHES == pytest.approx(3 * singles[0], rel=0.4)


def test_what_was_never_missing_has_an_exact_lower_limit() -> None:
    """5 of 5 delivered say little, 10 000 of 10 000 much."""
    for number, limit in ((5, 1 - 3.6889 / 5), (10_000, 1 - 3.6889 / 10_000)):
        n = np.zeros((1, 1, BATCHES))
        n[0, 0, :5] = number / 5
        found = shares(n, n)
        assert found.value == found.high == 1
        assert found.low == pytest.approx(limit, abs=1e-5)


def test_table_that_was_always_empty_has_an_upper_limit_below_one_entry() -> None:
    none = np.zeros((1, 1, BATCHES))
    found = tables(none, np.ones_like(none))
    assert found.value == found.low == 0
    assert 0.1 < found.high < 1


def test_batches_without_a_cell_count_as_zeros_where_time_is_measured() -> None:
    """Two runs of unequal length; the other one has no event at all, and its time counts."""
    cells = frame(*((0, "rate.control", "", -1, batch, 4.0, 2.0) for batch in range(BATCHES)))
    found = dict(measured_by_time(cells, {0: np.full(BATCHES, 2.0), 1: np.full(BATCHES, 6.0), 2: np.zeros(0)}))
    assert found["rate.control", ()].value == pytest.approx(4 / 8)
    (row,) = dict(measured_by_time(cells, {0: np.full(BATCHES, 2.0)})).values()
    assert [row.value, row.ci_low, row.ci_high] == pytest.approx([2, 2, 2])


def test_copies_and_runs_are_series_of_their_own_where_messages_are_counted() -> None:
    """Copies that differ from each other, each with equal batches: their scatter is that of 24 copies, not of batches."""
    means = np.random.default_rng(3).normal(5, 1, 24)
    cells = frame(
        *((copy % 2, "delay.end_to_end", "p", copy, batch, 2 * mean, 2.0)
          for copy, mean in enumerate(means) for batch in range(BATCHES))
    ).assign(second="s")  # fmt: skip
    ((key, row),) = measured_by_count(cells, BATCHES)
    assert key == ("delay.end_to_end", ("p", "s"))
    assert row.ci_low is not None
    assert row.ci_high is not None
    assert (row.ci_high - row.ci_low) / 2 == pytest.approx(stats.t(23).ppf(0.975) * stats.sem(means), rel=0.1)


def test_quantiles_by_sections() -> None:
    """The interval is that of the mean of the sections' quantiles, moved to the quantile of everything."""
    generator = np.random.default_rng(3)
    x, metric = 10 + generator.standard_normal(16), "delay.end_to_end.p95"
    sections = [(0, metric, "p", -1, at, value, 400.0) for at, value in enumerate(x)]
    found = dict(measured_by_quantile(frame((-1, metric, "p", -1, -1, 10.5, 6400.0), *sections)))
    of_row = found[metric, ("p",)]
    _, low, high = (float(limit[0]) for limit in estimates(400 * x[None, None], np.full((1, 1, 16), 400.0)))
    assert of_row.value == 10.5
    assert of_row.ci_low == pytest.approx(10.5 + low - x.mean())
    assert of_row.ci_high == pytest.approx(10.5 + high - x.mean())
    assert low < x.mean() < high


def test_quantiles_of_few_delays_have_no_interval() -> None:
    """Of 100 delays five are beyond the 95% quantile: too few to tell how it scatters."""
    metric = "delay.end_to_end.p95"
    sections = [(0, metric, "p", -1, at, 10.0 + at, 100.0) for at in range(16)]
    found = dict(measured_by_quantile(frame((-1, metric, "p", -1, -1, 10.5, 1600.0), *sections)))
    assert (found[metric, ("p",)].value, found[metric, ("p",)].ci_low) == (10.5, None)


def test_parts_of_a_pass_are_no_batches() -> None:
    """With at most one batch for each series, two series are too few for an interval, and 24 have that of 24 copies."""
    means = np.random.default_rng(4).normal(5, 1, 24)
    for series, has_interval in ((2, False), (24, True)):
        cells = frame(
            *((0, "delay.end_to_end", "p", copy, batch, 2 * means[copy] * (1 + batch % 2), 2.0)
              for copy in range(series) for batch in range(BATCHES))
        ).assign(second="s")  # fmt: skip
        ((_, row),) = measured_by_count(cells, BATCHES, per_series_max=1)
        assert row.value == pytest.approx(1.5 * means[:series].mean())
        assert (row.ci_low is not None) == has_interval
    assert row.ci_low is not None
    assert row.ci_high is not None
    wanted = 1.5 * stats.t(23).ppf(0.975) * stats.sem(means)
    assert (row.ci_high - row.ci_low) / 2 == pytest.approx(wanted, rel=0.1)

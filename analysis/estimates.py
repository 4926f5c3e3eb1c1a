"""Measured values with their 95% confidence intervals, from batches of time. Pure.

The measured value is the ratio of sums R = sum(x) / sum(n) over the batches of one or more series (runs with other
seeds, copies of the peers), which are independent. Its variance is that of the residuals x - R n. Successive batches of
a series may be correlated. They are merged two by two until they are not, or until too few are left; in that case there
is no interval. The remaining correlation widens the interval, and skewness widens it on one side (after Skart, the
procedure of Tafazzoli and Wilson: first-order autoregressive residuals, Johnson's modified t). `make coverage-campaign`
shows how often such intervals contain the true value.

The variance of small counts cannot be estimated from their scatter. They have the exact limits of a Poisson process,
whose variance is its mean; where batches scatter more than that, proportionally more events count as one.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import hypot
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, stdtrit

from brokerbed.metrics import Statistic

CONFIDENCE = 0.95
TAIL = (1 - CONFIDENCE) / 2
UNITS_MAX = 40  # batches of all series together; more are merged, as short batches are skewed and correlated
UNITS_MIN = 10  # with fewer batches their variance is too uncertain
CORRELATION_MAX = 1.65  # standard deviations of the correlation of neighbours; beyond that they are merged
CORRELATION_MAX_AT_LAST = 3.0  # where no more merging is possible; one good row in a thousand gets no interval
CORRELATION_CLOSEST = 1 - 1e-6  # beyond that merging changes nothing that could be computed
EXTRAPOLATED_MAX = 0.5  # the correlation of neighbours that is extrapolated from the shortest batches
SKEWNESS_MAX = 4.0  # a few dozen batches cannot show more
COUNT_SMALL = 30.0  # smaller counts have Poisson limits

Numbers = NDArray[np.float64]


class Estimates(NamedTuple):
    """One value per row; limits are nan where there is no interval."""

    value: Numbers
    low: Numbers
    high: Numbers


@dataclass(frozen=True, slots=True)
class _Level:
    """Batches merged to `count` per series."""

    residuals: Numbers  # rows, series, batches
    units: Numbers  # per row, the batches in which something was observed
    squares: Numbers  # sum of squared residuals
    correlation: Numbers  # of neighbours, with an expected value of 0 if they are independent
    extrapolated: Numbers  # the same, extrapolated from the shortest batches for an autoregressive process
    is_independent: NDArray[np.bool_]


def estimates(x: Numbers, n: Numbers, tail: float = TAIL) -> Estimates:
    """Estimates of means. The arrays have the dimensions row, series and batch; `tail` is the error on either side."""
    value, low, high, _ = _estimated(x, n, tail)
    return Estimates(value, low, high)


def rates(x: Numbers, n: Numbers, tail: float = TAIL) -> Estimates:
    """Estimates of rates, where x counts events."""
    value, low, high, variance = _estimated(x, n, tail)
    count, exposure = x.sum((1, 2)), n.sum((1, 2))
    is_small = count < COUNT_SMALL
    bottom, top = poisson_limits(count, _dispersion(variance, count), tail)
    return Estimates(value, np.where(is_small, bottom / exposure, low), np.where(is_small, top / exposure, high))


def shares(x: Numbers, n: Numbers, tail: float = TAIL) -> Estimates:
    """Estimates of shares close to 1, where x counts some of the n observations."""
    missing = rates(n - x, n, tail)
    return Estimates(1 - missing.value, 1 - missing.high, 1 - missing.low)


def tables(x: Numbers, n: Numbers, tail: float = TAIL) -> Estimates:
    """Estimates of time averages. If a table was always empty, the lifetime of an entry is unknown."""
    value, low, high, _ = _estimated(x, n, tail)
    top = poisson_limits(np.zeros(1), np.ones(1), tail)[1] / UNITS_MIN
    is_empty = value == 0
    return Estimates(value, np.where(is_empty, 0.0, low), np.where(is_empty, top, high))


ESTIMATES: Mapping[Statistic, Callable[..., Estimates]] = {
    Statistic.RATE: rates, Statistic.SIZE: tables, Statistic.MEAN: estimates, Statistic.SHARE: shares,
}  # fmt: skip


def with_fewer_batches(x: Numbers, n: Numbers, per_series_max: int | None) -> tuple[Numbers, Numbers]:
    """The same with neighbours merged, if there are more batches in a series than that."""
    if per_series_max is None or per_series_max >= x.shape[1]:
        return x, n
    first_of_each = np.arange(per_series_max) * x.shape[1] // per_series_max
    return np.add.reduceat(x, first_of_each, axis=1), np.add.reduceat(n, first_of_each, axis=1)


def deviations(x: Numbers, n: Numbers) -> Numbers:
    """What each batch adds to the error of sum(x) / sum(n), to first order."""
    total = n.sum()
    added: Numbers = (x - x.sum() / total * n) / total
    return added


def limits_of_difference(first: tuple[float, float, float], second: tuple[float, float, float]) -> tuple[float, float]:
    """Of two independent values, each with its limits, which need not be symmetric: the second one minus the first
    (the method of variance estimates recovery, Zou and Donner)."""
    (value1, low1, high1), (value2, low2, high2) = first, second
    difference = value2 - value1
    return difference - hypot(value2 - low2, high1 - value1), difference + hypot(high2 - value2, value1 - low1)


def poisson_limits(count: Numbers, dispersion: Numbers, tail: float = TAIL) -> tuple[Numbers, Numbers]:
    """Confidence limits for the mean of a count whose variance is `dispersion` times its mean."""
    events = count / dispersion
    low = np.where(events > 0, gammaincinv(np.where(events > 0, events, 1.0), tail), 0.0)
    return low * dispersion, gammaincinv(events + 1, 1 - tail) * dispersion


def independent(x: Numbers, n: Numbers) -> list[float]:
    """The values of one row in successive batches, merged as for its interval; empty batches are left out."""
    best = None
    for level in _levels(x[None], n[None]):
        best = level
        if level.is_independent[0]:
            break
    if best is None:
        return []
    count = best.residuals.shape[2]
    sums = [_merged(sums_of_batches[None], count)[0].sum(0) for sums_of_batches in (x, n)]
    return [float(value / weight) for value, weight in zip(*sums, strict=True) if weight > 0]


def _estimated(x: Numbers, n: Numbers, tail: float) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Values, limits, and variances of the sum of x."""
    exposure = n.sum((1, 2))
    value = x.sum((1, 2)) / exposure
    low, high, variance = (np.full(len(x), np.nan) for _ in range(3))
    is_open = np.ones(len(x), bool)
    for level in _levels(x, n):
        chosen = is_open & level.is_independent & (level.units >= 2)
        bottom, top, level_variance = _limits(level, tail)
        low[chosen] = (value + bottom / exposure)[chosen]
        high[chosen] = (value + top / exposure)[chosen]
        variance[is_open] = level_variance[is_open]  # the best estimate, also where there is no interval
        is_open &= ~chosen
    return value, low, high, variance


def _levels(x: Numbers, n: Numbers) -> Iterator[_Level]:
    """The levels of merging, from short batches to long ones."""
    rows, series, batches = x.shape
    ratio = x.sum((1, 2)) / n.sum((1, 2))
    residuals = x - ratio[:, None, None] * n
    of_shortest, count = np.zeros(rows), batches
    while series * count >= UNITS_MIN:
        merged = _merged(residuals, count)
        squares = (merged**2).sum((1, 2))
        number, next_ = series * count, count // 2
        if count > 1:
            lagged = (merged[..., :-1] * merged[..., 1:]).sum((1, 2))
            correlation = np.divide(lagged, squares, out=np.zeros(rows), where=squares > 0) + 1 / number
            if count == batches:
                of_shortest = np.clip(correlation, 0, CORRELATION_CLOSEST)
            extrapolated = correlation_of_merged(of_shortest, batches / count)
        else:  # one batch per series, and series are independent
            correlation, extrapolated = np.zeros(rows), np.zeros(rows)
        if number <= UNITS_MAX or next_ * series < UNITS_MIN:
            allowed = CORRELATION_MAX if series * next_ >= UNITS_MIN else CORRELATION_MAX_AT_LAST
            is_independent = (correlation * number**0.5 < allowed) & (extrapolated < EXTRAPOLATED_MAX)
            units = (_merged(n, count) > 0).sum((1, 2))
            yield _Level(merged, units, squares, correlation, extrapolated, is_independent)
        count = next_


def correlation_of_merged(correlation: Numbers, number: float) -> Numbers:
    """The correlation of neighbours after each `number` values of an autoregressive process were merged to one."""
    power = correlation**number
    return correlation * (1 - power) ** 2 / (number * (1 - correlation**2) - 2 * correlation * (1 - power))


def _merged(batches: Numbers, count: int) -> Numbers:
    total = batches.shape[2]
    if total % count:
        return np.add.reduceat(batches, np.arange(count) * total // count, axis=2)  # some are longer than others
    merged: Numbers = batches.reshape(*batches.shape[:2], count, -1).sum(3)
    return merged


def _limits(level: _Level, tail: float) -> tuple[Numbers, Numbers, Numbers]:
    """Limits for the sum of residuals, around 0, and its variance if batches were uncorrelated."""
    units = np.maximum(level.units, 3).astype(float)
    remaining = np.clip(np.maximum(level.correlation, level.extrapolated), 0, 0.9)
    variance = level.squares * units / (units - 1)
    spread = np.sqrt(level.squares / units)
    cubes = (level.residuals**3).sum((1, 2)) / units
    skewness = np.divide(cubes, spread**3, out=np.zeros_like(cubes), where=spread > 0)
    skewness *= np.sqrt(units * (units - 1)) / (units - 2)
    beta = np.clip(skewness, -SKEWNESS_MAX, SKEWNESS_MAX) / 6 / np.sqrt(units)
    quantile = stdtrit(units - 1, 1 - tail)
    error = np.sqrt(variance * (1 + remaining) / (1 - remaining))
    return -_johnson(quantile, beta) * error, -_johnson(-quantile, beta) * error, variance


def _johnson(quantile: Numbers, beta: Numbers) -> Numbers:
    """The quantile of Johnson's modified t; it is Student's where there is no skewness."""
    safe = np.where(np.abs(beta) > 1e-6, beta, 1.0)
    return np.where(np.abs(beta) > 1e-6, (np.cbrt(1 + 6 * safe * (quantile - safe)) - 1) / (2 * safe), quantile)


def _dispersion(variance: Numbers, count: Numbers) -> Numbers:
    """The ratio of variance to that of a Poisson process; at least 1, as few events cannot show less."""
    is_known = (count > 0) & np.isfinite(variance)
    return np.maximum(1.0, np.divide(variance, count, out=np.ones_like(count), where=is_known))

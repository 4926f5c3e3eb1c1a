"""Measured values with their 95% confidence intervals, from batches of time. Pure.

The measured value is the ratio of sums R = sum(x) / sum(n) over the batches of one or more series (runs with other
seeds, copies of the peers), which do not depend on one another. Its variance is that of the residuals x - R n.
Successive batches of a series may be alike. They are merged two by two until they no longer are, or until too few are
left: then there is no interval. What likeness remains widens the interval, and so does skewness, on the side where it
has to (after Skart, the procedure of Tafazzoli and Wilson: first-order autoregressive residuals, Johnson's modified t).
How often such intervals hold the true value: `make coverage-campaign`.

Small counts say little by their scatter. They have the exact limits of a Poisson process, whose variance is its mean;
where batches scatter more than that, so many times more events are needed to be as sure.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv, stdtrit

CONFIDENCE = 0.95
TAIL = (1 - CONFIDENCE) / 2
UNITS_MAX = 40  # batches of all series together are merged to so many at least, as short ones are skewed and alike
UNITS_MIN = 10  # fewer tell too little of their own scatter
LIKE_MAX = 1.65  # standard deviations by which neighbours may be alike by chance: else they are merged
LIKE_MAX_AT_LAST = 2.3  # where no more merging is possible: one good row in a thousand has no interval
IMPLIED_MAX = 0.25  # likeness of neighbours that shorter batches tell of
SKEWNESS_MAX = 4.0  # of a few dozen batches; more cannot be told from them
COUNT_SMALL = 30.0  # counts below have Poisson limits

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
    units: Numbers  # in which something was observed, per row
    squares: Numbers  # sum of squared residuals
    likeness: Numbers  # of neighbours, expected to be 0 if they do not depend on one another
    implied: Numbers  # the same, as the likeness of the shortest batches has it if they forget at a steady rate
    is_independent: NDArray[np.bool_]


def estimates(x: Numbers, n: Numbers) -> Estimates:
    """Of rows, each with the same number of series and batches (a power of two): arrays of three dimensions."""
    value, low, high, _ = _estimated(x, n)
    return Estimates(value, low, high)


def rates(x: Numbers, n: Numbers) -> Estimates:
    """The same where x counts events, some of them few."""
    value, low, high, variance = _estimated(x, n)
    count, exposure = x.sum((1, 2)), n.sum((1, 2))
    is_small = count < COUNT_SMALL
    bottom, top = poisson_limits(count, _dispersion(variance, count))
    return Estimates(value, np.where(is_small, bottom / exposure, low), np.where(is_small, top / exposure, high))


def shares(x: Numbers, n: Numbers) -> Estimates:
    """The same where x counts some of n: few are missing."""
    missing = rates(n - x, n)
    return Estimates(1 - missing.value, 1 - missing.high, 1 - missing.low)


def tables(x: Numbers, n: Numbers) -> Estimates:
    """The same of sizes over time. Where there never was an entry, nothing tells how long one would last."""
    value, low, high, _ = _estimated(x, n)
    top = poisson_limits(np.zeros(1), np.ones(1))[1] / UNITS_MIN
    is_empty = value == 0
    return Estimates(value, np.where(is_empty, 0.0, low), np.where(is_empty, top, high))


def poisson_limits(count: Numbers, dispersion: Numbers) -> tuple[Numbers, Numbers]:
    """Of the mean of a count, where the variance is `dispersion` times the mean."""
    events = count / dispersion
    low = np.where(events > 0, gammaincinv(np.where(events > 0, events, 1.0), TAIL), 0.0)
    return low * dispersion, gammaincinv(events + 1, 1 - TAIL) * dispersion


def independent(x: Numbers, n: Numbers) -> list[float]:
    """The values of one row in successive batches, merged as for its interval; empty ones are left out."""
    best = None
    for level in _levels(x[None], n[None]):
        best = level
        if level.is_independent[0]:
            break
    if best is None:
        return []
    count = best.residuals.shape[2]
    sums = [it.sum(0).reshape(count, -1).sum(1) for it in (x, n)]
    return [float(value / weight) for value, weight in zip(*sums, strict=True) if weight > 0]


def _estimated(x: Numbers, n: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers]:
    """Value, limits, and the variance of the sum of x."""
    exposure = n.sum((1, 2))
    value = x.sum((1, 2)) / exposure
    low, high, variance = (np.full(len(x), np.nan) for _ in range(3))
    is_open = np.ones(len(x), bool)
    for level in _levels(x, n):
        chosen = is_open & level.is_independent & (level.units >= 2)
        bottom, top, its_variance = _limits(level)
        low[chosen] = (value + bottom / exposure)[chosen]
        high[chosen] = (value + top / exposure)[chosen]
        variance[is_open] = its_variance[is_open]  # also where there is no interval: the best that is known
        is_open &= ~chosen
    return value, low, high, variance


def _levels(x: Numbers, n: Numbers) -> Iterator[_Level]:
    """From short batches to long ones."""
    rows, series, batches = x.shape
    ratio = x.sum((1, 2)) / n.sum((1, 2))
    residuals = x - ratio[:, None, None] * n
    implied, count = np.zeros(rows), batches
    while series * count >= UNITS_MIN:
        merged = _merged(residuals, count)
        squares = (merged**2).sum((1, 2))
        number, next_ = series * count, count // 2
        if count > 1:
            lagged = (merged[..., :-1] * merged[..., 1:]).sum((1, 2))
            likeness = np.divide(lagged, squares, out=np.zeros(rows), where=squares > 0) + 1 / number
            implied = np.clip(likeness if count == batches else implied * (1 + implied) / 2, 0, 1)
        else:  # one batch per series: series do not depend on one another
            likeness, implied = np.zeros(rows), np.zeros(rows)
        if number <= UNITS_MAX or next_ * series < UNITS_MIN:
            allowed = LIKE_MAX if series * next_ >= UNITS_MIN else LIKE_MAX_AT_LAST
            is_independent = (likeness * number**0.5 < allowed) & (implied < IMPLIED_MAX)
            units = (_merged(n, count) > 0).sum((1, 2))
            yield _Level(merged, units, squares, likeness, implied, is_independent)
        count = next_


def _merged(batches: Numbers, count: int) -> Numbers:
    merged: Numbers = batches.reshape(*batches.shape[:2], count, -1).sum(3)
    return merged


def _limits(level: _Level) -> tuple[Numbers, Numbers, Numbers]:
    """Of the sum of residuals, around 0; and its variance as if batches were not alike at all."""
    units = np.maximum(level.units, 3).astype(float)
    alike = np.clip(np.maximum(level.likeness, level.implied), 0, 0.9)
    variance = level.squares * units / (units - 1)
    spread = np.sqrt(level.squares / units)
    cubes = (level.residuals**3).sum((1, 2)) / units
    skewness = np.divide(cubes, spread**3, out=np.zeros_like(cubes), where=spread > 0)
    skewness *= np.sqrt(units * (units - 1)) / (units - 2)
    beta = np.clip(skewness, -SKEWNESS_MAX, SKEWNESS_MAX) / 6 / np.sqrt(units)
    quantile = stdtrit(units - 1, 1 - TAIL)
    error = np.sqrt(variance * (1 + alike) / (1 - alike))
    return -_johnson(quantile, beta) * error, -_johnson(-quantile, beta) * error, variance


def _johnson(quantile: Numbers, beta: Numbers) -> Numbers:
    """The quantile of a skewed t; Student's own where nothing is skewed."""
    safe = np.where(np.abs(beta) > 1e-6, beta, 1.0)
    return np.where(np.abs(beta) > 1e-6, (np.cbrt(1 + 6 * safe * (quantile - safe)) - 1) / (2 * safe), quantile)


def _dispersion(variance: Numbers, count: Numbers) -> Numbers:
    """How much more events scatter than those of a Poisson process; never less, as few events cannot show that."""
    known = (count > 0) & np.isfinite(variance)
    return np.maximum(1.0, np.divide(variance, count, out=np.ones_like(count), where=known))

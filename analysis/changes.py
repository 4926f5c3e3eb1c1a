"""Tests whether a measured value has become worse, by confidence limits of new - factor * base. Pure.

A change of a row is the new value divided by the base value, minus 1. With the margin m, changes are in one of three
zones: better than the base by more than m, the same within m, worse by more than m. The verdict is the zone that the
change is shown to be in:

- `same`: two one-sided tests (equivalence) show that the change is within the margin on both sides;
- `better`, `worse`: a one-sided test shows that the change is beyond the margin on that side;
- `not worse`: only non-inferiority is shown, that the change is not beyond the margin on the bad side;
- `cannot tell`: none of these.

A gate fails if one row is worse, so the rows share its false alarms: `worse` and `better` are tested by Holm's
procedure, at 2.5% for all rows together. It passes if no row is worse by more than the margin, which every row has to
show for itself; such an intersection-union test needs no correction.

Limits of the difference of two independent estimates follow from the limits of each (MOVER, Zou and Donner 2008), which
works for means, shares and small counts alike. Runs with the same seeds share arrivals and much else; their limits are
those of the differences batch by batch.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isnan

import numpy as np
from scipy.optimize import brentq

from brokerbed.analysis.batches import Batches
from brokerbed.analysis.estimates import COUNT_SMALL, ESTIMATES, TAIL, deviations, estimates, limits_of_difference
from brokerbed.analysis.verdicts import LONGER_MAX, LONGER_MIN, LONGER_UNKNOWN
from brokerbed.metrics import Metric, Statistic, Worse

ALPHA = 0.025  # the probability of a false alarm, of all rows together
BETTER, SAME, NOT_WORSE, WORSE, CANNOT_TELL = "better", "same", "not worse", "worse", "cannot tell"
BEYOND_LEAST = 2  # observations of a section beyond a quantile: two runs of one length share the bias of having few
FACTOR_MAX = 1e6  # a change that is larger has no upper limit

Limits = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Change:
    """How one row has changed. Limits are of 95%; they are None where nothing limits the change."""

    base: float | None
    new: float | None
    change: float | None
    ci_low: float | None
    ci_high: float | None
    verdict: str
    longer: float | None = None  # how many times longer to measure


class Comparison:
    """The two measurements of one row."""

    def __init__(self, metric: Metric, base: Batches, new: Batches, margin: float) -> None:
        self._metric, self._base, self._new, self.margin = metric, base, new, margin
        self._has_intervals = all(_has_interval(metric, side) for side in (base, new))
        is_paired = base.series == new.series and base.x.shape == new.x.shape
        self._is_paired = is_paired and not any(_is_small(metric, side) for side in (base, new))
        self._own_limits = lru_cache(None)(self._limits_of_sides)

    def is_worse(self, tail: float) -> bool:
        """Whether the change is shown to be beyond the margin on the bad side."""
        return self._is_beyond(self._metric.worse is Worse.MORE, tail)

    def is_better(self, tail: float) -> bool:
        return self._is_beyond(self._metric.worse is Worse.LESS, tail)

    def is_same(self, tail: float) -> bool:
        return self._is_within(True, tail) and self._is_within(False, tail)

    def is_not_worse(self, tail: float) -> bool:
        return self._is_within(self._metric.worse is Worse.MORE, tail)

    def change(self, verdict: str) -> Change:
        base, new = self._base.value, self._new.value
        if base == 0:
            longer = LONGER_UNKNOWN if verdict == CANNOT_TELL else None
            return Change(base, new, 0.0 if new == 0 else None, None, None, verdict, longer)
        low, high = self._limits_of_ratio(TAIL)
        change = new / base - 1
        limits = None if low is None else low - 1, None if high is None else high - 1
        longer = self._longer(change, *limits) if verdict == CANNOT_TELL else None
        return Change(base, new, change, *limits, verdict, longer)

    def _is_beyond(self, is_more: bool, tail: float) -> bool:
        if self._is_nothing:
            return False
        factor = 1 + self.margin if is_more else 1 - self.margin
        low, high = self._difference(factor, tail)
        return low > 0 if is_more else high < 0  # False for nan

    def _is_within(self, is_more: bool, tail: float) -> bool:
        if self._is_nothing:
            return True
        factor = 1 + self.margin if is_more else 1 - self.margin
        low, high = self._difference(factor, tail)
        return high < 0 if is_more else low > 0

    @property
    def _is_nothing(self) -> bool:
        return self._base.value == self._new.value == 0

    def _difference(self, factor: float, tail: float) -> Limits:
        """Limits of new - factor * base; nan if there are none."""
        if not self._has_intervals:
            return np.nan, np.nan
        difference = self._new.value - factor * self._base.value
        if self._is_paired:
            low, high = self._limits_of_pairs(factor, tail)
            return difference + low, difference + high
        (base_low, base_high), (new_low, new_high) = self._own_limits(tail)
        base, new = factor * self._base.value, self._new.value
        return limits_of_difference((base, factor * base_low, factor * base_high), (new, new_low, new_high))

    def _limits_of_sides(self, tail: float) -> tuple[Limits, Limits]:
        base, new = (_limits(self._metric.statistic, side, tail) for side in (self._base, self._new))
        return base, new

    def _limits_of_pairs(self, factor: float, tail: float) -> Limits:
        """Around 0: from the residuals of both, batch by batch.

        A difference of two alike is symmetric: the skewness that a few batches happen to show widens the limits only.
        """
        base, new = self._base, self._new
        x = deviations(new.x, new.n) - factor * deviations(base.x, base.n)
        weight = (base.n / base.n.sum() + new.n / new.n.sum()) / 2
        _, low, high = estimates(x[None], weight[None], tail)
        half = max(-float(low[0]), float(high[0]))
        return -half, half

    def _limits_of_ratio(self, tail: float) -> tuple[float | None, float | None]:
        """The factors between which new - factor * base is not shown to be different from 0."""
        ratio = self._new.value / self._base.value
        at_ratio = self._difference(ratio, tail)
        if isnan(at_ratio[0]) or isnan(at_ratio[1]):
            return None, None
        low = self._root(lambda factor: self._difference(factor, tail)[0], 0.0, ratio)
        high = self._root(lambda factor: self._difference(factor, tail)[1], ratio, max(1.0, ratio) * FACTOR_MAX)
        return (0.0 if low is None else low), high

    @staticmethod
    def _root(limit: Callable[[float], float], begin: float, end: float) -> float | None:
        at_begin, at_end = limit(begin), limit(end)
        if at_begin == 0 or at_end == 0:
            return begin if at_begin == 0 else end
        if isnan(at_begin) or isnan(at_end) or (at_begin > 0) == (at_end > 0):
            return None
        return float(brentq(limit, begin, end, rtol=1e-6))

    def _longer(self, change: float, low: float | None, high: float | None) -> float:
        """How many times longer to measure until the change is not worse, or worse, if it is what it seems to be."""
        if low is None or high is None:
            return LONGER_UNKNOWN
        if self._metric.worse is Worse.LESS:
            change, low, high = -change, -high, -low
        room = abs(self.margin - change)
        half = high - change if change < self.margin else change - low
        return min(max((half / room) ** 2, LONGER_MIN), LONGER_MAX) if room > 0 else LONGER_MAX


def judged(comparisons: Sequence[Comparison | None]) -> list[str]:
    """The verdict of every row; None is a row that only one of the runs has."""
    known = [comparison for comparison in comparisons if comparison is not None]
    worse = holm([comparison.is_worse for comparison in known])
    better = holm([comparison.is_better for comparison in known])
    verdicts = iter(map(_verdict, known, worse, better))
    return [CANNOT_TELL if comparison is None else next(verdicts) for comparison in comparisons]


def holm(tests: Sequence[Callable[[float], bool]], alpha: float = ALPHA) -> list[bool]:
    """Which tests reject at `alpha` together; each test says whether it rejects at a level of its own."""
    rejected = [False] * len(tests)
    while not all(rejected):
        level = alpha / rejected.count(False)
        more = [is_rejected or test(level) for is_rejected, test in zip(rejected, tests, strict=True)]
        if more == rejected:
            break
        rejected = more
    return rejected


def _verdict(comparison: Comparison, is_worse: bool, is_better: bool) -> str:
    if is_worse:
        return WORSE
    if is_better:
        return BETTER
    if comparison.is_same(ALPHA):
        return SAME
    return NOT_WORSE if comparison.is_not_worse(ALPHA) else CANNOT_TELL


def _has_interval(metric: Metric, side: Batches) -> bool:
    """False for a quantile beyond which a section has so few observations that it is merely an extreme value."""
    if metric.share is None:
        return True
    observed = side.n[side.n > 0]
    return bool((observed * min(metric.share, 1 - metric.share) >= BEYOND_LEAST).all())


def _is_small(metric: Metric, side: Batches) -> bool:
    """Whether it counts so few events that their scatter says little about their variance."""
    if metric.statistic is Statistic.RATE:
        return bool(side.x.sum() < COUNT_SMALL)
    if metric.statistic is Statistic.SHARE:
        return bool((side.n - side.x).sum() < COUNT_SMALL)
    return side.value == 0


def _limits(statistic: Statistic, side: Batches, tail: float) -> Limits:
    estimate = estimates if statistic is Statistic.QUANTILE else ESTIMATES[statistic]
    value, low, high = (float(each[0]) for each in estimate(side.x[None], side.n[None], tail))
    return side.value + low - value, side.value + high - value

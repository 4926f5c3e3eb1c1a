"""What the models assume, tested on the run itself: Poisson arrivals, exponential laws, stationarity, rates kept.

Tests of one kind share a level of 1%, however many there are, so that a good run is rarely warned of. Pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import chdtrc, ndtr, pdtr, stdtr  # scipy.stats takes a second to import

LEVEL = 0.01  # how often some test of a kind fails though all is well
BINS_MIN = 10
MEAN_MIN = 0.5  # per bin; with fewer the test knows nothing
PERIODS_MIN = 50
SHORTFALL = 0.01  # of a rate, that nobody would call saturation


@dataclass(frozen=True, slots=True)
class Assumption:
    name: str
    at: str
    p_value: float
    holds: bool

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "at": self.at, "p_value": self.p_value, "holds": self.holds}


def are_poisson(name: str, counts: Mapping[str, Sequence[int]], bins: int) -> list[Assumption]:
    """Counts in bins of equal time scatter as they should: neither in bursts nor too evenly (index of dispersion)."""
    found = []
    for at, its in sorted(counts.items()):
        mean = sum(its) / bins if bins else 0.0
        if bins < BINS_MIN or mean < MEAN_MIN:
            continue
        statistic = (sum(count * count for count in its) - bins * mean * mean) / mean
        above = float(chdtrc(bins - 1, statistic))
        found.append((at, 2 * min(above, 1 - above)))
    return _judged(name, found)


def are_exponential(name: str, tenths: Mapping[str, Sequence[int]]) -> list[Assumption]:
    """Periods fill equally likely bins equally; the mean was taken from them."""
    found = []
    for at, counts in sorted(tenths.items()):
        if sum(counts) >= PERIODS_MIN:
            wanted = sum(counts) / len(counts)
            statistic = sum((count - wanted) ** 2 for count in counts) / wanted
            found.append((at, float(chdtrc(len(counts) - 2, statistic))))
    return _judged(name, found)


def is_stationary(name: str, batches: Mapping[str, Sequence[float]]) -> list[Assumption]:
    """The values of successive batches have no trend."""
    found = []
    for at, values in batches.items():
        if len(values) >= BINS_MIN and float(np.ptp(values)) > 0:
            freedom = len(values) - 2
            r2 = min(float(np.corrcoef(range(len(values)), values)[0, 1]) ** 2, 1 - 1e-15)
            found.append((at, 2 * float(stdtr(freedom, -((freedom * r2 / (1 - r2)) ** 0.5)))))
    return _judged(name, found)


def are_independent(name: str, batches: Mapping[str, Sequence[float]]) -> list[Assumption]:
    """Successive batches are not alike: else they are too short, and the interval is narrower than it should be."""
    found = []
    for at, values in batches.items():
        number, scatter = len(values), float(np.var(values))
        if number >= BINS_MIN and scatter > 0:
            around = np.asarray(values) - np.mean(values)
            alike = float(np.mean(around[:-1] * around[1:])) / scatter
            found.append((at, float(ndtr(-(alike + 1 / number) * number**0.5))))
    return _judged(name, found)


def keep_rates(name: str, rates: Iterable[tuple[str, int, float]]) -> list[Assumption]:
    """What was generated (where, how much, how much was due) is not less than chance explains."""
    found = []
    for at, count, due in rates:
        if due > 0:
            p_value = float(pdtr(count, due))
            found.append((at, p_value if count < due * (1 - SHORTFALL) else max(p_value, 0.5)))
    return _judged(name, found)


def _judged(name: str, found: list[tuple[str, float]]) -> list[Assumption]:
    return [Assumption(name, at, p_value, p_value * len(found) >= LEVEL) for at, p_value in found]

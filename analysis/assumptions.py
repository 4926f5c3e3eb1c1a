"""What the models assume, tested on the run itself: Poisson arrivals, exponential laws, stationarity, rates kept.

Tests of one kind share a level of 1%, however many there are, so that a good run is rarely warned of. Pure.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import chdtrc, pdtr, stdtr  # scipy.stats takes a second to import

LEVEL = 0.01  # how often some test of a kind fails though all is well
BINS_MIN = 10
MEAN_MIN = 0.5  # per bin; with fewer the test knows nothing
PERIODS_MIN = 50
SHORTFALL = 0.01  # of a rate, that nobody would call saturation
TESTBED = "the testbed keeps up"
SLOWER = "lower clock.speedup or the rates, or use a faster machine"
BY_CHANCE = f"repeat the run with another --seed to see whether this was chance; on a real ground {SLOWER}"
DOUBTS = {  # what is said where an assumption of this name does not hold
    "publications are Poisson": "publications at {where} do not arrive as a Poisson process, so predicted delays may"
    f" not apply; {BY_CHANCE}",
    "subscriptions arrive as a Poisson process": "subscriptions at {where} do not arrive as a Poisson process, so"
    f" predicted tables and rates may not apply; {BY_CHANCE}",
    "messages of peers are Poisson": "messages of {where} do not arrive as a Poisson process, so predicted delays may"
    f" not apply; {BY_CHANCE}",
    "ON periods are exponential": "ON periods of {where} are not exponential, so predicted delays may not apply;"
    f" {BY_CHANCE}",
    "stationary": "there is a trend in {where}, so the network was not in its steady state; use a longer clock.warmup,"
    " or a lower load if a queue keeps growing",
    "load generators keep their rates": "fewer messages than the scenario asks for were generated at {where}, so what"
    f" was measured is of a lower load; {SLOWER}",
}


@dataclass(frozen=True, slots=True)
class Assumption:
    name: str
    at: str
    p_value: float
    holds: bool

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "at": self.at, "p_value": self.p_value, "holds": self.holds}


def doubts(broken: Iterable[tuple[str, str, str]]) -> list[str]:
    """One sentence for each kind of assumption that does not hold: where, what follows, what to do.

    Given are its name, where it was tested, and at which point of a sweep (empty without one).
    """
    kinds: dict[str, list[tuple[str, str]]] = {}
    for name, at, point in broken:
        kind = re.sub(r"[\d.]+", "#", name)  # what a testbed says of itself has figures, which differ from run to run
        kinds.setdefault(kind, []).append((name, f"{at} at {point}" if point else at))
    return [_doubt(its[0][0], [where for _, where in its]) for its in kinds.values()]


def _doubt(name: str, places: list[str]) -> str:
    where = places[0] if len(places) == 1 else f"{places[0]} and {len(places) - 1} more"
    if name.startswith(TESTBED):  # a whole sentence follows
        return f"{name.removeprefix(f'{TESTBED} (').removesuffix(')')} (on {where})"
    if name not in DOUBTS:  # an analysis of another version
        return f"the run speaks against an assumption at {where} ({name}); analyse it again"
    return DOUBTS[name].format(where=where)


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


def judged_together(found: Sequence[Assumption]) -> list[Assumption]:
    """Tests of one kind that were made on several runs share the level, too."""
    tests = Counter(it.name for it in found)
    return [replace(it, holds=it.p_value * tests[it.name] >= LEVEL) for it in found]

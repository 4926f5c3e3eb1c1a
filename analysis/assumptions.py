"""Statistical tests of the models' assumptions on a run: Poisson arrivals, exponential laws, stationarity, load.

All tests of one kind share a significance level of 1%, so a run without problems rarely causes a warning. Pure.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import chdtrc, pdtr, stdtr  # scipy.stats takes a second to import

LEVEL = 0.01  # the probability that any test of one kind fails by chance
BINS_MIN = 10
MEAN_MIN = 0.5  # events per bin; the test has no power with fewer
PERIODS_MIN = 50
SHORTFALL = 0.01  # of a rate; a smaller shortfall is not saturation
TESTBED = "the testbed keeps up"
SLOWER = "lower clock.speedup or the rates, or use a faster machine"
BY_CHANCE = f"repeat the run with another --seed to see whether this was chance; on a real ground {SLOWER}"
DOUBTS = {  # the warning for each assumption that does not hold
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
    "load generators keep their rates": "fewer messages than the scenario asks for were generated at {where}, so the"
    f" measurement is of a lower load; {SLOWER}",
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
    """One sentence for each kind of assumption that does not hold: where it fails, what follows, and what to do.

    The arguments are the name of the assumption, where it was tested, and the point of a sweep (empty without one).
    """
    kinds: dict[str, list[tuple[str, str]]] = {}
    for name, at, point in broken:
        kind = re.sub(r"[\d.]+", "#", name)  # the warnings of a testbed contain numbers that differ from run to run
        kinds.setdefault(kind, []).append((name, f"{at} at {point}" if point else at))
    return [_doubt(tests[0][0], [where for _, where in tests]) for tests in kinds.values()]


def _doubt(name: str, places: list[str]) -> str:
    where = places[0] if len(places) == 1 else f"{places[0]} and {len(places) - 1} more"
    if name.startswith(TESTBED):  # the name contains a whole sentence
        return f"{name.removeprefix(f'{TESTBED} (').removesuffix(')')} (on {where})"
    if name not in DOUBTS:  # the analysis was made by another version
        return f"an assumption does not hold at {where} ({name}); analyse the run again"
    return DOUBTS[name].format(where=where)


def are_poisson(
    name: str, counts: Mapping[str, Sequence[int]], bins: int, weights: Sequence[float] = ()
) -> list[Assumption]:
    """Tests by the index of dispersion that counts in bins of equal length are neither bursty nor too even.

    If rates vary, `weights` are proportional to the counts that are expected in the bins.
    """
    p_values = []
    for at, bin_counts in sorted(counts.items()):
        mean = sum(bin_counts) / bins if bins else 0.0
        if bins < BINS_MIN or mean < MEAN_MIN:
            continue
        if weights:
            merged = _merged(bin_counts, weights)
            freedom, statistic = len(merged) - 1, sum((count - wanted) ** 2 / wanted for count, wanted in merged)
        else:
            freedom = bins - 1
            statistic = (sum(count * count for count in bin_counts) - bins * mean * mean) / mean
        above = float(chdtrc(freedom, statistic))
        p_values.append((at, 2 * min(above, 1 - above)))
    return _judged(name, p_values)


def _merged(counts: Sequence[int], weights: Sequence[float]) -> list[tuple[int, float]]:
    """Counts and expected counts; neighbouring bins are merged while too little is expected in them."""
    scale = sum(counts) / sum(weights)
    merged, count, wanted = list[tuple[int, float]](), 0, 0.0
    for bin_count, weight in zip(counts, weights, strict=True):
        count, wanted = count + bin_count, wanted + scale * weight
        if wanted >= MEAN_MIN:
            merged.append((count, wanted))
            count, wanted = 0, 0.0
    last_count, last_wanted = merged.pop()
    return [*merged, (last_count + count, last_wanted + wanted)]


def are_exponential(name: str, tenths: Mapping[str, Sequence[int]]) -> list[Assumption]:
    """Tests that periods fill equally likely bins equally. The mean was estimated from the same periods."""
    p_values = []
    for at, counts in sorted(tenths.items()):
        if sum(counts) >= PERIODS_MIN:
            wanted = sum(counts) / len(counts)
            statistic = sum((count - wanted) ** 2 for count in counts) / wanted
            p_values.append((at, float(chdtrc(len(counts) - 2, statistic))))
    return _judged(name, p_values)


def is_stationary(name: str, batches: Mapping[str, Sequence[float]]) -> list[Assumption]:
    """Tests that the values of successive batches have no linear trend."""
    p_values = []
    for at, values in batches.items():
        if len(values) >= BINS_MIN and float(np.ptp(values)) > 0:
            freedom = len(values) - 2
            r2 = min(float(np.corrcoef(range(len(values)), values)[0, 1]) ** 2, 1 - 1e-15)
            p_values.append((at, 2 * float(stdtr(freedom, -((freedom * r2 / (1 - r2)) ** 0.5)))))
    return _judged(name, p_values)


def keep_rates(name: str, rates: Iterable[tuple[str, int, float]]) -> list[Assumption]:
    """Tests that no fewer events were generated than chance explains; `rates` has place, count, and expected count."""
    p_values = []
    for at, count, due in rates:
        if due > 0:
            p_value = float(pdtr(count, due))
            p_values.append((at, p_value if count < due * (1 - SHORTFALL) else max(p_value, 0.5)))
    return _judged(name, p_values)


def _judged(name: str, p_values: list[tuple[str, float]]) -> list[Assumption]:
    return [Assumption(name, at, p_value, p_value * len(p_values) >= LEVEL) for at, p_value in p_values]


def judged_together(assumptions: Sequence[Assumption]) -> list[Assumption]:
    """Tests of one kind share the significance level across several runs, too."""
    tests_by_name = Counter(assumption.name for assumption in assumptions)
    return [
        replace(assumption, holds=assumption.p_value * tests_by_name[assumption.name] >= LEVEL)
        for assumption in assumptions
    ]

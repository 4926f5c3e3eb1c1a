"""Workloads that vary over time: their generators, and runs beside predictions."""

import math
import statistics
from collections.abc import Callable
from itertools import takewhile

import numpy as np
import pytest
from numpy.typing import NDArray

from brokerbed.broker.values import NS_PER_S
from brokerbed.clients.workload import Share, arrivals, churn, stream
from brokerbed.scenario import Law
from brokerbed.scenario.profile import Factor, Sine, Steps

PERIOD_S = 20
SINE = Sine(PERIOD_S * NS_PER_S, 0.9)
STEPS = Steps(PERIOD_S * NS_PER_S, (2 * NS_PER_S, 12 * NS_PER_S), (0.0, 3.0))
SIGMA = math.sqrt(math.log(2))  # of a lognormal law with a coefficient of variation of 1
SURVIVAL: dict[
    str, Callable[[NDArray[np.float64]], NDArray[np.float64]]
] = {  # the probability that a lifetime with a mean of 6 s is longer than x seconds
    "exponential": lambda x: np.exp(-x / 6),
    "deterministic": lambda x: (x < 6).astype(float),
    "uniform": lambda x: np.clip(1 - x / 12, 0, 1),
    "lognormal": lambda x: np.array([math.erfc((math.log(v / 6) / SIGMA + SIGMA / 2) / 2**0.5) / 2 for v in x]),
}


def expected_active(law: str, profile: Factor, time_s: float, rate_per_s: float) -> float:
    """The integral over the past of the rate at which those arrived who are still there, as a sum of small slices."""
    ages = np.arange(0.005, 200, 0.01)
    factors = np.array([profile.at((time_s - age) * NS_PER_S) for age in ages])
    return rate_per_s * float((SURVIVAL[law](ages) * factors).sum()) * 0.01


@pytest.mark.parametrize("profile", [SINE, STEPS], ids=["sine", "steps"])
@pytest.mark.parametrize("law", SURVIVAL)
def test_population_is_in_its_periodic_state_from_the_beginning(law: str, profile: Factor) -> None:
    """The number of subscriptions is a Poisson number at every moment, also at time zero, for any law of lifetimes."""
    lifetime = Law(mean="6s", law=law)
    counts: dict[int, list[int]] = {second: [] for second in (0, 1, 5, 13, 20, 25)}
    for seed in range(400):
        generated = churn([Share(0.3, range(10), lifetime)], stream(seed, "profile"), profile)
        changes = list(takewhile(lambda it: it.time_ns <= 25 * NS_PER_S, generated))
        for second, found in counts.items():
            found.append(sum(1 if it.is_subscribed else -1 for it in changes if it.time_ns <= second * NS_PER_S))
    for second, found in counts.items():
        expected = expected_active(law, profile, second, 3.0)
        assert statistics.fmean(found) == pytest.approx(expected, abs=4 * (expected / 400) ** 0.5), second
        assert statistics.variance(found) == pytest.approx(expected, rel=0.35), second


@pytest.mark.parametrize("profile", [SINE, STEPS], ids=["sine", "steps"])
def test_arrivals_follow_the_profile(profile: Factor) -> None:
    """Counts per second of the period are independent Poisson numbers around the rate at that time."""
    periods, rate_per_s = 400, 2.0
    counts = np.zeros((periods, PERIOD_S))
    times = arrivals([rate_per_s / 2, rate_per_s / 2], stream(5, "arrivals"), profile)
    for time_ns, _ in takewhile(lambda it: it[0] < periods * PERIOD_S * NS_PER_S, times):
        counts[time_ns // NS_PER_S // PERIOD_S, time_ns // NS_PER_S % PERIOD_S] += 1
    for second in range(PERIOD_S):
        slices = [profile.at((second + part / 100) * NS_PER_S) for part in range(100)]
        expected = rate_per_s * statistics.fmean(slices)
        assert counts[:, second].mean() == pytest.approx(expected, abs=4 * (expected / periods) ** 0.5), second
        assert counts[:, second].var() == pytest.approx(expected, rel=0.35, abs=1e-9), second


def test_arrivals_without_a_profile_are_those_of_a_constant_one() -> None:
    """A rate that does not vary is drawn as before there were profiles: these values are of that time."""
    first = [time_ns for (time_ns, _), _ in zip(arrivals([2.0], stream(1, "x")), range(3), strict=False)]
    draws, time, expected = stream(1, "x"), 0.0, []
    for _ in range(3):
        time += draws.expovariate(2e-9)
        expected.append(round(time))
    assert first == expected

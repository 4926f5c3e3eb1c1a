"""The audit of assumptions: what is as the models assume passes, what is not is told, and false alarms are rare."""

import numpy as np
import pytest

from brokerbed.analysis.assumptions import (
    Assumption,
    are_exponential,
    are_poisson,
    is_stationary,
    judged_together,
    keep_rates,
)

BINS = 100
SEEDS = 1000
FALSE_ALARMS = range(3, 22)  # of 1000 at a level of 1%: 10, give or take 3.5 standard deviations


def tenths(periods: np.ndarray) -> list[int]:
    """How many periods are in each tenth of the exponential law with their mean."""
    places = np.minimum((10 * (1 - np.exp(-periods / periods.mean()))).astype(int), 9)
    return [int(it) for it in np.bincount(places, minlength=10)]


def only(found: list[Assumption]) -> Assumption:
    (it,) = found
    return it


def test_poisson_counts_pass() -> None:
    rng = np.random.default_rng(1)
    for mean in (0.6, 3, 200):
        found = are_poisson("x", {f"b{it}": rng.poisson(mean, BINS).tolist() for it in range(5)}, BINS)
        assert [it.at for it in found] == ["b0", "b1", "b2", "b3", "b4"]
        assert all(it.holds for it in found)


@pytest.mark.parametrize(
    "counts",
    [
        [5] * BINS,  # clockwork
        [5, 6] * (BINS // 2),  # nearly so
        [0, 0, 0, 0, 25] * (BINS // 5),  # bursts
        [5] * (BINS // 2) + [15] * (BINS // 2),  # two rates
    ],
)
def test_clockwork_and_bursts_fail(counts: list[int]) -> None:
    it = only(are_poisson("publications are Poisson", {"b3": counts}, BINS))
    assert (it.name, it.at, it.holds) == ("publications are Poisson", "b3", False)
    assert it.p_value < 1e-6


def test_bins_in_which_nothing_came_count() -> None:
    """Only bins with something in them are given; that 80 of 100 had nothing makes it bursts."""
    assert not only(are_poisson("x", {"b0": [5] * 20}, BINS)).holds


def test_dispersion_by_hand() -> None:
    """Counts 1 and 3 in turn, 10 bins: mean 2, sum of squares of deviations 10, index 10 / 2 = 5 on 9 degrees.

    chi-square below 5 on 9 degrees has probability 0.1657, so the two-sided p-value is 0.3314.
    """
    assert only(are_poisson("x", {"b0": [1, 3] * 5}, 10)).p_value == pytest.approx(0.3314, abs=1e-4)


@pytest.mark.parametrize("bins", [0, 9])
def test_few_bins_or_few_arrivals_tell_nothing(bins: int) -> None:
    assert are_poisson("x", {"b0": [5] * bins}, bins) == []
    assert are_poisson("x", {"b0": [1] * 49}, BINS) == []


def test_exponential_periods_pass_and_others_fail() -> None:
    rng = np.random.default_rng(2)
    laws = {
        "exponential": rng.exponential(7.0, 2000),
        "deterministic": np.full(2000, 7.0),
        "uniform": rng.uniform(0, 14, 2000),
        "lognormal": rng.lognormal(0, 1.3, 2000),
    }
    found = are_exponential("x", {name: tenths(periods) for name, periods in laws.items()})
    assert [it.at for it in found if it.holds] == ["exponential"]
    assert are_exponential("x", {"few": tenths(rng.exponential(7.0, 49))}) == []


def test_trend_fails_and_noise_passes() -> None:
    noise = np.random.default_rng(3).normal(100, 5, 20)
    found = is_stationary("x", {"flat": noise.tolist(), "grows": (noise + 3 * np.arange(20)).tolist()})
    assert [(it.at, it.holds) for it in found] == [("flat", True), ("grows", False)]
    assert is_stationary("x", {"constant": [1.0] * 20, "short": [1.0, 2.0, 3.0]}) == []


@pytest.mark.parametrize(
    ("count", "due", "holds"),
    [
        (10_000, 10_000.0, True),
        (9_910, 10_000.0, True),  # 0.9% less is no saturation, were it ever so sure
        (999_000, 1_000_000.0, True),
        (9_700, 10_000.0, False),  # three standard deviations below
        (85, 100.0, True),  # chance
        (60, 100.0, False),
        (0, 20.0, False),
        (10_600, 10_000.0, True),  # more is another matter
    ],
)
def test_shortfall(count: int, due: float, holds: bool) -> None:
    assert only(keep_rates("x", [("b0", count, due)])).holds is holds


def test_tests_of_several_runs_share_the_level() -> None:
    """Alone, .006 is below the level of 1%; one of three tests of a kind fails below .0033."""
    alone = [Assumption("x", "b0", 0.006, False), Assumption("y", "b0", 0.006, False)]
    assert judged_together(alone) == alone
    both = judged_together([*alone, Assumption("x", "b1", 0.9, True), Assumption("x", "b2", 0.003, False)])
    assert [(it.name, it.at) for it in both if not it.holds] == [("y", "b0"), ("x", "b2")]


def test_nothing_is_due() -> None:
    assert keep_rates("x", [("b0", 0, 0.0)]) == []


@pytest.mark.parametrize("places", [1, 3])
def test_false_alarms_are_one_in_a_hundred(places: int) -> None:
    """However many places are tested: they share the level."""
    rng = np.random.default_rng(4)
    alarms = dict.fromkeys(("poisson", "exponential", "trend"), 0)
    names = [f"b{it}" for it in range(places)]
    for _ in range(SEEDS):
        found = {
            "poisson": are_poisson("x", {it: rng.poisson(5, BINS).tolist() for it in names}, BINS),
            "exponential": are_exponential("x", {it: tenths(rng.exponential(1, 500)) for it in names}),
            "trend": is_stationary("x", {it: rng.normal(1, 1, 20).tolist() for it in names}),
        }
        for kind, its in found.items():
            assert len(its) == places
            alarms[kind] += any(not it.holds for it in its)
    assert all(it in FALSE_ALARMS for it in alarms.values()), alarms

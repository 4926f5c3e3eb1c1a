"""Whether a row is better, the same or worse: by hand, and by how often drawn gates are wrong."""

from collections.abc import Callable

import numpy as np
import pytest

from brokerbed.analysis.batches import Batches
from brokerbed.analysis.changes import (
    BETTER,
    CANNOT_TELL,
    NOT_WORSE,
    SAME,
    WORSE,
    Change,
    Comparison,
    holm,
    judged,
)
from brokerbed.metrics import (
    CONTROL_MESSAGES,
    DELAY_QUANTILES,
    DELIVERED_MESSAGES,
    DELIVERY_RATIO,
    END_TO_END_DELAY,
    Metric,
)
from tests.unit.analysis import gated
from tests.unit.analysis.gated import batches, grown, others

GATES = 200


def level(p_value: float) -> Callable[[float], bool]:
    return lambda alpha: p_value <= alpha


@pytest.mark.parametrize(
    ("p_values", "rejected"),
    [
        ([0.001, 0.02, 0.011, 0.03], [True, False, False, False]),  # 0.025/4, then 0.011 > 0.025/3
        ([0.006, 0.008, 0.012, 0.02], [True, True, True, True]),  # 0.025/4, 0.025/3, 0.025/2, 0.025
        ([0.02, 0.0063], [True, True]),  # 0.025/2, then 0.025
        ([0.02, 0.0127], [False, False]),
        ([], []),
    ],
)
def test_holm_steps_down(p_values: list[float], rejected: list[bool]) -> None:
    assert holm([level(p_value) for p_value in p_values]) == rejected


def noise(mean: float, spread: float, seed: int) -> Batches:
    x = mean + spread * np.random.default_rng(seed).normal(size=(1, 64))
    x += mean - x.mean()
    return batches(x, np.ones((1, 64)), seed)


def change(metric: Metric, base: Batches, new: Batches, margin: float = 0.02) -> Change:
    comparison = Comparison(metric, base, new, margin)
    return comparison.change(judged([comparison])[0])


@pytest.mark.parametrize(
    ("metric", "factor", "verdict"),
    [
        (END_TO_END_DELAY, 1.1, WORSE),
        (END_TO_END_DELAY, 0.9, BETTER),
        (END_TO_END_DELAY, 1.005, SAME),
        (DELIVERED_MESSAGES, 1.1, BETTER),
        (DELIVERED_MESSAGES, 0.9, WORSE),
        (DELIVERED_MESSAGES, 0.995, SAME),
    ],
)
def test_direction_is_that_of_the_metric(metric: Metric, factor: float, verdict: str) -> None:
    base = noise(100, 1, 1)
    assert change(metric, base, grown([noise(100, 1, 2)], factor)[0]).verdict == verdict


def test_interval_of_the_change_is_that_of_a_ratio_of_two_means() -> None:
    """Two means of 64 independent values with a coefficient of variation of 20%: 2 sqrt(2/64) 20%, as in textbooks."""
    found = change(END_TO_END_DELAY, noise(100, 20, 3), noise(100, 20, 4))
    assert found.change == pytest.approx(0, abs=1e-9)
    assert found.ci_low is not None
    assert found.ci_high is not None
    assert (found.ci_high - found.ci_low) / 2 == pytest.approx(2 * 0.2 * (2 / 64) ** 0.5, rel=0.35)
    assert found.verdict == CANNOT_TELL
    assert found.longer == pytest.approx((found.ci_high / 0.02) ** 2)


def test_change_that_may_be_the_same_or_better_is_not_worse() -> None:
    found = change(END_TO_END_DELAY, noise(100, 3, 5), grown([noise(100, 3, 6)], 0.98)[0])
    assert found.verdict == NOT_WORSE
    assert found.ci_low is not None
    assert found.ci_high is not None
    assert found.ci_low < -0.02 < found.ci_high < 0.02


def test_runs_with_the_same_seed_are_compared_batch_by_batch() -> None:
    base = noise(100, 50, 7)
    shifted = Batches(base.series, base.x + 10, base.n, base.value + 10)
    assert change(END_TO_END_DELAY, base, base).verdict == SAME
    assert change(END_TO_END_DELAY, base, shifted).verdict == WORSE
    assert change(END_TO_END_DELAY, base, others([shifted], 8)[0]).verdict == CANNOT_TELL


def counted(number: int, seed: int = 0) -> Batches:
    x = np.bincount(np.arange(number) * 64 // max(number, 1), minlength=64).astype(float)
    return batches(x[None], np.ones((1, 64)), seed)


@pytest.mark.parametrize(
    ("base", "new", "verdict"),
    [(0, 0, SAME), (0, 1, CANNOT_TELL), (0, 100, WORSE), (5, 5, CANNOT_TELL), (5, 50, WORSE), (50, 0, BETTER)],
)
def test_few_events_have_the_limits_of_a_poisson_process(base: int, new: int, verdict: str) -> None:
    found = change(CONTROL_MESSAGES, counted(base), counted(new))
    assert found.verdict == verdict
    assert (found.change is None) == (base == 0 and new > 0)


@pytest.mark.parametrize(("lost", "verdict"), [(0, SAME), (10, SAME), (600, WORSE)])
def test_loss_is_judged_by_what_is_lost(lost: int, verdict: str) -> None:
    """Of 6400 messages: up to 10 are 0.16%, well within 2%; 600 are 9%."""
    n = np.full((1, 64), 100.0)
    gone = counted(lost).x
    found = change(DELIVERY_RATIO, batches(n, n), batches(n - gone, n, 1))
    assert found.verdict == verdict


def test_quantile_without_enough_observations_beyond_it_cannot_be_told() -> None:
    """16 sections of 100 observations: one of each is beyond the 99% quantile, and five are beyond that of 95%."""
    _, p95, p99 = DELAY_QUANTILES
    x = 100 + np.random.default_rng(1).normal(size=(1, 16))
    sections = Batches(((0, -1),), x * 100, np.full((1, 16), 100.0), 100.0)
    assert change(p95, sections, sections).verdict == SAME
    found = change(p99, sections, sections)
    assert (found.verdict, found.ci_low, found.longer) == (CANNOT_TELL, None, 2.0)


def test_a_row_of_one_run_only_cannot_be_told() -> None:
    assert judged([None]) == [CANNOT_TELL]


@pytest.mark.parametrize("is_paired", [False, True], ids=["independent", "batch by batch"])
@pytest.mark.parametrize("rows", [gated.ALL_KINDS, gated.WIDE], ids=str)
def test_gates_raise_few_false_alarms(rows: gated.Rows, is_paired: bool) -> None:
    assert gated.alarms(rows, GATES, is_paired) <= gated.ALARMS_MAX


def test_gates_find_a_change_of_five_percent() -> None:
    for metric, share in gated.found(gated.EXACT, GATES).items():
        assert share >= gated.POWER_MIN, metric

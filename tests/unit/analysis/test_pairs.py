"""Differences between two variants with the same random numbers, from counts whose scatter is known."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from brokerbed.analysis.estimates import limits_of_difference, rates
from brokerbed.analysis.pairs import Difference, Variant, differences
from brokerbed.analysis.verdicts import Compared
from brokerbed.analysis.windows import BATCHES

BATCH_S = 10.0
CELL = ["run", "metric", "first", "second", "copy", "batch", "x", "n"]


def variant(first_run: int, counts: np.ndarray) -> Variant:
    """A variant whose notifications have these counts, by run and batch."""
    runs = range(first_run, first_run + len(counts))
    cells = [
        {"run": run, "metric": "rate.notifications", "first": "", "second": "", "copy": -1, "batch": batch, "x": x,
         "n": BATCH_S}
        for run, of_run in zip(runs, counts, strict=True)
        for batch, x in enumerate(of_run)
        if x
    ]  # fmt: skip
    value, low, high = (float(each[0]) for each in rates(counts[None], np.full((1, *counts.shape), BATCH_S)))
    row = Compared("rate.notifications", {}, "1/s", True, None, value, low, high, None, None)
    return Variant([row], pd.DataFrame(cells, columns=CELL), {run: np.full(counts.shape[1], BATCH_S) for run in runs})


def difference(first: np.ndarray, second: np.ndarray) -> Difference:
    (found,) = differences(variant(0, first), variant(len(first), second), 1, None)
    return found


@pytest.fixture
def drawn() -> Callable[[float], np.ndarray]:
    rng = np.random.default_rng(5)
    return lambda mean: rng.poisson(mean, (1, BATCHES)).astype(float)


def test_intervals_of_differences_hold_the_true_difference_and_are_as_much_shorter_as_the_counts_have_in_common(
    drawn: Callable[[float], np.ndarray],
) -> None:
    """Counts of 90 in common and 10, or 12, of their own: 202 is the variance of independent differences, 22 of these."""
    found = []
    for _ in range(400):
        common = drawn(90.0)
        found.append(difference(common + drawn(10.0), common + drawn(12.0)))
    held = [it.paired is not None and it.paired[0] <= 0.2 <= it.paired[1] for it in found]
    assert 0.92 <= np.mean(held) <= 0.98
    times = [it.times_shorter for it in found if it.times_shorter is not None]
    assert np.median(times) == pytest.approx(202 / 22, rel=0.05)
    assert np.mean([bool(it.is_shown) for it in found]) > 0.8  # 0.2 +- 0.059 is 3.4 standard deviations
    assert np.mean([it.unpaired is not None and it.unpaired[0] > 0 for it in found]) < 0.5


def test_variants_that_do_not_differ_have_no_difference(drawn: Callable[[float], np.ndarray]) -> None:
    counts = drawn(100.0)
    found = difference(counts, counts)
    assert (found.value, found.paired, found.is_shown, found.times_shorter) == (0.0, (0.0, 0.0), False, None)
    rounded = difference(counts, counts * (1 + 1e-15))  # the same sums, added up in another order
    assert (rounded.paired, rounded.is_shown, rounded.times_shorter) == ((0.0, 0.0), False, None)


def test_runs_with_several_seeds_are_paired_seed_by_seed(drawn: Callable[[float], np.ndarray]) -> None:
    counts = np.concatenate([drawn(50.0), drawn(100.0), drawn(200.0)])
    found = difference(counts, counts + 1)
    assert found.paired == pytest.approx((0.1, 0.1))
    turned = difference(counts, counts[::-1] + 1)
    assert turned.paired is None or turned.paired[1] - turned.paired[0] > 0.1


def test_few_events_have_the_limits_of_independent_counts() -> None:
    few = np.zeros((1, BATCHES))
    few[0, 5] = 3.0
    found = difference(np.zeros((1, BATCHES)), few)
    assert found.paired == found.unpaired
    assert found.is_shown is False  # 3 and 0 events do not differ


def test_interval_of_independent_values() -> None:
    assert limits_of_difference((10.0, 7.0, 13.0), (20.0, 16.0, 24.0)) == pytest.approx((5.0, 15.0))  # 3 and 4 make 5

"""MSER-5 on series whose transient is known."""

import numpy as np
import pytest

from brokerbed.analysis.estimates import Numbers
from brokerbed.analysis.transient import transient_end

LENGTH = 1000


def noise(seed: int = 1) -> Numbers:
    return np.random.default_rng(seed).normal(10, 1, LENGTH)


def end_of(series: Numbers) -> int | None:
    return transient_end(series, np.ones_like(series))


def test_exponential_approach_is_cut_where_it_is_below_the_noise() -> None:
    """20 exp(-t / 30) is 20% of the noise at t = 138 and less than 1% at t = 300."""
    series = noise() + 20 * np.exp(-np.arange(LENGTH) / 30)
    end = end_of(series)
    assert end is not None
    assert 75 <= end <= 300
    assert series[end:].mean() == pytest.approx(10, abs=0.15)


def test_step_is_cut_at_its_end() -> None:
    assert end_of(np.where(np.arange(LENGTH) < 200, 15.0, 0.0) + noise()) == 200


def test_stationary_series_is_hardly_cut() -> None:
    ends = [end_of(noise(seed)) for seed in range(20)]
    assert np.median([LENGTH if end is None else end for end in ends]) <= LENGTH / 5


def test_trend_until_the_end_has_no_end() -> None:
    assert end_of(noise() + np.arange(LENGTH) / 10) is None


def test_series_without_observations_has_no_transient() -> None:
    assert transient_end(np.zeros(LENGTH), np.zeros(LENGTH)) == 0

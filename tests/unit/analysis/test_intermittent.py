"""The ON/OFF centre against the literature's values, textbook special cases and a simulation with other laws."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from brokerbed.analysis.models.intermittent import Centre


def exponential(demand_s: float, on_s: float = 1.0, off_s: float = 0.0) -> Centre:
    return Centre(demand_s, 2 * demand_s**2, on_s, off_s, 2 * off_s**2)


@pytest.mark.parametrize(
    ("centre", "rate", "response_s", "digits"),
    [
        (exponential(0.125, 20, 20), 0.05, 10.38, 2),
        (exponential(0.125, 20, 20), 1, 13.67, 2),
        (exponential(0.125, 20, 20), 2, 20.5, 2),
        (exponential(0.125, 20, 20), 3, 41.0, 2),
        (exponential(0.125, 20, 20), 3.5, 82.0, 2),
        (exponential(0.125, 146.38, 96), 1, 48.21, 2),
        (exponential(0.125, 146.38, 96), 3, 100.85, 2),
        (exponential(0.0625, 146.38, 96), 7, 138.35, 2),
        (exponential(0.125, 155.88, 72.15), 1, 28.16, 2),
        (exponential(0.125, 155.88, 72.15), 3, 50.97, 2),
    ],
)
def test_response_reference_values(centre: Centre, rate: float, response_s: float, digits: int) -> None:
    assert round(float(centre.response_s(rate)), digits) == response_s


def test_response_mm1() -> None:
    assert float(exponential(0.0625).response_s(8)) == pytest.approx(0.0625 / (1 - 0.5))


def test_response_md1_is_half_the_wait_of_mm1() -> None:
    deterministic = Centre(0.1, 0.01)
    wait = float(deterministic.response_s(5)) - 0.1
    assert wait == pytest.approx((float(exponential(0.1).response_s(5)) - 0.1) / 2)


def test_response_without_demand_is_the_wait_for_the_server() -> None:
    assert float(Centre().response_s(1000)) == 0
    assert float(exponential(0, 20, 20).response_s(1000)) == pytest.approx(10)  # half the time away, for 20 s more


def test_response_fixed_off_periods_about_halve_it() -> None:
    fixed = Centre(0.125, 2 * 0.125**2, 20, 20, 400)
    assert 0.45 < float(fixed.response_s(1)) / float(exponential(0.125, 20, 20).response_s(1)) < 0.55


def test_response_unstable_is_nan_never_negative() -> None:
    responses = exponential(0.125, 20, 20).response_s(np.array([3.999, 4.0, 4.001, 100.0]))
    assert np.isnan(responses).tolist() == [False, True, True, True]
    assert (responses[:1] > 0).all()


def test_utilisation() -> None:
    assert exponential(0.125, 20, 20).utilisation(3) == pytest.approx(0.75)
    assert exponential(0.0625, 30, 900).utilisation(0.5) == pytest.approx(0.96875)  # "load .969" of the voluntary rows


@pytest.mark.parametrize("centre", [exponential(0.125), exponential(0.125, 20, 20), exponential(0.05, 3, 1)])
def test_effective_demand_alone_equals_demand_among_others(centre: Centre) -> None:
    """Eq. 15: R(l_ps, D_eff) = R(l_ps + l_oth, D)."""
    effective = float(centre.effective_demand_s(1.0, 1.5))
    alone = exponential(effective, centre.on_s, centre.off_s)
    assert float(alone.response_s(1.0)) == pytest.approx(float(centre.response_s(2.5)))


def test_effective_demand_mm1_eq_16() -> None:
    assert float(exponential(0.125).effective_demand_s(1, 4)) == pytest.approx(0.125 / (1 - 4 * 0.125))
    assert float(exponential(0.125, 20, 20).effective_demand_s(1, 0)) == pytest.approx(0.125)


@pytest.mark.parametrize(
    ("centre", "rate", "response_s"),
    [
        (exponential(0.3), 1.0, 0.428571429),
        (exponential(0.25), 2.0, 0.5),
        (Centre(0.4, 0.4**2 * 1.5), 1.0, 0.6),  # Erlang with two phases
        (Centre(0.2, 0.2**2 * 1.25), 2.0, 0.283333333),  # Erlang with four
        (exponential(0.0625, 1.0, 1.0), 2.0, 0.83333),
        (exponential(0.2, 2.0, 1.0), 1.0, 0.904762),
        (exponential(0.25, 1.0, 2.0), 0.5, 3.333332),
    ],
)
def test_response_agrees_with_the_line_solver(centre: Centre, rate: float, response_s: float) -> None:
    """Values of LINE 3.0.8, which solves the Markov chains: `line_oracle.py`."""
    assert float(centre.response_s(rate)) == pytest.approx(response_s, rel=1e-5)


def simulated(arrivals: int, rate: float, on_s: float, service: Callable[[], float], off: Callable[[], float]) -> float:
    """Mean response of a queue with preemptive resume: each arrival in turn, on an axis of ON and OFF periods."""
    draw = random.Random(7)
    now = free_at = 0.0
    on_until = draw.expovariate(1 / on_s)
    total = 0.0
    for _ in range(arrivals):
        now += draw.expovariate(rate)
        at = max(now, free_at)
        left = service()
        while True:
            if at < on_until:
                if at + left <= on_until:
                    at += left
                    break
                left -= on_until - at
            back_at = on_until + off()
            on_until, at = back_at + draw.expovariate(1 / on_s), max(at, back_at)
        free_at = at
        total += at - now
    return total / arrivals


@pytest.mark.parametrize("law", ["exponential", "uniform service, fixed OFF", "fixed service, uniform OFF"])
def test_response_against_simulation(law: str) -> None:
    draw = random.Random(11)
    demand_s, on_s, off_s, rate = 0.2, 2.0, 1.0, 2.0  # load 0.6
    laws: dict[str, tuple[Callable[[], float], Callable[[], float], float, float]] = {
        "exponential": (lambda: draw.expovariate(5), lambda: draw.expovariate(1), 2.0, 2.0),
        "uniform service, fixed OFF": (lambda: draw.uniform(0, 0.4), lambda: 1.0, 4 / 3, 1.0),
        "fixed service, uniform OFF": (lambda: 0.2, lambda: draw.uniform(0, 2), 1.0, 4 / 3),
    }
    service, off, service_factor, off_factor = laws[law]
    centre = Centre(demand_s, service_factor * demand_s**2, on_s, off_s, off_factor * off_s**2)
    measured = simulated(300_000, rate, on_s, service, off)
    assert float(centre.response_s(rate)) == pytest.approx(measured, rel=0.03)

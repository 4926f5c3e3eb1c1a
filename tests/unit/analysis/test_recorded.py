"""Queues with recorded periods: against other methods, other implementations, and closed forms."""

import csv
import runpy
from pathlib import Path

import numpy as np
import pytest

from brokerbed.analysis.models.intermittent import Centre
from brokerbed.analysis.models.permuted import permuted
from brokerbed.analysis.models.recorded import RecordedCentre, extrapolated
from tests.unit.analysis.recorded_truth import mean_delay_s, shuffled

ROOT = Path(__file__).parents[3]
METRO = ROOT.parent / "shared" / "traces"
COMMUTE = ROOT / "scenarios" / "bouloukakis2017" / "commute.csv"
needs_metro = pytest.mark.skipif(
    not METRO.is_dir(), reason="the recorded traces of the metro are not beside the repository (shared/traces)"
)


def centre_of(file: Path, demand_s: float) -> RecordedCentre:
    with file.open() as lines:
        rows = list(csv.reader(lines))[1:]
    return RecordedCentre(tuple((float(on), float(off)) for on, off in rows), demand_s)


def by_uniformisation(centre: RecordedCentre, rate: float, states: int) -> float:
    """The queue of a short trace: powers of the chain's matrix for each period, and the eigenvector of one pass.

    The time average comes from sojourn times: uniformised steps of which all are equally long on average.
    """
    served = 1 / centre.demand_s
    speed = rate + served
    up, down = np.eye(states, k=1), np.eye(states, k=-1)
    up[-1, -1] = down[0, 0] = 1.0
    step_on, step_off = (rate * up + served * down) / speed, (rate * up + served * np.eye(states)) / speed

    def over(step: np.ndarray, seconds: float) -> tuple[np.ndarray, np.ndarray]:
        """The transition matrix of this time, and the times spent in states, by the state before."""
        matrix, spent, power = np.zeros((states, states)), np.zeros((states, states)), np.eye(states)
        weight, left = np.exp(-speed * seconds), 1 - np.exp(-speed * seconds)
        for number in range(1, int(speed * seconds + 12 * (speed * seconds) ** 0.5) + 20):
            matrix += weight * power
            spent += left / speed * power
            power = power @ step
            weight *= speed * seconds / number
            left -= weight
        return matrix, spent

    periods = [over(step, t) for pair in centre.cycles_s for step, t in zip((step_on, step_off), pair, strict=True)]
    whole = np.linalg.multi_dot([matrix for matrix, _ in periods]) if len(periods) > 1 else periods[0][0]
    values, vectors = np.linalg.eig(whole.T)
    state = np.real(vectors[:, np.argmax(np.real(values))])
    state /= state.sum()
    area = 0.0
    for matrix, spent in periods:
        area += float(state @ spent @ np.arange(states))
        state = state @ matrix
    return area / centre.pass_s / rate


@pytest.mark.parametrize(
    ("cycles", "rate", "demand_s"),
    [
        (((3.0, 2.0),), 1.0, 0.25),
        (((1.0, 4.0), (6.0, 1.0), (2.0, 0.5)), 1.5, 0.3),
        (((0.2, 0.1), (5.0, 6.0)), 2.0, 0.2),
    ],
)
def test_recorded_order_is_that_of_uniformisation(
    cycles: tuple[tuple[float, float], ...], rate: float, demand_s: float
) -> None:
    centre = RecordedCentre(cycles, demand_s)
    assert centre.response_s(rate) == pytest.approx(by_uniformisation(centre, rate, 120), rel=1e-5)


def test_exponential_periods_have_the_delay_of_the_paper() -> None:
    """A long trace of exponential periods, 20 s each, D = .125 s: 13.67 s at rate 1; 1500 cycles give an error of 6%."""
    draws = np.random.default_rng(5)
    periods = draws.exponential(20, (1500, 2))
    periods *= 20 / periods.mean(0)
    cycles = tuple((float(on), float(off)) for on, off in periods)
    assert RecordedCentre(cycles, 0.125).response_s(1.0) == pytest.approx(13.67, rel=0.1)


def test_without_service_only_the_off_periods_matter() -> None:
    """An arrival waits for the rest of the OFF period: (4 + 36) / 2 / 12 s, in any order and at any rate."""
    centre = RecordedCentre(((1.0, 2.0), (3.0, 6.0)))
    assert centre.response_s(5.0) == pytest.approx(40 / 24)
    assert centre.utilisation(5.0) == 0


def test_a_saturated_queue_has_no_delay() -> None:
    centre = RecordedCentre(((1.0, 2.0), (3.0, 6.0)), 0.5)
    assert centre.utilisation(1.0) == pytest.approx(1.5)
    assert np.isnan(centre.response_s(1.0))


def test_long_on_periods_make_an_ordinary_queue() -> None:
    """M/M/1: .1 / (1 - .5); ON periods of an hour, OFF periods of a millisecond."""
    assert RecordedCentre(((3600.0, 0.001),), 0.1).response_s(5.0) == pytest.approx(0.2, rel=1e-3)


def test_shuffling_one_cycle_changes_nothing() -> None:
    centre = RecordedCentre(((5.0, 5.0),), 0.2)
    estimate = permuted(centre, 1.5)
    assert estimate.response_s == pytest.approx(centre.response_s(1.5), abs=4 * estimate.standard_error_s)
    assert estimate.standard_error_s < 0.01 * estimate.response_s


def test_fixed_points_are_extrapolated() -> None:
    """A Markov chain that forgets slowly: .98 per step. Its fixed point is (2, 1, 1) / 4."""
    goal = np.array([0.5, 0.25, 0.25])
    step = 0.98 * np.eye(3) + 0.02 * np.tile(goal, (3, 1))
    history = [np.array([0.0, 1.0, 0.0])]
    for _ in range(5):
        history.append(history[-1] @ step)
    assert extrapolated(history) == pytest.approx(goal, abs=1e-9)


def test_the_script_writes_the_shipped_trace() -> None:
    """Whose ON periods are positively correlated with the OFF periods after them, and are spread more than exponential ones."""
    script = runpy.run_path(str(COMMUTE.with_name("commute.py")))
    assert script["trace"]() == COMMUTE.read_text(encoding="utf-8")
    centre = centre_of(COMMUTE, 1.25)
    assert np.corrcoef(centre.on_s, centre.off_s)[0, 1] > 0.4
    assert np.std(centre.on_s) > np.mean(centre.on_s)


def simulated(centre: RecordedCentre, rate: float, passes: int, permute: str) -> float:
    draws = np.random.default_rng(11)
    on_s, off_s = np.tile(centre.on_s, passes), np.tile(centre.off_s, passes)
    if permute == "apart":
        on_s, off_s = shuffled(centre.on_s, passes, draws), shuffled(centre.off_s, passes, draws)
    return mean_delay_s(on_s, off_s, rate, centre.demand_s, draws)


def test_made_trace_in_recorded_order() -> None:
    """300 passes of 3000 messages; the error is about .5%."""
    centre = centre_of(COMMUTE, 1.25)
    assert centre.response_s(0.3) == pytest.approx(simulated(centre, 0.3, 300, "none"), rel=0.015)


def test_made_trace_shuffled() -> None:
    """1200 passes; the error is about .8%."""
    centre = centre_of(COMMUTE, 1.25)
    assert permuted(centre, 0.3).response_s == pytest.approx(simulated(centre, 0.3, 1200, "apart"), rel=0.02)


@pytest.mark.parametrize(("order", "delay_s"), [("recorded", 35.829), ("shuffled", 46.839)])
def test_made_trace_against_a_long_simulation(order: str, delay_s: float) -> None:
    """Of another program, message by message: 20 000 and 100 000 passes, with standard errors of 0.06%."""
    centre = centre_of(COMMUTE, 1.25)
    found = permuted(centre, 0.3).response_s if order == "shuffled" else centre.response_s(0.3)
    assert found == pytest.approx(delay_s, rel=0.005)


@needs_metro
@pytest.mark.parametrize(("file", "delay_s"), [("metro1.csv", 69.90), ("metro2.csv", 53.47)])
def test_metro_shuffled(file: str, delay_s: float) -> None:
    """The same program, 4000 passes: standard errors of 0.15%."""
    assert permuted(centre_of(METRO / file, 0.125), 3.0).response_s == pytest.approx(delay_s, rel=0.01)


@needs_metro
@pytest.mark.parametrize(("file", "delay_s"), [("metro1.csv", 54.26), ("metro2.csv", 48.82)])
def test_metro_in_recorded_order(file: str, delay_s: float) -> None:
    assert centre_of(METRO / file, 0.125).response_s(3.0) == pytest.approx(delay_s, rel=0.005)


@needs_metro
def test_what_the_order_is_worth() -> None:
    """Metro 1: 54 s as recorded, 59.24 with whole cycles permuted (simulated), 70 with ON and OFF apart; exponential, 73."""
    centre = centre_of(METRO / "metro1.csv", 0.125)
    assert permuted(centre, 3.0, are_cycles_whole=True).response_s == pytest.approx(59.24, rel=0.01)
    on_s, off_s = float(centre.on_s.mean()), float(centre.off_s.mean())
    exponential = Centre(0.125, 2 * 0.125**2, on_s, off_s, 2 * off_s**2)
    assert float(exponential.response_s(3.0)) == pytest.approx(73, rel=0.01)

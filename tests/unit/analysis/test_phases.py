"""Predictions of workloads that vary over time, beside a differential equation and sums over small slices of time."""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from brokerbed.analysis.models.varying import Lifetime, Variation, response
from brokerbed.analysis.predict import Prediction, predict
from brokerbed.analysis.windows import NOT_COMPARED, batch_seconds, periodic_intervals
from brokerbed.metrics import PHASES
from brokerbed.scenario import load

S = 10**9
HEAD = (
    "scenario: 1\nname: x\nclock: {measure: 100s}\ntopology: {tree: explicit, parents: {a: null, b: a, c: b, d: a}}\n"
)


def predicted(tmp_path: Path, text: str) -> Prediction:
    file = tmp_path / "x.yaml"
    file.write_text(HEAD + text)
    return predict(load(file).points[0])


def steps(times: "np.ndarray[tuple[int], np.dtype[np.float64]]") -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    return np.where(times % 20 < 7, 0.5, 2.5)


@pytest.mark.parametrize("kind", ["sine", "steps"])
def test_time_averages_are_those_of_the_differential_equation(tmp_path: Path, kind: str) -> None:
    """d(rho)/dt = lambda(t) - mu rho (van Vliet 2007), solved phase by phase, together with the integrals."""
    from scipy.integrate import solve_ivp

    profile = {"sine": "{sine: {period: 20s, amplitude: 1.0}}", "steps": "{steps: [[0s, 0.5], [7s, 2.5]], period: 20s}"}
    text = f"subscriptions: {{mean_active: 6, lifetime: {{mean: 4s}}, profile: {profile[kind]}}}\n"
    text += "publications: {rate: 8/s, profile: {sine: {period: 20s, amplitude: 0.5}}}\n"
    rows = {
        (row.metric, row.labels.get("phase")): row.predicted
        for row in predicted(tmp_path, text).rows
        if not row.labels or "phase" in row.labels
    }

    def slopes(t: float, state: Any) -> list[float]:
        rho, wave = state[0], np.sin(np.pi * t / 10)
        arrivals = 1.5 / 4 * (1 + wave if kind == "sine" else float(steps(np.array([t]))[0]))  # of one broker
        one, two, published = np.exp(-rho), np.exp(-2 * rho), 2 * (1 + 0.5 * wave)
        down = published * (3 * (1 - one) * 2 + 2 * (1 - two))  # links of c, d and b
        toggles = (arrivals + rho / 4) * (2 * one + 2 * two)
        return [arrivals - rho / 4, 3 - 2 * one - two, 4 * rho, toggles, down + 4 * published]

    def over(begin: float, end: float, rho: float) -> Any:
        return solve_ivp(slopes, (begin, end), [rho, 0, 0, 0, 0], rtol=1e-10, atol=1e-12).y[:, -1]

    limits = [*np.linspace(0, 20, PHASES + 1), 7.0]
    pieces = [(begin, end - 1e-13) for begin, end in pairwise(sorted(limits))]
    rho, sums = 0.0, np.zeros((PHASES, 4))
    for period in range(5):
        for begin, end in pieces:
            rho, *areas = over(begin, end, rho)
            if period == 4:
                sums[int((begin + end) / 2 * PHASES / 20)] += areas
    names = ("table.remote_entries", "table.local_entries", "rate.control", "rate.notifications")
    for place, name in enumerate(names):
        assert rows[name, None] == pytest.approx(sums[:, place].sum() / 20, rel=1e-7), name
        for phase in range(PHASES):
            assert rows[name, str(phase)] == pytest.approx(sums[phase, place] * PHASES / 20, rel=1e-7), (name, phase)


@pytest.mark.parametrize("law", ["exponential", "deterministic", "uniform", "lognormal"])
@pytest.mark.parametrize("mean_s", [3.0, 47.0])
def test_any_lifetime_beside_sums_over_quantiles(law: str, mean_s: float) -> None:
    """E[f(t - L)] and E[integral of f], as means over a million equally likely lifetimes.

    Such a mean of steps is wrong by up to a millionth per jump that a lifetime may span, of which there are dozens.
    """
    from scipy.special import ndtri

    shares = (np.arange(1_000_000) + 0.5) / 1_000_000
    sigma = np.sqrt(np.log(2))
    lifetimes = mean_s * {
        "exponential": -np.log1p(-shares), "deterministic": np.ones_like(shares), "uniform": 2 * shares,
        "lognormal": np.exp(sigma * ndtri(shares) - sigma**2 / 2),
    }[law]  # fmt: skip

    def integral(t: Any) -> Any:
        return np.floor(t / 20) * 36 + 0.5 * np.minimum(t % 20, 7) + 2.5 * np.maximum(t % 20 - 7, 0)

    jumping, waving = Variation(20.0, [(0.0, -2.0), (7.0, 2.0)], 0.0), Variation(20.0, [], 0.5)
    for t in (1.0, 6.0, 13.0):
        at = np.array([t])
        found = response(jumping, steps(at), Lifetime(law, mean_s), at)
        assert found.departures[0] == pytest.approx(steps(t - lifetimes).mean(), abs=4e-5)
        assert found.active_s[0] == pytest.approx((integral(t) - integral(t - lifetimes)).mean(), rel=1e-4)
        found = response(waving, np.ones(1), Lifetime(law, mean_s), at)
        wave, cosine = 1 + 0.5 * np.sin(np.pi * (t - lifetimes) / 10), np.cos(np.pi * (t - lifetimes) / 10)
        assert found.departures[0] == pytest.approx(wave.mean(), abs=4e-5)
        area = lifetimes.mean() + 5 / np.pi * (cosine.mean() - np.cos(np.pi * t / 10))
        assert found.active_s[0] == pytest.approx(area, rel=1e-4)


def test_constant_profile_predicts_what_no_profile_does(tmp_path: Path) -> None:
    """For every algorithm, with groups, wide subscriptions, sources and rates of their own."""
    text = (
        "classes: {count: 6, groups: 2}\nrouting: %s\nrefresh: 30s\n"
        "subscriptions:\n  mean_active: 9\n  lifetime: {mean: 5s, law: uniform}\n  wide: {mean_active: 2}\n"
        "  at: [{broker: c, class: 3, arrival_rate: 0.1/s, lifetime: {mean: 9s}}]\n%s"
        "publications: {rate: 3/s, sources: {on: {mean: 3s}, off: {mean: 9s}}, at: [{broker: d, class: 1, rate: 2/s}]}\n"
    )
    profile = "  profile: {steps: [[0s, 1], [4s, 1]], period: 10s}\n"
    for routing in (
        "identity",
        "simple",
        "flooding",
        "covering",
        "merging",
        "peer",
        "advertisement",
        "peer-advertisement",
    ):
        constant = predicted(tmp_path, text % (routing, ""))
        rows = [row for row in predicted(tmp_path, text % (routing, profile)).rows if "phase" not in row.labels]
        for expected, found in zip(constant.rows, rows, strict=True):
            assert found.predicted == pytest.approx(expected.predicted, rel=1e-12), (routing, found)


def test_whole_periods_without_cuts_are_compared() -> None:
    """50 s from 5 s on have two periods of 20 s, of which a cut takes the second one."""
    pieces = periodic_intervals(5 * S, 55 * S, [], [], 20 * S)
    assert batch_seconds(pieces) == pytest.approx(np.full(2 * PHASES, 20 / PHASES))
    assert {piece.batch for piece in pieces if piece.begin_ns >= 45 * S} == {NOT_COMPARED}
    assert next(piece.batch for piece in pieces if piece.begin_ns == 20 * S) == 0, "time 20 s begins a period"
    cut = periodic_intervals(5 * S, 55 * S, [(30 * S, 31 * S)], [], 20 * S)
    assert batch_seconds(cut).sum() == pytest.approx(20)
    assert {piece.batch for piece in cut if piece.begin_ns >= 25 * S} == {NOT_COMPARED}
    assert len(batch_seconds(periodic_intervals(0, 20 * S, [(1, 2)], [], 20 * S))) == 0

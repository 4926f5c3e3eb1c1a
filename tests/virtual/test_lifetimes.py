"""Lifetimes of messages on the virtual ground: one ON/OFF centre against theory, and a short campaign with faults."""

from collections.abc import Callable
from typing import Any

import pytest

from brokerbed.broker.core import deliver, lifetime
from tests.virtual.lifetimes import problems, run, scenario_text

SCHEDULES = 8
FOUND_WITHIN = 12

CENTRE = """
scenario: 1
name: centre
clock: {warmup: 100s, measure: 900s}
topology: {tree: line, brokers: 1}
publishers: [{id: p, broker: b0, topic: t, rate: 2/s, expiry: EXPIRY}]
subscribers: [{id: s, broker: b0, topic: t, on: {mean: 20s}, off: {mean: 20s}, session_service: {mean: 125ms}}]
copies: 10
"""


@pytest.mark.parametrize(
    ("expiry", "ratio", "delay_s"),
    [("5s", 0.5998, 0.707), ("{mean: 20s}", 0.7060, 4.199)],
    ids=["fixed", "exponential"],
)
def test_one_on_off_centre(expiry: str, ratio: float, delay_s: float) -> None:
    """The values come from a Markov chain of the centre, for a Poisson process of rate 2 and ON = OFF = 20 s.

    Within 10 x 900 s there are some 225 cycles: three standard errors are 10% of the ratio, and 20% of the delay.
    """
    scenario, ends = run(CENTRE.replace("EXPIRY", expiry))
    until_ns = scenario.clock.warmup + scenario.clock.measure
    decided = [message for message, dies_ns in ends.dies_ns.items() if scenario.clock.warmup <= dies_ns < until_ns]
    got_ns = {message: time_ns for (message, _), time_ns in ends.processed_ns.items()}
    delays_s = [(got_ns[it] - ends.published_ns[it]) / 1e9 for it in decided if it in got_ns]
    assert len(delays_s) / len(decided) == pytest.approx(ratio, rel=0.1)
    assert sum(delays_s) / len(delays_s) == pytest.approx(delay_s, rel=0.2)
    assert all(ends.processed_ns[key] < ends.dies_ns[key[0]] for key in ends.processed_ns)


def test_every_message_is_delivered_in_time_or_dies_in_time() -> None:
    for seed in range(SCHEDULES):
        assert problems(seed) == [], scenario_text(seed)


def _no_end(payload: bytes) -> None:
    del payload


def _too_early(expires_at_ns: int | None, now_ns: int) -> bool:
    return expires_at_ns is not None and expires_at_ns - 10**8 <= now_ns


def _silently(broker: Any, waiting: Any, due_ns: int) -> None:
    del broker, due_ns
    session, delivery = waiting
    session.remove(delivery)


@pytest.mark.parametrize(
    ("module", "name", "wrong"),
    [(lifetime, "in_payload", _no_end), (lifetime, "is_over", _too_early), (deliver, "_lifetime_over", _silently)],
    ids=["subscribers process dead messages", "stages drop messages too early", "queues lose them silently"],
)
def test_planted_bugs_are_found(
    module: Any, name: str, wrong: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, name, wrong)
    assert any(_fails(seed) for seed in range(FOUND_WITHIN))


def _fails(seed: int) -> bool:
    """Also a bug that brings the simulation itself down."""
    try:
        return bool(problems(seed))
    except (AssertionError, IndexError, ValueError):
        return True

"""Brokers killed under load, in short; `make kill-campaign` does it at length."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.durability.campaign import chain_plan
from tests.durability.driver import Result, run
from tests.durability.ledger import Kind
from tests.durability.plan import Plan

KILLS_MANY = 10  # enough for some sessions to end between them


def holds(result: Result, plan: Plan) -> None:
    """The run did what was planned, with messages under way, and no promise was broken."""
    assert not result.violations, "\n".join(map(str, [result, *result.violations]))
    assert result.kills == plan.kills
    assert result.published == result.acknowledged > plan.kills
    assert result.delivered == result.owed > result.acknowledged
    assert result.sessions_ended > 0 or plan.kills < KILLS_MANY or not plan.is_mixed


@pytest.mark.parametrize(("durability", "kills"), [("process", 10), ("disk", 4)])
def test_killed_broker_keeps_what_it_acknowledged(durability: str, kills: int, tmp_path: Path) -> None:
    plan = Plan(kills=kills, durability=durability)
    holds(run(plan, tmp_path), plan)


def test_killed_brokers_of_a_chain_keep_what_they_acknowledged(tmp_path: Path) -> None:
    plan = chain_plan(kills=6, seed=1, durability="process")
    holds(run(plan, tmp_path), plan)


def test_broker_without_a_memory_is_found_out(tmp_path: Path) -> None:
    result = run(Plan(kills=2, durability="memory", early_share=0.0, quiet_s=1.0), tmp_path)
    assert result.kills == 2, "\n".join(map(str, result.violations))
    assert result.count(Kind.LOST) > 0
    assert result.count(Kind.SESSION) > 0


@pytest.mark.parametrize("plan", [Plan(kills=10, durability=None), chain_plan(5, 1, None)], ids=["single", "chain"])
def test_broker_that_lives_on_breaks_no_promise(plan: Plan, tmp_path: Path) -> None:
    """The control: connections are cut instead, so whatever the driver reports would be its own mistake."""
    spared = replace(plan, is_spared=True)
    holds(run(spared, tmp_path), spared)


def test_broker_that_does_not_start_is_reported(tmp_path: Path) -> None:
    result = run(Plan(kills=1, command=("false",)), tmp_path)
    assert [it.kind for it in result.violations] == [Kind.ENDED]

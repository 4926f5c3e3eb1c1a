"""Runs on the local ground, from the command to the verdict: the short version of `make local-campaign`."""

import json
from pathlib import Path

from tests.analysis.commands import Commands
from tests.local.campaign import fire

CHURN = """
scenario: 1
name: churn
clock: {warmup: 20s, measure: 240s, speedup: 20}
topology: {tree: regular, arity: 2, depth: 2}
classes: 5
subscriptions: {mean_active: 10, lifetime: {mean: 5s}}
publications: {rate: 10/s}
tolerance: 20%
"""


def test_qos_1_under_fire(command: Commands, tmp_path: Path) -> None:
    """Brokers are killed and links cut again and again: nothing acknowledged is lost, and everything adds up."""
    (tmp_path / "fire.yaml").write_text(fire(15, 3))
    said = command("run", tmp_path / "fire.yaml", "--json", "--out", tmp_path / "runs")
    invariants = {it["name"]: it for it in said.json["invariants"]}
    assert all(it["holds"] for it in invariants.values()), invariants
    assert invariants["no_acknowledged_message_lost"]["checked"] > 1000
    assert invariants["every_message_accounted_for"]["checked"] > 5000
    assert invariants["tables_right_at_end"]["checked"] > 5
    assert invariants["faults_took_effect"]["checked"] >= 3


def test_rates_of_running_brokers_agree(command: Commands, tmp_path: Path) -> None:
    (tmp_path / "churn.yaml").write_text(CHURN)
    said = command("run", tmp_path / "churn.yaml", "--json", "--out", tmp_path / "runs", "--allow-inconclusive")
    assert said.code == 0, said.json
    assert said.json["on"] == "local"
    agreed = {it["metric"] for it in said.json["metrics"] if not it["labels"] and it["verdict"] == "agrees"}
    assert agreed >= {"rate.notifications", "rate.total"}
    place = tmp_path / "runs/latest"
    told = json.loads((place / "run.json").read_text())
    assert told["testbed"]["is_drained"]
    (place / "run.json").write_text(json.dumps(told | {"warnings": ["the clients could not keep up"]}))
    said = command("analyse", place, "--json", "--allow-inconclusive")
    assert [it for it in said.json["assumptions"] if "could not keep up" in it["name"] and not it["holds"]]
    assert said.code == 0

"""A run whose rates vary, from the command line to the report: whole periods, twelve phases, assumptions."""

import shutil
from pathlib import Path

import pytest

from tests.analysis.commands import Commands, run_only

VARYING = """
scenario: 1
name: varying
clock: {warmup: 3s, measure: 205s}
topology: {tree: star, brokers: 3}
classes: 200
subscriptions:
  mean_active: 60
  lifetime: {mean: 500ms, law: uniform}
  profile: {trace: rates.csv, period: 10s}
publications: {rate: 30/s, profile: {sine: {period: 10s, amplitude: 0.9}}}
tolerance: 5%
"""
RECORDED = "{trace: rates.csv, period: 10s}"
PROFILES = {"trace": RECORDED, "sine": "{sine: {period: 10s, amplitude: 0.8}}"}
HIGHEST, LOWEST = {"trace": "11", "sine": "3"}, {"trace": "3", "sine": "9"}  # phases
METRICS = ("table.remote_entries", "table.local_entries", "rate.notifications", "rate.control", "rate.total")
PHASES_WITHIN_MIN = {"table.remote_entries": 10, "table.local_entries": 10, "rate.control": 10}


@pytest.mark.parametrize("profile", PROFILES)
def test_run_whose_rates_vary(profile: str, command: Commands, tmp_path: Path) -> None:
    """The trace is one of steps. Of twelve 95% intervals, ten or more contain the prediction 98 times out of 100."""
    (tmp_path / "rates.csv").write_text("at_s,factor\n0,0.5\n4,2\n")
    folder = run_only(tmp_path, VARYING.replace(RECORDED, PROFILES[profile]))
    moved = tmp_path / "elsewhere"
    shutil.move(folder.resolve(), moved)
    (tmp_path / "rates.csv").unlink()
    found = command("analyse", moved, "--json")
    told = found.json
    assert told["compared_seconds"] == pytest.approx(200), "20 whole periods"
    rows = {
        (row["metric"], row["labels"].get("phase")): row for row in told["metrics"] if set(row["labels"]) <= {"phase"}
    }
    for name in METRICS:
        assert rows[name, None]["measured"] == pytest.approx(rows[name, None]["predicted"], rel=0.04), name
        assert rows[name, None]["verdict"] != "differs"
        phases = [rows[name, str(phase)] for phase in range(12)]
        mean = sum(phase["measured"] for phase in phases) / 12
        assert mean == pytest.approx(rows[name, None]["measured"], rel=1e-6), "phases are equally long"
        held = [it for it in phases if it["ci_low"] is not None and it["ci_low"] <= it["predicted"] <= it["ci_high"]]
        assert len(held) >= PHASES_WITHIN_MIN.get(name, 8), name
    highest, lowest = (rows["table.local_entries", phase[profile]]["measured"] for phase in (HIGHEST, LOWEST))
    assert highest > 3 * lowest
    assert [it for it in told["assumptions"] if not it["holds"]] == [], "neither bursts nor a trend are found"
    assert {it["name"] for it in told["assumptions"]} >= {"publications are Poisson", "stationary"}
    page = (moved / "report.html").read_text()
    assert "time since the beginning of the period, s" in page

"""Peers that roam, from the scenario to the verdict: with faults for the invariants, and without for rates and delays."""

import re
from pathlib import Path

from tests.analysis.commands import Commands

HEAD = """
scenario: 1
name: roaming
clock: {{warmup: 20s, measure: {measure}s}}
topology: {{tree: regular, arity: 2, depth: 3}}
publishers:
  - {{id: p, broker: b1, topic: t, rate: 1/s, qos: 2}}
  - {{id: w, brokers: [b4, b2], topic: t, rate: 1/s, on: {{mean: 6s}}, off: {{mean: 3s}}}}
subscribers:
  - {{id: s, brokers: [b3, b0, b5], topic: t, qos: 2, on: {{mean: 8s}}, off: {{mean: 5s}}}}
  - {{id: x, brokers: [b3, b6], topic: t, on: {{mean: 8s}}, off: {{mean: 5s}}}}
tolerance: 30%
"""
FAULTS = """
copies: 2
faults:
  - {every: {mean: 40s}, crash: any, for: {mean: 4s}}
  - {every: {mean: 40s}, cut: any, for: {mean: 4s}}
  - {every: {mean: 60s}, disconnect: s, for: {mean: 10s}}
links: [{between: [b0, b1], delay: {mean: 50ms}}, {between: [b2, b5], delay: {mean: 30ms, law: deterministic}}]
"""


def test_invariants_hold_over_moves_while_brokers_die_and_links_are_cut(command: Commands, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(HEAD.format(measure=300) + FAULTS)
    said = command(
        "run", tmp_path / "s.yaml", "--on", "virtual", "--json", "--out", tmp_path / "runs",
        "--allow-inconclusive", "--allow-unpredicted",
    )  # fmt: skip
    assert [it for it in said.json["invariants"] if not it["holds"]] == []
    checked = {it["name"]: it["checked"] for it in said.json["invariants"]}
    assert checked["faults_took_effect"] > 5
    assert checked["no_duplicate_at_qos2"] > 500
    assert any("a session that moves over links with a delay" in note for note in said.json["notes"])


def test_rates_and_delays_agree_and_the_report_says_how_often_sessions_moved(command: Commands, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(HEAD.format(measure=1200) + "copies: 4\n")
    said = command(
        "run", tmp_path / "s.yaml", "--on", "virtual", "--json", "--out", tmp_path / "runs", "--allow-inconclusive"
    )
    assert said.code == 0, said.errors
    rows = {(row["metric"], *row["labels"].values()): row for row in said.json["metrics"]}
    for metric in ("table.remote_entries", "rate.notifications", "rate.control", "rate.moved"):
        assert abs(rows[metric,]["relative_error"]) < 0.15, metric
    assert rows["delay.move", "s"]["measured"] == 0.0  # on simulated links without a delay
    report = (Path(said.json["run_directory"]) / "report.html").read_text(encoding="utf-8")
    moves = {name: int(count.replace(",", "")) for name, count in
             re.findall(r"moves of (\w+)</dt><dd>([\d,]+), over", report)}  # fmt: skip
    assert moves.keys() == {"w", "s", "x"}
    for name, cycle_s in (("w", 9), ("s", 13), ("x", 13)):
        expected = 4 * 1220 / cycle_s
        assert abs(moves[name] - expected) < 5 * expected**0.5

"""Runs from the command line to the gate: the same again, one with slower subscribers, and scenarios that `new` has written."""

from pathlib import Path

import pytest

from brokerbed.analysis.gate import gate
from tests.analysis.commands import Commands

LOADED = """
scenario: 1
name: loaded
clock: {warmup: 5s, measure: 200s}
topology: {tree: line, brokers: 2}
publishers: [{id: p, broker: b1, topic: t, rate: 5/s}]
subscribers: [{id: s, broker: b0, topic: t, service: {mean: SERVICE}}]
copies: 5
"""
ROWS = ["table.remote_entries", "table.local_entries", "rate.notifications", "rate.total", "rate.delivered",
        "delay.end_to_end", "delay.end_to_end.p50", "delay.end_to_end.p95", "delivery.ratio"]  # fmt: skip


def test_gate_of_runs(command: Commands, tmp_path: Path) -> None:
    for name, service in (("base", "20ms"), ("again", "20ms"), ("slower", "25ms")):
        (tmp_path / "s.yaml").write_text(LOADED.replace("SERVICE", service))
        command("run", tmp_path / "s.yaml", "--on", "virtual", "--out", tmp_path / name)
    base, again, slower = (tmp_path / name / "latest" for name in ("base", "again", "slower"))
    same = command("gate", base, again, "--json")
    assert same.code == 0
    verdicts = {row["metric"]: row["verdict"] for row in same.json["metrics"]}
    assert {verdicts[metric] for metric in ROWS} == {"same"}
    assert {row["change"] for row in same.json["metrics"]} <= {0.0}

    assert command("gate", base, slower).code == 1
    worse = {row.metric: row for row in gate(base, slower).points[0].rows}
    assert [metric for metric in ROWS if worse[metric].verdict == "worse"] == [
        "delay.end_to_end", "delay.end_to_end.p50", "delay.end_to_end.p95",
    ]  # fmt: skip
    delivered = worse["rate.delivered"].change
    assert delivered.base == pytest.approx(25, rel=0.15)
    assert worse["rate.notifications"].change.base == pytest.approx(delivered.base, rel=0.02)


@pytest.mark.parametrize("offline", ["nobody", "both"])
def test_scenario_that_new_has_written_agrees(
    command: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, offline: str
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = "--clients", "10", "--rate", "12/min", "--tolerance", "15%", "--offline", offline
    assert command("new", "mine.yaml", *arguments).code == 0
    said = command("run", "mine.yaml", "--on", "virtual", "--json")
    assert (said.code, said.json["agrees"]) == (0, True)

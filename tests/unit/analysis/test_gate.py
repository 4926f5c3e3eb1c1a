"""`brokerbed gate` over run directories that hold just what it reads: exit codes, JSON, JUnit, and what is wrong with them."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pandas as pd
import pytest

from brokerbed.analysis import batches
from brokerbed.cli import dispatch
from brokerbed.metrics import LOCAL_ENTRIES, NOTIFICATIONS

SCENARIO = """
scenario: 1
name: {name}
clock: {{measure: 640s}}
topology: {{tree: line, brokers: 2}}
publishers: [{{id: p, broker: b1, topic: t, rate: {rate}/s}}]
subscribers: [{{id: s, broker: b0, topic: t}}]
tolerance: {{default: 2%, delay: 10%}}
"""
RATE = "rate.notifications"
DELAY = "delay.end_to_end"


def run_directory(
    folder: Path, rate: float = 100.0, delay: float = 2.0, spread: float = 0.01, seed: int = 1,
    name: str = "line", holds: bool = True, on: str = "virtual",
) -> Path:  # fmt: skip
    """With one rate, one delay and one table."""
    (folder / "analysis").mkdir(parents=True)
    (folder / "scenario.yaml").write_text(SCENARIO.format(name=name, rate=1))
    noise = 1 + spread * np.random.default_rng(seed).normal(size=(3, 64))
    noise /= noise.mean(axis=1, keepdims=True)
    rows = [(RATE, "", "", -1, rate * 10, 10.0), (DELAY, "p", "s", 0, delay * 50, 50.0),
            ("table.remote_entries", "", "", -1, 10.0, 10.0)]  # fmt: skip
    lines = [
        (metric, first, second, seed, copy, batch, x * noise[number, batch], n)
        for number, (metric, first, second, copy, x, n) in enumerate(rows)
        for batch in range(64)
    ]
    columns = ["metric", "first", "second", "seed", "copy", "batch", "x", "n"]
    batches.write(folder / "analysis", [pd.DataFrame(lines, columns=columns)])
    summary = {"on": on, "metrics": [], "invariants": [{"name": "publisher_order_kept", "holds": holds, "checked": 9}]}
    (folder / "analysis" / "summary.json").write_text(json.dumps(summary))
    return folder


def verdicts(told: dict[str, Any]) -> dict[str, str]:
    return {row["metric"]: row["verdict"] for row in told["metrics"]}


def test_gate_that_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, new = run_directory(tmp_path / "a"), run_directory(tmp_path / "b", seed=2)
    assert dispatch(["gate", str(base), str(new), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert verdicts(told) == dict.fromkeys(("table.remote_entries", RATE, DELAY), "same")
    assert (told["scenario"], told["base"], told["verdict"], told["warnings"]) == ("line", str(base), "not worse", [])
    delay = told["metrics"][-1]
    assert (delay["labels"], delay["unit"]) == ({"publisher": "p", "subscriber": "s"}, "s")
    assert (delay["base"], delay["new"]) == (pytest.approx(2), pytest.approx(2))
    assert delay["ci_low"] < delay["change"] < delay["ci_high"]
    assert [row["margin"] for row in told["metrics"]] == [0.02, 0.02, 0.1]  # the scenario's tolerance


def test_gate_that_fails_with_its_test_cases(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, new = run_directory(tmp_path / "a"), run_directory(tmp_path / "b", rate=105, seed=2)
    junit = tmp_path / "out" / "gate.xml"
    assert dispatch(["gate", str(base), str(new), "--junit", str(junit)]) == 1
    out = capsys.readouterr().out
    assert "+5.00%" in out
    assert "worse: 2 same, 1 worse" in out
    (suite,) = ET.parse(junit).getroot()
    assert (suite.get("name"), suite.get("tests"), suite.get("failures"), suite.get("skipped")) == (
        "line",
        "4",
        "1",
        "0",
    )
    (failed,) = [case for case in suite if case.find("failure") is not None]
    assert failed.get("name") == RATE
    failure = failed.find("failure")
    assert failure is not None
    assert (failure.get("message") or "").startswith("100 in the base, 105 now: +5.00% (95% interval +")


def test_gate_of_less_traffic_is_better_and_passes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, new = run_directory(tmp_path / "a"), run_directory(tmp_path / "b", rate=90, seed=2)
    assert dispatch(["gate", str(base), str(new), "--json"]) == 0
    assert verdicts(json.loads(capsys.readouterr().out))[RATE] == "better"


def test_gate_that_cannot_tell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, new = run_directory(tmp_path / "a", spread=0.3), run_directory(tmp_path / "b", spread=0.3, seed=2)
    junit = tmp_path / "gate.xml"
    assert dispatch(["gate", str(base), str(new), "--junit", str(junit)]) == 4
    said = capsys.readouterr()
    assert "cannot tell" in said.out
    assert "times longer (clock.measure)" in said.err
    assert len(ET.parse(junit).getroot()[0].findall("testcase/skipped")) >= 2


def test_margin_of_the_command_is_that_of_all_rows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, new = run_directory(tmp_path / "a"), run_directory(tmp_path / "b", rate=105, seed=2)
    assert dispatch(["gate", str(base), str(new), "--margin", "10%", "--json"]) == 0
    assert {row["margin"] for row in json.loads(capsys.readouterr().out)["metrics"]} == {0.1}
    assert dispatch(["gate", str(base), str(new), "--margin", "much"]) == 2
    assert capsys.readouterr().err == "brokerbed: --margin: must be a percentage like 2%, not much\n"


def test_invariant_that_is_broken_now_is_worse(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base, broken = run_directory(tmp_path / "a"), run_directory(tmp_path / "b", holds=False)
    assert dispatch(["gate", str(base), str(broken)]) == 1
    assert "publisher_order_kept is broken\n" in capsys.readouterr().out
    assert dispatch(["gate", str(broken), str(broken), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["invariants"] == [
        {"name": "publisher_order_kept", "base": False, "new": False, "verdict": "same"}
    ]


def test_scenario_that_was_changed_is_compared_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, new = run_directory(tmp_path / "a"), run_directory(tmp_path / "b", on="local")
    (new / "scenario.yaml").write_text(SCENARIO.format(name="line", rate=2))
    assert dispatch(["gate", str(base), str(new)]) == 0
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("warning: the base ran on virtual and the new run on local")
    assert second == "warning: the scenarios of the runs differ in publishers; what that changes counts as a change"


def test_metric_that_only_the_new_run_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of it was seen in the base, so that it was 0 there."""
    base, new = run_directory(tmp_path / "a"), run_directory(tmp_path / "b", seed=2)
    file = base / "analysis" / batches.FILE
    lines = pd.read_parquet(file)
    lines[lines["metric"] != RATE].to_parquet(file)
    assert dispatch(["gate", str(base), str(new), "--json"]) == 1
    (row,) = [row for row in json.loads(capsys.readouterr().out)["metrics"] if row["metric"] == RATE]
    assert (row["base"], row["change"], row["verdict"]) == (0.0, None, "worse")


@pytest.mark.parametrize(
    "damage", ["none", "no scenario", "no analysis", "old analysis", "damaged", "other name", "other tree"]
)
def test_bad_input_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str) -> None:
    base, new = run_directory(tmp_path / "a"), run_directory(tmp_path / "b")
    file = new / "analysis" / batches.FILE
    if damage == "none":
        new = tmp_path / "none"
    elif damage == "no scenario":
        (new / "scenario.yaml").unlink()
    elif damage == "no analysis":
        file.unlink()
        (new / "analysis" / "summary.json").unlink()
    elif damage == "old analysis":
        file.unlink()
    elif damage == "damaged":
        file.write_bytes(b"PAR1")
    elif damage == "other name":
        (new / "scenario.yaml").write_text(SCENARIO.format(name="other", rate=1))
    else:
        (new / "scenario.yaml").write_text(SCENARIO.format(name="line", rate=1).replace("brokers: 2", "brokers: 3"))
    expected = {
        "none": f"{new}: there is no such run directory",
        "no scenario": f"{new}: this is not a run directory (it has no scenario.yaml)",
        "no analysis": f"{new}: this run has not been analysed; run brokerbed analyse {new} first",
        "old analysis": f"{new}: this run was analysed by an older version of brokerbed; run brokerbed analyse {new} again",
        "damaged": f"{file}: this file is damaged; analyse the run again",
        "other name": f"{new}: this is a run of the scenario other, and {base} of line; compare two runs of one scenario",
        "other tree": f"{new}: its scenario line has other points or other brokers than that of {base}; run both anew",
    }[damage]
    assert dispatch(["gate", str(base), str(new), "--json"]) == 2
    said = capsys.readouterr()
    assert (said.out, said.err) == ("", f"brokerbed: {expected}\n")


def test_cells_become_lines() -> None:
    """Two phases are one batch, time without events counts, and rows per broker are left out."""
    cells = pd.DataFrame(
        [
            (0, NOTIFICATIONS.name, "", "", -1, 0, 3.0, 5.0), (0, NOTIFICATIONS.name, "", "", -1, 3, 4.0, 5.0),
            (0, NOTIFICATIONS.name, "b1>b0", "", -1, 0, 7.0, 5.0), (0, LOCAL_ENTRIES.name, "b0", "", -1, 0, 1.0, 5.0),
            (0, DELAY, "p", "s", 1, 1, 6.0, 2.0), (0, DELAY + ".p50", "p", "s", -1, 0, 3.0, 4.0),
            (-1, DELAY + ".p50", "p", "s", -1, -1, 3.5, 4.0),
        ],
        columns=["run", "metric", "first", "second", "copy", "batch", "x", "n"],
    )  # fmt: skip
    lines = batches.stored(cells, {0: batches.Seeded(9, np.full(6, 5.0))}, 2, None)
    found = {
        (line.metric, line.seed, line.copy, line.batch): (line.x, line.n) for line in lines.itertuples(index=False)
    }
    assert found == {
        (NOTIFICATIONS.name, 9, -1, 0): (3.0, 10.0),
        (NOTIFICATIONS.name, 9, -1, 1): (4.0, 10.0),
        (NOTIFICATIONS.name, 9, -1, 2): (0.0, 10.0),
        (DELAY, 9, 1, 0): (6.0, 2.0),
        (DELAY + ".p50", 9, -1, 0): (12.0, 4.0),
        (DELAY + ".p50", -1, -1, -1): (3.5, 4.0),
    }


def test_neighbours_are_merged_where_a_trace_has_few_passes() -> None:
    cells = pd.DataFrame(
        [(0, DELAY, "p", "s", 0, batch, float(batch), 1.0) for batch in range(6)],
        columns=["run", "metric", "first", "second", "copy", "batch", "x", "n"],
    )
    lines = batches.stored(cells, {0: batches.Seeded(1, np.full(6, 1.0))}, 1, 2)
    assert list(zip(lines["batch"], lines["x"], lines["n"], strict=True)) == [(0, 3.0, 3.0), (1, 12.0, 3.0)]

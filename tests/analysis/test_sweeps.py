"""A sweep that is killed goes on where it was; its points are analysed together."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from brokerbed.analysis.jobs import analyse, session
from brokerbed.analysis.runs import find
from brokerbed.orchestrator.grounds.registry import VIRTUAL
from brokerbed.orchestrator.run import run
from brokerbed.orchestrator.run_directory import is_finished
from brokerbed.scenario import load
from tests.analysis.commands import Commands, run_only
from tests.broker.running import COMMAND, until

TEXT = """
scenario: 1
name: swept
clock: {measure: 5s}
topology: {tree: star, brokers: 3}
classes: 2
subscriptions: {mean_active: 6, lifetime: {mean: 2s}}
publications: {rate: 10/s}
sweep:
  - {clock.measure: 5s, routing: identity}
  - {clock.measure: 2000s, routing: flooding, publications.rate: 5/s}
  - {clock.measure: 10s, routing: simple}
"""


def killed_after_the_first_point(folder: Path) -> Path:
    (folder / "s.yaml").write_text(TEXT)
    process = subprocess.Popen(
        [COMMAND, "run", "s.yaml", "--on", "virtual", "--no-analyse"], cwd=folder, start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    points = folder / "runs/latest/points"
    try:
        until(lambda: is_finished(points / "0") and (points / "1/run.json").exists(), "the end of the first point")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return (folder / "runs/latest").resolve()


def test_killed_sweep_goes_on(command: Commands, tmp_path: Path) -> None:
    folder = killed_after_the_first_point(tmp_path)
    assert not is_finished(folder)
    assert is_finished(folder / "points/0")
    assert not is_finished(folder / "points/1")
    assert command("analyse", folder).code == 2  # not yet
    before = {it: it.stat().st_mtime_ns for it in (folder / "points/0").rglob("*")}
    assert run_only(tmp_path, TEXT).resolve() == folder
    assert {it: it.stat().st_mtime_ns for it in (folder / "points/0").rglob("*")} == before
    assert is_finished(folder)
    assert all(is_finished(folder / "points" / str(it)) for it in range(3))
    assert not any(folder.rglob("raw"))
    assert run_only(tmp_path, TEXT.replace("2000s", "20s")).resolve() != folder  # another experiment

    folder = (tmp_path / "runs/latest").resolve()
    said = command("analyse", folder, "--json")
    told = said.json
    assert [it["at"]["routing"] for it in told["points"]] == ["identity", "flooding", "simple"]
    assert [it["model_seconds"] for it in told["points"]] == [5, 20, 10]
    for point in told["points"]:
        assert [row["metric"] for row in point["metrics"]][:2] == ["table.remote_entries", "table.local_entries"]
        assert all(not row["labels"] for row in point["metrics"])
        assert all(it["holds"] for it in point["invariants"])
    flooding = {row["metric"]: row for row in told["points"][1]["metrics"]}
    assert (flooding["rate.control"]["measured"], flooding["rate.control"]["verdict"]) == (0, "agrees")
    assert said.code == (0 if told["agrees"] else 1)
    assert json.loads((folder / "analysis/summary.json").read_text()) == told
    detail = (folder / "analysis/compared.csv").read_text().splitlines()
    assert detail[0].startswith("point,metric,labels,unit,predicted,measured")
    assert {line.split(",")[0] for line in detail[1:]} == {"0", "1", "2"}


@pytest.mark.usefixtures("one_java")
def test_points_that_are_analysed_in_portions_give_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each alone, if together they would be too many for the memory."""
    file = tmp_path / "s.yaml"
    file.write_text(TEXT.replace("2000s", "20s"))
    found = find(run(load(file), VIRTUAL, None, 2, tmp_path / "runs", lambda _: None))
    (whole,) = analyse.analyse([found])
    monkeypatch.setattr(analyse, "PORTION_ROWS", 1)
    assert [[it.point for it in portion.runs] for portion in analyse.portions(found)] == [[0, 0], [1, 1], [2, 2]]
    monkeypatch.setattr(session, "TASKS_S", 0.02)
    said: list[tuple[float, str]] = []
    (parts,) = analyse.analyse([found], progress=lambda part, step: said.append((part, step)))
    told, steps = zip(*dict.fromkeys((part, step.partition(" (")[0]) for part, step in said), strict=True)
    assert (told[0], told[-1]) == (0, 1)
    assert list(told) == sorted(told)
    assert len(told) == 1 + 3 * (2 + 3)  # the jobs of each portion
    assert list(steps[:3]) == [
        "starting Spark",
        "reading the log",
        "invariants, measurements, time series",
    ]
    assert [step.count(",") for step in steps[2:5]] == [2, 1, 0]  # one less as each is done
    assert [step for _, step in said if re.search(r" \([0-9]+ of [1-9][0-9]* Spark tasks\)$", step)]
    assert len(whole.points) == len(parts.points) == 3
    for one, other in zip(whole.points, parts.points, strict=True):
        assert [row.measured for row in one.rows] == pytest.approx([row.measured for row in other.rows])
        assert one.invariants == other.invariants
        assert [it.name for it in one.assumptions] == [it.name for it in other.assumptions]
    assert (
        json.loads((found.folder / "analysis" / "summary.json").read_text())["points"][2]["at"]["routing"] == "simple"
    )

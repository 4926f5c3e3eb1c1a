"""Runs that others do: their progress is seen in the run directory, and what is not there is missed."""

import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from brokerbed.log.record import MAGIC, NAMES_FILE, RECORDS_FILE, name_line
from brokerbed.orchestrator import run as running
from brokerbed.orchestrator.grounds.base import GroundError
from brokerbed.orchestrator.grounds.registry import VIRTUAL
from brokerbed.orchestrator.run import Task
from tests.conftest import FromText

SWEEP = """
scenario: 1
name: spread
clock: {measure: 5s}
topology: {tree: line, brokers: 2}
publications: {rate: 5/s}
sweep: {classes: [1, 2, 3, 4]}
"""


def test_progress_is_that_of_the_finished_runs(
    tmp_path: Path, from_text: FromText, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "WATCH_S", 0.01)
    seen: list[float] = []
    half = threading.Event()

    def progress(part: float) -> None:
        seen.append(part)
        if part == 0.5:
            half.set()

    def spread(tasks: Sequence[Task], work: Callable[[Task], None]) -> None:
        for task in tasks[:2]:
            work(task)
        assert half.wait(20), "two of four runs are done, and nobody says so"
        for task in tasks[2:]:
            work(task)

    folder = running.run(from_text(SWEEP), VIRTUAL, None, 1, tmp_path, progress, spread)
    assert set(seen) <= {0.0, 0.25, 0.5, 0.75, 1.0}
    assert seen == sorted(seen)
    assert len(list(folder.glob("points/*/log/broker=b0/*"))) == 4
    assert not [it for it in threading.enumerate() if it.name == "progress"]


def test_runs_that_are_not_seen_here(tmp_path: Path, from_text: FromText, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "WATCH_S", 0.01)
    monkeypatch.setattr(running, "SEEN_S_MAX", 0.1)

    def spread(tasks: Sequence[Task], work: Callable[[Task], None]) -> None:
        for task in tasks[1:]:
            work(task)

    with pytest.raises(GroundError, match=r"points/0: the workers did this run, and it is not here"):
        running.run(from_text(SWEEP), VIRTUAL, None, 1, tmp_path, lambda _: None, spread)
    assert not list(tmp_path.glob("*/run.json"))  # the sweep is not finished


def test_killed_run_leaves_nothing_to_the_next(tmp_path: Path, from_text: FromText) -> None:
    """What a process that was killed has left in raw/ is no part of the run that is done in its place."""
    scenario = from_text(SWEEP).points[0]
    running.run_task(Task(scenario, tmp_path / "whole"))
    for name in ("b0", "b1", "gone"):
        place = tmp_path / "killed" / "raw" / name
        place.mkdir(parents=True)
        for life in (1, 2):
            (place / NAMES_FILE.format(life)).write_text(name_line(0, "somebody") + "\n")
            (place / RECORDS_FILE.format(life)).write_bytes(MAGIC)
    running.run_task(Task(scenario, tmp_path / "killed"))
    logs = [{it.parent.name: it.read_bytes() for it in tmp_path.glob(f"{of}/log/*/*")} for of in ("whole", "killed")]
    assert logs[0]
    assert logs[1] == logs[0]

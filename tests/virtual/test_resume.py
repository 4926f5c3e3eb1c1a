"""Which run directory a command works in: its own, a new one, or one that the same command left unfinished."""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from brokerbed.orchestrator import run_directory
from brokerbed.orchestrator.grounds.registry import VIRTUAL
from brokerbed.orchestrator.run import run
from brokerbed.scenario import Experiment, load
from tests.broker.running import COMMAND, until

SHORT = """
scenario: 1
name: small
clock: {measure: 5s}
topology: {tree: line, brokers: 2}
publications: {rate: 5/s}
"""
ENDLESS = SHORT.replace("measure: 5s", "measure: 1000000s")
RUN_S_MAX = 120
RUN = ("run", "s.yaml", "--on", "virtual", "--no-analyse", "--seeds")


@contextmanager
def started(place: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Ends the command and its workers at the end."""
    process = subprocess.Popen(
        ["env", "--default-signal=INT", COMMAND, *arguments], cwd=place, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    with process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def directories(place: Path) -> list[Path]:
    return sorted(it for it in (place / "runs").iterdir() if not it.is_symlink())


def interrupted(place: Path, seeds: int) -> Path:
    """A command that was killed when its first runs were under way."""
    with started(place, *RUN, str(seeds)):
        until(lambda: any(place.rglob("raw/b0/log.1.records")), "the first run")
    (folder,) = directories(place)
    return folder


def test_same_command_started_twice_works_in_two_directories(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(ENDLESS)
    with started(tmp_path, *RUN, "2") as first:
        until(lambda: len(list(tmp_path.rglob("raw/b0/log.1.records"))) == 2, "both runs of the first command")
        (folder,) = directories(tmp_path)
        inodes = {it: it.stat().st_ino for it in folder.rglob("raw/b0/log.1.records")}
        with started(tmp_path, *RUN, "2") as second:
            until(lambda: len(directories(tmp_path)) == 2, "a directory for the second command")
            until(lambda: len(list(tmp_path.rglob("raw/b0/log.1.records"))) == 4, "the runs of the second command")
            assert {it: it.stat().st_ino for it in inodes} == inodes, "the logs of the first were replaced"
            os.killpg(second.pid, signal.SIGINT)
            _, errors = second.communicate(timeout=RUN_S_MAX)
        assert first.poll() is None
    assert f"runs/{folder.name} is not resumed: another process is working in it" in errors


def test_directory_is_locked_while_a_worker_outlives_its_command(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(ENDLESS)
    with started(tmp_path, *RUN, "2") as first:
        until(lambda: len(list(tmp_path.rglob("raw/b0/log.1.records"))) == 2, "the workers")
        first.kill()
        first.wait()
        try:
            (folder,) = directories(tmp_path)
            assert is_locked(folder)
        finally:
            os.killpg(first.pid, signal.SIGKILL)
        until(lambda: not is_locked(folder), "the release of the lock by the system")


def is_locked(folder: Path) -> bool:
    with (folder / "request.json").open("r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def test_lock_is_not_inherited_by_programs_that_the_run_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that outlives the run, like a JVM or a broker, does not keep its directory locked."""
    (tmp_path / "s.yaml").write_text(SHORT)
    others: list[subprocess.Popen[bytes]] = []
    describe = run_directory.describe

    def describe_and_start(*arguments: Any) -> None:
        others.append(subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, close_fds=False))
        describe(*arguments)

    monkeypatch.setattr(run_directory, "describe", describe_and_start)
    try:
        folder = run(load(tmp_path / "s.yaml"), VIRTUAL, None, 1, tmp_path / "runs", lambda _: None)
        assert others
        assert not is_locked(folder)
    finally:
        for other in others:
            other.communicate()


def experiment(place: Path, text: str = SHORT) -> Experiment:
    (place / "s.yaml").write_text(text)
    return load(place / "s.yaml")


def test_fewer_seeds_than_were_interrupted_get_a_directory_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SHORT.replace("measure: 5s", "measure: 2000s"))
    folder = interrupted(tmp_path, 5)
    done = subprocess.run([COMMAND, *RUN, "2"], cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S_MAX)
    assert done.returncode == 0, done.stderr
    assert f"runs/{folder.name} is not resumed: it was begun with seeds 5, not 2" in done.stderr
    (own,) = (it for it in directories(tmp_path) if it != folder)
    assert done.stdout.strip() == f"runs/{own.name}"
    assert sorted(it.name for it in (own / "seeds").iterdir()) == ["1", "2"]
    assert run_directory.is_finished(own)


def unfinished(folder: Path) -> Path:
    """As if the command had been killed when the last of its runs was under way."""
    (folder / "run.json").unlink()
    last = max(folder.glob("seeds/*/run.json"))
    last.write_text(json.dumps(json.loads(last.read_text()) | {"wall_seconds": None}))
    return folder


def test_same_command_resumes_what_it_left_unfinished_and_says_so(tmp_path: Path) -> None:
    told: list[str] = []
    arguments = experiment(tmp_path), VIRTUAL, None, 3, tmp_path / "runs", lambda _: None, None, told.append
    folder = unfinished(run(*arguments))
    assert told == []
    assert run(*arguments) == folder
    assert told == [f"resuming {folder}, which the same command began: 2 of 3 runs are done"]
    assert run(*arguments) != folder, "it is finished: the next one is new"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"commit": "f" * 40}, "it was begun with commit ffffffffffff, not"),
        ({"version": "0.0.1"}, "it was begun with version 0.0.1, not"),
        ({"points_digest": "e" * 64}, "it was begun with points digest eeeeeeeeeeee, not"),
        (None, "it does not say what it was made for"),
    ],
    ids=["commit", "version", "points", "no request"],
)
def test_runs_of_another_program_are_not_resumed(tmp_path: Path, change: dict[str, str] | None, reason: str) -> None:
    told: list[str] = []
    arguments = experiment(tmp_path), VIRTUAL, None, 2, tmp_path / "runs", lambda _: None, None, told.append
    folder = unfinished(run(*arguments))
    request = folder / "request.json"
    if change is None:
        request.unlink()
    else:
        request.write_text(json.dumps(json.loads(request.read_text()) | change))
    assert run(*arguments) != folder
    (line,) = told
    assert line.startswith(f"{folder} is not resumed: {reason}")
    assert not run_directory.is_finished(folder)


def test_another_scenario_of_the_same_name_is_not_resumed(tmp_path: Path) -> None:
    told: list[str] = []
    more = VIRTUAL, None, 2, tmp_path / "runs", lambda _: None, None, told.append
    folder = unfinished(run(experiment(tmp_path), *more))
    assert run(experiment(tmp_path, SHORT.replace("rate: 5/s", "rate: 6/s")), *more) != folder
    assert told == [f"{folder} is not resumed: it was begun with another scenario"]


def test_failed_run_of_a_sweep_is_reported_though_another_one_never_ends(tmp_path: Path) -> None:
    """Of two endless runs that are resumed, one finds a file where its folder was."""
    (tmp_path / "s.yaml").write_text(ENDLESS, encoding="utf-8")
    folder = interrupted(tmp_path, 2)
    broken = min(it.parent for it in folder.rglob("raw"))
    shutil.rmtree(broken)
    broken.write_text("in the way", encoding="utf-8")
    done = subprocess.run([COMMAND, *RUN, "2"], cwd=tmp_path, capture_output=True, text=True, timeout=RUN_S_MAX)
    assert done.returncode == 3
    assert str(broken.name) in done.stderr
    assert not any(map(run_directory.is_finished, folder.glob("seeds/*")))

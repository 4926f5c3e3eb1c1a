"""The end of a run on the local ground, whichever it is: nothing is left, what was logged is kept, and it is said why."""

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.dataset as ds
import pytest

from brokerbed.orchestrator.grounds import journal
from tests.broker.running import WAIT_S, until
from tests.local.commands import Command, assert_nothing_left, clean, environment, journals, processes, run

IMPATIENT_S = 0.02  # between two signals
BROKERS = ("b0", "b1", "b2")
TREE = """\
scenario: 1
name: small
topology: {tree: star, brokers: 3}
publishers: [{id: p, broker: b1, topic: t, rate: 10/s}]
subscribers: [{id: s, broker: b2, topic: t}]
"""
SHORT = TREE + "clock: {measure: 10s, speedup: 5}\n"
LONG = TREE + "clock: {measure: 1h}\n"
CRASH = LONG + "faults: [{at: 1s, crash: b1, for: 1h}]\n"
PAUSE = LONG + "faults: [{at: 1s, pause: b1, for: 1h}]\n"


def told(place: Path) -> dict[str, Any]:
    file = place / "runs" / "latest" / "run.json"
    result: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return result


def events(place: Path) -> dict[str, set[str]]:
    """Which kinds of events each broker's part of the log has, and the clients'."""
    rows = ds.dataset(place / "runs" / "latest" / "log", format="parquet", partitioning="hive").to_table()
    found: dict[str, set[str]] = {}
    for broker, event in zip(rows["broker"].to_pylist(), rows["event"].to_pylist(), strict=True):
        found.setdefault(broker, set()).add(event)
    return found


def leave_behind(place: Path) -> "subprocess.Popen[bytes]":
    """A stopped process, in the journal of an orchestrator that is dead."""
    left = subprocess.Popen(["sleep", "600"])
    left.send_signal(signal.SIGSTOP)
    folder = Path(environment(place)["XDG_RUNTIME_DIR"]) / journal.FOLDER
    folder.mkdir()
    entry = {"process": left.pid, "began": journal.start_ticks(left.pid), "what": "broker b9"}
    (folder / f"{left.pid}-1.journal").write_text(json.dumps(entry) + "\n", encoding="utf-8")
    return left


def test_run_that_succeeds_leaves_its_log_and_nothing_else(tmp_path: Path) -> None:
    """Not even what an earlier one had left."""
    left = leave_behind(tmp_path)
    with run(tmp_path, SHORT) as command:
        assert left.wait(WAIT_S) == -signal.SIGKILL
        ended = command.end()
        assert_nothing_left(tmp_path)
    assert ended.code == 0
    assert all(line.startswith("warning: ") for line in ended.error_lines), ended.error_lines  # of a busy machine
    folder = Path(ended.output.strip())
    assert {it.name for it in folder.iterdir()} == {"run.json", "request.json", "scenario.yaml", "log"}
    assert {it.name for it in (folder / "log").iterdir()} == {f"broker={name}" for name in (*BROKERS, "clients")}
    logged = events(tmp_path)
    assert {"published", "processed"} <= logged["clients"]
    assert all("received" in logged[name] for name in BROKERS)
    run_json = told(tmp_path)
    assert run_json["wall_seconds"] is not None


# -- it is told to end ------------------------------------------------------------------------------------------------

MOMENTS: dict[str, tuple[str, Callable[[Command], None], signal.Signals, bool]] = {
    "the brokers start": (LONG, Command.until_brokers, signal.SIGINT, True),
    "the clients start": (LONG, Command.until_clients, signal.SIGHUP, False),
    "model time has begun": (LONG, Command.until_begun, signal.SIGINT, True),
    "a broker is dead": (CRASH, lambda it: it.until_dead("b1"), signal.SIGINT, False),
    "a broker is stopped": (PAUSE, lambda it: it.until_stopped("b1"), signal.SIGTERM, False),
}


@pytest.mark.parametrize("moment", MOMENTS)
def test_interrupted_run_ends_everything_and_keeps_the_log(tmp_path: Path, moment: str) -> None:
    """By Ctrl-C, which goes to the whole group, or by a signal to the orchestrator alone."""
    scenario, wait, number, is_for_group = MOMENTS[moment]
    with run(tmp_path, scenario) as command:
        wait(command)
        command.signal(number, is_for_group)
        ended = command.end()
        assert_nothing_left(tmp_path)
    assert (ended.code, ended.output, ended.error_lines) == (128 + number, "", [])
    assert told(tmp_path)["wall_seconds"] is None
    if moment.endswith("start"):
        assert not (tmp_path / "runs" / "latest" / "log").exists()
    else:
        logged = events(tmp_path)
        assert logged.keys() == {*BROKERS, "clients"}
        assert "published" in logged["clients"]
        assert ("fault" in logged["clients"]) == (scenario != LONG)


@pytest.mark.parametrize("moment", ["the brokers start", "the clients start", "model time has begun"])
def test_impatient_interrupts_do_not_disturb_the_end(tmp_path: Path, moment: str) -> None:
    """Ctrl-C again and again, until it has ended: while brokers end, the log is kept, and the interpreter ends."""
    scenario, wait, _, _ = MOMENTS[moment]
    with run(tmp_path, scenario) as command:
        wait(command)
        while command.process.poll() is None:
            command.signal(signal.SIGINT, is_for_group=True)
            time.sleep(IMPATIENT_S)
        ended = command.end()
        assert_nothing_left(tmp_path)
    assert (ended.code, ended.output, ended.error_lines) == (130, "", [])
    if moment == "model time has begun":
        assert events(tmp_path).keys() == {*BROKERS, "clients"}


# -- it is killed -----------------------------------------------------------------------------------------------------


def test_processes_of_an_orchestrator_killed_at_the_start_end_by_themselves(tmp_path: Path) -> None:
    with run(tmp_path, LONG) as command:
        command.until_clients()
        command.signal(signal.SIGKILL)
        command.end()
        until(lambda: not processes(tmp_path), "the end of all processes")
        assert len(journals(tmp_path)) == 1
        assert clean(tmp_path) == "nothing was left behind\n"
        assert journals(tmp_path) == []


def test_clean_ends_what_a_killed_orchestrator_had_stopped_and_no_more(tmp_path: Path) -> None:
    """Beside a run that lives, whose journal is in the same folder."""
    with run(tmp_path, PAUSE) as command:
        command.until_stopped("b1")
        paused = command.broker("b1")
        command.signal(signal.SIGKILL)
        command.end()
        until(lambda: processes(tmp_path) == [paused], "the end of all others")
        (abandoned,) = journals(tmp_path)
        with run(tmp_path / "other", LONG) as other:
            # a run cleans up by itself: this one, with a runtime folder of its own, has nothing to do with the other
            other.until_begun()
            (beside,) = journals(other.place)
            beside.rename(abandoned.with_name(beside.name))
            before = other.processes()
            assert clean(tmp_path) == f"ended process {paused} (broker b1)\n"
            until(lambda: paused not in processes(tmp_path), "the end of the stopped broker")
            assert clean(tmp_path) == "nothing was left behind\n"
            assert other.processes() == before
            assert [it.name for it in journals(tmp_path)] == [beside.name]


# -- a part of it dies ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "name"), [(("--name", "b2"), "broker b2"), (("--part", "0"), "clients 1 of")])
def test_death_of_a_process_amidst_the_run_is_told(tmp_path: Path, words: tuple[str, ...], name: str) -> None:
    with run(tmp_path, LONG) as command:
        command.until_begun()
        (victim,) = command.processes(" ".join(words))
        os.kill(victim, signal.SIGKILL)
        ended = command.end()
        assert_nothing_left(tmp_path)
    (line,) = ended.error_lines
    assert ended.code == 1
    assert line.startswith(f"brokerbed: {name}")
    assert "died (killed by SIGKILL)" in line
    assert events(tmp_path).keys() == {*BROKERS, "clients"}


def test_broker_that_dies_while_clients_connect_is_told(tmp_path: Path) -> None:
    with run(tmp_path, LONG) as command:
        command.until_clients()
        victim = command.broker("b1")
        assert victim is not None
        os.kill(victim, signal.SIGKILL)
        ended = command.end()
        assert_nothing_left(tmp_path)
    assert ended.code == 1
    (line,) = ended.error_lines
    assert line.startswith("brokerbed: broker b1 died")

"""A machine that has too little of something, or too much else to do: it is said in one sentence, and nothing is left."""

import json
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from broker.log_record import Kind, Log
from clients.raw_log import append
from orchestrator.grounds import journal, local
from orchestrator.grounds.base import GroundError, Place
from orchestrator.grounds.processes import Said, complaints
from orchestrator.grounds.real import _warnings
from orchestrator.scenario import load
from tests.broker.running import Running, metric, until
from tests.local.commands import Ended, assert_nothing_left, processes, run
from tests.small_disk import small_disk

TREE = """\
scenario: 1
name: small
topology: {tree: star, brokers: 3}
publishers: [{id: p, broker: b1, topic: t, rate: 10/s}]
subscribers: [{id: s, broker: b2, topic: t}]
"""
CALM = TREE + "clock: {measure: 4s, speedup: 2}\n"
LOADED = TREE.replace("rate: 10/s", "rate: 100/s") + "payload: 1000\n"


def sole_error(ended: Ended, code: int) -> str:
    """One line, and no traceback."""
    (line,) = ended.error_lines
    assert (ended.code, ended.output) == (code, "")
    assert line.startswith("brokerbed: ")
    return line.removeprefix("brokerbed: ")


def warnings(place: Path) -> list[str]:
    told = json.loads((place / "runs" / "latest" / "run.json").read_text(encoding="utf-8"))
    assert told["wall_seconds"] is not None
    return [str(it) for it in told["warnings"]]


# -- ports, files, memory ---------------------------------------------------------------------------------------------


def test_port_that_somebody_took_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(CALM, encoding="utf-8")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    taken = socket.create_server(("127.0.0.1", 0))
    ports = iter([taken])
    reserved = local.reserved
    monkeypatch.setattr(local, "reserved", lambda: next(ports, None) or reserved())
    ground = local.LocalGround()
    number = taken.getsockname()[1]
    with pytest.raises(GroundError, match=rf"^broker b0 did not start: .*{number}.*address already in use") as raised:
        ground.play(load(file).points[0], Place(file, 0, tmp_path / "raw"), lambda _: None)
    assert raised.value.is_missing
    assert processes(tmp_path) == []
    assert list(tmp_path.rglob("*.journal*")) == []


def test_too_few_open_files_are_noticed_before_anything_starts(tmp_path: Path) -> None:
    with run(tmp_path, CALM, before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))) as command:
        told = sole_error(command.end(), 3)
    assert "open files" in told
    assert "64 are allowed" in told
    assert not (tmp_path / "runs").exists()


def test_tree_that_does_not_fit_into_memory_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with run(tmp_path, CALM.replace("brokers: 3", "brokers: 100000")) as command:
        told = sole_error(command.end(), 3)
    assert told.startswith("100000 running brokers need about 3200")
    assert "--on virtual" in told
    assert not (tmp_path / "runs").exists()


# -- disks ------------------------------------------------------------------------------------------------------------

DISK_BYTES = 96 * 2**20  # for three stores, each with a log of its own of up to 16 MiB


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own, for run directories."""
    with small_disk(tmp_path / "runs", DISK_BYTES) as place:
        yield place


def fill(disk: Path, free_bytes: int = 0) -> Path:
    """A file that takes all space but so much."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        with suppress(OSError):
            while True:
                file.write(bytes(2**20))
        file.truncate(file.tell() - free_bytes)
    return ballast


@pytest.mark.parametrize("free_bytes", [0, 64 * 1024], ids=["for the scenario", "for the brokers"])
def test_disk_without_space_at_the_start_is_told(disk: Path, tmp_path: Path, free_bytes: int) -> None:
    fill(disk, free_bytes)
    with run(tmp_path, CALM) as command:
        told = sole_error(command.end(), 3)
        assert_nothing_left(tmp_path)
    assert "No space left on device" in told or "disk is full" in told


def test_disk_that_is_full_at_the_end_is_told(disk: Path, tmp_path: Path) -> None:
    with run(tmp_path, LOADED + "clock: {measure: 2s}\ndurability: memory\n") as command:
        command.until_begun()
        fill(disk)
        told = sole_error(command.end(), 3)
        assert processes(tmp_path) == []
    assert "No space left on device" in told


def test_what_brokers_say_of_a_full_disk_is_a_warning_of_the_run(disk: Path, tmp_path: Path) -> None:
    """Clients wait, and all goes on when there is space again."""
    with run(tmp_path, LOADED + "clock: {measure: 4s}\n") as command:
        command.until_begun()
        brokers = [running(pid, command.process) for pid in command.processes("--metrics-port")]
        ballast = fill(disk)
        until(lambda: any(metric(it, "brokerbed_store_blocked") for it in brokers), "a store that cannot be written")
        ballast.unlink()
        ended = command.end()
        assert_nothing_left(tmp_path)
    assert ended.code == 0
    told = warnings(tmp_path)
    assert [line.removeprefix("warning: ") for line in ended.error_lines] == told
    assert any(line.startswith("broker b") and "the store cannot be written" in line for line in told)
    assert any("the store can be written again" in line for line in told)


def running(pid: int, process: "subprocess.Popen[str]") -> Running:
    words = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")
    return Running(process, {"metrics": int(words[words.index("--metrics-port") + 1])})


# -- a machine that is too slow ---------------------------------------------------------------------------------------


def test_calm_run_has_no_warnings_even_with_few_open_files_at_first(tmp_path: Path) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with run(tmp_path, CALM, before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (32, most))) as command:
        ended = command.end()
    assert (ended.code, ended.error_lines) == (0, [])
    assert warnings(tmp_path) == []


def test_saturated_run_says_so_and_is_marked(tmp_path: Path) -> None:
    scenario = TREE.replace("rate: 10/s", "rate: 3000/s") + "clock: {measure: 5s, speedup: 100}\n"  # 300 000 a second
    with run(tmp_path, scenario) as command:
        ended = command.end()
        assert_nothing_left(tmp_path)
    assert ended.code == 0
    told = warnings(tmp_path)
    assert [line.removeprefix("warning: ") for line in ended.error_lines] == told
    assert any("could not keep" in line for line in told)


def test_brokers_that_do_not_take_what_is_published_are_told_of(tmp_path: Path) -> None:
    """One stands still, though no fault of the scenario says so, from before the end of the measured time until after it."""
    with run(tmp_path, CALM.replace("rate: 10/s", "rate: 100/s")) as command:
        command.until_begun()
        stopped = command.broker("b1")
        assert stopped is not None
        os.kill(stopped, signal.SIGSTOP)
        time.sleep(5.0)  # the measured time lasts 2 s, and after it at least 10 s are waited
        os.kill(stopped, signal.SIGCONT)
        ended = command.end()
        assert_nothing_left(tmp_path)
    assert ended.code == 0
    assert any("the brokers could not keep up" in line for line in warnings(tmp_path))


def test_warnings_name_what_could_not_keep_up() -> None:
    """Clients by what they did late, brokers by their event loops; see docs/grounds.md for the limits."""
    calm = {"done": 1000, "done_late": 9, "mean_s": 0.019, "max_s": 1.0}
    assert list(_warnings([calm, calm], 20, {"b0": 0.019}, True)) == []
    (line,) = _warnings([calm, calm | {"mean_s": 0.03}], 0, {}, True)
    assert "clients could not keep up" in line
    (line,) = _warnings([calm, calm | {"done_late": 12}], 0, {}, True)
    assert "clients could not keep up" in line
    (line,) = _warnings([calm, calm], 21, {}, True)
    assert "brokers could not keep up: 21 publications" in line
    (line,) = _warnings([calm], 0, {"b0": 0.001, "b1": 0.05, "b2": 0.03}, True)
    assert line.startswith("2 of 3 brokers could not keep model time (b1 was late by 50 ms")
    (line,) = _warnings([calm], 0, {}, False)
    assert "not everything had arrived" in line


def test_complaints_are_few_and_each_is_told_once() -> None:
    said = {f"broker b{number}": Said() for number in range(4)}
    for its in said.values():
        its.lines += ["the disk is full", "the disk is full", ""]
    said["broker b3"].lines += [f"trouble {number}" for number in range(6)]
    first, *others, last = complaints(said)
    assert first == "broker b0 and 3 more said: the disk is full"
    assert others == [f"broker b3 said: trouble {number}" for number in range(4)]
    assert last == "brokers and clients said 2 other things"


def test_log_of_clients_waits_for_space(disk: Path) -> None:
    log, kept = Log(), Log()
    for number in range(1000):
        for it in (log, kept):
            it.add(number, Kind.PUBLISHED, it.number(f"p{number}"), sequence=number)
    append(disk / "whole", 1, kept)
    ballast = fill(disk)
    with pytest.raises(OSError, match="No space left"):
        append(disk / "waiting", 1, log)
    ballast.unlink()
    append(disk / "waiting", 1, log)
    append(disk / "waiting", 1, log)  # nothing is written twice
    whole, waiting = ({it.name: it.read_bytes() for it in (disk / name).iterdir()} for name in ("whole", "waiting"))
    assert waiting == whole


# -- somebody else's folder -------------------------------------------------------------------------------------------


def test_journal_of_somebody_else_is_neither_used_nor_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could name any process, to be killed."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        place = journal.folder()
        place.mkdir(mode=0o700)
        entry = {"process": bystander.pid, "began": journal.began(bystander.pid), "what": "victim"}
        (place / "1-1.journal1").write_text(json.dumps(entry) + "\n")
        place.chmod(0o777)
        assert journal.clean() == []
        with pytest.raises(GroundError, match="is not only yours"):
            journal.Journal()
        assert bystander.poll() is None
        place.chmod(0o700)
        assert journal.clean() == [f"process {bystander.pid} (victim)"]
    finally:
        bystander.kill()
        bystander.wait()

"""A machine that has too little of something, or too much else to do: it is said in one sentence, and nothing is left."""

import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from brokerbed.clients.raw_log import append
from brokerbed.log.record import Kind, Log
from brokerbed.orchestrator.grounds import journal, local, local_host
from brokerbed.orchestrator.grounds.base import GroundError, Place
from brokerbed.orchestrator.grounds.lateness import Lateness, warnings_of
from brokerbed.orchestrator.grounds.processes import StderrLines, stderr_warnings
from brokerbed.orchestrator.grounds.real import RealRun
from brokerbed.scenario import load
from tests.local.commands import Ended, assert_nothing_left, processes, run
from tests.small_disk import fill, small_disk

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
    reserved = local_host.reserve_port
    monkeypatch.setattr(local_host, "reserve_port", lambda: next(ports, None) or reserved())
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


def late_by(seconds: float) -> Lateness:
    lateness = Lateness()
    lateness.add(round(seconds * 1e9))
    return lateness


def test_warnings_name_what_could_not_keep_up() -> None:
    """Clients by what they did late, brokers by their event loops; see docs/grounds.md for the limits."""
    calm = {"done": 1000, "done_late": 9, "mean_s": 0.019, "max_s": 1.0, "connecting_share": 0.04}
    none = late_by(0), late_by(0)
    assert list(warnings_of([calm, calm], 20, {"b0": 0.019}, late_by(0.019), late_by(0.019))) == []
    (line,) = warnings_of([calm, calm | {"mean_s": 0.03}], 0, {}, *none)
    assert "clients could not keep up" in line
    (line,) = warnings_of([calm, calm | {"done_late": 12}], 0, {}, *none)
    assert "clients could not keep up" in line
    (line,) = warnings_of([calm, calm | {"connecting_share": 0.11}], 0, {}, *none)
    assert line.startswith("peers that come and go were connected only after 11% of a mean ON period")
    (line,) = warnings_of([calm, calm], 21, {}, *none)
    assert "brokers could not keep up: 21 publications" in line
    (line,) = warnings_of([calm], 0, {"b0": 0.001, "b1": 0.05, "b2": 0.03}, *none)
    assert line.startswith("2 of 3 brokers could not keep model time (b1 was late by 50 ms")
    (line,) = warnings_of([calm], 0, {}, late_by(0.03), late_by(0))
    assert line.startswith("the orchestrator could not keep up: 30 ms late on average")
    (line,) = warnings_of([calm], 0, {}, late_by(0), late_by(0.03))
    assert line.startswith("the relays of links could not keep up: 30 ms late on average")
    (line,) = warnings_of([calm], 0, {}, *none, is_drained=False)
    assert "not everything had arrived" in line


SLOW_LINK = """
scenario: 1
name: slow
clock: {warmup: 1s, measure: 4s}
topology: {tree: explicit, parents: {top: null, low: top}}
publishers: [{id: p, broker: top, topic: t/x, rate: 20/s}]
subscribers: [{id: s, broker: low, topic: 't/#'}]
links: [{between: [top, low], delay: {mean: 5ms, law: deterministic}}]
"""


@asynccontextmanager
async def overload(_: RealRun) -> AsyncIterator[None]:
    """Blocks the orchestrator's event loop again and again while the measured time goes on."""

    async def block() -> None:
        while True:
            time.sleep(0.3)  # noqa: ASYNC251 - on purpose
            await asyncio.sleep(0.001)  # shorter than the delay of the link

    blocking = asyncio.create_task(block())
    yield
    blocking.cancel()


def test_run_says_that_its_orchestrator_and_relays_were_overloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "scenario.yaml"
    file.write_text(SLOW_LINK, encoding="utf-8")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    lags = []
    for name, watcher in (("calm", None), ("overloaded", overload)):
        ground = local.LocalGround(watcher)
        ground.play(load(file).points[0], Place(file, 0, tmp_path / name), lambda _: None)
        lags.append([ground.played.notes[it]["mean_s"] for it in ("orchestrator_lag", "relay_lag")])
    assert all(overloaded > 0.05 > calm for calm, overloaded in zip(*lags, strict=True)), lags
    assert any(it.startswith("the orchestrator could not keep up") for it in ground.played.warnings)
    assert any(it.startswith("the relays of links could not keep up") for it in ground.played.warnings)


def test_complaints_are_few_and_each_is_told_once() -> None:
    said = {f"broker b{number}": StderrLines() for number in range(4)}
    for its in said.values():
        its.lines += ["the disk is full", "the disk is full", ""]
    said["broker b3"].lines += [f"trouble {number}" for number in range(6)]
    first, *others, last = stderr_warnings(said)
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
        entry = {"process": bystander.pid, "began": journal.start_ticks(bystander.pid), "what": "victim"}
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

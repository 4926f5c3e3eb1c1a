"""What is wrong with a run directory is said in one line that names the file, before Spark starts; nothing is touched."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from brokerbed.analysis.errors import RunError
from brokerbed.analysis.runs import find
from brokerbed.cli import dispatch
from tests.analysis.real import Real, simulate

Damage = Callable[[Path], object]
SWEEP = """
scenario: 1
name: tiny
clock: {measure: 2s}
topology: {tree: star, brokers: 3}
publications: {rate: 5/s}
"""


def in_run_json(**changes: object) -> Damage:
    def damage(folder: Path) -> None:
        told = json.loads((folder / "run.json").read_text())
        (folder / "run.json").write_text(json.dumps(told | changes))

    return damage


def truncate(folder: Path) -> None:
    file = folder / "log/broker=b3/events.parquet"
    file.write_bytes(file.read_bytes()[:-100])


def empty(folder: Path) -> None:
    for file in folder.glob("log/*/events.parquet"):
        pq.write_table(pq.ParquetFile(file).read().slice(0, 0), file)


def foreign(folder: Path) -> None:
    pq.write_table(pa.table({"time_ns": [1], "colour": ["red"]}), folder / "log/broker=b3/events.parquet")


def other_types(folder: Path) -> None:
    """A log whose times are floating point numbers."""
    file = folder / "log/broker=b3/events.parquet"
    table = pq.ParquetFile(file).read()
    place = table.schema.get_field_index("time_ns")
    pq.write_table(table.set_column(place, "time_ns", table["time_ns"].cast(pa.float64())), file)


def only_begun(folder: Path) -> None:
    shutil.rmtree(folder / "log")
    (folder / "run.json").unlink()


PART = "log/broker=b3/events.parquet"
CASES: dict[str, tuple[Damage, str, str]] = {  # what is done, the file that is named, and what is said of it
    "truncated": (truncate, PART, "this is not a complete Parquet file; it is truncated or damaged"),
    "no Parquet": (lambda it: (it / PART).write_text("time_ns\n"), PART, "not a complete Parquet file"),
    "no bytes": (lambda it: (it / PART).write_bytes(b""), PART, "not a complete Parquet file"),
    "foreign columns": (foreign, PART, "its columns are not those of a message log"),
    "other types": (other_types, PART, "its columns are not those of a message log"),
    "stray file": (lambda it: (it / "log/notes.txt").write_text("x"), "log/notes.txt", "does not belong"),
    "stray beside": (
        lambda it: (it / "log/broker=b3/notes.txt").write_text("x"),
        "log/broker=b3/notes.txt",
        "this file does not belong in a message log; move it away",
    ),
    "stray Parquet": (
        lambda it: shutil.copy(it / PART, it / "log/b3.parquet"),
        "log/b3.parquet",
        "this file does not belong in a message log",
    ),
    "a broker too many": (
        lambda it: shutil.copytree(it / "log/broker=b3", it / "log/broker=b9"),
        "log/broker=b9/events.parquet",
        "there is no broker b9 in this scenario",
    ),
    "a broker is missing": (lambda it: shutil.rmtree(it / "log/broker=b3"), "log", "there is no log of b3"),
    "empty log": (empty, "log", "the message log is empty"),
    "no log": (lambda it: shutil.rmtree(it / "log"), "log", "there is no message log; the run was not finished"),
    "no run.json": (lambda it: (it / "run.json").unlink(), "run.json", "the run was not finished"),
    "half of run.json": (
        lambda it: (it / "run.json").write_text((it / "run.json").read_text()[:99]),
        "run.json",
        "this is not JSON",
    ),
    "binary run.json": (lambda it: (it / "run.json").write_bytes(b"\xff\xfe{}"), "run.json", "not JSON"),
    "another run.json": (lambda it: (it / "run.json").write_text("[]"), "run.json", "not the description of a run"),
    "no times": (in_run_json(measured_ns=[1]), "run.json", "not the description of a run"),
    "odd times": (in_run_json(wall_seconds="long"), "run.json", "not the description of a run"),
    "unfinished": (in_run_json(wall_seconds=None), "", "the run has not finished, or was interrupted"),
    "no scenario": (lambda it: (it / "scenario.yaml").unlink(), "", "this is not a run directory (it has no scenario.yaml)"),
    "only begun": (only_begun, "run.json", "not finished"),
}  # fmt: skip


def state(folder: Path) -> dict[str, str]:
    files = sorted(it for it in folder.rglob("*") if it.is_file())
    return {str(it): hashlib.sha256(it.read_bytes()).hexdigest() for it in files}


def told(folder: Path, capfd: pytest.CaptureFixture[str]) -> str:
    """What `analyse` says; it changes nothing."""
    before = state(folder)
    code = dispatch(["analyse", str(folder)])
    out, errors = capfd.readouterr()
    assert (code, out, len(errors.splitlines())) == (2, "", 1), errors
    assert state(folder) == before
    return errors.strip()


@pytest.mark.parametrize("name", CASES)
def test_damaged_run_directory(real: Real, tmp_path: Path, capfd: pytest.CaptureFixture[str], name: str) -> None:
    damage, file, text = CASES[name]
    folder = tmp_path / "a run"
    shutil.copytree(real.finished.folder, folder)
    damage(folder)
    line = told(folder, capfd)
    assert line.startswith(f"brokerbed: {folder / file}: ")
    assert text in line


def test_undamaged_copy_is_found(real: Real, tmp_path: Path) -> None:
    """The damages above are what makes the difference."""
    folder = tmp_path / "a run"
    shutil.copytree(real.finished.folder, folder)
    (run,) = find(folder).runs
    assert (run.rows, run.measured_ns) == (len(real.rows), (10_000_000_000, 50_000_000_000))


def test_no_run_directory(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert told(tmp_path / "nowhere", capfd) == f"brokerbed: {tmp_path / 'nowhere'}: there is no such run directory"
    (tmp_path / "file").touch()
    assert "there is no such run directory" in told(tmp_path / "file", capfd)
    assert "this is not a run directory" in told(tmp_path, capfd)


def test_mistake_in_the_scenario_of_a_run(real: Real, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "a run"
    shutil.copytree(real.finished.folder, folder)
    with (folder / "scenario.yaml").open("a") as out:
        out.write("colour: red\n")
    assert re.match(rf"{re.escape(str(folder / 'scenario.yaml'))}:\d+: colour: ", told(folder, capfd))


def test_seeds_and_points_that_are_none(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = simulate(tmp_path, SWEEP)
    seeds = folder / "seeds"
    for seed in ("10", "9"):
        (seeds / seed).mkdir(parents=True)
        shutil.copy(folder / "run.json", seeds / seed)
        shutil.copytree(folder / "log", seeds / seed / "log")
    assert [run.folder.name for run in find(folder).runs] == ["9", "10"]
    (seeds / "notes.txt").touch()
    assert told(folder, capfd).startswith(f"brokerbed: {seeds / 'notes.txt'}: ")
    with (folder / "scenario.yaml").open("a") as out:
        out.write("sweep: {routing: [identity, simple]}\n")
    with pytest.raises(RunError, match=r"points/0/run\.json"):
        find(folder)
    (folder / "points" / "7").mkdir(parents=True)
    with pytest.raises(RunError, match="has no such point"):  # there are two
        find(folder / "points" / "7")
    with pytest.raises(RunError, match="has no such point"):  # of which point is this a seed?
        find(seeds / "9")

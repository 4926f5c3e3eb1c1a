"""A disk that fills up while a command works: it ends at once with one sentence and exit code 3, and nothing is left."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from brokerbed import cli
from brokerbed.log import reader as log_reader
from brokerbed.orchestrator import run
from brokerbed.orchestrator.grounds import real
from tests.local.commands import END_S_MAX, Ended, assert_nothing_left
from tests.local.commands import run as run_locally
from tests.small_disk import fill, small_disk

DISK_BYTES = 96 * 2**20  # for three stores, each with a log of its own of up to 16 MiB
LONG_S = 120  # measured time; a run that does not notice a full disk takes longer than END_S_MAX
LOADED = f"""\
scenario: 1
name: small
topology: {{tree: star, brokers: 3}}
publishers: [{{id: p, broker: b1, topic: t, rate: 100/s}}]
subscribers: [{{id: s, broker: b2, topic: t}}]
payload: 1000
clock: {{measure: {LONG_S}s}}
"""
SIMULATED = """\
scenario: 1
name: small
topology: {tree: star, brokers: 3}
classes: 2
publications: {rate: 100/s}
clock: {measure: 1000s}
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own, for run directories."""
    with small_disk(tmp_path / "runs", DISK_BYTES) as place:
        yield place


def sole_error(ended: Ended) -> str:
    """One line, and no traceback."""
    (line,) = ended.error_lines
    assert (ended.code, ended.output) == (3, "")
    assert line.startswith("brokerbed: ")
    return line


@pytest.mark.parametrize("durability", ["process", "memory"], ids=["the store", "the message log"])
def test_run_ends_when_brokers_cannot_write(disk: Path, tmp_path: Path, durability: str) -> None:
    with run_locally(tmp_path, LOADED + f"durability: {durability}\n") as command:
        command.until_begun()
        fill(disk)
        told = sole_error(command.end())
        assert_nothing_left(tmp_path)
    assert "No space left on device" in told


def test_run_fails_when_the_end_of_the_clients_log_cannot_be_written(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The disk fills up after the last look at it, just before the clients end and write what they still have."""
    drain = real.RealRun._drain

    async def drain_and_fill(self: Any) -> bool:
        is_drained = await drain(self)
        fill(disk)
        return is_drained

    monkeypatch.setattr(real.RealRun, "_drain", drain_and_fill)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    code = command_in_this_process(tmp_path, LOADED.replace(f"{LONG_S}s", "1s"), "local")
    assert "No space left on device" in sole_error(Ended(code, *capfd.readouterr()))
    assert_nothing_left(tmp_path)


def command_in_this_process(place: Path, scenario: str, ground: str) -> int:
    file = place / "s.yaml"
    file.write_text(scenario, encoding="utf-8")
    return cli.dispatch(["run", str(file), "--on", ground, "--no-analyse", "--out", str(place / "runs")])


@pytest.mark.parametrize("sweep", ["", "sweep: {routing: [identity, flooding, simple]}\n"], ids=["one run", "a sweep"])
def test_simulation_ends_when_its_raw_log_cannot_be_written(tmp_path: Path, sweep: str) -> None:
    (tmp_path / "s.yaml").write_text(SIMULATED + sweep)
    with small_disk(tmp_path / "runs", 2 * 2**20):
        done = brokerbed(tmp_path, "run", "s.yaml", "--on", "virtual", "--no-analyse")
        assert not list(tmp_path.glob("runs/*/**/raw"))
    assert "No space left on device" in sole_error(done)


def test_run_fails_when_there_is_no_space_for_its_log_in_parquet(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:

    def fill_and_write(*arguments: Any) -> None:
        fill(disk)
        log_reader.write_parquet(*arguments)

    monkeypatch.setattr(run, "write_parquet", fill_and_write)
    code = command_in_this_process(tmp_path, SIMULATED, "virtual")
    assert "No space left on device" in sole_error(Ended(code, *capfd.readouterr()))
    assert not list(tmp_path.glob("runs/*/raw"))
    assert not list(tmp_path.glob("runs/*/log"))


def brokerbed(place: Path, *arguments: str) -> Ended:
    done = subprocess.run(
        [sys.executable, "-m", "brokerbed.entry", *arguments], cwd=place, capture_output=True, text=True,
        timeout=2 * END_S_MAX, check=False,
    )  # fmt: skip
    return Ended(done.returncode, done.stdout, done.stderr)


@pytest.mark.needs("java")
def test_analysis_and_report_without_space_are_one_sentence(disk: Path, tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SIMULATED.replace("1000s", "20s"))
    assert brokerbed(tmp_path, "run", "s.yaml", "--on", "virtual", "--no-analyse").code == 0
    folder = Path("runs") / (disk / "latest").readlink()
    ballast = fill(disk)
    analysed = brokerbed(tmp_path, "analyse", str(folder))
    assert (analysed.code, analysed.errors.splitlines()[-1]) == (
        3, f"brokerbed: {folder}: No space left on device",
    )  # fmt: skip
    assert "Traceback" not in analysed.errors
    ballast.unlink()
    assert "Traceback" not in brokerbed(tmp_path, "analyse", str(folder)).errors
    (tmp_path / folder / "report.html").unlink()
    fill(disk)
    assert sole_error(brokerbed(tmp_path, "report", str(folder))) == f"brokerbed: {folder}: No space left on device"

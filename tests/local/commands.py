"""`brokerbed run --on local` as a command in a place of its own, and the processes that belong to it."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from brokerbed.log.record import MAGIC, RECORDS_FILE
from tests.broker.running import WAIT_S, until
from tests.progress import without_progress

END_S_MAX = 60.0  # far more than anything takes that ends at all


@dataclass(frozen=True)
class Ended:
    code: int
    output: str
    errors: str

    @property
    def error_lines(self) -> list[str]:
        """What is said beside the progress."""
        return without_progress(self.errors)


@dataclass
class Command:
    """In a folder that no other command line names, so that its processes are found by it."""

    place: Path
    process: subprocess.Popen[str]

    @property
    def pid(self) -> int:
        return self.process.pid

    def processes(self, *words: str) -> list[int]:
        """Those that it has started, live or stopped, and with these words in the command line."""
        return [pid for pid in processes(self.place, *words) if pid != self.pid]

    def broker(self, name: str) -> int | None:
        return next(iter(self.processes("--name", name)), None)

    def until_brokers(self) -> None:
        until(lambda: bool(self.processes("--name")), "a broker's process")

    def until_clients(self) -> None:
        until(lambda: bool(self.processes("brokerbed.clients.process")), "a process of clients")

    def until_begun(self) -> None:
        """Model time has: a client has logged something."""
        until(lambda: any(map(has_records, self.place.glob("runs/*/raw/clients/*"))), "the beginning of model time")

    def until_dead(self, name: str) -> None:
        self.until_begun()
        until(lambda: self.broker(name) is None, f"the death of {name}")

    def until_stopped(self, name: str) -> None:
        until(lambda: (pid := self.broker(name)) is not None and state(pid) == "T", f"{name} being stopped")

    def signal(self, number: signal.Signals, is_for_group: bool = False) -> None:
        os.killpg(self.pid, number) if is_for_group else os.kill(self.pid, number)

    def end(self) -> Ended:
        """Waits until it has ended by itself."""
        output, errors = self.process.communicate(timeout=END_S_MAX)
        return Ended(self.process.returncode, output, errors)


def processes(*words: object) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with suppress(OSError):  # it is gone meanwhile
                line = (entry / "cmdline").read_text(encoding="utf-8", errors="replace").replace("\0", " ")
                if all(str(word) in line for word in words) and state(int(entry.name)) != "Z":
                    found.append(int(entry.name))
    return found


def state(pid: int) -> str:
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    return "Z"


def has_records(file: Path) -> bool:
    with suppress(OSError):
        return file.name == RECORDS_FILE.format(1) and file.stat().st_size > len(MAGIC)
    return False


def environment(place: Path) -> dict[str, str]:
    """With a journal of its own, so that no other run's leftovers are touched."""
    (place / "runtime").mkdir(exist_ok=True)
    return os.environ | {"XDG_RUNTIME_DIR": str(place / "runtime")}


def journals(place: Path) -> list[Path]:
    return list((place / "runtime").rglob("*.journal*"))


def brokerbed(place: Path, *arguments: str | Path, before: Any = None) -> subprocess.Popen[str]:
    return subprocess.Popen(
        ["env", "--default-signal=HUP,INT", sys.executable, "-m", "brokerbed.entry", *map(str, arguments)],  # nohup
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment(place), process_group=0,
        preexec_fn=before,  # noqa: PLW1509 - no threads here
    )  # fmt: skip


@contextmanager
def run(place: Path, scenario: str, before: Any = None, out: Path | None = None) -> Iterator[Command]:
    """Begins; whatever is left of it afterwards is ended."""
    place.mkdir(exist_ok=True)
    file = place / "scenario.yaml"
    file.write_text(scenario, encoding="utf-8")
    arguments = ("run", file, "--on", "local", "--no-analyse", "--out", out or place / "runs")
    command = Command(place, brokerbed(place, *arguments, before=before))
    try:
        yield command
    finally:
        for pid in processes(place):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if command.process.returncode is None:
            command.process.communicate(timeout=WAIT_S)


def clean(place: Path) -> str:
    """What `brokerbed clean` prints."""
    process = brokerbed(place, "clean")
    output, errors = process.communicate(timeout=END_S_MAX)
    assert (process.returncode, errors) == (0, "")
    return output


def assert_nothing_left(place: Path) -> None:
    """No process, no journal, no raw log."""
    assert processes(place) == []
    assert journals(place) == []
    assert list(place.glob("runs/*/raw")) == []

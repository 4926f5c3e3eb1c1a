"""A record on disk of the processes of a run. If the orchestrator is killed, the next run or `clean` ends them.

A journal is a file in the runtime folder of the user, named after the process of the orchestrator; each line is a
process. A process is identified by its id and its start time, so that another process that got the same id later is
left alone.
"""

import json
import os
import signal
import stat
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

from brokerbed.orchestrator.grounds.base import GroundError

FOLDER = "brokerbed"
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH
EXITING = 0x4  # a bit of the flags in /proc/PID/stat
_number = count(1)  # numbers the journals of this process


def folder() -> Path:
    """The folder of the journals. It is private to the user, and is gone after a reboot, as processes are."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    return Path(base) / FOLDER if base else Path(tempfile.gettempdir()) / f"{FOLDER}-{os.getuid()}"


def _is_ours(place: Path) -> bool:
    """Whether only we can write to the folder. This matters, because the processes named there will be killed."""
    status = place.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & OTHERS_WRITE


class Journal:
    def __init__(self) -> None:
        place = folder()
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(place):
            raise GroundError(
                f"{place} is not only yours: remove it, or set XDG_RUNTIME_DIR to a folder of your own", is_missing=True
            )
        self._file = place / f"{process_name()}.journal{next(_number)}"
        self._out = self._file.open("a", encoding="utf-8")

    def process(self, pid: int, what: str) -> None:
        self._write({"process": pid, "began": start_ticks(pid), "what": what})

    def _write(self, entry: dict[str, object]) -> None:
        self._out.write(json.dumps(entry) + "\n")
        self._out.flush()

    def close(self) -> None:
        """Removes the journal; all its processes must have ended."""
        self._out.close()
        self._file.unlink(missing_ok=True)


def process_name() -> str:
    """A name of this process that is unique until the next reboot."""
    return f"{os.getpid()}-{start_ticks(os.getpid())}"


def machine_id() -> str:
    """Identifies the scope of process ids: this boot of this machine, and this PID namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return f"{boot}-{Path('/proc/self/ns/pid').stat().st_ino}"


def start_ticks(pid: int) -> int | None:
    """The start time of a process in ticks since boot; None if it does not exist or is exiting."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" or int(fields[6]) & EXITING else int(fields[19])


def state(pid: int) -> str:
    """The state of a process: R, S, T (stopped) and so on; empty if it does not exist."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    return ""


def clean() -> list[str]:
    """Kills the processes that dead orchestrators left behind, and returns descriptions of them."""
    ended = []
    for file, entries in _abandoned():
        for entry in entries:
            pid = int(entry["process"])
            if entry["began"] is not None and start_ticks(pid) == entry["began"]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    ended.append(f"process {pid} ({entry['what']})")
        file.unlink(missing_ok=True)
    return ended


def _abandoned() -> "Iterator[tuple[Path, list[dict[str, Any]]]]":
    place = folder()
    for file in sorted(place.glob("*.journal*")) if place.exists() and _is_ours(place) else ():
        pid, _, time = file.stem.partition("-")
        if pid.isdigit() and str(start_ticks(int(pid))) == time:
            continue  # its orchestrator is alive
        entries = []
        for line in file.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):  # the last line may be incomplete
                entries.append(json.loads(line))
        yield file, entries

"""What a run has started, on disk while it lives: if the orchestrator is killed, the next start or `clean` ends it.

A journal is a file in the user's runtime folder, named after the orchestrator's process and numbered; each line is one
thing. A process is known by its id together with the time it began, so that another one that got its id later is left
alone.
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
EXITING = 0x4  # of the flags in /proc/PID/stat
_number = count(1)  # of the journals of this process


def folder() -> Path:
    """Of the journals: private to the user, and gone when the machine starts anew, as processes are."""
    base = os.environ.get("XDG_RUNTIME_DIR")
    return Path(base) / FOLDER if base else Path(tempfile.gettempdir()) / f"{FOLDER}-{os.getuid()}"


def _is_ours(place: Path) -> bool:
    """Nobody else can have written there: what it names will be killed."""
    found = place.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & OTHERS_WRITE


class Journal:
    def __init__(self) -> None:
        place = folder()
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_ours(place):
            raise GroundError(
                f"{place} is not only yours: remove it, or set XDG_RUNTIME_DIR to a folder of your own", is_missing=True
            )
        self._file = place / f"{me()}.journal{next(_number)}"
        self._out = self._file.open("a", encoding="utf-8")

    def process(self, pid: int, what: str) -> None:
        self._write({"process": pid, "began": began(pid), "what": what})

    def _write(self, entry: dict[str, object]) -> None:
        self._out.write(json.dumps(entry) + "\n")
        self._out.flush()

    def close(self) -> None:
        """All that it names is gone."""
        self._out.close()
        self._file.unlink(missing_ok=True)


def me() -> str:
    """This process, as nobody else was or will be called while the machine runs."""
    return f"{os.getpid()}-{began(os.getpid())}"


def machine() -> str:
    """Where process ids mean what they mean here: this boot of this machine, and this namespace of process ids."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return f"{boot}-{Path('/proc/self/ns/pid').stat().st_ino}"


def began(pid: int) -> int | None:
    """When a process began, in ticks since the machine did; None if there is none, or if it is about to end."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" or int(fields[6]) & EXITING else int(fields[19])


def state(pid: int) -> str:
    """R, S, T (stopped) and so on; empty if there is none."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    return ""


def clean() -> list[str]:
    """Ends what killed orchestrators left behind; what it was."""
    found = []
    for file, entries in _abandoned():
        for entry in entries:
            pid = int(entry["process"])
            if entry["began"] is not None and began(pid) == entry["began"]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                    found.append(f"process {pid} ({entry['what']})")
        file.unlink(missing_ok=True)
    return found


def _abandoned() -> "Iterator[tuple[Path, list[dict[str, Any]]]]":
    place = folder()
    for file in sorted(place.glob("*.journal*")) if place.exists() and _is_ours(place) else ():
        pid, _, time = file.stem.partition("-")
        if pid.isdigit() and str(began(int(pid))) == time:
            continue  # its orchestrator lives
        entries = []
        for line in file.read_text(encoding="utf-8").splitlines():
            with suppress(ValueError):  # the last line of one that was killed
                entries.append(json.loads(line))
        yield file, entries

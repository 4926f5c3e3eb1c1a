"""What a run directory was made for, as `request.json` in it, and who is working in it.

A directory is resumed only by the command that it was made for: the same scenario, points, seeds, ground and program.
While any process works in the directory, it holds a shared lock on `request.json`. The system releases the lock when
the process dies, however it dies, and programs that the process starts do not inherit it.
"""

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, fields
from importlib.metadata import version
from pathlib import Path

from brokerbed.orchestrator.run_directory import commit, plain
from brokerbed.scenario import Scenario

FILE = "request.json"
SCENARIO_FILE = "scenario.yaml"
SHOWN_DIGITS = 12  # digits of a digest or commit that a message shows


@dataclass(frozen=True, slots=True)
class Request:
    """Everything that determines the runs of an experiment, except the text of the scenario."""

    ground: str
    seeds: int
    points: int
    points_digest: str  # digest of all resolved points, with their seeds
    engines: tuple[str, ...]
    version: str
    commit: str | None

    @classmethod
    def of(cls, points: Sequence[Scenario], ground: str, seeds: int, engines: Sequence[str]) -> "Request":
        resolved = json.dumps([plain(point) for point in points], sort_keys=True).encode()
        digest = hashlib.sha256(resolved).hexdigest()
        return cls(ground, seeds, len(points), digest, tuple(engines), version("brokerbed"), commit())

    def difference_from(self, other: "Request") -> str | None:
        """The first setting that differs, for people; None if the requests are equal."""
        for field in fields(self):
            ours, theirs = getattr(self, field.name), getattr(other, field.name)
            if ours != theirs:
                name = field.name.replace("_", " ")
                return f"{name} {_short(theirs)}, not {_short(ours)}"
        return None


def _short(value: object) -> str:
    text = ", ".join(value) if isinstance(value, tuple) else str(value)
    return text[:SHOWN_DIGITS] if text.isalnum() else text or "none"


class Lock:
    """Held on the request of a run directory from `acquire` to `close`, or until the process dies."""

    def __init__(self, folder: Path) -> None:
        """Raises OSError if the directory has no request."""
        self._descriptor = os.open(folder / FILE, os.O_RDWR | os.O_CLOEXEC)

    def acquire(self) -> bool:
        """Whether nobody else works there. From then on others that call this are refused.

        The exclusive lock is exchanged for a shared one, which worker processes take, too: so the directory stays
        locked when they outlive the process that started them. Somebody else may get in between; then we are refused.
        """
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:  # it is in use, or this file system has no locks
            return False
        return True

    def share(self) -> None:
        """Shares the lock with the processes that work in the directory already."""
        with suppress(OSError):  # this file system has no locks
            fcntl.flock(self._descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)

    def close(self) -> None:
        os.close(self._descriptor)


@contextmanager
def locked_directory(folder: Path) -> Iterator[None]:
    """Keeps a run directory locked while one of its runs is under way in this process."""
    try:
        lock = Lock(folder)
    except FileNotFoundError:  # a run without a directory of its own
        yield
        return
    lock.share()
    try:
        yield
    finally:
        lock.close()


def write(folder: Path, request: Request) -> Lock:
    """Writes the request into a new directory, which is locked from then on."""
    (folder / FILE).touch()
    lock = Lock(folder)
    lock.acquire()  # before the request can be read: nobody resumes what has only just been made
    (folder / FILE).write_text(json.dumps(asdict(request), indent=1) + "\n", encoding="utf-8")
    return lock


def read(folder: Path) -> Request | None:
    """The request of a directory; None if there is none, or if another version of brokerbed wrote it."""
    try:
        document = json.loads((folder / FILE).read_text(encoding="utf-8"))
        return Request(**{**document, "engines": tuple(document["engines"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def why_not_resumed(folder: Path, request: Request, text: bytes) -> str | None:
    """Why a directory was not made for this request; None if it was."""
    stored = read(folder)
    if stored is None:
        return "it does not say what it was made for"
    with suppress(OSError):
        if (folder / SCENARIO_FILE).read_bytes() == text:
            different = request.difference_from(stored)
            return None if different is None else f"it was begun with {different}"
    return "it was begun with another scenario"

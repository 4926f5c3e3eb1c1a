"""A message log on disk, as brokers write theirs: what was buffered is appended."""

from collections.abc import Callable
from pathlib import Path

from brokerbed.log.record import MAGIC, NAMES_FILE, RECORDS_FILE, Log, name_line, route_line


def append(folder: Path, life: int, log: Log) -> None:
    """To the pair of files of this life; names first, so that a record never refers to one that is not there.

    OSError if that is not possible; then the files are whole, and what is not in them is in the log as before.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names, routes, records = log.names, log.routes, log.records
    lines = (*(name_line(*it) for it in names), *(route_line(*it) for it in routes))
    _append(folder / NAMES_FILE.format(life), "".join(line + "\n" for line in lines).encode())
    log.names, log.routes = [], []
    _append(folder / RECORDS_FILE.format(life), records, MAGIC)
    log.records = bytearray()


def _append(file: Path, data: bytes | bytearray, beginning: bytes = b"") -> None:
    """All of it or nothing: half a record would spoil all that follow."""
    with file.open("ab", buffering=0) as out:
        size = out.tell()
        view = memoryview(data if size else beginning + data)
        try:
            while view:
                view = view[out.write(view) :]
        except OSError:
            out.truncate(size)
            raise


def writer(folder: Path) -> Callable[[str, int, Log], None]:
    """Writes the log of this name in this life, in a folder of its own."""
    return lambda name, life, log: append(folder / name, life, log)

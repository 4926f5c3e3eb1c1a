"""Appends the buffered records of a message log to files, in the format that brokers use."""

from collections.abc import Callable
from pathlib import Path

from brokerbed.log.record import MAGIC, NAMES_FILE, RECORDS_FILE, Log, name_line, route_line


def append(folder: Path, life: int, log: Log) -> None:
    """Appends to the pair of files of this life. Names come first, so that no record refers to a missing name.

    If this is not possible it raises OSError; then the files are intact, and the log still has what is not in them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names, routes, records = log.names, log.routes, log.records
    lines = (*(name_line(*name) for name in names), *(route_line(*route) for route in routes))
    _append(folder / NAMES_FILE.format(life), "".join(line + "\n" for line in lines).encode())
    log.names, log.routes = [], []
    _append(folder / RECORDS_FILE.format(life), records, MAGIC)
    log.records = bytearray()


def _append(file: Path, data: bytes | bytearray, beginning: bytes = b"") -> None:
    """Appends all of the data or nothing, because half a record would corrupt all that follow."""
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
    """Returns a function that appends the log of a name and a life to a folder of that name."""
    return lambda name, life, log: append(folder / name, life, log)

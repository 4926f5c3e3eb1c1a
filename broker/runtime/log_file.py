"""The message log on disk, to which the records buffered by the core are appended in order.

A standalone broker writes the log in the background. A broker of the testbed writes it in each turn of the event loop,
before any output: whenever the broker is killed, its log covers everything that any peer was sent, and agrees with the
store. A full disk never stops the broker: events that cannot be written are lost, counted and reported, and the files
remain valid.
"""

import asyncio
import os
import sys
from io import FileIO
from pathlib import Path

from brokerbed.broker.core.rows import Row
from brokerbed.log.record import MAGIC, NAMES_FILE, RECORDS_FILE, Log, name_line, route_line

FLUSH_S = 0.2  # how long an event may stay in memory
WAITING_BYTES_MAX = 256 * 2**20  # kept in memory while the disk does not respond; beyond that events are lost
GAPS = "brokerbed broker: the message log has gaps from now on ({})"


class _Files:
    """The two files of one incarnation of the broker: names and records."""

    def __init__(self, log: Log, folder: Path) -> None:
        self._log = log
        self._unwritten: list[str] = []  # names that could not be written yet; later records may refer to them
        self.lost_bytes = 0
        self._has_gaps = False  # True once events were lost, which is reported once
        folder.mkdir(parents=True, exist_ok=True)
        self.life = 1  # number of these files, the first that is free in the folder
        while (records := folder / RECORDS_FILE.format(self.life)).exists():
            self.life += 1
        self._names = (folder / NAMES_FILE.format(self.life)).open("ab", buffering=0)
        new = records.with_suffix(".new")
        new.write_bytes(MAGIC)
        new.replace(records)  # a broker killed here leaves no file without the magic number at its start
        self._records = records.open("ab", buffering=0)

    def _write_names(self) -> None:
        """Names are written before the records, so that no record refers to a missing name."""
        if self._unwritten:
            _append(self._names, "".join(line + "\n" for line in self._unwritten).encode())
            self._unwritten = []

    def _lose(self, size: int, why: str) -> None:
        if not self._has_gaps:
            self._has_gaps = True
            print(GAPS.format(why), file=sys.stderr, flush=True)
        self.lost_bytes += size

    def _close(self) -> None:
        self._records.close()
        self._names.close()


class LogFile(_Files):
    """Writes a Log's buffers periodically in a thread, so that the event loop never waits for the disk."""

    def __init__(self, log: Log, folder: Path) -> None:
        super().__init__(log, folder)
        self._writing: asyncio.Task[None] | None = None

    async def run(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            if self._writing is None or self._writing.done():
                self._writing = asyncio.create_task(self.flush())
            elif len(self._log.records) > WAITING_BYTES_MAX:
                self._lose(len(self._log.records), "the disk is stuck")
                self._log.records = bytearray()

    async def flush(self) -> None:
        names, routes, records = self._log.take()
        if names or routes or records or self._unwritten:
            await asyncio.to_thread(self._write, names, routes, records)

    def _write(
        self, names: list[tuple[int, str]], routes: list[tuple[int, tuple[int, ...]]], records: bytearray
    ) -> None:
        self._unwritten += _lines(names, routes)
        try:
            self._write_names()
            _append(self._records, records)
        except OSError as error:
            self._lose(len(records), error.strerror or str(error))

    async def close(self) -> None:
        if self._writing is not None:
            await self._writing
        await self.flush()
        self._close()


class TurnLog(_Files):
    """Writes a Log's buffers in each turn. The server stores `row` first, if it has a store, and then calls `write`."""

    def row(self) -> Row | None:
        """The row for the store: what `write` will append and where, so that `complete` can append it after a kill."""
        self._prepare()
        if not self._log.records:
            return None
        return self.life, os.fstat(self._records.fileno()).st_size, bytes(self._log.records)

    def write(self) -> None:
        self._prepare()
        records = self._log.records
        if records:
            self._log.records = bytearray()
            try:
                _append(self._records, records)
            except OSError as error:
                self._lose(len(records), error.strerror or str(error))

    def _prepare(self) -> None:
        """Write the names first. If they cannot be written, the records are lost."""
        log = self._log
        if not (log.names or log.routes or self._unwritten):
            return
        self._unwritten += _lines(log.names, log.routes)
        log.names, log.routes = [], []
        try:
            self._write_names()
        except OSError as error:
            self._lose(len(log.records), error.strerror or str(error))
            log.records = bytearray()

    def close(self) -> None:
        self._close()


def complete(folder: Path, row: Row) -> None:
    """Append those records in a row of TurnLog that were not yet in the log file when the broker was killed."""
    life, size, records = row
    try:
        with (folder / RECORDS_FILE.format(life)).open("r+b", buffering=0) as file:
            file.seek(size)
            present = file.read(len(records))
            is_cut = os.fstat(file.fileno()).st_size < size  # possible after a power failure
            if not is_cut and len(present) < len(records) and records.startswith(present):
                _append(file, records[len(present) :])
    except FileNotFoundError:
        pass  # the log file was removed
    except OSError as error:
        print(GAPS.format(error.strerror or error), file=sys.stderr, flush=True)


def _lines(names: list[tuple[int, str]], routes: list[tuple[int, tuple[int, ...]]]) -> list[str]:
    return [name_line(*name) for name in names] + [route_line(*route) for route in routes]


def _append(file: FileIO, data: bytes | bytearray) -> None:
    """Append all of the data or nothing: half a record would make all that follow unreadable."""
    size = os.fstat(file.fileno()).st_size
    view = memoryview(data)
    try:
        while view:
            view = view[file.write(view) :]
    except OSError:
        file.truncate(size)
        raise

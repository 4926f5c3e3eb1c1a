"""The message log on disk: what the core buffered is appended in the background, in order.

A disk that is full or stuck never stops the broker: events that cannot be written are lost, counted and reported, and
the files stay whole.
"""

import asyncio
import os
import sys
from io import FileIO
from pathlib import Path

from broker.log_record import MAGIC, NAMES_FILE, RECORDS_FILE, Log, name_line, route_line

FLUSH_S = 0.2  # how long an event may stay in memory
WAITING_BYTES_MAX = 256 * 2**20  # in memory while the disk is stuck; beyond that events are lost


class LogFile:
    """Writes a Log's buffers every now and then, in a thread, so that the event loop never waits for the disk."""

    def __init__(self, log: Log, folder: Path) -> None:
        self._log = log
        self._writing: asyncio.Task[None] | None = None
        self._unwritten: list[str] = []  # names that could not be written yet: records to come refer to them
        self.lost_bytes = 0
        self._has_gaps = False  # which is said once
        folder.mkdir(parents=True, exist_ok=True)
        number = 1
        while (folder / RECORDS_FILE.format(number)).exists():
            number += 1
        self._names = (folder / NAMES_FILE.format(number)).open("ab", buffering=0)
        self._records = (folder / RECORDS_FILE.format(number)).open("ab", buffering=0)
        self._records.write(MAGIC)

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
        """Names first: a record never refers to a name that is not there."""
        self._unwritten += [name_line(*name) for name in names] + [route_line(*route) for route in routes]
        try:
            if self._unwritten:
                _append(self._names, "".join(line + "\n" for line in self._unwritten).encode())
                self._unwritten = []
            _append(self._records, records)
        except OSError as error:
            self._lose(len(records), error.strerror or str(error))

    def _lose(self, size: int, why: str) -> None:
        if not self._has_gaps:
            self._has_gaps = True
            print(f"brokerbed broker: the message log has gaps from now on ({why})", file=sys.stderr, flush=True)
        self.lost_bytes += size

    async def close(self) -> None:
        if self._writing is not None:
            await self._writing
        await self.flush()
        self._records.close()
        self._names.close()


def _append(file: FileIO, data: bytes | bytearray) -> None:
    """All of it or nothing: half a record would spoil all that follow."""
    size = os.fstat(file.fileno()).st_size
    view = memoryview(data)
    try:
        while view:
            view = view[file.write(view) :]
    except OSError:
        file.truncate(size)
        raise

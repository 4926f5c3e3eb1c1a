"""The message log on disk: what the core buffered is appended in the background, in order."""

import asyncio
from pathlib import Path

from broker.log_record import MAGIC, NAMES_FILE, RECORDS_FILE, Log, name_line, route_line

FLUSH_S = 0.2  # how long an event may stay in memory


class LogFile:
    """Writes a Log's buffers every now and then, in a thread, so that the event loop never waits for the disk."""

    def __init__(self, log: Log, folder: Path) -> None:
        self._log = log
        folder.mkdir(parents=True, exist_ok=True)
        self._records = (folder / RECORDS_FILE).open("ab")
        self._names = (folder / NAMES_FILE).open("a", encoding="utf-8")
        if self._records.tell() == 0:
            self._records.write(MAGIC)

    async def run(self) -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            await self.flush()

    async def flush(self) -> None:
        names, routes, records = self._log.take()
        if names or routes or records:
            await asyncio.get_running_loop().run_in_executor(None, self._write, names, routes, records)

    def _write(
        self, names: list[tuple[int, str]], routes: list[tuple[int, tuple[int, ...]]], records: bytearray
    ) -> None:
        """Names first: a record never refers to a name that is not there."""
        lines = [name_line(*name) for name in names] + [route_line(*route) for route in routes]
        if lines:
            self._names.write("\n".join(lines) + "\n")
            self._names.flush()
        self._records.write(records)
        self._records.flush()

    async def close(self) -> None:
        await self.flush()
        self._records.close()
        self._names.close()

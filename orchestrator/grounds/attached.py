"""A container's input and output as those of a process: what ClientProcess needs."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

HEADER_BYTES = 8  # of a frame: which stream, three zeros, how long
STDOUT = 1
LINE_BYTES_MAX = 1 << 24


class Attached:
    """Of a container without a terminal, by the engine's attach call."""

    def __init__(self, attached: socket.socket, wait: Callable[[], Awaitable[int]]) -> None:
        self.stdin = self
        self.stdout = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        self.stderr = asyncio.StreamReader(limit=LINE_BYTES_MAX)
        self.returncode: int | None = None
        self._socket = attached
        self._wait = wait
        self._writer: asyncio.StreamWriter | None = None
        self._unsent: list[bytes] = []

    async def open(self) -> None:
        reader, self._writer = await asyncio.open_connection(sock=self._socket, limit=LINE_BYTES_MAX)
        for data in self._unsent:
            self._writer.write(data)
        self._reading = asyncio.create_task(self._read(reader))

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                header = await reader.readexactly(HEADER_BYTES)
                data = await reader.readexactly(int.from_bytes(header[4:], "big"))
                (self.stdout if header[0] == STDOUT else self.stderr).feed_data(data)
        except (asyncio.IncompleteReadError, OSError):
            self.stdout.feed_eof()
            self.stderr.feed_eof()

    def write(self, data: bytes) -> None:
        if self._writer is None:
            self._unsent.append(data)
        else:
            self._writer.write(data)

    def close(self) -> None:
        """Of its input alone."""
        if self._writer is not None and self._writer.can_write_eof():
            self._writer.write_eof()

    async def wait(self) -> int:
        self.returncode = await self._wait()
        return self.returncode

    def end(self) -> None:
        if self._writer is not None:
            self._writer.close()


def raw_socket(attached: Any) -> socket.socket:
    """What the SDK returns is a socket, or a file around one."""
    found = getattr(attached, "_sock", attached)
    assert isinstance(found, socket.socket)
    found.setblocking(False)
    return found

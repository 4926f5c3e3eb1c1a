"""The standard streams of a container, with the interface of a process that ClientProcess needs."""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from typing import Any

HEADER_BYTES = 8  # of a frame: number of the stream, three zeros, length
STDOUT = 1
LINE_BYTES_MAX = 1 << 24


class AttachedContainer:
    """A container without a terminal to which the engine has attached us."""

    def __init__(self, attached: socket.socket, wait: Callable[[], Awaitable[int]] | None = None) -> None:
        """`wait` gives the exit code of the container; only `wait` of this object needs it."""
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
        """Closes the standard input only."""
        if self._writer is not None and self._writer.can_write_eof():
            self._writer.write_eof()

    async def wait(self) -> int:
        assert self._wait is not None
        self.returncode = await self._wait()
        return self.returncode

    def end(self) -> None:
        if self._writer is not None:
            self._writer.close()


def raw_socket(attached: Any) -> socket.socket:
    """The SDK returns a socket, or a file object that wraps one."""
    raw = getattr(attached, "_sock", attached)
    assert isinstance(raw, socket.socket)
    raw.setblocking(False)
    return raw

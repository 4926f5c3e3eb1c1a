"""The two ends of a relayed link, as sockets in the relay's own event loop."""

import asyncio
import socket
import struct
from collections.abc import Callable, Coroutine
from typing import Any

import uvloop

from brokerbed.orchestrator.grounds.relay import Quality, Relay

WAIT_S = 60
TURNS = 50  # of the event loop: what could happen by mistake happens in one or two


class Ends:
    """A relay before a listening socket; connections are made on demand and all closed at the end."""

    def __init__(self, up: Quality = Quality(), down: Quality = Quality()) -> None:  # noqa: B008
        self.loop = asyncio.get_running_loop()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.setblocking(False)
        self.relay = Relay(self.listener.getsockname(), up, down)
        self.port = 0
        self._opened: list[socket.socket] = []

    async def __aenter__(self) -> "Ends":
        self.port = await self.relay.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.relay.close()
        for each in [*self._opened, self.listener]:
            each.close()

    async def dial(self) -> socket.socket:
        child = socket.socket()
        child.setblocking(False)
        self._opened.append(child)
        await self.loop.sock_connect(child, ("127.0.0.1", self.port))
        return child

    async def accept(self) -> socket.socket:
        parent, _ = await self.loop.sock_accept(self.listener)
        self._opened.append(parent)
        return parent

    async def connect(self) -> tuple[socket.socket, socket.socket]:
        """A child and its parent."""
        return await self.dial(), await self.accept()

    async def send(self, end: socket.socket, data: bytes) -> None:
        await self.loop.sock_sendall(end, data)

    async def receive(self, end: socket.socket, count: int) -> bytes:
        data = bytearray()
        while len(data) < count and (chunk := await self.loop.sock_recv(end, count - len(data))):
            data += chunk
        return bytes(data)

    async def receive_all(self, end: socket.socket) -> bytes:
        """Until the other end has ended."""
        data = bytearray()
        while chunk := await self.loop.sock_recv(end, 1 << 20):
            data += chunk
        return bytes(data)

    async def nothing(self, end: socket.socket) -> bool:
        """Whether there is neither a byte nor an end to be read, nor a connection to be accepted."""
        for _ in range(TURNS):
            await asyncio.sleep(0.001)
        try:
            end.accept() if end is self.listener else end.recv(1)
        except BlockingIOError:
            return True
        return False


def story(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """A test as a coroutine, in the event loop that the orchestrator has, and in bounded time."""

    async def bounded() -> None:
        async with asyncio.timeout(WAIT_S):
            await test()

    def run() -> None:
        uvloop.run(bounded())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def reset(end: socket.socket) -> None:
    """Ends the connection as a crash does."""
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    end.close()

"""The TLS listener, for MQTT and for WebSockets.

It registers every connection with the core as soon as TCP has accepted it.

asyncio's own TLS servers report a connection only after its handshake. A client that never finishes the handshake would
then count towards no limit, so this listener accepts connections itself.
"""

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from brokerbed.broker.core.connection import Connection
from brokerbed.broker.runtime.security import Listener
from brokerbed.broker.runtime.server import Server

ACCEPT_RETRY_S = 1.0  # how long to wait when the system cannot accept a connection, as when file handles run out


@dataclass(frozen=True)
class Protocols:
    """`make` makes the protocol of a connection that the core knows; `forget` is called if its handshake fails."""

    make: Callable[[Connection], asyncio.BaseProtocol]
    forget: Callable[[Any], object] = lambda _: None


class _Handshake:
    """Stands in for a connection's transport until the TLS handshake has produced one."""

    def __init__(
        self, server: Server, listener: Listener, protocols: Protocols, client: socket.socket, address: Any
    ) -> None:
        self._server = server
        self._protocols = protocols
        self._protocol: asyncio.BaseProtocol | None = None
        self._client = client
        self._is_closing = False
        self._connection = server.opened(self, address, None, listener.name)
        server.flush()
        self._task = asyncio.create_task(self._run(listener))
        self._task.add_done_callback(self._handshake_done)

    async def _run(self, listener: Listener) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):  # the client does not speak TLS, has no right certificate, or has disconnected
            await loop.connect_accepted_socket(
                self._make, self._client, ssl=listener.tls,
                ssl_handshake_timeout=self._server.broker.config.connect_timeout_s or None,
            )  # fmt: skip

    def _make(self) -> asyncio.BaseProtocol:
        self._protocol = self._protocols.make(self._connection)
        return self._protocol

    def _handshake_done(self, _: object) -> None:
        if self._connection.driver is self:  # the handshake failed: the protocol got no transport
            self._client.close()
            if self._protocol is not None:
                self._protocols.forget(self._protocol)
            self._server.broker.lost(self._connection, self._server.now_ns())
            self._server.flush()

    def write(self, data: bytes) -> None:
        raise AssertionError(f"the core wrote {len(data)} bytes to a client that has sent it nothing")

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """Does nothing, because no data reaches the core before the handshake is complete."""

    def resume_reading(self) -> None:
        """Does nothing, like pause_reading."""

    def is_closing(self) -> bool:
        return self._is_closing

    def close(self) -> None:
        self._is_closing = True
        self._task.cancel()

    abort = close


class TlsListener:
    """Accepts TLS connections; it has the part of asyncio.Server's interface that the broker uses."""

    def __init__(self, server: Server, listener: Listener, protocols: Protocols, sockets: list[socket.socket]) -> None:
        self.sockets = sockets
        self._server = server
        self._listener = listener  # its certificate may be replaced
        self._protocols = protocols
        self._accepting = [asyncio.create_task(self._accept(it)) for it in sockets]

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, address = await loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(ACCEPT_RETRY_S)
            else:
                _Handshake(self._server, self._listener, self._protocols, client, address)

    def close(self) -> None:
        for accepting in self._accepting:
            accepting.cancel()
        for listening in self.sockets:
            listening.close()


async def serve(server: Server, listener: Listener, protocols: Protocols, backlog: int) -> TlsListener:
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(listener.host, listener.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets = []
    for family, address in dict.fromkeys((info[0], info[4]) for info in addresses):
        listening = socket.create_server(address, family=family, backlog=backlog)
        listening.setblocking(False)
        sockets.append(listening)
    return TlsListener(server, listener, protocols, sockets)

"""The TLS listener. It registers every connection with the core as soon as TCP has accepted it.

asyncio's own TLS servers report a connection only after its handshake. A client that never finishes the handshake would
then count towards no limit, so this listener accepts connections itself.
"""

import asyncio
import socket
import ssl
from contextlib import suppress
from typing import Any

from brokerbed.broker.runtime.server import Server

ACCEPT_RETRY_S = 1.0  # how long to wait when the system cannot accept a connection, as when file handles run out


class _Handshake:
    """Stands in for a connection's transport until the TLS handshake has produced one."""

    def __init__(self, server: Server, context: ssl.SSLContext, client: socket.socket, address: Any) -> None:
        self._client = client
        self._is_closing = False
        self._wire = server.protocol()
        self._task = asyncio.create_task(self._run(context, server.broker.config.connect_timeout_s or None))
        self._task.add_done_callback(self._handshake_done)
        self._connection = self._wire.open(self, address)

    async def _run(self, context: ssl.SSLContext, timeout_s: float | None) -> None:
        loop = asyncio.get_running_loop()
        with suppress(OSError):  # the client does not speak TLS, or it has disconnected
            await loop.connect_accepted_socket(
                lambda: self._wire, self._client, ssl=context, ssl_handshake_timeout=timeout_s
            )

    def _handshake_done(self, _: object) -> None:
        if self._connection.driver is self:  # the handshake failed: Wire.connection_made was never called
            self._client.close()
            self._wire.connection_lost(None)

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

    def __init__(self, server: Server, context: ssl.SSLContext, sockets: list[socket.socket]) -> None:
        self.sockets = sockets
        self._server = server
        self._context = context
        self._accepting = [asyncio.create_task(self._accept(listener)) for listener in sockets]

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, address = await loop.sock_accept(listening)
            except OSError:
                await asyncio.sleep(ACCEPT_RETRY_S)
            else:
                _Handshake(self._server, self._context, client, address)

    def close(self) -> None:
        for accepting in self._accepting:
            accepting.cancel()
        for listening in self.sockets:
            listening.close()


async def serve(server: Server, host: str, port: int, context: ssl.SSLContext, backlog: int) -> TlsListener:
    loop = asyncio.get_running_loop()
    addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets = []
    for family, address in dict.fromkeys((info[0], info[4]) for info in addresses):
        listening = socket.create_server(address, family=family, backlog=backlog)
        listening.setblocking(False)
        sockets.append(listening)
    return TlsListener(server, context, sockets)

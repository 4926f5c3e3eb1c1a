"""MQTT over WebSockets (section 6), for browsers: the same core connections, carried by aiohttp."""

import asyncio
from contextlib import suppress

from aiohttp import WSMsgType, web

from brokerbed.broker.core.connection import Connection
from brokerbed.broker.runtime import tls
from brokerbed.broker.runtime.origins import may_connect
from brokerbed.broker.runtime.pace import Pace
from brokerbed.broker.runtime.security import Listener
from brokerbed.broker.runtime.server import CLOSE_S_MAX, Server
from brokerbed.broker.runtime.wire import OUTPUT_LOW_PART, SLICE_NS_MAX
from brokerbed.broker.values import NS_PER_S

WRONG_ORIGIN = "Pages from there may not connect to this broker: see allowed_origins in its configuration.\n"
NO_UPGRADE = "This port speaks MQTT over WebSockets only.\n"


class _WebSocket:
    """The driver of one connection to the WebSocket port, from TCP accept to the end.

    It collects output, which a task sends once the HTTP connection has been upgraded.
    """

    def __init__(
        self, server: Server, transport: asyncio.Transport, listener: str, connection: Connection | None
    ) -> None:
        """`connection`: it was opened before the TLS handshake."""
        self._server = server
        self._transport = transport
        self._waiting: list[bytes] = []
        self._unsent_bytes = 0  # bytes that are waiting or being sent
        self._wake = asyncio.Event()
        self._is_closing = False
        self._sending: asyncio.Task[None] | None = None
        self.may_read = asyncio.Event()
        self._output_bytes_max = server.broker.config.output_bytes_max
        if server.store_problem is None:
            self.may_read.set()
        if connection is None:
            connection = server.opened(self, transport.get_extra_info("peername"), None, listener)
        self.connection = connection
        connection.driver = self

    def write(self, data: bytes) -> None:
        self._waiting.append(data)
        self._unsent_bytes += len(data)
        self._wake.set()
        if self._unsent_bytes > self._output_bytes_max and not self.connection.is_blocked:
            self._server.broker.writable(self.connection, False, self._server.now_ns())

    def get_write_buffer_size(self) -> int:
        return self._unsent_bytes or self._transport.get_write_buffer_size()

    def close(self) -> None:
        """Close the connection once everything is sent."""
        self._is_closing = True
        self._wake.set()
        if self._sending is None:
            self._transport.close()

    def pause_reading(self) -> None:
        self.may_read.clear()

    def resume_reading(self) -> None:
        self.may_read.set()

    def is_closing(self) -> bool:
        return self._is_closing

    def abort(self) -> None:
        """End the connection now, even if the peer does not read."""
        self._is_closing = True
        self._waiting.clear()
        self.may_read.set()  # a handler that waits for this can see that the connection has ended
        self._transport.abort()
        if self._sending is not None:
            self._sending.cancel()

    def begin(self, socket: web.WebSocketResponse) -> None:
        self._sending = asyncio.create_task(self._send(socket))

    async def _send(self, socket: web.WebSocketResponse) -> None:
        while not self._is_closing or self._waiting:
            await self._wake.wait()
            self._wake.clear()
            data, self._waiting = b"".join(self._waiting), []
            if data:
                await socket.send_bytes(data)
            self._unsent_bytes -= len(data)
            if self.connection.is_blocked and self._unsent_bytes < self._output_bytes_max // OUTPUT_LOW_PART:
                self._server.broker.writable(self.connection, True, self._server.now_ns())
                self._server.flush()
        await socket.close()

    async def finish(self) -> None:
        """Close the connection and wait until it is closed. A peer that does not read is given CLOSE_S_MAX."""
        self.close()
        if self._sending is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.gather(self._sending, return_exceptions=True), CLOSE_S_MAX)
            self.abort()


class _HttpServer(web.Server):
    """Registers every TCP connection with the core at once, so that limits and the time for CONNECT apply to it."""

    def __init__(self, server: Server, listener: Listener, packet_bytes_max: int) -> None:
        super().__init__(self._handle, access_log=None)
        self._server = server
        self._listener = listener
        self._packet_bytes_max = packet_bytes_max
        self._opened: dict[web.RequestHandler, Connection] = {}  # before their TLS handshake
        self._wires: dict[web.RequestHandler, _WebSocket] = {}  # keyed by aiohttp's protocol object

    def protocol(self, connection: Connection) -> web.RequestHandler:
        """For a connection that is in its TLS handshake."""
        handler = self()
        self._opened[handler] = connection
        return handler

    def forget(self, handler: web.RequestHandler) -> None:
        """Its TLS handshake has failed."""
        del self._opened[handler]

    def connection_made(self, handler: web.RequestHandler, transport: asyncio.Transport) -> None:
        super().connection_made(handler, transport)
        connection = self._opened.pop(handler, None)
        self._wires[handler] = _WebSocket(self._server, transport, self._listener.name, connection)
        asyncio.get_running_loop().call_soon(self._server.flush)  # aiohttp fails if we close the transport here

    def connection_lost(self, handler: web.RequestHandler, exc: BaseException | None = None) -> None:
        super().connection_lost(handler, exc)
        wire = self._wires.pop(handler, None)
        if wire is not None:
            self._lost(wire)

    def _lost(self, wire: _WebSocket) -> None:
        self._server.broker.lost(wire.connection, self._server.now_ns())
        self._server.flush()

    async def _handle(self, request: web.BaseRequest) -> web.StreamResponse:
        socket = web.WebSocketResponse(
            protocols=("mqtt", "mqttv3.1"), max_msg_size=self._packet_bytes_max, compress=False
        )
        wire = self._wires.get(request.protocol)
        if wire is None or not socket.can_prepare(request):
            answer = web.Response(status=426, headers={"Upgrade": "websocket"}, text=NO_UPGRADE)
            answer.force_close()
            return answer
        admission = self._server.broker.config.admission(self._listener.name)
        origin, host = request.headers.get("Origin"), request.headers.get("Host")
        if not may_connect(origin, host, self._listener.allowed_origins, admission.allow_anonymous):
            answer = web.Response(status=403, text=WRONG_ORIGIN)
            answer.force_close()
            return answer
        await socket.prepare(request)
        wire.begin(socket)
        worked_ns = 0
        pace = Pace.of(self._server.broker.config)
        try:
            async for message in socket:
                if message.type is not WSMsgType.BINARY:
                    break  # [MQTT-6.0.0-1]
                await wire.may_read.wait()
                began_ns = self._server.now_ns()
                counters = self._server.broker.counters
                before = counters.messages
                self._server.broker.received(wire.connection, message.data, began_ns)
                self._server.flush()
                worked_ns += self._server.now_ns() - began_ns
                if worked_ns > SLICE_NS_MAX:  # messages that are there already would not let others have their turn
                    worked_ns = 0
                    await asyncio.sleep(0)
                if pace is not None and (
                    delay_ns := pace.delay_ns(len(message.data), counters.messages - before, began_ns)
                ):
                    counters.shed["rate"] += 1
                    wire.connection.last_ns += delay_ns  # it is not silent meanwhile, it is not heard
                    await asyncio.sleep(delay_ns / NS_PER_S)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._lost(wire)
            await wire.finish()
        return socket


async def serve(
    server: Server, listener: Listener, packet_bytes_max: int, backlog: int
) -> asyncio.Server | tls.TlsListener:
    http = _HttpServer(server, listener, packet_bytes_max)
    if listener.tls is not None:
        return await tls.serve(server, listener, tls.Protocols(http.protocol, http.forget), backlog)
    return await asyncio.get_running_loop().create_server(http, listener.host, listener.port, backlog=backlog)

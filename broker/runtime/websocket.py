"""MQTT over WebSockets (section 6), for browsers: the same core connections, carried by aiohttp."""

import asyncio

from aiohttp import WSMsgType, web

from broker.core.connection import Connection
from broker.runtime.server import OUTPUT_BYTES_LOW, OUTPUT_BYTES_MAX, Server


class _WebSocket:
    """What the server writes to: collects output, which a task of its own sends."""

    def __init__(self, server: Server, peer: str) -> None:
        self._server = server
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._wake = asyncio.Event()
        self._is_closing = False
        self.may_read = asyncio.Event()
        if server.store_problem is None:
            self.may_read.set()
        self.connection: Connection = server.broker.opened(server.now_ns(), peer=peer)
        self.connection.driver = self

    def write(self, data: bytes) -> None:
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        self._wake.set()
        if self._waiting_bytes > OUTPUT_BYTES_MAX and not self.connection.is_blocked:
            self._server.broker.writable(self.connection, False, self._server.now_ns())

    def get_write_buffer_size(self) -> int:
        return self._waiting_bytes

    def close(self) -> None:
        self._is_closing = True
        self._wake.set()

    def pause_reading(self) -> None:
        self.may_read.clear()

    def resume_reading(self) -> None:
        self.may_read.set()

    def is_closing(self) -> bool:
        return self._is_closing

    def abort(self) -> None:
        self._waiting.clear()
        self.close()

    async def send(self, socket: web.WebSocketResponse) -> None:
        while not self._is_closing or self._waiting:
            await self._wake.wait()
            self._wake.clear()
            data, self._waiting, self._waiting_bytes = b"".join(self._waiting), [], 0
            if data:
                await socket.send_bytes(data)
            if self.connection.is_blocked and self._waiting_bytes < OUTPUT_BYTES_LOW:
                self._server.broker.writable(self.connection, True, self._server.now_ns())
                self._server.flush()
        await socket.close()


async def serve(server: Server, host: str, port: int, packet_bytes_max: int) -> web.AppRunner:
    async def handle(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse(protocols=("mqtt", "mqttv3.1"), max_msg_size=packet_bytes_max, compress=False)
        await socket.prepare(request)
        wire = _WebSocket(server, request.remote or "")
        sending = asyncio.create_task(wire.send(socket))
        try:
            async for message in socket:
                if message.type is not WSMsgType.BINARY:
                    break  # [MQTT-6.0.0-1]
                await wire.may_read.wait()
                server.broker.received(wire.connection, message.data, server.now_ns())
                server.flush()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            server.broker.lost(wire.connection, server.now_ns())
            server.flush()
            wire.close()
            await asyncio.gather(sending, return_exceptions=True)
        return socket

    application = web.Application()
    application.router.add_get("/{path:.*}", handle)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return runner

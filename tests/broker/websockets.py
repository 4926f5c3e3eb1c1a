"""A WebSocket over a plain socket, so that a test decides when it reads and what it leaves unsaid."""

import base64
import os
import socket
import struct

from tests.broker.running import WAIT_S

BINARY, CLOSE = 0x2, 0x8


class RawWebSocket:
    def __init__(self, port: int, receive_buffer_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:  # takes effect only before connecting
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(WAIT_S)
        self.socket.connect(("127.0.0.1", port))
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(
            f"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: mqtt\r\n\r\n".encode()
        )
        self._buffer = b""
        head = self._until(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101 "), head

    def _until(self, end: bytes) -> bytes:
        while end not in self._buffer:
            self._fill()
        head, _, self._buffer = self._buffer.partition(end)
        return head

    def _fill(self) -> None:
        data = self.socket.recv(65536)
        if not data:
            raise EOFError("the broker closed the connection")
        self._buffer += data

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._fill()
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def send(self, data: bytes) -> None:
        """In one binary frame, masked with zeros."""
        assert len(data) < 2**16
        self.socket.sendall(bytes([0x80 | BINARY, 0x80 | 126]) + struct.pack(">H", len(data)) + bytes(4) + data)

    def frame(self) -> tuple[int, bytes]:
        """The next frame's kind and payload."""
        first, size = self._take(2)
        if size >= 126:
            size = int.from_bytes(self._take(2 if size == 126 else 8), "big")
        return first & 0x0F, self._take(size)

    def connect(self, packet: bytes) -> None:
        """Sends a CONNECT, and waits for the CONNACK."""
        self.send(packet)
        kind, data = self.frame()
        assert (kind, data[:1]) == (BINARY, b"\x20")

    def close(self) -> None:
        self.socket.close()

"""A raw MQTT connection for tests: bytes out, whole control packets in, every wait bounded.

Owns the framing both versions share (fixed header, remaining length, length-prefixed strings) and the small
conversation every test has; what packets mean is in `client311.py` and `client5.py`. It knows nothing of the codecs of
the broker under test.
"""

import select
import socket
import struct
import time
from abc import ABC, abstractmethod
from collections import deque
from typing import Any, Generic, TypeVar

from tests.mqtt.servers import HOST

WAIT_S = 10.0  # for anything that must come; far beyond what a healthy server takes
CHUNK_BYTES = 65536

PINGREQ = b"\xc0\x00"

Packet = TypeVar("Packet")
Kind = TypeVar("Kind")


class ConnectionEndedError(AssertionError):
    """The server closed the connection while a packet was expected."""


def varint(value: int) -> bytes:
    """A remaining length or variable byte integer, shortest form."""
    out = bytearray()
    while True:
        value, digit = divmod(value, 128)
        out.append(digit | (0x80 if value else 0))
        if not value:
            return bytes(out)


def string(text: str | bytes) -> bytes:
    """A length-prefixed string; bytes are taken as they are, so that ill-formed ones can be sent."""
    data = text.encode() if isinstance(text, str) else text
    return struct.pack(">H", len(data)) + data


def packet(first_byte: int, *parts: bytes) -> bytes:
    """A control packet: first byte, remaining length, and the parts of its body."""
    body = b"".join(parts)
    return bytes([first_byte]) + varint(len(body)) + body


def packet_bytes(buffer: bytearray) -> int | None:
    """The size of the whole packet the buffer begins with, or None while its fixed header is not complete."""
    length, shift = 0, 0
    for index, digit in enumerate(buffer[1:5], 2):
        length |= (digit & 0x7F) << shift
        shift += 7
        if not digit & 0x80:
            return index + length
    assert len(buffer) < 5, "the server sent a remaining length of more than four bytes"
    return None


def let_pass(seconds: float) -> None:
    """Lets time pass where the standard counts seconds and no event marks their end."""
    time.sleep(seconds)


class RawConnection:
    """A TCP connection to the server under test that reads whole packets."""

    def __init__(self, port: int, receive_buffer_bytes: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer_bytes is not None:  # takes effect only before connecting
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        self.socket.settimeout(WAIT_S)
        self.socket.connect((HOST, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray()

    def send(self, *packets: bytes) -> None:
        self.socket.settimeout(WAIT_S)
        self.socket.sendall(b"".join(packets))

    def _fill(self, deadline: float) -> bool:
        """Reads once; False when the server has closed the connection."""
        self.socket.settimeout(max(deadline - time.monotonic(), 0.001))
        try:
            data = self.socket.recv(CHUNK_BYTES)
        except TimeoutError:
            raise AssertionError(f"nothing came for {WAIT_S:g} s; read so far: {bytes(self._buffer[:80])!r}") from None
        except ConnectionResetError:
            return False
        self._buffer += data
        return bool(data)

    def packet(self) -> bytes:
        """The next whole control packet."""
        deadline = time.monotonic() + WAIT_S
        while (size := packet_bytes(self._buffer)) is None or len(self._buffer) < size:
            if not self._fill(deadline):
                raise ConnectionEndedError(
                    f"the server closed the connection; read so far: {bytes(self._buffer[:80])!r}"
                )
        data = bytes(self._buffer[:size])
        del self._buffer[:size]
        return data

    def closed(self) -> bytes:
        """Waits until the server closes the connection, and returns what it sent before."""
        deadline = time.monotonic() + WAIT_S
        while self._fill(deadline):
            pass
        return bytes(self._buffer)

    def stays(self, seconds: float) -> bool:
        """Reads on for so long; whether the connection is still open then."""
        deadline = time.monotonic() + seconds
        while (left := deadline - time.monotonic()) > 0:
            readable, _, _ = select.select([self.socket], [], [], left)
            if readable and not self._fill(deadline + WAIT_S):
                return False
        return True

    def drop(self) -> None:
        """Ends the connection as a failing network does: no DISCONNECT, a reset on the wire."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    def close(self) -> None:
        self.socket.close()


class Conversation(RawConnection, ABC, Generic[Packet]):
    """A connection that reads decoded packets, in the order the server sent them."""

    def __init__(self, port: int, receive_buffer_bytes: int | None = None) -> None:
        super().__init__(port, receive_buffer_bytes)
        self._set_aside: deque[Packet] = deque()
        self._last_id = 0

    @abstractmethod
    def decode(self, data: bytes) -> Packet:
        """The packet these bytes are."""

    @abstractmethod
    def is_pong(self, received: Packet) -> bool:
        """Whether this is a PINGRESP."""

    @abstractmethod
    def take(self) -> Any:
        """Receives a PUBLISH and acknowledges it as its QoS asks."""

    def take_all(self) -> list[bytes]:
        """The payloads of all that the server has for this client by now, acknowledged."""
        payloads = []
        while came := self.ping():  # an acknowledgement may let more come
            self._set_aside.extend(came)
            while self._set_aside:
                payloads.append(self.take().payload)
        return payloads

    def next_id(self) -> int:
        """A packet identifier this connection has not used."""
        self._last_id += 1
        return self._last_id

    def receive(self) -> Packet:
        """The next packet, whatever it is."""
        return self._set_aside.popleft() if self._set_aside else self.decode(self.packet())

    def expect(self, kind: type[Kind]) -> Kind:
        """The next packet, which must be of this kind."""
        received = self.receive()
        assert isinstance(received, kind), f"expected {kind.__name__}, received {received}"
        return received

    def reply(self, kind: type[Kind]) -> Kind:
        """The next packet of this kind; others before it stay, in order, for whoever asks next."""
        passed: list[Packet] = list(self._set_aside)
        self._set_aside.clear()
        try:
            while True:
                received = self.decode(self.packet())
                if isinstance(received, kind):
                    return received
                passed.append(received)
        except ConnectionEndedError as error:
            raise ConnectionEndedError(f"expected {kind.__name__}, received {passed}, then the end") from error
        finally:
            self._set_aside.extend(passed)

    def ping(self) -> list[Packet]:
        """Sends PINGREQ; what came before the PINGRESP."""
        came: list[Packet] = list(self._set_aside)
        self._set_aside.clear()
        self.send(PINGREQ)
        while not self.is_pong(received := self.decode(self.packet())):
            came.append(received)
        return came

    def quiet(self) -> None:
        """Nothing is waiting: all the server had for this client before this PINGREQ would precede the PINGRESP."""
        came = self.ping()
        assert not came, f"expected nothing, received {came}"

"""TCP connections: one Protocol object each, which passes input to the core in slices, at most at a client's rate."""

import asyncio
from typing import TYPE_CHECKING, cast

from brokerbed.broker.core.connection import Connection
from brokerbed.broker.runtime.pace import Pace
from brokerbed.broker.runtime.security import certificate_name
from brokerbed.broker.values import NS_PER_S

if TYPE_CHECKING:
    from brokerbed.broker.runtime.server import Server

OUTPUT_LOW_PART = 8  # with less than this part of its limit in the buffer, the peer counts as reading again
# A client's input is handled in slices, so that a client that floods the broker does not hold up the others.
SLICE_NS_MAX = 2_000_000  # a slice that took longer is followed by smaller ones
SLICE_ROWS_MAX = 300  # likewise one with more changes for the store, which take about 10 us each
SLICE_BYTES_FIRST, SLICE_BYTES_MIN = 16 * 1024, 1024
SLICE_BYTES_MAX = 128 * 1024  # less than uvloop reads at once; it goes on reading while it fills its buffer


class Wire(asyncio.Protocol):
    """One TCP connection, from a client or to our parent."""

    __slots__ = ("_connection", "_input", "_is_paused", "_listener", "_parent", "_server", "_slice_bytes", "gone")

    def __init__(
        self, server: "Server", parent: str | None = None, listener: str = "", connection: Connection | None = None
    ) -> None:
        """`connection`: it was opened before the TLS handshake."""
        self._server = server
        self._listener = listener
        self._parent = parent  # host:port of our parent, if this is the link to it
        self._connection = connection
        self._input = b""  # received and not handled yet
        self._slice_bytes = SLICE_BYTES_FIRST  # how much input is handled in one turn
        self._is_paused = False  # the transport's write buffer is above its high-water mark
        self.gone = asyncio.Event() if parent is not None else None  # set when the link to our parent is lost

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        wire = cast("asyncio.Transport", transport)
        high = self._server.broker.config.output_bytes_max
        wire.set_write_buffer_limits(high=high, low=high // OUTPUT_LOW_PART)
        if self._connection is not None:
            self._connection.driver = wire
            self._connection.certificate_name = certificate_name(wire)
        else:
            address = wire.get_extra_info("peername")
            self._connection = self._server.opened(wire, address, self._parent, self._listener)
            if self._parent is not None:
                self._server.broker.overlay.dialled(self._connection)
            self._server.flush()
        if self._server.store_problem is not None:
            wire.pause_reading()

    def data_received(self, data: bytes) -> None:
        if len(data) <= SLICE_BYTES_MIN and not self._input:
            server = self._server
            assert self._connection is not None
            server.broker.received(self._connection, data, server.now_ns())
            server.flush()
            return
        is_waiting = bool(self._input)
        self._input += data
        if not is_waiting and self.handle_slice():
            assert self._connection is not None
            self._connection.driver.pause_reading()
            self._server.wait_for_turn(self)

    def resume_reading(self) -> None:
        assert self._connection is not None
        if not self._connection.driver.is_closing():
            self._connection.driver.resume_reading()

    def handle_slice(self) -> bool:
        """Handle as much of the input as one turn allows; returns whether there is more."""
        server, connection = self._server, self._connection
        assert connection is not None
        size = self._slice_bytes
        data, self._input = (self._input, b"") if len(self._input) <= size else (self._input[:size], self._input[size:])
        began_ns = server.now_ns()
        server.broker.received(connection, data, began_ns)
        took_ns = server.now_ns() - began_ns
        if took_ns > SLICE_NS_MAX or len(server.broker.unsaved or ()) > SLICE_ROWS_MAX:
            self._slice_bytes = max(SLICE_BYTES_MIN, size // 2)
        elif took_ns < SLICE_NS_MAX // 4 and len(data) == size:
            self._slice_bytes = min(SLICE_BYTES_MAX, 2 * size)
        server.flush()
        if connection.is_closing:
            self._input = b""
        return bool(self._input)

    def pause_writing(self) -> None:
        """The transport calls this from within `write`, so we must not write from here."""
        assert self._connection is not None
        self._is_paused = True
        self._server.broker.writable(self._connection, False, self._server.now_ns())

    def resume_writing(self) -> None:
        self._is_paused = False
        asyncio.get_running_loop().call_soon(self._resume)  # a transport may call this from within `write`

    def _resume(self) -> None:
        assert self._connection is not None
        if not self._is_paused and not self._connection.is_closing:
            self._server.broker.writable(self._connection, True, self._server.now_ns())
            self._server.flush()

    def connection_lost(self, error: Exception | None) -> None:
        del error
        assert self._connection is not None
        if self._input:  # it arrived before the connection was lost
            data, self._input = self._input, b""
            self._server.broker.received(self._connection, data, self._server.now_ns())
        if self.gone is None:
            self._server.lost(self._connection)
        else:
            self._server.broker.lost(self._connection, self._server.now_ns())
            self._server.flush()
            self.gone.set()


class PacedWire(Wire):
    """A connection from which is read at most at the rate that clients have. Links have no such limit."""

    __slots__ = ("_is_held", "_pace")

    def __init__(
        self, server: "Server", parent: str | None = None, listener: str = "", connection: Connection | None = None
    ) -> None:
        super().__init__(server, parent, listener, connection)
        self._pace = Pace.of(server.broker.config)
        self._is_held = False  # nothing is read or handled until its time

    def data_received(self, data: bytes) -> None:
        assert self._connection is not None
        is_waiting = bool(self._input)
        self._input += data
        if self._is_held:
            self._connection.driver.pause_reading()  # all connections are resumed when the store can be written again
        elif not is_waiting and self.handle_slice():
            self._connection.driver.pause_reading()
            self._server.wait_for_turn(self)

    def handle_slice(self) -> bool:
        connection, counters, size = self._connection, self._server.broker.counters, len(self._input)
        assert connection is not None
        assert self._pace is not None
        self._slice_bytes = min(self._slice_bytes, self._pace.slice_bytes)
        before = counters.messages
        is_more = super().handle_slice()
        session = connection.session
        if session is None or session.link is not None or connection.is_closing:
            return is_more
        handled, messages = size - len(self._input), counters.messages - before
        delay_ns = self._pace.delay_ns(handled, messages, self._server.now_ns())
        if delay_ns == 0:
            return is_more
        self._is_held = True
        counters.shed["rate"] += 1
        connection.last_ns += delay_ns  # it is not silent meanwhile, it is not heard
        connection.driver.pause_reading()
        asyncio.get_running_loop().call_later(delay_ns / NS_PER_S, self._release)
        return False

    def resume_reading(self) -> None:
        if not self._is_held:
            super().resume_reading()

    def _release(self) -> None:
        assert self._connection is not None
        self._is_held = False
        if self._connection.is_closing:
            return
        if self._input:
            self._server.wait_for_turn(self)
        elif self._server.store_problem is None:
            self.resume_reading()

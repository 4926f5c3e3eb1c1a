"""The asyncio driver of the core: one Protocol object per connection, no task, no queue and no copy per message."""

import asyncio
import sys
import time
from collections import deque
from typing import Any, cast

from brokerbed.broker.core import persist
from brokerbed.broker.core.broker import Broker
from brokerbed.broker.core.connection import Connection
from brokerbed.broker.core.rows import Row
from brokerbed.broker.core.store import Store, StoreFullError
from brokerbed.broker.runtime.addresses import is_loopback
from brokerbed.broker.runtime.log_file import TurnLog
from brokerbed.broker.runtime.password_checks import PasswordChecks
from brokerbed.broker.runtime.security import certificate_name
from brokerbed.broker.values import NS_PER_S

OUTPUT_BYTES_MAX = 8 * 2**20  # buffered for a peer that reads too slowly; beyond that QoS 0 is dropped for it
OUTPUT_BYTES_LOW = 1 * 2**20  # with less than this in the buffer, the peer counts as reading again
JOINED_BYTES_MAX = 64 * 1024  # output in several pieces is joined up to this size; more is written piece by piece
# A client's input is handled in slices, so that a client that floods the broker does not hold up the others.
SLICE_NS_MAX = 2_000_000  # a slice that took longer is followed by smaller ones
SLICE_ROWS_MAX = 300  # likewise one with more changes for the store, which take about 10 us each
SLICE_BYTES_FIRST, SLICE_BYTES_MIN = 16 * 1024, 1024
SLICE_BYTES_MAX = 128 * 1024  # less than uvloop reads at once; it goes on reading while it fills its buffer
LATE_NS = 20_000_000  # if a timer is later than this, input that waits is read before timeouts are judged
STORE_RETRY_S = 0.5
CLOSE_S_MAX = 5.0  # for writing the last output to a client that is being disconnected
SHUTDOWN_S_MAX = 2.0  # for clients to read their last packets; the local ground kills a broker that takes over 5 s
SHUTDOWN_POLL_S = 0.01  # how often we check whether all clients are gone


class Server:
    """Passes events to the core and carries out its effects.

    Changes of durable state are stored once per turn of the event loop, and no output is written before that, so that
    no peer is told of anything that could be lost. While the store cannot be written, the broker reads from no
    connection. The log, if there is one, is written in each turn before any output, and its records are stored with
    the changes.
    """

    def __init__(self, broker: Broker, store: Store | None = None, log: TurnLog | None = None) -> None:
        self.broker = broker
        self._store = store
        self._log = log
        self._is_turn_ending = False  # `_end_turn` is scheduled
        self._unread: deque[Wire] = deque()  # connections with input that is left for later turns
        self._is_slicing = False  # `_next_slices` is scheduled
        self._to_commit: list[tuple[int, Row | None]] = []  # rows that the store has not accepted yet
        self.store_problem: str | None = None  # why the store cannot be written; None if it can
        self._loop = asyncio.get_running_loop()
        self._offset_ns = time.time_ns() - time.monotonic_ns()  # log times are wall-clock times that never jump
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._passwords = PasswordChecks(self.now_ns, self.flush)
        broker.check_password = self._passwords.check

    def now_ns(self) -> int:
        return time.monotonic_ns() + self._offset_ns

    def opened(self, driver: object, address: Any, name: str | None = None, listener: str = "") -> Connection:
        """Register a connection with the core. `address` is the peer's socket address, `name` its name if not that."""
        peer = name or (f"{address[0]}:{address[1]}" if address else "")
        is_local = bool(address) and is_loopback(address[0])
        connection = self.broker.opened(self.now_ns(), peer=peer, is_local=is_local)
        connection.driver = driver
        connection.listener = listener
        return connection

    def protocol(self, listener: str = "") -> "Wire":
        return Wire(self, listener=listener)

    def flush(self) -> None:
        """Have the core's effects carried out at the end of this turn of the event loop, together with all others."""
        if not self._is_turn_ending:
            self._is_turn_ending = True
            self._loop.call_soon(self._end_turn)

    def _end_turn(self) -> None:
        """Store changes, then write the log and the output, close connections, and set the timer."""
        self._is_turn_ending = False
        if self.store_problem is not None or not self._commit():
            return
        if self._log is not None:
            self._log.write()
        self._write()
        deadline_ns = self.broker.deadline_ns
        if deadline_ns is not None and (self._timer is None or deadline_ns < self._timer_ns):
            self._set_timer(deadline_ns)

    def _commit(self) -> bool:
        """Store what has changed; returns False if the store cannot be written."""
        if self.broker.unsaved:
            self._to_commit += persist.take(self.broker)
        if not self._to_commit:
            return True
        rows = self._to_commit
        if self._log is not None and (logged := self._log.row()) is not None:
            rows = [*rows, (persist.LOG, logged)]
        assert self._store is not None
        try:
            self._store.commit(rows)
        except StoreFullError as error:
            self._block(str(error))
            return False
        self._to_commit = []
        return True

    def _retry(self) -> None:
        """Try again to write the store, and go on with everything else if that succeeds."""
        if not self._commit():
            return
        self.store_problem = None
        self.broker.counters.store_blocked = 0
        for connection in self.broker.connections:
            connection.last_ns = self.now_ns()  # nothing was read from it meanwhile
        self._set_reading(True)
        self._loop.call_soon(self._timer_due)
        self._continue_slices()
        print("brokerbed broker: the store can be written again", file=sys.stderr, flush=True)
        self._end_turn()

    def _block(self, problem: str) -> None:
        """Apply back-pressure: read from no connection and write no output until a retry succeeds."""
        if self.store_problem is None:
            problem_text = f"brokerbed broker: the store cannot be written ({problem}); clients wait until it can"
            print(problem_text, file=sys.stderr, flush=True)
            self.broker.counters.store_problems += 1
            self.broker.counters.store_blocked = 1
        self.store_problem = problem
        self._set_reading(False)
        self._loop.call_later(STORE_RETRY_S, self._retry)

    def _set_reading(self, is_reading: bool) -> None:
        for connection in self.broker.connections:
            wire = connection.driver
            if not wire.is_closing():
                wire.resume_reading() if is_reading else wire.pause_reading()

    def _write(self) -> None:
        broker = self.broker
        dirty, broker.dirty = broker.dirty, []
        for connection in reversed(dirty):  # receivers of a message before its publisher, who has less to wait for
            # Detach the output before writing it, because write may call back into the protocol.
            output, connection.output = connection.output, []
            connection.is_dirty = False
            driver = connection.driver
            if connection.is_closing and driver.is_closing():  # closing already
                continue
            if len(output) == 1:
                driver.write(output[0])
            elif sum(map(len, output)) <= JOINED_BYTES_MAX:
                driver.write(b"".join(output))
            else:
                for piece in output:
                    driver.write(piece)
        ending, broker.ending = broker.ending, []
        for connection in ending:
            connection.driver.close()
            self._loop.call_later(CLOSE_S_MAX, connection.driver.abort)

    def _set_timer(self, deadline_ns: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_ns = deadline_ns
        self._timer = self._loop.call_later(max(0, deadline_ns - self.now_ns()) / NS_PER_S, self._timer_due)

    def wait_for_turn(self, wire: "Wire") -> None:
        """Have the rest of a connection's input handled in later turns."""
        self._unread.append(wire)
        self._continue_slices()

    def _continue_slices(self) -> None:
        if self._unread and not self._is_slicing and self.store_problem is None:
            self._is_slicing = True
            self._loop.call_soon(self._next_slices)

    def _next_slices(self) -> None:
        """Handle a slice of input of every connection that has more than one."""
        self._is_slicing = False
        for _ in range(len(self._unread) if self.store_problem is None else 0):
            wire = self._unread.popleft()
            if wire.handle_slice():
                self._unread.append(wire)
            elif self.store_problem is None:
                wire.resume_reading()
        self._continue_slices()

    def _timer_due(self) -> None:
        if self.now_ns() - self._timer_ns > LATE_NS:
            # The event loop was busy. It reads from all sockets before it gets to this call of a call.
            self._loop.call_soon(self._loop.call_soon, self._run_timers)
        else:
            self._run_timers()

    def _run_timers(self) -> None:
        self._timer = None
        if self.store_problem is None:  # while the store cannot be written, no timeout may expire
            self.broker.due(self.now_ns())
            self.flush()

    def close(self) -> None:
        """Disconnect all clients."""
        if self._timer is not None:
            self._timer.cancel()
        self._passwords.close()
        self.broker.shut_down()
        if self.store_problem is None:
            self._end_turn()
        else:
            self._retry()  # no output is written unless its changes can be stored

    async def closed(self) -> None:
        """Wait until all connections have ended, and abort those that take too long."""
        end_s = self._loop.time() + SHUTDOWN_S_MAX
        while self.broker.connections and self._loop.time() < end_s:  # noqa: ASYNC110 - the core signals no events
            await asyncio.sleep(SHUTDOWN_POLL_S)
        for connection in self.broker.connections:
            connection.driver.abort()
        await asyncio.sleep(SHUTDOWN_POLL_S)  # changes made by the last connections to end are stored


class Wire(asyncio.Protocol):
    """One TCP connection, from a client or to our parent."""

    __slots__ = ("_connection", "_input", "_is_paused", "_listener", "_parent", "_server", "_slice_bytes", "gone")

    def __init__(
        self, server: Server, parent: str | None = None, listener: str = "", connection: Connection | None = None
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
        wire.set_write_buffer_limits(high=OUTPUT_BYTES_MAX, low=OUTPUT_BYTES_LOW)
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
        self._server.broker.lost(self._connection, self._server.now_ns())
        self._server.flush()
        if self.gone is not None:
            self.gone.set()

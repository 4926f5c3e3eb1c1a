"""The asyncio driver of the core: one Protocol object per connection, no task, no queue and no copy per message."""

import asyncio
import sys
import time
from collections import deque
from typing import Any

from brokerbed.broker.core import persist, session_end
from brokerbed.broker.core.broker import Broker
from brokerbed.broker.core.connection import Connection
from brokerbed.broker.core.rows import Row
from brokerbed.broker.core.store import Store, StoreFullError
from brokerbed.broker.runtime.addresses import is_loopback
from brokerbed.broker.runtime.log_file import TurnLog
from brokerbed.broker.runtime.pace import Pace
from brokerbed.broker.runtime.password_checks import PasswordChecks
from brokerbed.broker.runtime.wire import SLICE_NS_MAX, PacedWire, Wire
from brokerbed.broker.values import NS_PER_S

OUTPUT_WATCH_S = 0.25  # how often we check how much output all connections have
JOINED_BYTES_MAX = 64 * 1024  # output in several pieces is joined up to this size; more is written piece by piece
BACKGROUND_PARTS = 8  # long work has one in so many parts of the time, because it makes work for other brokers too ...
BACKGROUND_AHEAD_NS = 80_000_000  # ... in the long run; after a pause it may go ahead by this much
NS_PER_MS = 1_000_000  # the resolution of uvloop's timers; if one is rounded down, the loop spins until it is due
LATE_NS = 20_000_000  # if a timer is later than this, input that waits is read before timeouts are judged
STORE_RETRY_S = 0.5
SLOW_COMMIT_NS = 1_000_000_000  # a commit that took longer is reported
SLOW_COMMITS_NS = 60_000_000_000  # between two such reports
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
        self._slow_report_ns = 0  # before this time a slow store is not reported again
        self._loop = asyncio.get_running_loop()
        self._offset_ns = time.time_ns() - time.monotonic_ns()  # log times are wall-clock times that never jump
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ns = 0
        self._background_began_ns = 0  # when a part of some long work began, if what it changed is not stored yet
        self._background_until_ns = 0  # the time that long work has used up
        self._lost: deque[Connection] = deque()  # connections that have ended, and whose sessions do not know yet
        self._watching = self._loop.call_later(OUTPUT_WATCH_S, self._watch_output)
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

    def protocol(self, listener: str = "", connection: Connection | None = None) -> Wire:
        """`connection`: it was opened before the TLS handshake."""
        wire = Wire if Pace.of(self.broker.config) is None else PacedWire
        return wire(self, None, listener, connection)

    def lost(self, connection: Connection) -> None:
        """A connection has ended. If many with many subscriptions end at once, others have their turns between."""
        if not self.broker.gone(connection):
            return
        if not self._lost:
            self._loop.call_soon(self._end_connections)
        self._lost.append(connection)

    def _end_connections(self) -> None:
        began_ns = self.now_ns()
        while self._lost:
            session_end.connection_ended(self.broker, self._lost[0], self.now_ns())
            self._lost.popleft()
            if self._lost and self.now_ns() - began_ns > SLICE_NS_MAX:
                self._loop.call_soon(self._end_connections)
                break
        self.flush()

    def _watch_output(self) -> None:
        """End the connections that have most output waiting while all have more than the limit allows."""
        self._watching = self._loop.call_later(OUTPUT_WATCH_S, self._watch_output)
        config, connections = self.broker.config, self.broker.connections
        if len(connections) * config.output_bytes_max <= config.outputs_bytes_max:
            return
        sizes = [(connection.driver.get_write_buffer_size(), connection) for connection in connections]
        excess = sum(size for size, _ in sizes) - config.outputs_bytes_max
        for size, connection in sorted(sizes, key=lambda item: -item[0]) if excess > 0 else ():
            session = connection.session
            if excess > 0 and (session is None or session.link is None):
                excess -= size
                self.broker.counters.shed["output_bytes"] += 1
                connection.driver.abort()

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
        if self._background_began_ns:
            self._rest()
        deadline_ns = self.broker.deadline_ns
        if deadline_ns is not None and (self._timer is None or deadline_ns < self._timer_ns):
            self._set_timer(deadline_ns)

    def _rest(self) -> None:
        """Leave time for other work before the next part of some long work."""
        began_ns, now_ns = self._background_began_ns, self.now_ns()
        took_ns = min(now_ns - began_ns, BACKGROUND_AHEAD_NS)  # it was longer if the store could not be written
        self._background_began_ns = 0
        self._background_until_ns = max(self._background_until_ns, began_ns) + BACKGROUND_PARTS * took_ns
        rest_ns = self._background_until_ns - BACKGROUND_AHEAD_NS - now_ns
        self.broker.timers.background_ns = now_ns + max(0, -(-rest_ns // NS_PER_MS)) * NS_PER_MS

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
        began_ns = time.monotonic_ns()
        try:
            self._store.commit(rows)
        except StoreFullError as error:
            self._block(str(error))
            return False
        if time.monotonic_ns() - began_ns > SLOW_COMMIT_NS:
            self._report_slow(began_ns)
        self._to_commit = []
        return True

    def _report_slow(self, began_ns: int) -> None:
        """Say that the disk is slow, but not all the time: nothing is acknowledged before it is stored."""
        now_ns = time.monotonic_ns()
        if now_ns >= self._slow_report_ns:
            self._slow_report_ns = now_ns + SLOW_COMMITS_NS
            took = f"it took {(now_ns - began_ns) / NS_PER_S:.1f} s to write"
            print(f"brokerbed broker: the store is slow ({took}); clients wait for it", file=sys.stderr, flush=True)

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
            now_ns = self.now_ns()
            if self.broker.timers.is_background_due(now_ns):
                self._background_began_ns = now_ns
            self.broker.due(now_ns)
            self.flush()

    def close(self) -> None:
        """Disconnect all clients."""
        self._watching.cancel()
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

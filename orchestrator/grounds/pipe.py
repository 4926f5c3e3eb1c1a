"""One way of one connection through a relay: what is read from one socket is written to the other, in order.

Sockets are read and written directly: what is in a transport's buffer could not be held any more. It costs no task,
no future and, unless the way is slow or the other side full, no copy of the bytes.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from brokerbed.clients.alarm import Alarm
from brokerbed.orchestrator.grounds.lateness import Lateness
from brokerbed.orchestrator.grounds.line import Line, Quality

UNDER_WAY_BYTES_MAX = 4 * 2**20  # on a slow way: more than bandwidth times delay of links that are emulated here
HEARD_BYTES_MAX = 4096  # kept of how a connection began, if somebody wants to know
NOTHING = memoryview(b"")


class Way:
    """One of the two ways, for all connections."""

    __slots__ = ("_crossed_before", "crossed", "is_held", "lateness", "quality")

    def __init__(self, quality: Quality) -> None:
        self.quality = quality
        self.is_held = False
        self.lateness = Lateness()  # with which pieces were passed on, if it is slow
        self.crossed = 0  # bytes and ends of connections that were passed on
        self._crossed_before = 0

    def hold(self) -> None:
        if not self.is_held:
            self.is_held = True
            self._crossed_before = self.crossed

    @property
    def is_quiet(self) -> bool:
        return self.is_held and self.crossed == self._crossed_before


class Pipe:
    """One way of one connection."""

    __slots__ = (
        "_alarm", "_buffer", "_done", "_has_ended", "_heard", "_is_dropping", "_is_reading", "_is_writing", "_line",
        "_loop", "_rest", "_sink", "_source", "_view", "_way", "is_done", "opposite",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        buffer: bytearray,
        way: Way,
        source: socket.socket,
        sink: socket.socket,
        done: Callable[[], None],
        heard: bytearray | None = None,
    ) -> None:
        """`buffer` may be shared by all pipes of a loop; `done` is called when the end has passed; `heard` gets a
        copy of the first bytes."""
        self.opposite: Pipe
        self.is_done = False  # the end was passed on, or nobody is left to be told
        self._loop = loop
        self._way = way
        self._source = source
        self._sink = sink
        self._done = done
        self._heard = heard
        self._buffer = buffer
        self._view = memoryview(buffer)
        is_plain = way.quality == Quality()
        self._line = None if is_plain else Line(way.quality)
        self._alarm = None if is_plain else Alarm(self._loop, self._rung)
        self._rest = NOTHING  # what the other side does not take yet
        self._has_ended = False  # there is nothing more to read
        self._is_dropping = False  # nobody is left to write to
        self._is_reading = self._is_writing = False

    @property
    def size_bytes(self) -> int:
        """What was read and not passed on yet."""
        return len(self._rest) + (0 if self._line is None else self._line.size_bytes)

    def begin(self, early: bytes = b"") -> None:
        """Reads and writes from now on; some bytes may have been read already."""
        self._hear(memoryview(early))
        if self._line is not None:
            self._line.send(memoryview(early), time.monotonic_ns())
        else:
            self._rest = memoryview(early)
        self._go_on()

    def hold(self) -> None:
        self._watch()

    def release(self) -> None:
        if self._line is not None:
            self._line.resume(time.monotonic_ns())
        self._go_on()

    def drop(self) -> None:
        """Nobody reads any more what comes this way."""
        if self.is_done or self._is_dropping:
            return
        self._is_dropping = True
        self._rest = NOTHING
        if self._line is not None:
            self._line.clear()
        self._watch()
        if self._has_ended:
            self._finish()

    def close(self) -> None:
        self._has_ended = True
        self._rest = NOTHING
        self._watch()
        if self._alarm is not None:
            self._alarm.close()

    # -- reading ----------------------------------------------------------------------------------------------

    def _readable(self) -> None:
        source = self._source
        try:
            count = source.recv_into(self._buffer)
            was_reset = source.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) if count else 0
        except BlockingIOError:
            return
        except OSError:
            count, was_reset = 0, 1
        if was_reset:
            self.opposite.drop()
            self.watch_anew()
        if self._heard is not None:
            self._hear(self._view[:count])
        if not count:
            self._end()
        elif self._is_dropping:
            pass
        elif self._line is None:
            self._write(self._view[:count])
        else:
            self._line.send(self._view[:count], time.monotonic_ns())
            self._go_on()

    def _hear(self, data: memoryview) -> None:
        if self._heard is not None and len(self._heard) < HEARD_BYTES_MAX:
            self._heard += data[: HEARD_BYTES_MAX - len(self._heard)]

    def watch_anew(self) -> None:
        """After an error uvloop's poll is dead, though there may be more to read."""
        if self._is_reading:
            self._loop.remove_reader(self._source)
            self._loop.add_reader(self._source, self._readable)

    def _end(self) -> None:
        self._has_ended = True
        self._watch()
        if self._line is None or self._is_dropping:
            self._finish()  # there is no rest: it would not have been read on
        else:
            self._line.send_end(time.monotonic_ns())
            self._go_on()

    # -- writing ----------------------------------------------------------------------------------------------

    def _write(self, data: memoryview) -> None:
        """What the other side takes now; the rest later, and before that nothing more is read."""
        try:
            sent = self._sink.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._fail()
            return
        self._way.crossed += sent
        if sent < len(data):
            self._rest = memoryview(bytes(data[sent:]))  # the buffer is everybody's
            self._watch()

    def _writable(self) -> None:
        try:
            sent = self._sink.send(self._rest)
        except BlockingIOError:
            return
        except OSError:
            self._fail()
            return
        self._way.crossed += sent
        self._rest = self._rest[sent:]
        if not self._rest:
            self._go_on()

    def _fail(self) -> None:
        self.drop()
        self.opposite.watch_anew()

    def _rung(self) -> None:
        """A piece is due, and only this process can be to blame if it is late."""
        assert self._line is not None
        if not (self._rest or self._way.is_held) and (due_ns := self._line.due_ns) is not None:
            self._way.lateness.add(max(0, time.monotonic_ns() - due_ns))
        self._arrive()

    def _arrive(self) -> None:
        """On a slow way: passes on what is due, and waits for what is next."""
        assert self._line is not None
        assert self._alarm is not None
        if self._rest or self._way.is_held or self.is_done or self._is_dropping:
            return
        data = self._line.take(time.monotonic_ns())
        if data:
            self._write(memoryview(data))
        if self._line.is_at_end and not self._rest:
            self._finish()
        elif (due_ns := self._line.due_ns) is not None:
            self._alarm.set(due_ns)

    def _finish(self) -> None:
        if self.is_done:
            return
        self.is_done = True
        if not self._is_dropping:
            self._way.crossed += 1
            with suppress(OSError):  # it is gone already
                self._sink.shutdown(socket.SHUT_WR)
        self._done()

    # -- both -------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        if self._line is not None:
            self._arrive()
        self._watch()

    def _watch(self) -> None:
        """Waits for what is wanted from now on."""
        is_held = self._way.is_held
        writes = bool(self._rest) and not is_held
        if writes != self._is_writing:
            self._is_writing = writes
            if writes:
                self._loop.add_writer(self._sink, self._writable)
            else:
                self._loop.remove_writer(self._sink)
        is_full = self._line is not None and self._line.size_bytes >= UNDER_WAY_BYTES_MAX
        reads = not (is_held or self._has_ended or self._rest or is_full)
        if reads != self._is_reading:
            self._is_reading = reads
            if reads:
                self._loop.add_reader(self._source, self._readable)
            else:
                self._loop.remove_reader(self._source)

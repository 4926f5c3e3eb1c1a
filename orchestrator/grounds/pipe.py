"""One direction of one connection through a relay: data is read from one socket and written to the other, in order.

Sockets are read and written directly, because data in the buffer of a transport could not be held any more. This needs
no tasks or futures and, unless the direction is delayed or the receiver is slow, copies no bytes.
"""

import asyncio
import socket
import time
from collections.abc import Callable
from contextlib import suppress

from brokerbed.clients.precise_timer import PreciseTimer
from brokerbed.orchestrator.grounds.delayed_stream import DelayedStream, Quality
from brokerbed.orchestrator.grounds.lateness import Lateness

UNDER_WAY_BYTES_MAX = 4 * 2**20  # on a delayed direction: more than bandwidth times delay of any emulated link
START_BYTES_MAX = 4096  # first bytes of a connection that are kept on request
NOTHING = memoryview(b"")


class Direction:
    """One of the two directions of a link, for all its connections."""

    __slots__ = ("_crossed_before", "crossed", "crossed_bytes", "is_held", "lateness", "quality")

    def __init__(self, quality: Quality) -> None:
        self.quality = quality
        self.is_held = False
        self.lateness = Lateness()  # how late pieces were passed on, if the direction is delayed
        self.crossed = 0  # number of bytes and connection ends that were passed on
        self.crossed_bytes = 0
        self._crossed_before = 0

    def hold(self) -> None:
        if not self.is_held:
            self.is_held = True
            self._crossed_before = self.crossed

    def passed(self, size_bytes: int) -> None:
        self.crossed += size_bytes
        self.crossed_bytes += size_bytes

    @property
    def is_quiet(self) -> bool:
        return self.is_held and self.crossed == self._crossed_before


class Pipe:
    """One direction of one connection."""

    __slots__ = (
        "_buffer",
        "_done",
        "_has_ended",
        "_is_dropping",
        "_is_reading",
        "_is_writing",
        "_loop",
        "_rest",
        "_sink",
        "_source",
        "_start_bytes",
        "_stream",
        "_timer",
        "_view",
        "_way",
        "is_done",
        "opposite",
    )  # fmt: skip

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        buffer: bytearray,
        way: Direction,
        source: socket.socket,
        sink: socket.socket,
        done: Callable[[], None],
        start_bytes: bytearray | None = None,
    ) -> None:
        """`buffer` may be shared by all pipes of a loop, `done` is called when the end was passed on, and `start_bytes`
        gets a copy of the first bytes."""
        self.opposite: Pipe
        self.is_done = False  # the end was passed on, or the receiver is gone
        self._loop = loop
        self._way = way
        self._source = source
        self._sink = sink
        self._done = done
        self._start_bytes = start_bytes
        self._buffer = buffer
        self._view = memoryview(buffer)
        is_plain = way.quality == Quality()
        self._stream = None if is_plain else DelayedStream(way.quality)
        self._timer = None if is_plain else PreciseTimer(self._loop, self._rung)
        self._rest = NOTHING  # data that the receiver does not accept yet
        self._has_ended = False  # the sender has closed the connection
        self._is_dropping = False  # the receiver is gone, so data is discarded
        self._is_reading = self._is_writing = False

    @property
    def size_bytes(self) -> int:
        """The bytes that were read and not passed on yet."""
        return len(self._rest) + (0 if self._stream is None else self._stream.size_bytes)

    def begin(self, early: bytes = b"") -> None:
        """Starts to read and write; some bytes may have been read already."""
        self._keep_start(memoryview(early))
        if self._stream is not None:
            self._stream.send(memoryview(early), time.monotonic_ns())
        else:
            self._rest = memoryview(early)
        self._continue()

    def hold(self) -> None:
        self._watch()

    def release(self) -> None:
        if self._stream is not None:
            self._stream.resume(time.monotonic_ns())
        self._continue()

    def drop(self) -> None:
        """Discards all data from now on, because the receiver is gone."""
        if self.is_done or self._is_dropping:
            return
        self._is_dropping = True
        self._rest = NOTHING
        if self._stream is not None:
            self._stream.clear()
        self._watch()
        if self._has_ended:
            self._finish()

    def close(self) -> None:
        self._has_ended = True
        self._rest = NOTHING
        self._watch()
        if self._timer is not None:
            self._timer.close()

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
        if self._start_bytes is not None:
            self._keep_start(self._view[:count])
        if not count:
            self._end()
        elif self._is_dropping:
            pass
        elif self._stream is None:
            self._write(self._view[:count])
        else:
            self._stream.send(self._view[:count], time.monotonic_ns())
            self._continue()

    def _keep_start(self, data: memoryview) -> None:
        if self._start_bytes is not None and len(self._start_bytes) < START_BYTES_MAX:
            self._start_bytes += data[: START_BYTES_MAX - len(self._start_bytes)]

    def watch_anew(self) -> None:
        """After an error uvloop does not poll the socket any more, although there may be more to read."""
        if self._is_reading:
            self._loop.remove_reader(self._source)
            self._loop.add_reader(self._source, self._readable)

    def _end(self) -> None:
        self._has_ended = True
        self._watch()
        if self._stream is None or self._is_dropping:
            self._finish()  # there is no unsent data, because then we would not have read
        else:
            self._stream.send_end(time.monotonic_ns())
            self._continue()

    # -- writing ----------------------------------------------------------------------------------------------

    def _write(self, data: memoryview) -> None:
        """Writes what the receiver accepts now. The rest follows later, and nothing more is read before."""
        try:
            sent = self._sink.send(data)
        except BlockingIOError:
            sent = 0
        except OSError:
            self._fail()
            return
        self._way.passed(sent)
        if sent < len(data):
            self._rest = memoryview(bytes(data[sent:]))  # the buffer is shared
            self._watch()

    def _writable(self) -> None:
        try:
            sent = self._sink.send(self._rest)
        except BlockingIOError:
            return
        except OSError:
            self._fail()
            return
        self._way.passed(sent)
        self._rest = self._rest[sent:]
        if not self._rest:
            self._continue()

    def _fail(self) -> None:
        self.drop()
        self.opposite.watch_anew()

    def _rung(self) -> None:
        """Called when a piece is due. If this is late, it is the fault of this process."""
        assert self._stream is not None
        if not (self._rest or self._way.is_held) and (due_ns := self._stream.due_ns) is not None:
            self._way.lateness.add(max(0, time.monotonic_ns() - due_ns))
        self._arrive()

    def _arrive(self) -> None:
        """In a delayed direction: passes on what is due, and waits for the next piece."""
        assert self._stream is not None
        assert self._timer is not None
        if self._rest or self._way.is_held or self.is_done or self._is_dropping:
            return
        data = self._stream.take(time.monotonic_ns())
        if data:
            self._write(memoryview(data))
        if self._stream.is_at_end and not self._rest:
            self._finish()
        elif (due_ns := self._stream.due_ns) is not None:
            self._timer.set(due_ns)

    def _finish(self) -> None:
        if self.is_done:
            return
        self.is_done = True
        if not self._is_dropping:
            self._way.crossed += 1
            with suppress(OSError):  # the socket is closed already
                self._sink.shutdown(socket.SHUT_WR)
        self._done()

    # -- both -------------------------------------------------------------------------------------------------

    def _continue(self) -> None:
        if self._stream is not None:
            self._arrive()
        self._watch()

    def _watch(self) -> None:
        """Registers for the events that the pipe needs now."""
        is_held = self._way.is_held
        writes = bool(self._rest) and not is_held
        if writes != self._is_writing:
            self._is_writing = writes
            if writes:
                self._loop.add_writer(self._sink, self._writable)
            else:
                self._loop.remove_writer(self._sink)
        is_full = self._stream is not None and self._stream.size_bytes >= UNDER_WAY_BYTES_MAX
        reads = not (is_held or self._has_ended or self._rest or is_full)
        if reads != self._is_reading:
            self._is_reading = reads
            if reads:
                self._loop.add_reader(self._source, self._readable)
            else:
                self._loop.remove_reader(self._source)

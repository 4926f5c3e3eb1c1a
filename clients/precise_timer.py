"""A timer with better resolution than those of uvloop, which count whole milliseconds; links are faster than that."""

import asyncio
import ctypes
import os
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from brokerbed.broker.values import NS_PER_S

TFD_TIMER_ABSTIME = 1  # this constant and the flags of a timer are from Linux' headers
FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
EXPIRATIONS_BYTES = 8
NS_PER_MS = 1_000_000


def _libc() -> Any:
    """The C library, if it has Linux' timer file descriptors (Python itself has them from version 3.13)."""
    with suppress(OSError):
        library = ctypes.CDLL(None, use_errno=True)
        if hasattr(library, "timerfd_create"):
            return library
    return None


LIBC = _libc()


class PreciseTimer:
    """Calls `callback` at a time of the monotonic clock, never earlier. A new time replaces the old one."""

    __slots__ = ("_callback", "_due_ns", "_file", "_loop", "_loop_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._due_ns: int | None = None
        self._loop_timer: asyncio.TimerHandle | None = None
        self._file: int = LIBC.timerfd_create(time.CLOCK_MONOTONIC, FLAGS) if LIBC is not None else -1
        if self._file >= 0:
            loop.add_reader(self._file, self._file_expired)

    def set(self, due_ns: int) -> None:
        if due_ns == self._due_ns:
            return
        self._due_ns = due_ns
        if self._file >= 0:
            expiration = struct.pack("@4l", 0, 0, *divmod(max(1, due_ns), NS_PER_S))
            LIBC.timerfd_settime(self._file, TFD_TIMER_ABSTIME, expiration, None)
        else:
            self._start_loop_timer()

    def _file_expired(self) -> None:
        try:
            os.read(self._file, EXPIRATIONS_BYTES)
        except BlockingIOError:
            return  # the timer was set to another time meanwhile
        self._due_ns = None
        self._callback()

    def _start_loop_timer(self) -> None:
        """Falls back to the event loop's own timer."""
        if self._loop_timer is not None:
            self._loop_timer.cancel()
        assert self._due_ns is not None
        left_ms = -((time.monotonic_ns() - self._due_ns) // NS_PER_MS)  # rounded up
        self._loop_timer = self._loop.call_later(max(0, left_ms) / 1000, self._loop_timer_expired)

    def _loop_timer_expired(self) -> None:
        assert self._due_ns is not None
        if self._due_ns > time.monotonic_ns():
            self._start_loop_timer()  # the loop's timer fired early
        else:
            self._due_ns = None
            self._callback()

    def close(self) -> None:
        self._due_ns = None
        if self._loop_timer is not None:
            self._loop_timer.cancel()
        if self._file >= 0:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = -1

"""An alarm that rings on time: uvloop's timers know whole milliseconds only, and links are faster than that."""

import asyncio
import ctypes
import os
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from brokerbed.broker.values import NS_PER_S

TFD_TIMER_ABSTIME = 1  # from Linux' headers, as are the flags of a timer
FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
EXPIRATIONS_BYTES = 8
NS_PER_MS = 1_000_000


def _libc() -> Any:
    """The C library, if it has Linux' timers as files (Python has them from 3.13 on)."""
    with suppress(OSError):
        found = ctypes.CDLL(None, use_errno=True)
        if hasattr(found, "timerfd_create"):
            return found
    return None


LIBC = _libc()


class Alarm:
    """Calls `ring` at a time of the monotonic clock, not before; a new time replaces the old one."""

    __slots__ = ("_due_ns", "_file", "_loop", "_ring", "_timer")

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._due_ns: int | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._file: int = LIBC.timerfd_create(time.CLOCK_MONOTONIC, FLAGS) if LIBC is not None else -1
        if self._file >= 0:
            loop.add_reader(self._file, self._expired)

    def set(self, due_ns: int) -> None:
        if due_ns == self._due_ns:
            return
        self._due_ns = due_ns
        if self._file >= 0:
            when = struct.pack("@4l", 0, 0, *divmod(max(1, due_ns), NS_PER_S))
            LIBC.timerfd_settime(self._file, TFD_TIMER_ABSTIME, when, None)
        else:
            self._wait()

    def _expired(self) -> None:
        try:
            os.read(self._file, EXPIRATIONS_BYTES)
        except BlockingIOError:
            return  # it was set anew meanwhile
        self._due_ns = None
        self._ring()

    def _wait(self) -> None:
        """With the loop's own timer."""
        if self._timer is not None:
            self._timer.cancel()
        assert self._due_ns is not None
        left_ms = -((time.monotonic_ns() - self._due_ns) // NS_PER_MS)  # rounded up
        self._timer = self._loop.call_later(max(0, left_ms) / 1000, self._waited)

    def _waited(self) -> None:
        assert self._due_ns is not None
        if self._due_ns > time.monotonic_ns():
            self._wait()  # it was early
        else:
            self._due_ns = None
            self._ring()

    def close(self) -> None:
        self._due_ns = None
        if self._timer is not None:
            self._timer.cancel()
        if self._file >= 0:
            self._loop.remove_reader(self._file)
            os.close(self._file)
            self._file = -1

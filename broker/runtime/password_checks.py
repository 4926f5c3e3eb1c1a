"""Checks passwords in threads, so that the event loop goes on, and in fair turns between the addresses that ask.

A password that was right is not computed again while the broker runs: otherwise clients that all reconnect after a
fault would wait for minutes. Of each user the last such password is remembered, as a hash with a key that is random.
"""

import asyncio
import hashlib
import hmac
import os
import secrets
import threading
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from brokerbed.broker.core.connection import Connection
from brokerbed.broker.core.login import Checked
from brokerbed.broker.core.passwords import Users

THREADS = 2  # each needs up to passwords.SCRYPT_BYTES_MAX
NICENESS = 4  # the event loop's thread gets two and a half times as much of a processor
REMEMBERED_MAX = 100_000  # right passwords, of some 200 bytes each


@dataclass(frozen=True, slots=True)
class _Check:
    connection: Connection
    users: Users
    name: str
    password: bytes
    checked: Checked


class PasswordChecks:
    """How many wait is limited by the number of connections, and how long by the time for a CONNECT."""

    def __init__(self, now_ns: Callable[[], int], done: Callable[[], None]) -> None:
        """`done` is called after each check, as the core has effects then."""
        self._now_ns = now_ns
        self._done = done
        self._threads: ThreadPoolExecutor | None = None
        self._running = 0
        self._is_closed = False
        self._waiting: OrderedDict[str, deque[_Check]] = OrderedDict()  # by address; the first has the next turn
        self._key = secrets.token_bytes(32)
        self._right: OrderedDict[str, bytes] = OrderedDict()  # by user name

    def check(self, connection: Connection, users: Users, name: str, password: bytes, checked: Checked) -> None:
        """Have a password checked; `checked` is called later."""
        if self._is_remembered(users, name, password):
            asyncio.get_running_loop().call_soon(self._answer, checked, True)
            return
        address = connection.peer.rpartition(":")[0]
        self._waiting.setdefault(address, deque()).append(_Check(connection, users, name, password, checked))
        self._next()

    def close(self) -> None:
        self._is_closed = True
        self._waiting.clear()
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    def _next(self) -> None:
        while self._waiting and self._running < THREADS:
            address, checks = self._waiting.popitem(last=False)
            check = checks.popleft()
            if checks:
                self._waiting[address] = checks  # after all others
            if check.connection.is_closing:
                continue
            if self._threads is None:
                self._threads = ThreadPoolExecutor(THREADS, "password", _lower_priority)
            self._running += 1
            future = asyncio.get_running_loop().run_in_executor(
                self._threads, check.users.accepts, check.name, check.password
            )
            future.add_done_callback(lambda future, check=check: self._computed(future, check))  # type: ignore[misc]

    def _computed(self, future: "asyncio.Future[bool]", check: _Check) -> None:
        self._running -= 1
        if self._is_closed or future.cancelled():
            return
        is_right = future.result()
        if is_right:
            self._remember(check)
        self._answer(check.checked, is_right)
        self._next()

    def _answer(self, checked: Checked, is_right: bool) -> None:
        checked(is_right, self._now_ns())
        self._done()

    def _digest(self, users: Users, name: str, password: bytes) -> bytes:
        stored = users.passwords[name].text.encode()
        return hashlib.blake2b(stored + b"\0" + password, key=self._key, digest_size=32).digest()

    def _remember(self, check: _Check) -> None:
        self._right[check.name] = self._digest(check.users, check.name, check.password)
        if len(self._right) > REMEMBERED_MAX:
            self._right.popitem(last=False)

    def _is_remembered(self, users: Users, name: str, password: bytes) -> bool:
        remembered = self._right.get(name)
        if remembered is None or name not in users.passwords:
            return False
        return hmac.compare_digest(remembered, self._digest(users, name, password))


def _lower_priority() -> None:
    with suppress(OSError):
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + NICENESS)

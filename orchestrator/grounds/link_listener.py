"""Listens in place of one broker for links from others, and gives each connection to the relay of the two brokers.

A link may move to any broker, so the relay of a pair cannot be known from the address that a child dials: all brokers
tell one another the address of this listener, and it reads from the CONNECT who dials.
"""

import asyncio
import socket
from collections.abc import Callable

from brokerbed.broker.core.link import LINK_ID
from brokerbed.orchestrator.grounds.connect_start import client_id_of
from brokerbed.orchestrator.grounds.relay import ACCEPT_RETRY_S, Relay, prepare

START_BYTES_MAX = 4096  # of a CONNECT, up to the client id
WAITING_MAX = 64  # connections that have not said who they are; a broker does so at once


class LinkListener:
    def __init__(self, relay_of: Callable[[str], Relay | None], host: str) -> None:
        """`relay_of` gives the relay for links from the broker of this name; None if there is no such broker."""
        self._relay_of = relay_of
        self._host = host
        self._loop: asyncio.AbstractEventLoop
        self._listener: socket.socket | None = None
        self._waiting: dict[socket.socket, bytes] = {}  # what was read so far

    @property
    def address(self) -> tuple[str, int]:
        assert self._listener is not None
        return self._host, int(self._listener.getsockname()[1])

    def open(self) -> tuple[str, int]:
        """Listens on a free port, and returns its address."""
        self._loop = asyncio.get_running_loop()
        self._listener = socket.create_server((self._host, 0))
        prepare(self._listener)
        self._watch()
        return self.address

    def _watch(self) -> None:
        if self._listener is not None:
            self._loop.add_reader(self._listener, self._accept)

    def close(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for child in list(self._waiting):
            self._forget(child).close()

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            child, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:  # there are no file descriptors left
            self._loop.remove_reader(self._listener)
            self._loop.call_later(ACCEPT_RETRY_S, self._watch)
            return
        if len(self._waiting) >= WAITING_MAX:  # the oldest has said nothing for long
            self._forget(next(iter(self._waiting))).close()
        prepare(child)
        self._waiting[child] = b""
        self._loop.add_reader(child, self._read, child)

    def _read(self, child: socket.socket) -> None:
        try:
            data = child.recv(START_BYTES_MAX)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        start = self._waiting[child] + data
        self._waiting[child] = start
        client_id = client_id_of(start)
        if client_id is None and data and len(start) < START_BYTES_MAX:
            return
        self._forget(child)
        is_link = client_id is not None and client_id.startswith(LINK_ID)
        relay = self._relay_of(client_id.removeprefix(LINK_ID)) if is_link and client_id is not None else None
        if relay is None:
            child.close()
        else:
            relay.take(child, start)

    def _forget(self, child: socket.socket) -> socket.socket:
        del self._waiting[child]
        self._loop.remove_reader(child)
        return child

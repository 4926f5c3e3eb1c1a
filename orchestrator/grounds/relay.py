"""A TCP relay for one overlay link: the connections of a child to its parent pass through it.

It can hold data in one direction or both, delay it or limit its bandwidth, and break connections. It knows nothing of
MQTT. All of it runs in the event loop that opened it.
"""

import asyncio
import errno
import os
import socket
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from brokerbed.orchestrator.grounds.delayed_stream import Quality
from brokerbed.orchestrator.grounds.pipe import Direction, Pipe

__all__ = ["Quality", "Relay"]

UP, DOWN = "up", "down"  # from child to parent, from parent to child
CHUNK_BYTES = 256 * 1024  # largest read; also what is kept of a child whose connection to the parent is not made yet
CONNECTIONS_MAX = 64  # a link has one; others were abandoned, and their end is held
ACCEPT_RETRY_S = 0.5  # wait when there are no file descriptors left


_SOCKETS: "WeakSet[socket.socket]" = WeakSet()  # the sockets of all relays of this process


def _close_inherited() -> None:
    """Closes the copies of all sockets in a forked process, which would keep connections open that a relay breaks."""
    for inherited in list(_SOCKETS):
        if inherited.fileno() >= 0:
            os.close(inherited.detach())  # `close` would wait for the event loop


os.register_at_fork(after_in_child=_close_inherited)


class Passage:
    """One connection through the relay: it waits until no direction is held, dials the parent, then has two pipes."""

    __slots__ = ("_child", "_early", "_is_refused", "_is_waiting", "_parent", "_pipes", "_relay", "_start_bytes")

    def __init__(self, relay: "Relay", child: socket.socket, early: bytes) -> None:
        self._relay = relay
        self._child = child
        self._parent: socket.socket | None = None
        self._pipes: dict[str, Pipe] = {}
        self._early = bytearray(early)  # what the child sent before it could be passed on
        self._is_waiting = False
        self._is_refused = False
        self._start_bytes = bytearray() if relay.keeps_start else None
        prepare(child)

    @property
    def is_connected(self) -> bool:
        return bool(self._pipes)

    @property
    def size_bytes(self) -> int:
        return len(self._early) + sum(pipe.size_bytes for pipe in self._pipes.values())

    @property
    def start_bytes(self) -> bytes:
        """The first bytes that the child sent, if the relay keeps them."""
        return bytes(self._start_bytes or b"")

    def begin(self) -> None:
        if self._relay.is_cut:
            self._is_waiting = True
            self._relay.loop.add_reader(self._child, self._read_early)
        else:
            self._dial()

    def hold(self, way: str) -> None:
        if way in self._pipes:
            self._pipes[way].hold()

    def release(self, ways: list[str]) -> None:
        for way in ways:
            if way in self._pipes:
                self._pipes[way].release()
        if self._is_waiting and not self._relay.is_cut:
            self._is_waiting = False
            self._relay.loop.remove_reader(self._child)
            self._dial()
        elif self._is_refused and DOWN in ways:
            self._refuse()

    def _read_early(self) -> None:
        """A child that gives up before the connection is made is forgotten, as if its first packet had been lost."""
        while len(self._early) < CHUNK_BYTES:
            try:
                data = self._child.recv(CHUNK_BYTES - len(self._early))
            except BlockingIOError:
                return
            except OSError:
                data = b""
            self._early += data
            if not data:
                self.close()
                return
        self._relay.loop.remove_reader(self._child)

    def _dial(self) -> None:
        family, address = self._relay.target
        try:
            self._parent = socket.socket(family, socket.SOCK_STREAM)
            prepare(self._parent)
            problem = self._parent.connect_ex(address)
        except OSError as error:  # no file descriptors left
            problem = error.errno or errno.EMFILE
        if problem in (0, errno.EINPROGRESS):
            assert self._parent is not None
            self._relay.loop.add_writer(self._parent, self._dialled)
        else:
            self._refuse()

    def _dialled(self) -> None:
        assert self._parent is not None
        self._relay.loop.remove_writer(self._parent)
        if self._parent.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
            self._refuse()
            return
        relay, child, parent = self._relay, self._child, self._parent
        up = Pipe(relay.loop, relay.buffer, relay.ways[UP], child, parent, self._done, self._start_bytes)
        down = Pipe(relay.loop, relay.buffer, relay.ways[DOWN], parent, child, self._done)
        up.opposite, down.opposite = down, up
        self._pipes = {UP: up, DOWN: down}
        down.begin()
        up.begin(bytes(self._early))
        self._early.clear()

    def _refuse(self) -> None:
        """Ends the connection to the child, unless that direction is held."""
        self._is_refused = True
        if not self._relay.ways[DOWN].is_held:
            self._relay.ways[DOWN].crossed += 1
            _end_by_reset(self._child)
            self.close()

    def reset(self) -> socket.socket:
        """Breaks the connection for both ends at once, even in a held direction; what is under way is lost.

        The parent sees an ordinary end of the connection. When it closes the connection as well, which can be seen on
        the returned socket, it has noticed.
        """
        parent, self._parent = self._parent, None
        assert parent is not None
        _end_by_reset(self._child)
        self.close()
        with suppress(OSError):  # the child has closed the connection itself
            parent.shutdown(socket.SHUT_WR)
        return parent

    def _done(self) -> None:
        if all(pipe.is_done for pipe in self._pipes.values()):
            self.close()

    def close(self) -> None:
        """Closes the connection at once; what is under way is lost."""
        for pipe in self._pipes.values():
            pipe.close()
        for end in (self._child, self._parent):
            if end is not None and end.fileno() >= 0:
                self._relay.loop.remove_reader(end)
                self._relay.loop.remove_writer(end)
                end.close()
        self._relay.ended(self)


class Relay:
    """Listens for a child in place of its parent. All methods must be called in the thread of one event loop.

    After `hold` has returned, neither bytes nor the end of a connection are passed on in that direction; nothing is
    lost. Connections are made only while neither direction is held.
    """

    def __init__(
        self,
        target: tuple[str, int],
        up: Quality = Quality(),  # noqa: B008 - it is immutable
        down: Quality = Quality(),  # noqa: B008
        host: str = "127.0.0.1",
        connections_max: int = CONNECTIONS_MAX,
        keeps_start: bool = False,
    ) -> None:
        """`keeps_start`: it keeps the first bytes of each connection, for `reset`."""
        self._target_name = target
        self._host = host
        self._connections_max = connections_max
        self.keeps_start = keeps_start
        self.ways = {UP: Direction(up), DOWN: Direction(down)}
        self.buffer = bytearray(CHUNK_BYTES)
        self.loop: asyncio.AbstractEventLoop
        self.target: tuple[int, Any]  # family and address
        self._listener: socket.socket | None = None
        self._is_accepting = False
        self._passages: dict[Passage, None] = {}  # in order of arrival

    def attach(self) -> None:
        """Passes on connections that another listener accepts (see `take`). The target must be an IP address."""
        self.loop = asyncio.get_running_loop()
        numeric = socket.AI_NUMERICHOST  # so that this does not wait for a name server
        family, *_, address = socket.getaddrinfo(*self._target_name, type=socket.SOCK_STREAM, flags=numeric)[0]
        self.target = family, address

    async def open(self, port: int = 0) -> int:
        """Listens on this port, or on a free one, and returns it."""
        self.loop = asyncio.get_running_loop()
        name, target_port = self._target_name
        family, *_, address = (await self.loop.getaddrinfo(name, target_port, type=socket.SOCK_STREAM))[0]
        self.target = family, address
        self._listener = socket.create_server((self._host, port))
        _SOCKETS.add(self._listener)
        self._listener.setblocking(False)
        self._watch()
        return int(self._listener.getsockname()[1])

    @property
    def is_cut(self) -> bool:
        """Whether a direction is held; then no connection can be made, because that requires both."""
        return any(way.is_held for way in self.ways.values())

    @property
    def size_bytes(self) -> int:
        """The number of bytes under way."""
        return sum(passage.size_bytes for passage in self._passages)

    def hold(self, *ways: str) -> None:
        """Holds data in these directions ("up", "down"; both if none is given)."""
        for way in ways or self.ways:
            self.ways[way].hold()
            for passage in self._passages:
                passage.hold(way)

    def release(self, *ways: str) -> None:
        """Passes on what was held, in order."""
        released = [way for way in ways or self.ways if self.ways[way].is_held]
        for way in released:
            self.ways[way].is_held = False
        for passage in list(self._passages):
            passage.release(released)

    def is_held(self, way: str) -> bool:
        """Whether the direction is held and nothing has passed since."""
        return self.ways[way].is_quiet

    def crossed_bytes(self, way: str) -> int:
        """How many bytes were passed on in this direction."""
        return self.ways[way].crossed_bytes

    def reset(self, is_wanted: Callable[[bytes], bool]) -> list[socket.socket]:
        """Breaks the connections whose first bytes match; returns the sockets on which the parent will end them."""
        wanted = [passage for passage in self._passages if passage.is_connected and is_wanted(passage.start_bytes)]
        return [passage.reset() for passage in wanted]

    def refuse(self) -> None:
        """Refuses new connections until it is opened again; existing ones stay."""
        if self._listener is not None:
            listener, self._listener = self._listener, None
            self.loop.remove_reader(listener)
            self._is_accepting = False
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # copies in other processes stop to listen, too
            listener.close()

    def close(self) -> None:
        """Closes all connections and stops listening."""
        self.refuse()
        for passage in list(self._passages):
            passage.close()

    def ended(self, passage: Passage) -> None:
        self._passages.pop(passage, None)
        self._watch()

    def _watch(self) -> None:
        if self._listener is None:
            return
        accepts = len(self._passages) < self._connections_max
        if accepts != self._is_accepting:
            self._is_accepting = accepts
            if accepts:
                self.loop.add_reader(self._listener, self._accept)
            else:
                self.loop.remove_reader(self._listener)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            child, _ = self._listener.accept()
        except (BlockingIOError, ConnectionError):
            return
        except OSError:
            self.loop.remove_reader(self._listener)
            self._is_accepting = False
            self.loop.call_later(ACCEPT_RETRY_S, self._watch)
            return
        self.take(child)

    def take(self, child: socket.socket, early: bytes = b"") -> None:
        """Passes on a connection that was accepted, and from which these bytes were read."""
        if len(self._passages) >= self._connections_max:
            child.close()
            return
        passage = Passage(self, child, early)
        self._passages[passage] = None
        self._watch()
        passage.begin()


def _end_by_reset(connection: socket.socket) -> None:
    """Makes the later close of the connection send a reset (RST)."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def prepare(connection: socket.socket) -> None:
    _SOCKETS.add(connection)
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

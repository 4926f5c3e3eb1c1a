"""A TCP relay for one overlay link: the connections of a child to its parent pass through it.

It can hold what passes, one way or both, be slow or narrow, and break connections. It knows nothing of MQTT. All of it
runs in the event loop that opened it.
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

from brokerbed.orchestrator.grounds.line import Quality
from brokerbed.orchestrator.grounds.pipe import Pipe, Way

__all__ = ["Quality", "Relay"]

UP, DOWN = "up", "down"  # from child to parent, from parent to child
CHUNK_BYTES = 256 * 1024  # read at once, and kept of what a child sends that is not connected yet
CONNECTIONS_MAX = 64  # a link has one; others are those that were given up and whose end is held
ACCEPT_RETRY_S = 0.5  # when the system has no more descriptors


_SOCKETS: "WeakSet[socket.socket]" = WeakSet()  # of all relays


def _close_inherited() -> None:
    """A forked process has copies of all sockets; with them it would keep connections open that a relay breaks."""
    for inherited in list(_SOCKETS):
        if inherited.fileno() >= 0:
            os.close(inherited.detach())  # `close` would wait until the event loop lets go of it


os.register_at_fork(after_in_child=_close_inherited)


class Passage:
    """One connection through the relay: it waits until no way is held, is dialled, and then has two pipes."""

    __slots__ = ("_child", "_early", "_heard", "_is_refused", "_is_waiting", "_parent", "_pipes", "_relay")

    def __init__(self, relay: "Relay", child: socket.socket) -> None:
        self._relay = relay
        self._child = child
        self._parent: socket.socket | None = None
        self._pipes: dict[str, Pipe] = {}
        self._early = bytearray()  # what the child said before it could be heard
        self._is_waiting = False
        self._is_refused = False
        self._heard = bytearray() if relay.is_hearing else None
        prepare(child)

    @property
    def is_connected(self) -> bool:
        return bool(self._pipes)

    @property
    def size_bytes(self) -> int:
        return len(self._early) + sum(pipe.size_bytes for pipe in self._pipes.values())

    @property
    def heard(self) -> bytes:
        """How the child began, if the relay is to know."""
        return bytes(self._heard or b"")

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
        """Who gives up before it is connected was never there, as if the cut had taken its first packet."""
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
        except OSError as error:  # no more descriptors
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
        up = Pipe(relay.loop, relay.buffer, relay.ways[UP], child, parent, self._done, self._heard)
        down = Pipe(relay.loop, relay.buffer, relay.ways[DOWN], parent, child, self._done)
        up.opposite, down.opposite = down, up
        self._pipes = {UP: up, DOWN: down}
        down.begin()
        up.begin(bytes(self._early))
        self._early.clear()

    def _refuse(self) -> None:
        """The child is told, unless that is held."""
        self._is_refused = True
        if not self._relay.ways[DOWN].is_held:
            self._relay.ways[DOWN].crossed += 1
            _end_by_reset(self._child)
            self.close()

    def reset(self) -> socket.socket:
        """Both ends are told at once, also those of a held way; what is under way is lost.

        The parent hears an ordinary end: that it ends the connection, too, on the socket that is returned, shows that
        it took notice.
        """
        parent, self._parent = self._parent, None
        assert parent is not None
        _end_by_reset(self._child)
        self.close()
        with suppress(OSError):  # it has ended the connection itself
            parent.shutdown(socket.SHUT_WR)
        return parent

    def _done(self) -> None:
        if all(pipe.is_done for pipe in self._pipes.values()):
            self.close()

    def close(self) -> None:
        """At once, whatever is under way."""
        for pipe in self._pipes.values():
            pipe.close()
        for end in (self._child, self._parent):
            if end is not None and end.fileno() >= 0:
                self._relay.loop.remove_reader(end)
                self._relay.loop.remove_writer(end)
                end.close()
        self._relay.ended(self)


class Relay:
    """Listens for a child in place of its parent. To be used in one event loop, by that loop's thread.

    When `hold` has returned, nothing more is passed on that way, be it bytes or the end of a connection; nothing is
    lost. Connections are made only while neither way is held.
    """

    def __init__(
        self,
        target: tuple[str, int],
        up: Quality = Quality(),  # noqa: B008 - it is immutable
        down: Quality = Quality(),  # noqa: B008
        host: str = "127.0.0.1",
        connections_max: int = CONNECTIONS_MAX,
        is_hearing: bool = False,
    ) -> None:
        """`is_hearing`: it keeps the first bytes of each connection, for `reset`."""
        self._target_name = target
        self._host = host
        self._connections_max = connections_max
        self.is_hearing = is_hearing
        self.ways = {UP: Way(up), DOWN: Way(down)}
        self.buffer = bytearray(CHUNK_BYTES)
        self.loop: asyncio.AbstractEventLoop
        self.target: tuple[int, Any]  # family and address
        self._listener: socket.socket | None = None
        self._is_accepting = False
        self._passages: dict[Passage, None] = {}  # in the order in which they came

    async def open(self, port: int = 0) -> int:
        """Listens on this port, or on one that the system chooses, and returns it."""
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
        """One way is enough: to connect takes both."""
        return any(way.is_held for way in self.ways.values())

    @property
    def size_bytes(self) -> int:
        """What is under way in it."""
        return sum(passage.size_bytes for passage in self._passages)

    def hold(self, *ways: str) -> None:
        """What comes these ways ("up", "down"; both, if none is given) waits here."""
        for way in ways or self.ways:
            self.ways[way].hold()
            for passage in self._passages:
                passage.hold(way)

    def release(self, *ways: str) -> None:
        """What was held goes on, in order."""
        released = [way for way in ways or self.ways if self.ways[way].is_held]
        for way in released:
            self.ways[way].is_held = False
        for passage in list(self._passages):
            passage.release(released)

    def is_held(self, way: str) -> bool:
        """Whether it is held and nothing has passed that way since."""
        return self.ways[way].is_quiet

    def reset(self, is_wanted: Callable[[bytes], bool]) -> list[socket.socket]:
        """Breaks the connections whose first bytes are wanted; returns the sockets on which the parent ends them."""
        wanted = [it for it in self._passages if it.is_connected and is_wanted(it.heard)]
        return [passage.reset() for passage in wanted]

    def refuse(self) -> None:
        """Nobody is listened to until it is opened again; what is connected stays."""
        if self._listener is not None:
            listener, self._listener = self._listener, None
            self.loop.remove_reader(listener)
            self._is_accepting = False
            with suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)  # a copy in another process does not listen from now on either
            listener.close()

    def close(self) -> None:
        """Ends everything at once."""
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
        passage = Passage(self, child)
        self._passages[passage] = None
        self._watch()
        passage.begin()


def _end_by_reset(connection: socket.socket) -> None:
    """When it is closed."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def prepare(connection: socket.socket) -> None:
    _SOCKETS.add(connection)
    connection.setblocking(False)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

"""A TCP relay between two brokers of a test: it can hold what passes, in one direction or both, and cut the link."""

import socket
import threading
from contextlib import suppress

CHUNK_BYTES = 65536
END_S = 10.0  # for the threads to end
UP, DOWN = "up", "down"  # from child to parent, from parent to child


class Pair:
    """One connection through the relay: its two sockets, what reads them, and whether bytes may still pass."""

    def __init__(self, child: socket.socket, parent: socket.socket) -> None:
        self.child = child
        self.parent = parent
        self.is_open = True
        self.pumps: dict[str, threading.Thread] = {}  # by direction
        for each in (child, parent):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def end(self, *, parent_notices: bool = True) -> None:
        """Tells the brokers that the connection is over; what they still send is read and thrown away."""
        self.is_open = False
        for each in (self.child, self.parent) if parent_notices else (self.child,):
            with suppress(OSError):  # it may be gone already
                each.shutdown(socket.SHUT_WR)


class Relay:
    """One thread per connection and direction. When `hold` or `cut` has returned, not a byte passes any more."""

    def __init__(self, target_port: int) -> None:
        self._target_port = target_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._passing = threading.Condition()
        self._held: set[str] = set()
        self._is_cut = False
        self._pairs: list[Pair] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def hold(self, *directions: str) -> None:
        """What is sent in these directions (both, if none is given) waits here."""
        with self._passing:
            self._held.update(directions or (UP, DOWN))

    def cut(self, *, parent_notices: bool = True) -> None:
        """Connections end, what is held here is lost, who comes anew is sent away. Returns when the brokers know."""
        with self._passing:
            self._is_cut = True
            self._held.clear()
            for pair in self._pairs:
                pair.end(parent_notices=parent_notices)
            self._passing.notify_all()
        for pair in self._pairs:
            for direction in (UP, DOWN) if parent_notices else (UP,):
                pair.pumps[direction].join(END_S)
                assert not pair.pumps[direction].is_alive(), "a broker did not close its end of a link that was cut"

    def heal(self) -> None:
        """What was held goes on, and new connections are let through."""
        with self._passing:
            self._is_cut = False
            self._held.clear()
            self._passing.notify_all()

    def stop(self) -> None:
        """When the brokers have ended."""
        self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._accepting.join(END_S)
        self.cut()
        self._listener.close()
        for pair in self._pairs:
            pair.child.close()
            pair.parent.close()

    def _accept(self) -> None:
        with suppress(OSError):  # the end of the relay
            while True:
                self._join(self._listener.accept()[0])

    def _join(self, child: socket.socket) -> None:
        with self._passing:
            parent = socket.socket()
            if self._is_cut or parent.connect_ex(("127.0.0.1", self._target_port)):
                child.close()
                parent.close()
                return
            pair = Pair(child, parent)
            for direction, ends in {UP: (child, parent), DOWN: (parent, child)}.items():
                pair.pumps[direction] = threading.Thread(target=self._pump, args=(pair, direction, *ends))
                pair.pumps[direction].start()
            self._pairs.append(pair)

    def _pump(self, pair: Pair, direction: str, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                with self._passing:
                    self._passing.wait_for(lambda: direction not in self._held or not pair.is_open)
                    if pair.is_open:
                        target.sendall(data)
        with self._passing:
            if pair.is_open:
                pair.end()

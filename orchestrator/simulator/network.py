"""Hosts with broker cores, and the links between them.

A host can crash: what its broker has not stored is gone, its connections break, and it starts again from its store. A
link can be cut (the connection stays, what is sent is held back in both directions or in one) and break (what is under
way is lost).
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.core import persist
from brokerbed.broker.core.broker import Broker
from brokerbed.broker.core.connection import Connection
from brokerbed.broker.core.notify import notify
from brokerbed.broker.core.restore import restore
from brokerbed.broker.core.run import Run
from brokerbed.broker.core.store import MemoryStore
from brokerbed.broker.core.timers import Action, SetTimer
from brokerbed.broker.values import NS_PER_S
from brokerbed.clients.session import Packet
from brokerbed.log.record import Log
from brokerbed.orchestrator.simulator.link_of_two import LinkOfTwo
from brokerbed.orchestrator.simulator.link_schedule import Quality
from brokerbed.orchestrator.simulator.loop import Loop
from brokerbed.orchestrator.simulator.wire import Direct, Wire

LinkQualities = Callable[[str, str], tuple[Quality, Quality]]  # takes child and parent; the qualities up and down
PORT = 1883  # of every broker
LogWriter = Callable[[str, int, Log], None]  # takes the name of the logger, its life, and the log


class Host:
    """A simulated machine with one broker, which can crash and restart on the same store."""

    def __init__(
        self,
        loop: Loop,
        name: str,
        config: Callable[[int], BrokerConfig],
        parent: str | None,
        is_durable: bool,
        write_log: LogWriter | None = None,
        commit_ns: int = 0,
    ) -> None:
        """`config` for its n-th life; `commit_ns`: how long storing takes, during which a crash loses it."""
        self.loop = loop
        self.name = name
        self.parent = parent
        self.store = MemoryStore() if is_durable else None
        self.lives = 0
        self.is_up = False
        self.is_paused = False
        self.is_plain = False  # notifications only need to be passed on
        self.serving = 0  # the number of its life while it is up and not paused, else 0
        self.acknowledges_first = False  # a deliberate bug for tests: output is sent before it is stored
        self.ups: list[Callable[[], None]] = []  # called when it is up (again)
        self._config = config
        self._write_log = write_log
        self._commit_ns = commit_ns
        self._is_committing = False
        self._logged_bytes = 0  # bytes of log records whose turns are stored
        self._waiting: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()  # what arrived while it was paused
        self.log = Log() if write_log is not None else None

    @property
    def is_dead(self) -> bool:
        return not self.is_up

    @property
    def is_stopped(self) -> bool:
        return self.is_paused or not self.is_up

    def start(self) -> None:
        self.lives += 1
        self.is_up, self._is_committing = True, False
        self.serving = 0 if self.is_paused else self.lives
        if self._write_log is not None:
            self.log = Log()
            self._logged_bytes = 0
        config = self._config(self.lives)
        if not config.address:  # nobody dials it here, but brokers tell one another only of those with an address
            config = replace(config, address=f"{self.name}:{PORT}")
        self.is_plain = self.store is None and config.service_in is None
        self.broker = Broker(config, self.log, is_durable=self.store is not None, at=self._timers_of(self.lives))
        if self.store is not None:
            restore(self.broker, self.store.load(), self.loop.now_ns)
        self.broker.started(self.loop.now_ns)
        if self.parent is not None and self.broker.overlay.moved_to is None:
            self.broker.overlay.expect_parent(self.parent)
        self.flush()
        for up in self.ups:
            up()

    def crash(self) -> None:
        """Kills the broker: what was not stored is lost, also from the log, and all connections break."""
        self.close_log()
        self.is_up = False
        self.serving = 0
        self._waiting.clear()
        for connection in list(self.broker.connections):
            connection.driver.out.close()

    def close_log(self) -> None:
        if self.is_up:
            self.write_log()

    def pause(self, is_paused: bool) -> None:
        """Suspends or resumes the broker, as SIGSTOP and SIGCONT do."""
        self.is_paused = is_paused
        self.serving = self.lives if self.is_up and not is_paused else 0
        while self._waiting and not self.is_paused:
            action, arguments = self._waiting.popleft()
            action(*arguments)

    def do(self, action: Callable[..., None], *arguments: Any) -> None:
        if self.is_paused:
            self._waiting.append((action, arguments))
        else:
            action(*arguments)

    # -- turns of the broker ----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Ends a turn: what must survive is stored, then output is written."""
        broker = self.broker
        if broker.unsaved:
            if self._commit_ns == 0:
                assert self.store is not None
                self.store.commit(persist.take(broker))
            elif not self._is_committing:
                self._is_committing = True
                self.loop.at(self.loop.now_ns + self._commit_ns, self._committed, self.lives)
        if (broker.dirty or broker.ending) and (not self._is_committing or self.acknowledges_first):
            self._write()
        if self.log is not None and not self._is_committing:
            self._logged_bytes = len(self.log.records)

    def _committed(self, life: int) -> None:
        if life != self.lives or not self.is_up:
            return
        if self.is_paused:
            self.do(self._committed, life)
            return
        assert self.store is not None
        self.store.commit(persist.take(self.broker))
        self._is_committing = False
        self.flush()

    def _write(self) -> None:
        broker = self.broker
        while broker.dirty or broker.ending:
            dirty, broker.dirty = broker.dirty, []
            for connection in dirty:
                connection.is_dirty = False
                output, connection.output = connection.output, []
                out = connection.driver.out
                for packet in output:
                    out.send(packet)
            ending, broker.ending = broker.ending, []
            for connection in ending:
                connection.driver.close()
                broker.lost(connection, self.loop.now_ns)

    def write_log(self, bytes_min: int = 0) -> None:
        """Writes the log records of stored turns; a real broker writes them only then, too."""
        log = self.log
        if self._write_log is None or log is None or len(log.records) < bytes_min:
            return
        if not self._is_committing:
            self._write_log(self.name, self.lives, log)
        else:
            unstored = log.records[self._logged_bytes :]
            del log.records[self._logged_bytes :]
            self._write_log(self.name, self.lives, log)
            log.records += unstored
        self._logged_bytes = 0

    def _timers_of(self, life: int) -> SetTimer:
        """Turns the timers of the broker into events of the simulation, during this life."""
        at, due = self.loop.at, self._due

        def set_timer(due_ns: int, action: Action, argument: Any) -> None:
            at(due_ns, due, (life, due_ns, action, argument))

        return set_timer

    def _due(self, timer: tuple[int, int, Action, Any]) -> None:
        life, due_ns, action, argument = timer
        if life == self.serving:
            action(self.broker, argument, due_ns)
            self.flush()
        elif life == self.lives and self.is_up:
            self.do(self._due, timer)  # the host is paused


class Socket:
    """A broker's end of a connection."""

    __slots__ = ("_gone", "_host", "_life", "_out", "connection")

    def __init__(self, host: Host, peer: str = "", gone: Callable[[], None] | None = None) -> None:
        """`gone` is called when the connection has ended at the broker, whoever ended it."""
        self._host = host
        self._life = host.lives
        self._gone = gone
        self._out: Wire
        self.connection: Connection = host.broker.opened(host.loop.now_ns, is_wire=False, peer=peer)
        self.connection.driver = self

    @property
    def out(self) -> Wire:
        return self._out

    @out.setter
    def out(self, wire: Wire) -> None:
        self._out = wire
        if self._host.store is None:
            self.connection.output = Direct(wire)
            self.connection.is_dirty = True  # the core need not mark it for writing, because its output is sent at once

    def arrived(self, packet: Packet) -> None:
        host, connection = self._host, self.connection
        if host.serving != self._life:
            if host.is_paused:
                host.do(self.arrived, packet)
            return
        broker = host.broker
        if host.is_plain and type(packet) is Run:  # a fast path for the most frequent case
            if not connection.is_closing:
                connection.last_ns = host.loop.now_ns
                notify(broker, connection, packet, host.loop.now_ns)
            return
        broker.received_packet(connection, packet, host.loop.now_ns)
        if broker.dirty or broker.ending or broker.unsaved or host.store is not None:
            host.flush()

    def broken(self) -> None:
        host = self._host
        if host.is_paused:
            host.do(self.broken)
        elif host.lives == self._life and host.is_up and self.connection in host.broker.connections:
            host.broker.lost(self.connection, host.loop.now_ns)
            host.flush()
            if self._gone is not None:
                self._gone()

    def close(self) -> None:
        self.out.close()
        if self._gone is not None:
            self._gone()


class Uplink:
    """Keeps a child linked to its parent, with the backoff of a real link. The child may get another parent."""

    def __init__(self, child: Host, parent: Host, hosts: Mapping[str, Host], qualities: LinkQualities) -> None:
        self.child = child
        self.parent = parent
        self._hosts = hosts
        self._qualities = qualities
        self._ends: tuple[Socket, Socket] | None = None
        self._crossed_before = [0, 0]  # bytes up and down, on the connections before this one
        self._backoff_ns = BACKOFF_NS_MIN
        self._held: dict[str, set[str]] = {}  # by parent, the directions that are cut: up, down
        self._dials = 0  # numbers the attempts, so that only the last one is made
        child.ups.append(self._begin)

    def _begin(self) -> None:
        self._backoff_ns = BACKOFF_NS_MIN
        self._dials += 1
        self._dial(self._dials)

    def _dial(self, number: int) -> None:
        if number != self._dials or not self.child.is_up:
            return
        moved_to = self.child.broker.overlay.moved_to
        self.parent = self.parent if moved_to is None else self._hosts[moved_to.peer]
        if not self.parent.is_up or self._cut_ways or self.child.is_paused or self.parent.is_paused:
            self._later()
            return
        below = Socket(self.child, self.parent.name, partial(self._gone, number))
        above = Socket(self.parent)
        up, down = self._qualities(self.child.name, self.parent.name)
        below.out = Wire(self.child.loop, above, up)
        above.out = Wire(self.child.loop, below, down)
        self._crossed_before = [self.crossed_bytes("up"), self.crossed_bytes("down")]
        self._ends = below, above
        self.child.broker.overlay.dialled(below.connection)
        self.child.flush()

    def _gone(self, number: int) -> None:
        """The connection of an attempt has ended. If it was not the last attempt, there is a newer connection."""
        if number != self._dials:
            return
        self._backoff_ns = BACKOFF_NS_MIN
        moved_to = self.child.broker.overlay.moved_to
        if moved_to is not None and moved_to.peer != self.parent.name:
            self._begin()
        else:
            self._later()

    def _later(self) -> None:
        loop = self.child.loop
        self._dials += 1
        loop.at(loop.now_ns + self._backoff_ns, self._dial, self._dials)
        self._backoff_ns = min(2 * self._backoff_ns, BACKOFF_NS_MAX)

    def crossed_bytes(self, way: str) -> int:
        """How many bytes have crossed in this direction, if it takes time."""
        index = 0 if way == "up" else 1
        return self._crossed_before[index] + (0 if self._ends is None else self._ends[index].out.crossed_bytes)

    def is_held(self, way: str, parent: str | None = None) -> bool:
        """Whether nothing passes in this direction: on the wire if there is one, or because none can be made.

        `parent`: of the link that is meant, the present one if none is given.
        """
        if parent is not None and parent != self.parent.name:
            return way in self._held.get(parent, ())
        if self._ends is None or not self.is_connected:
            return way in self._cut_ways
        return self._ends[0 if way == "up" else 1].out.is_held

    @property
    def is_connected(self) -> bool:
        """Whether the child is connected to its parent."""
        parent = self.child.broker.overlay.parent
        return self.child.is_up and parent is not None and parent.connection is not None

    def break_(self) -> None:
        """Breaks the connection for both ends; what is under way is lost."""
        if self._ends is not None:
            for end in self._ends:
                end.out.close()

    @property
    def _cut_ways(self) -> set[str]:
        return self._held.setdefault(self.parent.name, set())

    @property
    def is_present(self) -> bool:
        """It is the link to whatever parent the child has."""
        return True

    def of_both(self) -> "LinkOfTwo":
        return LinkOfTwo(self, self.parent)

    def cut(self, *ways: str) -> None:
        """Cuts these directions of the link to the present parent; what is sent there is held."""
        self._cut_ways.update(ways)
        self._hold()

    def repair(self, *ways: str, parent: str | None = None) -> None:
        """Repairs these directions of the link to a parent, the present one if none is given."""
        self._held.setdefault(parent or self.parent.name, set()).difference_update(ways)
        self._hold()

    def _hold(self) -> None:
        if self._ends is None:
            return
        for way, end in zip(("up", "down"), self._ends, strict=True):
            if way in self._cut_ways:
                end.out.hold()
            elif end.out.is_held:
                end.out.release()


BACKOFF_NS_MIN, BACKOFF_NS_MAX = 50_000_000, 2 * NS_PER_S

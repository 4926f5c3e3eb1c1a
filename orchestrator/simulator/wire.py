"""Wires: one direction of a connection on the simulated network.

Packets cross as objects. A wire keeps order, may take time (a constant or a law) and have a bandwidth, of which a
packet takes as much as its bytes would on a real link.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

from brokerbed.broker.core.packet_size import link_bytes
from brokerbed.clients.session import Packet
from brokerbed.orchestrator.simulator.link_schedule import LinkSchedule, Quality, piece_sizes
from brokerbed.orchestrator.simulator.loop import Loop


class End(Protocol):
    """One end of a wire."""

    def arrived(self, packet: Packet) -> None: ...
    def broken(self) -> None: ...


NO_DELAY = Quality()


class Wire:
    """One direction: what is sent arrives at the other end, in order, later or at once."""

    __slots__ = ("_held", "_loop", "_schedule", "_to", "direct", "is_held", "is_open", "send")

    def __init__(self, loop: Loop, to: End, quality: Quality) -> None:
        self._loop = loop
        self._to = to
        self._schedule = None if quality == NO_DELAY else LinkSchedule[Packet | None](quality)
        self._held: deque[Packet] = deque()
        self.direct: Direct | None = None  # the output that is sent directly over this wire, if any
        self.is_held = False
        self.is_open = True
        self._choose()

    def _choose(self) -> None:
        """Chooses how to send: most wires have no delay, so a packet arrives before anything else can happen."""
        if self.is_held:
            self.send: Callable[[Packet], None] = self._held.append
        elif self._schedule is None:
            put, arrived = self._loop.at_once.append, self._to.arrived
            self.send = lambda packet: put((arrived, packet))
        else:
            self.send = self._send
        if self.direct is not None:
            self.direct.append = self.send  # type: ignore[method-assign]

    def _send(self, packet: Packet) -> None:
        """A packet arrives with its last piece; the other pieces have only a size."""
        assert self._schedule is not None
        *others, last = piece_sizes(link_bytes(packet))
        for size in others:
            self._schedule.send(None, size, self._loop.now_ns)
        self._loop.at(self._schedule.send(packet, last, self._loop.now_ns), self._arrive, None)

    def _arrive(self, _: None) -> None:
        if self.is_held or self._schedule is None:
            return
        for packet in self._schedule.take(self._loop.now_ns):
            if packet is not None and self.is_open:
                self._to.arrived(packet)

    @property
    def crossed_bytes(self) -> int:
        """Only a wire that takes time counts them."""
        return 0 if self._schedule is None else self._schedule.crossed_bytes

    def hold(self) -> None:
        self.is_held = True
        self._choose()

    def release(self) -> None:
        self.is_held = False
        held, self._held = self._held, deque()
        self._choose()
        if not self.is_open:
            self._loop.soon(self._notify_end, None)
        if self._schedule is not None:
            for due_ns in self._schedule.resume(self._loop.now_ns):
                self._loop.at(due_ns, self._arrive, None)
        for packet in held:
            self.send(packet)

    def close(self) -> None:
        """Breaks the wire; what is under way is lost. The other end notices, unless the wire is held."""
        if self.is_open:
            self.is_open = False
            self._held.clear()
            if self._schedule is not None:
                self._schedule.clear()
            if not self.is_held:
                self._loop.soon(self._notify_end, None)

    def _notify_end(self, _: None) -> None:
        self._to.broken()


class Direct(list[Any]):
    """The output of a connection whose broker stores nothing: it is sent at once."""

    __slots__ = ("append",)

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self.append = wire.send  # type: ignore[method-assign]
        wire.direct = self

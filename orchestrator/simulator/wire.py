"""Wires: one direction of a connection on the simulated network.

Packets cross as objects. A wire keeps order, may take time (a constant or a law) and have a bandwidth.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from broker.config import Demand
from broker.core.run import Run
from broker.values import NS_PER_S, Published
from clients.session import Packet
from orchestrator.simulator.loop import Loop

HEADER_BYTES = 40  # of a packet beside topic and payload, for bandwidth: TCP, IP, MQTT
CONTROL_BYTES = 60  # of any other packet, in all


class End(Protocol):
    """One end of a wire."""

    def arrived(self, packet: Packet) -> None: ...
    def broken(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Quality:
    """Of one direction of a wire."""

    delay: Demand | None = None
    bit_per_s: float | None = None


NO_DELAY = Quality()


class Wire:
    """One direction: what is sent arrives at the other end, in order, later or at once."""

    __slots__ = (
        "_free_ns", "_held", "_is_instant", "_last_ns", "_loop", "_quality", "_stuck", "_to", "direct", "is_held",
        "is_open", "send",
    )  # fmt: skip

    def __init__(self, loop: Loop, to: End, quality: Quality) -> None:
        self._loop = loop
        self._to = to
        self._quality = quality
        self._is_instant = quality is NO_DELAY
        self._free_ns = loop.now_ns  # the bandwidth is used until then
        self._last_ns = loop.now_ns  # nothing overtakes what arrives then
        self._held: deque[Packet] = deque()
        self._stuck: deque[Packet] = deque()  # would have arrived while it was held
        self.direct: Direct | None = None  # the output that goes straight into this wire, if there is one
        self.is_held = False
        self.is_open = True
        self._choose()

    def _choose(self) -> None:
        """The way that fits: most wires take no time, and then nothing can come between sending and arriving."""
        if self.is_held:
            self.send: Callable[[Packet], None] = self._held.append
        elif self._is_instant:
            put, arrived = self._loop.at_once.append, self._to.arrived
            self.send = lambda packet: put((arrived, packet))
        else:
            self.send = self._send
        if self.direct is not None:
            self.direct.append = self.send  # type: ignore[method-assign]

    def _send(self, packet: Packet) -> None:
        quality = self._quality
        due_ns = self._loop.now_ns
        if quality.bit_per_s is not None:
            self._free_ns = max(due_ns, self._free_ns) + round(8 * _size(packet) * NS_PER_S / quality.bit_per_s)
            due_ns = self._free_ns
        if quality.delay is not None:
            due_ns += quality.delay()
        self._last_ns = max(due_ns, self._last_ns)
        self._loop.at(self._last_ns, self._arrive, packet)

    def _arrive(self, packet: Packet) -> None:
        if self.is_held:
            self._stuck.append(packet)
        elif self.is_open:
            self._to.arrived(packet)

    def hold(self) -> None:
        self.is_held = True
        self._choose()

    def release(self) -> None:
        self.is_held = False
        held, self._held = self._held, deque()
        stuck, self._stuck = self._stuck, deque()
        self._choose()
        if not self.is_open:
            self._loop.soon(self._tell, None)
        for packet in stuck:
            self._loop.soon(self._arrive, packet)
        for packet in held:
            self.send(packet)

    def close(self) -> None:
        """What is under way is lost; the other end hears of it, while the wire is held not yet."""
        if self.is_open:
            self.is_open = False
            self._held.clear()
            self._stuck.clear()
            if not self.is_held:
                self._loop.soon(self._tell, None)

    def _tell(self, _: None) -> None:
        self._to.broken()


def _size(packet: Packet) -> int:
    if isinstance(packet, Run):
        return HEADER_BYTES + len(packet.topic) + len(packet.data)
    if isinstance(packet, Published):
        return HEADER_BYTES + packet.message.size
    return CONTROL_BYTES


class Direct(list[Any]):
    """The output of a connection whose broker has nothing to store first: what is put out is sent at once."""

    __slots__ = ("append",)

    def __init__(self, wire: Wire) -> None:
        super().__init__()
        self.append = wire.send  # type: ignore[method-assign]
        wire.direct = self

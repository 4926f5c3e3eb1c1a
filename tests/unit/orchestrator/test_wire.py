"""Wires of the simulated network: order, whatever is held when."""

import pytest

from broker.core.run import notification
from clients.session import Packet
from orchestrator.simulator.loop import Loop
from orchestrator.simulator.wire import Quality, Wire


class End:
    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self.got: list[tuple[int, str]] = []

    def arrived(self, packet: Packet) -> None:
        self.got.append((self._loop.now_ns, getattr(packet, "topic", "")))

    def broken(self) -> None:
        self.got.append((self._loop.now_ns, "broken"))


@pytest.mark.parametrize(
    ("steps", "got"),
    [
        ([(0, "A"), (2, "B")], [(10, "A"), (12, "B")]),
        ([(0, "A"), (1, "hold"), (2, "B"), (15, "release")], [(15, "A"), (25, "B")]),
        ([(0, "A"), (5, "C"), (6, "hold"), (12, "release")], [(12, "A"), (15, "C")]),
        ([(0, "A"), (5, "hold"), (7, "release"), (8, "B")], [(10, "A"), (18, "B")]),
        ([(0, "hold"), (1, "A"), (2, "close"), (5, "release")], [(5, "broken")]),
    ],
)
def test_slow_wire_keeps_order(steps: list[tuple[int, str]], got: list[tuple[int, str]]) -> None:
    """With a delay of 10: what is under way when the wire is cut arrives when it is repaired, before what came later."""
    loop = Loop()
    end = End(loop)
    wire = Wire(loop, end, Quality(delay=lambda: 10))
    for time_ns, what in steps:
        loop.run(time_ns, 100)
        if what in ("hold", "release", "close"):
            getattr(wire, what)()
        else:
            wire.send(notification(what, b""))
    loop.run(100, 100)
    assert end.got == got


def test_slow_wire_before_time_zero() -> None:
    loop = Loop()
    loop.now_ns = -100
    end = End(loop)
    Wire(loop, end, Quality(delay=lambda: 10)).send(notification("A", b""))
    loop.run(0, 100)
    assert end.got == [(-90, "A")]

"""Wires of the simulated network: order, whatever is held when."""

import mqtt5
import pytest

from brokerbed.broker.core.packet_size import link_bytes
from brokerbed.broker.core.run import notification
from brokerbed.clients.session import Packet
from brokerbed.orchestrator.grounds.delayed_stream import DelayedStream
from brokerbed.orchestrator.simulator.link_schedule import Quality
from brokerbed.orchestrator.simulator.loop import Loop
from brokerbed.orchestrator.simulator.wire import Wire


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
        ([(0, "A"), (1, "hold"), (2, "B"), (15, "release")], [(25, "A"), (25, "B")]),
        ([(0, "A"), (5, "C"), (6, "hold"), (12, "release")], [(22, "A"), (22, "C")]),
        ([(0, "A"), (5, "hold"), (7, "release"), (8, "B")], [(10, "A"), (18, "B")]),
        ([(0, "hold"), (1, "A"), (2, "close"), (5, "release")], [(5, "broken")]),
    ],
)
def test_slow_wire_keeps_order(steps: list[tuple[int, str]], got: list[tuple[int, str]]) -> None:
    """With a delay of 10: what came to the cut is sent anew when the wire is repaired, and nothing overtakes it."""
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


def test_narrow_wire_takes_as_long_as_the_same_bytes_through_a_relay() -> None:
    """A large message, a small one and an acknowledgement, handed over at once: pieces of at most 1460 bytes."""
    large, small = notification("A", bytes(4000)), notification("B", b"b")
    packets: list[Packet] = [large, small, mqtt5.PubAckPacket(1)]
    quality = Quality(delay=lambda: 1000, bandwidth_bit_per_s=64_000)
    loop, stream = Loop(), DelayedStream(quality)
    end = End(loop)
    wire = Wire(loop, end, quality)
    expected: list[int] = []
    for packet in packets:
        wire.send(packet)
        stream.send(memoryview(bytes(link_bytes(packet))), 0)
    for _ in packets:
        size = link_bytes(packets[len(expected)])
        while size > 0:
            assert stream.due_ns is not None
            due_ns = stream.due_ns
            size -= len(stream.take(due_ns))
        expected.append(due_ns)
    loop.run(10**12, 100)
    assert [time_ns for time_ns, _ in end.got] == expected
    assert expected[-1] == 1000 + round(8e9 * (link_bytes(large) + link_bytes(small) + 4) / 64_000)

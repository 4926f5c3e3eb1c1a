"""The schedule of a slow or narrow way; all times are worked out by hand."""

from brokerbed.broker.values import NS_PER_S
from brokerbed.orchestrator.grounds.line import Line, Quality

MS = 1_000_000
PIECE = 1460
BANDWIDTH = 1460 * 8 * 1000.0  # a piece takes 1 ms


def arrivals(line: Line, until_ns: int, step_ns: int = MS // 2) -> list[tuple[int, bytes]]:
    """What arrives when, looked at in steps."""
    found = [(now_ns, line.take(now_ns)) for now_ns in range(0, until_ns + 1, step_ns)]
    return [(now_ns, data) for now_ns, data in found if data]


def test_delay_alone_takes_no_bandwidth() -> None:
    line = Line(Quality(delay=lambda: 5 * MS))
    line.send(memoryview(b"a" * 2 * PIECE), 0)
    line.send(memoryview(b"b"), 2 * MS)
    assert arrivals(line, 10 * MS) == [(5 * MS, b"a" * 2 * PIECE), (7 * MS, b"b")]


def test_bandwidth_sends_piece_after_piece_and_rests_when_idle() -> None:
    line = Line(Quality(bandwidth_bit_per_s=BANDWIDTH))
    line.send(memoryview(b"a" * 2 * PIECE + b"b" * (PIECE // 2)), 0)
    line.send(memoryview(b"c" * PIECE), 10 * MS)
    expected = [
        (1 * MS, b"a" * PIECE),
        (2 * MS, b"a" * PIECE),
        (5 * MS // 2, b"b" * (PIECE // 2)),
        (11 * MS, b"c" * PIECE),
    ]
    assert arrivals(line, 20 * MS) == expected


def test_delay_begins_when_the_piece_is_sent() -> None:
    line = Line(Quality(delay=lambda: 3 * MS, bandwidth_bit_per_s=BANDWIDTH))
    line.send(memoryview(b"a" * 2 * PIECE), 0)
    assert arrivals(line, 9 * MS) == [(4 * MS, b"a" * PIECE), (5 * MS, b"a" * PIECE)]


def test_nothing_overtakes() -> None:
    delays = iter([9 * MS, 1 * MS, 12 * MS])
    line = Line(Quality(delay=lambda: next(delays)))
    for data in (b"a", b"b", b"c"):
        line.send(memoryview(data), 0)
    assert arrivals(line, 20 * MS) == [(9 * MS, b"ab"), (12 * MS, b"c")]


def test_end_comes_after_all_bytes() -> None:
    delays = iter([9 * MS, 1 * MS])
    line = Line(Quality(delay=lambda: next(delays)))
    line.send(memoryview(b"a"), 0)
    line.send_end(0)
    assert (line.take(9 * MS - 1), line.is_at_end) == (b"", False)
    assert (line.take(9 * MS), line.is_at_end) == (b"a", True)
    assert line.due_ns is None


def test_what_came_to_a_cut_is_sent_anew_and_not_overtaken() -> None:
    """Held from 1 to 12 ms: a was to arrive at 10 ms; b, due at 13 ms, was under way all the time."""
    line = Line(Quality(delay=lambda: 10 * MS))
    line.send(memoryview(b"a"), 0)
    line.send(memoryview(b"b"), 3 * MS)
    line.resume(12 * MS)
    line.send(memoryview(b"c"), 12 * MS)
    assert line.due_ns == 22 * MS
    assert arrivals(line, 30 * MS) == [(22 * MS, b"abc")]


def test_what_is_still_under_way_after_a_cut_is_not_late() -> None:
    line = Line(Quality(delay=lambda: 10 * MS))
    line.send(memoryview(b"a"), 0)
    line.resume(5 * MS)
    assert line.due_ns == 10 * MS


def test_size_is_what_is_under_way() -> None:
    line = Line(Quality(delay=lambda: NS_PER_S))
    line.send(memoryview(bytes(5000)), 0)
    line.send(memoryview(bytes(100)), 1)
    assert line.size_bytes == 5100
    line.take(NS_PER_S)
    assert line.size_bytes == 100
    line.clear()
    assert (line.size_bytes, line.due_ns) == (0, None)

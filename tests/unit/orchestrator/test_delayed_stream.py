"""The schedule of a slow or narrow way; all times are worked out by hand."""

from brokerbed.broker.values import NS_PER_S
from brokerbed.orchestrator.grounds.delayed_stream import DelayedStream, Quality

MS = 1_000_000
PIECE = 1460
BANDWIDTH = 1460 * 8 * 1000.0  # a piece takes 1 ms


def arrivals(stream: DelayedStream, until_ns: int, step_ns: int = MS // 2) -> list[tuple[int, bytes]]:
    """What arrives when, looked at in steps."""
    found = [(now_ns, stream.take(now_ns)) for now_ns in range(0, until_ns + 1, step_ns)]
    return [(now_ns, data) for now_ns, data in found if data]


def test_delay_alone_takes_no_bandwidth() -> None:
    stream = DelayedStream(Quality(delay=lambda: 5 * MS))
    stream.send(memoryview(b"a" * 2 * PIECE), 0)
    stream.send(memoryview(b"b"), 2 * MS)
    assert arrivals(stream, 10 * MS) == [(5 * MS, b"a" * 2 * PIECE), (7 * MS, b"b")]


def test_bandwidth_sends_piece_after_piece_and_rests_when_idle() -> None:
    stream = DelayedStream(Quality(bandwidth_bit_per_s=BANDWIDTH))
    stream.send(memoryview(b"a" * 2 * PIECE + b"b" * (PIECE // 2)), 0)
    stream.send(memoryview(b"c" * PIECE), 10 * MS)
    expected = [
        (1 * MS, b"a" * PIECE),
        (2 * MS, b"a" * PIECE),
        (5 * MS // 2, b"b" * (PIECE // 2)),
        (11 * MS, b"c" * PIECE),
    ]
    assert arrivals(stream, 20 * MS) == expected


def test_delay_begins_when_the_piece_is_sent() -> None:
    stream = DelayedStream(Quality(delay=lambda: 3 * MS, bandwidth_bit_per_s=BANDWIDTH))
    stream.send(memoryview(b"a" * 2 * PIECE), 0)
    assert arrivals(stream, 9 * MS) == [(4 * MS, b"a" * PIECE), (5 * MS, b"a" * PIECE)]


def test_nothing_overtakes() -> None:
    delays = iter([9 * MS, 1 * MS, 12 * MS])
    stream = DelayedStream(Quality(delay=lambda: next(delays)))
    for data in (b"a", b"b", b"c"):
        stream.send(memoryview(data), 0)
    assert arrivals(stream, 20 * MS) == [(9 * MS, b"ab"), (12 * MS, b"c")]


def test_end_comes_after_all_bytes() -> None:
    delays = iter([9 * MS, 1 * MS])
    stream = DelayedStream(Quality(delay=lambda: next(delays)))
    stream.send(memoryview(b"a"), 0)
    stream.send_end(0)
    assert (stream.take(9 * MS - 1), stream.is_at_end) == (b"", False)
    assert (stream.take(9 * MS), stream.is_at_end) == (b"a", True)
    assert stream.due_ns is None


def test_what_came_to_a_cut_is_sent_anew_and_not_overtaken() -> None:
    """Held from 1 to 12 ms: a was to arrive at 10 ms; b, due at 13 ms, was under way all the time."""
    stream = DelayedStream(Quality(delay=lambda: 10 * MS))
    stream.send(memoryview(b"a"), 0)
    stream.send(memoryview(b"b"), 3 * MS)
    stream.resume(12 * MS)
    stream.send(memoryview(b"c"), 12 * MS)
    assert stream.due_ns == 22 * MS
    assert arrivals(stream, 30 * MS) == [(22 * MS, b"abc")]


def test_what_is_still_under_way_after_a_cut_is_not_late() -> None:
    stream = DelayedStream(Quality(delay=lambda: 10 * MS))
    stream.send(memoryview(b"a"), 0)
    stream.resume(5 * MS)
    assert stream.due_ns == 10 * MS


def test_size_is_what_is_under_way() -> None:
    stream = DelayedStream(Quality(delay=lambda: NS_PER_S))
    stream.send(memoryview(bytes(5000)), 0)
    stream.send(memoryview(bytes(100)), 1)
    assert stream.size_bytes == 5100
    stream.take(NS_PER_S)
    assert stream.size_bytes == 100
    stream.clear()
    assert (stream.size_bytes, stream.due_ns) == (0, None)

"""Series for pictures, on frames of a few rows with results worked out by hand."""

from brokerbed.analysis.tallies import DELIVERED, SERIES
from brokerbed.analysis.transforms import series
from brokerbed.log.record import DUPLICATE
from tests.analysis.frames import LONG_AGO_S, S, Small, plain


def test_counts_per_part_of_time(small: Small) -> None:
    """Parts of 8 s; all that is before zero is one part."""
    found = small.tally(
        small.events(
            (-1, "b0", "sent", "b0>b1"),
            (1, "b0", "sent", "b0>b1"),
            (2, "b0", "sent", "b0>b1", {"flags": DUPLICATE}),
            (7.9, "b0", "sent", "b0>b1"),
            (8, "b0", "sent", "s"),
            (9, "b0", "received", "b1>b0"),
            (9, "b0", "received", "p"),
            (9, "b1", "link_subscribe", "b1>b0"),
            (9, "b1", "link_resync", "b1>b0"),
            (15, "b1", "dropped", "s"),
            (16, "b0", "sent", "b0>b1"),
        )
    )
    assert {kind: dict(found.by_time(what)[0][""]) for kind, what in SERIES.items()} == {
        "control": {1: 1},
        "delivered": {1: 1},
        "dropped": {1: 1},
        "notifications": {-1: 1, 0: 2, 2: 1},
        "published": {1: 1},
        "resynchronised": {1: 1},
    }
    assert dict(found.by_time(DELIVERED)[0][""]) == {0: 1}  # in batch 0


def test_delays_in_buckets(small: Small) -> None:
    """24 to a decade: 1 s is in bucket 0, 10 s in bucket 24; what ends in warm-up, or is of another way, is left out.

    The same for a queue of the name of the way.
    """
    ddl = (
        "run int, bin_ns bigint, copy int, metric string, first string, second string, begun_ns bigint, time_ns bigint"
    )
    spans = small.table(
        ddl,
        (0, 8 * S, 0, "delay.end_to_end", "p", "s", 19 * S, 20 * S),
        (0, 8 * S, 1, "delay.end_to_end", "p", "s", 29 * S, 30 * S),
        (0, 8 * S, 0, "delay.end_to_end", "p", "s", 20 * S, 30 * S),
        (0, 8 * S, 0, "delay.end_to_end", "p", "s", 30 * S, 30 * S),
        (0, 8 * S, 0, "delay.end_to_end", "p", "s", 1 * S, 2 * S),
        (0, 8 * S, 0, "delay.end_to_end", "p", "s", 20 * S, None),
        (0, 8 * S, 0, "delay.end_to_end", "p", "other", 20 * S, 30 * S),
        (0, 8 * S, 0, "delay.stage", "p", "s", 20 * S, 30 * S),
        (0, 8 * S, 0, "delay.stage", "link", "s", 20 * S, 30 * S),
    )
    intervals = small.intervals((LONG_AGO_S, 10, -1), (10, 40, 0))
    wanted = small.table(
        "run int, metric string, first string, second string",
        (0, "delay.end_to_end", "p", "s"),
        (0, "delay.stage", "p", "s"),
    )
    found = series.delays(spans, intervals, wanted)
    assert plain(found, "run", "metric", "first", "second", "bucket", "count") == [
        (0, "delay.end_to_end", "p", "s", -144, 1),  # a microsecond
        (0, "delay.end_to_end", "p", "s", 0, 2),
        (0, "delay.end_to_end", "p", "s", 24, 1),
        (0, "delay.stage", "p", "s", 24, 1),
    ]


def test_moves_of_the_given_peers(small: Small) -> None:
    found = series.moves(
        small.events(
            (1, "b0", "connected", "s"),
            (2, "b0", "connected", "other"),
            (3, "b0", "disconnected", "s"),
        ),
        small.table("run int, client string", (0, "s")),
    )
    assert plain(found, "run", "client", "place", "event", "time_ns") == [
        (0, "s", 1, "connected", 1 * S),
        (0, "s", 2, "disconnected", 3 * S),
    ]

"""Sessions that follow their peers, on frames of a few rows with results worked out by hand."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame

from brokerbed.analysis import checks
from brokerbed.analysis.tallies import moved_cells
from brokerbed.analysis.trace import trace
from brokerbed.analysis.transforms import balance, delays, fates, moves
from brokerbed.log.record import WAITED
from brokerbed.log.schema import EVENTS
from tests.analysis.frames import DEFAULTS, LONG_AGO_S, S, Small, cells, plain

EPISODE = ("broker", "client", "is_on", "expected", "routed")


def message(sequence: int, topic: str = "t", **more: Any) -> dict[str, Any]:
    return {"origin": "b0.1", "sequence": sequence, "topic": topic, **more}


def from_b0_to_b1(small: Small, *, is_skipped: bool = True) -> DataFrame:
    """s leaves b0 for b1. 1 waits at b0; 2 comes there while s leaves, and goes to b1 over the link, too, where it is
    not for s, as b0 sends it with the session; 6 enters at b1 and goes to s by b0, too; 3 enters at b1 while s comes; 4 comes to b1 from b0 behind the session."""
    rows = [
        (0, "b0", "subscribed", "s", {"topic": "t"}),
        (0, "b1", "subscribed", "b1>b0", {"topic": "t"}),
        (1, "b0", "received", "p", message(1)),
        (1, "b0", "queued", "s", message(1)),
        (2, "b1", "connecting", "s"),
        (2, "b1", "session_came", "s", {"topic": "b0"}),
        (2, "b1", "subscribed", "s", {"topic": "t"}),
        (2, "b0", "subscribed", "b0>b1", {"topic": "t"}),
        (3, "b0", "received", "p", message(2)),
        (3, "b0", "queued", "s", message(2)),
        (3, "b0", "sent", "b0>b1", message(2)),
        (4, "b1", "received", "b1>b0", message(2)),
        *([] if is_skipped else [(4, "b1", "queued", "s", message(2))]),
        (4, "b1", "received", "q", message(6, origin="b1.1")),
        (4, "b1", "sent", "b1>b0", message(6, origin="b1.1")),
        (4, "b1", "received", "q", message(3, origin="b1.1")),
        (4, "b1", "queued", "s", message(3, origin="b1.1")),
        (4, "b1", "sent", "b1>b0", message(3, origin="b1.1")),
        (5, "b0", "moved", "b0>b1", message(1)),
        (5, "b0", "moved", "b0>b1", message(2)),
        (5, "b0", "unsubscribed", "s", {"topic": "t"}),
        (5, "b0", "session_left", "s", {"topic": "b1"}),
        (6, "b1", "queued", "s", message(1, flags=WAITED)),
        (6, "b1", "queued", "s", message(2, flags=WAITED)),
        (6, "b1", "connected", "s"),
        (7, "b1", "received", "b1>b0", message(4)),
        (7, "b1", "queued", "s", message(4)),
        (8, "b1", "session_here", "s"),
        (9, "b1", "received", "b1>b0", message(5)),
        (9, "b1", "sent", "s", message(5)),
    ]
    return small.events(*rows)


def test_what_the_last_broker_sends_on_with_the_session_is_not_routed_to_it_by_the_next_one(small: Small) -> None:
    events = from_b0_to_b1(small)
    coming = moves.arrivals(events)
    assert plain(coming, "broker", "client", "from_position", "to_position") == [("b1", "s", 5, 26)]
    moved = moves.left_by_last_broker(balance.movements(events, None), coming)
    found = balance.episodes(moved)
    assert plain(found.where("client = 's'"), *EPISODE) == [("b0", "s", True, 2, 2), ("b1", "s", True, 3, 3)]
    assert plain(checks.routed(found).where("broken > 0"), "text") == []
    without = balance.episodes(balance.movements(events, None)).where("client = 's' and broker = 'b1'")
    assert plain(without, *EPISODE) == [("b1", "s", True, 5, 3)]


def test_what_the_next_broker_did_route_counts(small: Small) -> None:
    """Nobody logs when the next broker begins to route what comes from the last one."""
    events = from_b0_to_b1(small, is_skipped=False)
    found = balance.episodes(moves.left_by_last_broker(balance.movements(events, None), moves.arrivals(events)))
    assert plain(found.where("client = 's' and broker = 'b1'"), *EPISODE) == [("b1", "s", True, 4, 4)]


def test_a_message_that_another_one_should_have_got_is_still_missed(small: Small) -> None:
    """r has been at b1 for long, and does not get what comes from b0 while s comes."""
    rows = [(0, "b1", "subscribed", "r", {"topic": "t"}), (2, "b1", "session_came", "s", {"topic": "b0"}),
            (2, "b1", "subscribed", "s", {"topic": "t"}), (3, "b1", "received", "b1>b0", message(1)),
            (4, "b1", "session_here", "s"), (5, "b1", "received", "b1>b0", message(2)),
            (5, "b1", "queued", "r", message(2))]  # fmt: skip
    events = small.events(*rows)
    found = balance.episodes(moves.left_by_last_broker(balance.movements(events, None), moves.arrivals(events)))
    assert plain(found.where("is_on"), *EPISODE) == [("b1", "r", True, 2, 1), ("b1", "s", True, 1, 0)]


def test_session_that_passes_a_broker(small: Small) -> None:
    """It comes to b1 from b0 and leaves for b2; later it comes again, and the run ends."""
    rows = [(1, "b1", "session_came", "s", {"topic": "b0"}), (2, "b1", "session_left", "s", {"topic": "b2"}),
            (3, "b1", "session_came", "s", {"topic": "b2"})]  # fmt: skip
    found = moves.arrivals(small.events(*rows))
    assert plain(found, "client", "from_position", "to_position") == [
        ("s", 0, 1), ("s", 2, moves.FOREVER),
    ]  # fmt: skip


def test_time_of_moves(small: Small) -> None:
    """s.0 moves within 0.5 s and within 2 s, of which one ends in the warm-up; s.1 gave up once, then it took 1 s.
    What was all there without anybody waiting takes no time, and p is no subscriber."""
    rows = [
        (5, "b1", "connecting", "s.0"), (5.5, "b1", "session_here", "s.0"),
        (12, "b2", "connecting", "s.0"), (14, "b2", "session_here", "s.0"),
        (12, "b1", "connecting", "s.1"), (15, "b1", "connecting", "s.1"), (16, "b1", "session_here", "s.1"),
        (17, "b1", "session_here", "s.1"),
        (12, "b1", "connecting", "p"), (13, "b1", "session_here", "p"),
    ]  # fmt: skip
    times = small.intervals((LONG_AGO_S, 10, -1), (10, 20, 0))
    names = small.table("run int, id string, base string, copy int", (0, "s.0", "s", 0), (0, "s.1", "s", 1))
    found = cells(delays.delay_cells(moves.move_spans(small.events(*rows), names), times))
    assert found == {("delay.move", "s", "0/0"): (2.0, 1), ("delay.move", "s", "1/0"): (1.0, 1)}


def test_moved_messages_are_counted_apart(small: Small) -> None:
    times = small.intervals((LONG_AGO_S, 3, -1), (3, 10, 0))
    tally = small.tally(from_b0_to_b1(small), times)
    assert cells(moved_cells(tally, {0: 0}, {0: [7.0]})) == {("rate.moved", "0"): (2.0, 7.0)}  # type: ignore[dict-item]
    sent = tally.counts[tally.counts["what"] == "link.notifications"]
    assert sent["count"].sum() == 3  # messages 2, 3 and 6, over the link itself


def test_time_in_a_session_that_moves(small: Small) -> None:
    """It counts from the broker that routed the message to the one that sent it."""
    events = small.events(
        (11, "b0", "queued", "s", message(1)), (12, "b1", "queued", "s", message(1, flags=WAITED)),
        (16, "b1", "sent", "s", message(1, flags=WAITED)),
    )  # fmt: skip
    queues = small.table("run int, client string, stage string, at string", (0, "s", "session", "s"))
    found = cells(delays.output_cells(events, small.intervals((LONG_AGO_S, 10, -1), (10, 20, 0)), queues))
    assert found == {("delay.stage", "session", "s", "0"): (5, 1)}


def test_fates_of_messages_whose_subscriber_roams(small: Small) -> None:
    """s was at b0, and is at b1 now; p is at b0. r is at b1, too.

    1 waits at b1, where it came with the session. 2 left b0 with the session, and did not come. 3 waits at b0, as s
    has come back there; b1 has seen it for r. 4 was dropped at b1. 5 is under way between the brokers.
    """

    def of(number: int, **more: Any) -> dict[str, Any]:
        return {"origin": "b0.1", "sequence": number, "topic": "t", "qos": 1, **more}

    rows = [
        *((1, "b0", "received", "p", of(number)) for number in (1, 2, 4)),
        *((1, "b0", "queued", "s", of(number)) for number in (1, 2, 4)),
        (2, "b0", "session_left", "s", {"topic": "b1"}),
        *((2, "b1", "queued", "s", of(number, flags=WAITED)) for number in (1, 4)),
        (3, "b1", "dropped", "s", of(4, reason=4, flags=WAITED)),
        (4, "b0", "received", "p", of(3)),
        (4, "b0", "queued", "s", of(3)),
        (4, "b0", "sent", "b0>b1", of(3)),
        (5, "b1", "received", "b1>b0", of(3)),
        (6, "b0", "received", "p", of(5)),
        (6, "b0", "sent", "b0>b1", of(5)),
        *((0, "b0", "identified", "p", of(number) | {"number": number}) for number in range(1, 6)),
    ]
    missing = small.table(
        "run int, publisher string, subscriber string, number bigint, qos int, is_sent boolean,"
        " is_acknowledged boolean, time_ns bigint, is_expired boolean",
        *((0, "p", "s", number, 1, True, True, S, False) for number in range(1, 6)),
    )
    hops = small.table(
        "run int, publisher string, subscriber string, hop int, broker string, next string",
        (0, "p", "s", 0, "b0", "s"), (0, "p", "s", 0, "b0", "b0>b1"), (0, "p", "s", 1, "b1", "s"),
    )  # fmt: skip
    events = small.events(*rows)
    found = fates.fates(missing, events, hops, ways_vary=True, departures=moves.departures(events))
    assert plain(found, "number", "fate", "reason") == [
        (1, "waiting", 0), (2, "lost", 0), (3, "waiting", 0), (4, "dropped", 4), (5, "waiting", 0),
    ]  # fmt: skip


def test_trace_shows_the_hops_of_a_moved_message(tmp_path: Path) -> None:
    """All at one moment: the log of b2 comes first by name, and what happened there last."""
    rows = [
        ("clients", "published", "p", {"origin": "p", "sequence": 1}),
        ("clients", "sent", "p", {"origin": "p", "sequence": 1}),
        ("c0", "received", "p", message(1)),
        ("c0", "identified", "p", message(1, number=1)),
        ("c0", "queued", "s", message(1)),
        ("c0", "moved", "c0>b1", message(1)),
        ("b1", "queued", "s", message(1, flags=WAITED)),
        ("b1", "moved", "b1>a2", message(1)),
        ("a2", "queued", "s", message(1, flags=WAITED)),
        ("a2", "sent", "s", message(1, flags=WAITED)),
        ("clients", "received", "s", {"origin": "p", "sequence": 1}),
    ]
    for broker in ("clients", "c0", "b1", "a2"):
        own = [
            {**{key: DEFAULTS.get(key) for key in EVENTS.names}, "time_ns": S, "position": position, "event": event,
             "client": who, **more}
            for position, (at, event, who, more) in enumerate(rows)
            if at == broker
        ]  # fmt: skip
        folder = tmp_path / "log" / f"broker={broker}"
        folder.mkdir(parents=True)
        schema = EVENTS.remove(EVENTS.get_field_index("broker"))
        pq.write_table(pa.Table.from_pylist(own, schema), folder / "events.parquet")
    found = [(step.broker, step.event, step.client) for step in trace(tmp_path, "p.1")]
    assert found == [(broker, event, who) for broker, event, who, _ in rows if event != "identified"]

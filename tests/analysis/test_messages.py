"""What became of messages and how long they took, on frames of a few rows with results worked out by hand."""

from typing import Any

import pytest
from pyspark.sql import DataFrame

from brokerbed.analysis.transforms import delays, fates
from brokerbed.analysis.transforms.connections import connections
from brokerbed.analysis.transforms.faults import aftermath
from brokerbed.analysis.transforms.order import out_of_order
from brokerbed.analysis.transforms.passages import passages
from brokerbed.analysis.transforms.quantiles import quantile_cells
from brokerbed.log.record import DUPLICATE, WAITED
from tests.analysis.frames import LONG_AGO_S, S, Small, cells, plain

PEERS = "run int, id string, base string, copy int, comes_and_goes boolean"
FAULTS = "run int, fault bigint, struck_ns bigint, confirmed_ns bigint"


def of(origin: str, sequence: int, **more: Any) -> dict[str, Any]:
    return {"origin": origin, "sequence": sequence, "topic": "t", "qos": 1, **more}


def client(seconds: float, event: str, who: str, origin: str, number: int, **more: Any) -> tuple[Any, ...]:
    return seconds, "clients", event, who, of(origin, number, **more)


def test_passages(small: Small) -> None:
    """p.1 reaches s twice and r never; p.2 was made, and no more."""
    found = passages(
        small.events(
            client(1, "published", "p", "p", 1),
            client(2, "sent", "p", "p", 1),
            client(3, "acknowledged", "p", "p", 1),
            client(4, "received", "s", "p", 1),
            client(5, "processed", "s", "p", 1),
            client(6, "received", "s", "p", 1),
            client(7, "processed", "s", "p", 1),
            client(8, "published", "p", "p", 2),
            (9, "clients", "fault", "crash b1", {"sequence": 1}),
        )
    )
    columns = "sequence", "client", "published_ns", "sent_ns", "acknowledged_ns", "received_ns", "processed_ns"
    assert plain(found, *columns, "received_times", "received_position", "got") == [
        (1, "p", 1 * S, 2 * S, 3 * S, None, None, 0, None, ["s"]),
        (1, "s", 1 * S, 2 * S, 3 * S, 4 * S, 5 * S, 2, 3, None),
        (2, "p", 8 * S, None, None, None, None, 0, None, []),
    ]


def test_peer_cells(small: Small) -> None:
    """Delays count where they end; each copy of the peers is a unit of its own.

    copy 0, p.0: message 1 made at 8, sent at 11, got at 12, worked on until 14.5: 6.5 in batch 0, 3 at the publisher,
                 2.5 at the subscriber. Message 2 made at 18, sent at 19 (1), got at 21, ready at 25, in the cut.
                 Message 3 made at 26 in the cut, sent at 27, got at 30 and ready at 31 (5 and 1, batch 1).
    copy 1, p.1: message 1 made, sent, got, ready at 12, 12, 13, 14: 2, 0 and 1; message 2 is not sent.
    """
    times = small.intervals((LONG_AGO_S, 10, -1), (10, 20, 0), (20, 24, 1), (24, 28, -1), (28, 34, 1))
    rows = []
    for copy, number, stations in (
        (0, 1, (8, 11, 12, 14.5)), (0, 2, (18, 19, 21, 25)), (0, 3, (26, 27, 30, 31)), (1, 1, (12, 12, 13, 14)),
        (1, 2, (15,)),
    ):  # fmt: skip
        names = ("published", f"p.{copy}"), ("sent", f"p.{copy}"), ("received", f"s.{copy}"), ("processed", f"s.{copy}")
        rows += [client(it, *name, f"p.{copy}", number) for it, name in zip(stations, names, strict=False)]
    rows += [client(12, "published", "b1-pub", "b1-pub", 1), client(12, "sent", "b1-pub", "b1-pub", 1)]
    peers = small.table(PEERS, *((0, f"{it}.{copy}", it, copy, False) for it in "ps" for copy in (0, 1)))
    found = delays.peer_cells(passages(small.events(*rows)), times, peers)
    end_to_end, stage = ("delay.end_to_end", "p", "s"), "delay.stage"
    assert cells(found) == {
        (*end_to_end, "0/0"): (6.5, 1), (*end_to_end, "0/1"): (5, 1), (*end_to_end, "1/0"): (2, 1),
        (stage, "publisher", "p", "0/0"): (3 + 1, 2), (stage, "publisher", "p", "1/0"): (0, 1),
        (stage, "subscriber", "s", "0/0"): (2.5, 1), (stage, "subscriber", "s", "0/1"): (1, 1),
        (stage, "subscriber", "s", "1/0"): (1, 1),
    }  # fmt: skip


def test_quantile_cells(small: Small) -> None:
    """Delays of 1, 2, ... 21 s end in batches 0 to 7, of which four make a section; the medians are in the middle.

    Copies of the peers are pooled. What ends before 10 s, or is not ready, does not count.
    """
    times = small.intervals((LONG_AGO_S, 10, -1), *((10 + 10 * at, 20 + 10 * at, at) for at in range(8)))
    rows = []
    for number in range(1, 22):
        copy, end = number % 2, 20 + 2.5 * number
        names = ("published", f"p.{copy}"), ("sent", f"p.{copy}"), ("received", f"s.{copy}"), ("processed", f"s.{copy}")
        stations = end - number, end - number, end, end
        rows += [client(it, *name, f"p.{copy}", number) for it, name in zip(stations, names, strict=True)]
    rows += [client(1, "published", "p.0", "p.0", 90), client(2, "received", "s.0", "p.0", 90)]
    rows += [client(3, "processed", "s.0", "p.0", 90), client(70, "published", "p.0", "p.0", 91)]
    peers = small.table(PEERS, *((0, f"{it}.{copy}", it, copy, False) for it in "ps" for copy in (0, 1)))
    found = cells(quantile_cells(passages(small.events(*rows)), times, peers, 1))
    pair = "p", "s"
    of_median = {key[-1]: value for key, value in found.items() if key[:3] == ("delay.end_to_end.p50", *pair)}
    assert of_median == {"-1": (pytest.approx(11), 21), "0": (pytest.approx(6), 11), "1": (pytest.approx(16.5), 10)}
    assert found["delay.end_to_end.p95", *pair, "-1"] == (pytest.approx(20), 21)
    assert found["delay.end_to_end.p99", *pair, "1"] == (pytest.approx(20.91), 10)  # between the last two, 20 and 21
    assert len(found) == 9


def test_input_and_output_cells(small: Small) -> None:
    """At b1: 1 comes at 11, is through at 11.5, to s at once, to the link at 13 after 1.5 s in the queue; it is sent
    to s again at 16, which counts no second time. 2 comes at 12, is routed at 14 and waits for s until 19.
    3 (of a class) comes at 15, is through at 15.25, and nobody wants it. 4 was queued at 5, before the warm-up ended, and is sent at 18:
    13 s, as it ended in compared time. 5 comes at 19, is queued at 19.5 and sent after the end.
    """
    times = small.intervals((LONG_AGO_S, 10, -1), (10, 20, 0))
    queues = small.table(
        "run int, client string, stage string, at string",
        (0, "s.0", "session", "s"), (0, "b1>b0", "link", "b1>b0"),
    )  # fmt: skip
    peer, class_ = {"topic": "copy0/t"}, {"topic": "class/0001"}
    events = small.events(
        (5, "b1", "queued", "s.0", of("b1.1", 4, **peer)),
        (11, "b1", "received", "p.0", of("b1.1", 1, **peer)),
        (11.5, "b1", "served", "p.0", of("b1.1", 1, **peer)),
        (11.5, "b1", "sent", "s.0", of("b1.1", 1, **peer)),
        (11.5, "b1", "queued", "b1>b0", of("b1.1", 1, **peer)),
        (12, "b1", "received", "p.0", of("b1.1", 2, **peer)),
        (13, "b1", "sent", "b1>b0", of("b1.1", 1, flags=WAITED, **peer)),
        (14, "b1", "served", "p.0", of("b1.1", 2, **peer)),
        (14, "b1", "queued", "s.0", of("b1.1", 2, **peer)),
        (15, "b1", "received", "b1-pub", of("b1.1", 3, **class_)),
        (15.25, "b1", "served", "b1-pub", of("b1.1", 3, **class_)),
        (16, "b1", "sent", "s.0", of("b1.1", 1, flags=DUPLICATE, **peer)),
        (17, "b1", "sent", "other", of("b1.1", 6, **class_)),
        (18, "b1", "sent", "s.0", of("b1.1", 4, flags=WAITED, **peer)),
        (19, "b1", "sent", "s.0", of("b1.1", 2, flags=WAITED, **peer)),
        (19, "b1", "received", "p.0", of("b1.1", 5, **peer)),
        (19.5, "b1", "served", "p.0", of("b1.1", 5, **peer)),
        (19.5, "b1", "queued", "s.0", of("b1.1", 5, **peer)),
        (20.5, "b1", "sent", "s.0", of("b1.1", 5, flags=WAITED, **peer)),
    )
    assert cells(delays.output_cells(events, times, queues)) == {
        ("delay.stage", "session", "s", "0/0"): (0 + 5 + 13, 3),
        ("delay.stage", "link", "b1>b0", "0/0"): (1.5, 1),
    }
    assert cells(delays.input_cells(events, times)) == {
        ("delay.stage", "broker_in", "b1", "0/0"): (pytest.approx(0.5 + 2 + 0.5), 3),
        ("delay.stage", "broker_in", "b1", "0"): (0.25, 1),  # the classes have a stage of their own
    }


def way(small: Small, *events: tuple[Any, ...]) -> DataFrame:
    """Messages 1 ... of p at b1 for s at b0, by the link b1>b0; as brokers tell of them. Entered as b1.1 1 ..."""
    entered = {more["sequence"] for _, broker, event, _, more in events if (broker, event) == ("b1", "received")}
    rows = [
        (seconds, broker, event, who, of("b1.1", more.pop("sequence"), **more))
        for seconds, broker, event, who, more in events
    ]
    rows += [(0, "b1", "identified", "p", of("b1.1", it, number=it)) for it in sorted(entered)]
    return small.events(*rows)


def test_fates(small: Small) -> None:
    """Where each of 14 messages that did not arrive is. Even if several things happened, the last hop tells."""

    def at(broker: str, event: str, who: str, *numbers: int, **more: Any) -> list[tuple[Any, ...]]:  # fmt: skip
        return [(1, broker, event, who, {"sequence": number, **more}) for number in numbers]

    events = way(
        small,
        *at("b1", "received", "p", 3, 4, 5, 6, 7, 8, 9, 10, 11, 14),
        *at("b1", "queued", "b1>b0", 3),  # waits for the link
        *at("b1", "sent", "b1>b0", 4, 5, 6, 7, 9, 10, 11, 14),
        *at("b1", "acknowledged", "b1>b0", 5, 6, 7, 9, 10),
        *at("b0", "received", "b1>b0", 6, 7, 9, 10),
        *at("b0", "queued", "s", 6),
        *at("b0", "sent", "s", 7, 9),
        *at("b0", "acknowledged", "s", 9),
        *at("b1", "dropped", "b1>b0", 8, reason=3),
        *at("b0", "dropped", "s", 10, reason=4),
        *at("b1", "dropped", "x", 11, reason=1),  # for somebody else
    )
    due = [
        # number, qos, is it sent, is it acknowledged to p, what has become of it
        (1, 1, False, False, "waiting", 0),  # p has it still
        (2, 1, True, True, "lost", 0),  # b1 took it, and no broker has it
        (3, 1, True, True, "waiting", 0),  # for the link
        (4, 1, True, True, "waiting", 0),  # sent and not acknowledged: it will be sent again
        (5, 1, True, True, "lost", 0),  # b0 took it from b1, and has not noted it
        (6, 1, True, True, "waiting", 0),  # for s
        (7, 1, True, True, "waiting", 0),  # sent to s
        (8, 1, True, True, "dropped", 3),  # the queue was full
        (9, 1, True, True, "lost", 0),  # s took it, and tells nothing of it
        (10, 1, True, True, "dropped", 4),  # expired, at the second hop
        (11, 0, True, False, "gone", 0),  # at QoS 0 under way to b0
        (12, 0, True, False, "gone", 0),  # at QoS 0 under way to b1
        (13, 0, False, False, "waiting", 0),  # at QoS 0, p is off
        (14, 1, True, False, "waiting", 0),
    ]
    missing = small.table(
        "run int, publisher string, subscriber string, number bigint, qos int, is_sent boolean,"
        " is_acknowledged boolean, time_ns bigint, is_expired boolean",
        *((0, "p", "s", *it[:4], S, False) for it in due),
    )
    hops = small.table(
        "run int, publisher string, subscriber string, hop int, broker string, next string",
        (0, "p", "s", 0, "b1", "b1>b0"), (0, "p", "s", 1, "b0", "s"),
    )  # fmt: skip
    found = plain(fates.fates(missing, events, hops), "number", "fate", "reason", "hop")
    hop_of = dict.fromkeys((3, 4, 5, 8, 11, 14), 0) | dict.fromkeys((6, 7, 9, 10), 1)
    assert found == [(number, fate, reason, hop_of.get(number)) for number, *_, fate, reason in due]


def test_fates_while_links_move(small: Small) -> None:
    """At first b1 was below b0, then below b2, and b2 below b0. 1 and 2 went the old way, 3, 4 and 5 the new one.

    1 waits at b0, which comes later in the old way than b2 in the new one; 2 was dropped by b1, before b2 saw it on its
    way to somebody else; 3 waits at b2; 4 was dropped there; 5 was acknowledged by b2, and nobody has it.
    """
    rows = [
        *((1, "b1", "received", "p", of("b1.1", number)) for number in range(1, 6)),
        (1, "b1", "sent", "b1>b0", of("b1.1", 1)),
        (1, "b1", "acknowledged", "b1>b0", of("b1.1", 1)),
        (1, "b1", "dropped", "b1>b0", of("b1.1", 2, reason=3)),
        *((2, "b1", "sent", "b1>b2", of("b1.1", number)) for number in (3, 4, 5)),
        *((2, "b1", "acknowledged", "b1>b2", of("b1.1", number)) for number in (3, 4, 5)),
        (3, "b0", "received", "b1>b0", of("b1.1", 1)),
        (3, "b0", "queued", "s", of("b1.1", 1)),
        *((3, "b2", "received", "b2>b1", of("b1.1", number)) for number in (2, 3, 4, 5)),
        (4, "b2", "queued", "b2>b0", of("b1.1", 3)),
        (4, "b2", "dropped", "b2>b0", of("b1.1", 4, reason=4)),
        *((0, "b1", "identified", "p", of("b1.1", number, number=number)) for number in range(1, 6)),
    ]
    missing = small.table(
        "run int, publisher string, subscriber string, number bigint, qos int, is_sent boolean,"
        " is_acknowledged boolean, time_ns bigint, is_expired boolean",
        *((0, "p", "s", number, 1, True, True, S, False) for number in range(1, 6)),
    )
    hops = small.table(
        "run int, publisher string, subscriber string, hop int, broker string, next string",
        (0, "p", "s", 0, "b1", "b1>b0"), (0, "p", "s", 1, "b0", "s"),
        (0, "p", "s", 0, "b1", "b1>b2"), (0, "p", "s", 1, "b2", "b2>b0"), (0, "p", "s", 2, "b0", "s"),
    )  # fmt: skip
    found = plain(fates.fates(missing, small.events(*rows), hops, ways_vary=True), "number", "fate", "reason")
    assert found == [(1, "waiting", 0), (2, "dropped", 3), (3, "waiting", 0), (4, "dropped", 4), (5, "lost", 0)]


def test_due_and_delivery(small: Small) -> None:
    """p publishes for s and r. 1 (at 5, in the warm-up); 2 (12) reaches both; 3 (15) only r; 4 (16) is waiting for s
    and has reached r; 5 (23, in a cut) reaches none; 6 (31) reaches s."""
    times = small.intervals((LONG_AGO_S, 10, -1), (10, 20, 0), (20, 30, -1), (30, 40, 1))
    got = {1: "sr", 2: "sr", 3: "r", 4: "r", 5: "", 6: "s"}
    made = zip((5, 12, 15, 16, 23, 31), got, strict=True)
    rows = [client(time, event, "p", "p", number) for time, number in made for event in ("published", "sent")]
    rows += [client(50, "received", who, "p", number) for number, all_ in got.items() for who in all_]
    audiences = small.table("run int, publisher string, subscribers array<string>", (0, "p", ["s", "r"]))
    due = fates.due(passages(small.events(*rows)), audiences)
    missing = [(3, "s"), (4, "s"), (5, "r"), (5, "s"), (6, "r")]
    assert plain(due.where("not is_there"), "number", "subscriber") == missing
    assert due.count() == 12
    waiting = small.table("run int, publisher string, subscriber string, number bigint", (0, "p", "s", 4))
    peers = small.table(PEERS, *((0, it, it, 0, False) for it in "psr"))
    assert cells(fates.delivery_cells(due, waiting, times, peers)) == {
        ("delivery.ratio", "p", "s", "0/0"): (1, 2),  # of 2 and 3
        ("delivery.ratio", "p", "r", "0/0"): (3, 3),  # of 2, 3 and 4
        ("delivery.ratio", "p", "s", "0/1"): (1, 1),
        ("delivery.ratio", "p", "r", "0/1"): (0, 1),
    }


def nobody_connected(small: Small) -> DataFrame:
    return connections(small.events(), small.table(PEERS))


def test_aftermath(small: Small) -> None:
    """Faults 1 (10 to 20) and 2 (30 to 40); 3 holds up nothing and has no row.

    p.1 was made at 12 and ready at 24, p.2 at 23 and 25, p.3 made at 41 after the second one. On the link one waited
    from 31 to 44, another from 42 to 46, a third (of another copy, with a stage of its own) from 43 to 60, and a fourth
    when the queue had been empty. A resynchronisation was made at 40, and one at 70.
    """
    passed = passages(
        small.events(
            *(client(it, "published", "p", "p", number) for number, it in enumerate((12, 23, 41), 1)),
            *(client(it, "processed", "s", "p", number) for number, it in enumerate((24, 25, 90), 1)),
        )
    )
    events = small.events(
        (31, "b1", "queued", "b1>b0", of("b1.1", 2)),
        (40, "b1", "link_resync", "b1>b0"),
        (42, "b1", "queued", "b1>b0", of("b1.1", 3)),
        (43, "b1", "queued", "b1>b0", of("b1.1", 4, topic="copy1/t")),
        (44, "b1", "sent", "b1>b0", of("b1.1", 2)),
        (46, "b1", "sent", "b1>b0", of("b1.1", 3)),
        (47, "b1", "queued", "b1>b0", of("b1.1", 5)),
        (49, "b1", "sent", "b1>b0", of("b1.1", 5)),
        (60, "b1", "sent", "b1>b0", of("b1.1", 4, topic="copy1/t")),
        (70, "b1", "link_resync", "b1>b0"),
    )
    struck = (0, 1, 10 * S, 20 * S), (0, 2, 30 * S, 40 * S), (0, 3, 91 * S, 95 * S)
    found = aftermath(passed, events, nobody_connected(small), small.table(FAULTS, *struck))
    assert plain(found, "fault", "through_ns") == [(1, 24 * S), (2, 46 * S)]


def test_aftermath_lasts_until_every_queue_was_empty(small: Small) -> None:
    """p publishes 1 at 12, while b1 is dead (10 to 20); b1 gets it at 20, and s has processed it at 27. 2 and 3 come
    while others wait for s before them: 3 is sent at 32. 4 comes when nobody waits for s any more."""
    made, sent = {1: 12, 2: 21, 3: 24, 4: 33}, {1: 20, 2: 21, 3: 24, 4: 33}
    got, ready = {1: 26, 2: 28, 3: 32, 4: 35}, {1: 27, 2: 30, 3: 33, 4: 36}
    rows = [client(it, "published", "p", "p", number) for number, it in made.items()]
    rows += [client(it, "sent", "p", "p", number) for number, it in sent.items()]
    rows += [client(it, "received", "s", "p", number) for number, it in got.items()]
    rows += [client(it, "processed", "s", "p", number) for number, it in ready.items()]
    noted: list[tuple[Any, ...]] = []
    for number, entered in sent.items():
        message = of("b1.1", number + 100)
        noted.append((entered, "b1", "identified", "p", message | {"number": number}))
        noted.append((entered, "b1", "received", "p", message))
        noted.append((entered + 1, "b1", "served", "p", message))
        noted.append((entered + 1, "b1", "queued", "s", message))
        noted.append((got[number], "b1", "sent", "s", message | {"flags": WAITED}))
    faults = small.table(FAULTS, (0, 1, 10 * S, 20 * S))
    events = small.events(*noted, routes="served")
    found = aftermath(passages(small.events(*rows)), events, nobody_connected(small), faults)
    assert plain(found, "fault", "through_ns") == [(1, 32 * S)]


@pytest.mark.parametrize(
    ("moves", "through_s"),
    [
        (
            [(5, "connected"), (11, "disconnected"), (50, "connected")],
            None,
        ),  # away from 11 on: it would wait in any case
        ([(5, "connected"), (13, "disconnected"), (50, "connected")], 50),  # without the fault it had come before 13
        ([(5, "connected"), (11, "disconnected"), (19, "connected")], 50),  # without the fault it had come at 19
    ],
)
@pytest.mark.parametrize("peer", ["p", "s"])
def test_messages_for_peers_that_are_away_are_no_backlog_of_a_fault(
    small: Small, peer: str, moves: list[tuple[int, str]], through_s: int | None
) -> None:
    """Made at 12, ready at 50; the fault is from 10 to 20."""
    passed = passages(small.events(client(12, "published", "p", "p", 1), client(50, "processed", "s", "p", 1)))
    events = small.events(*((time, "b1", event, peer) for time, event in moves))
    faults = small.table(FAULTS, (0, 1, 10 * S, 20 * S))
    peers = small.table(PEERS, (0, peer, peer, 0, True))
    found = aftermath(passed, events, connections(events, peers), faults)
    assert plain(found, "through_ns") == ([] if through_s is None else [(through_s * S,)])


def test_out_of_order(small: Small) -> None:
    """s gets 1 3 2 4 of p, and at another QoS 2 1; r gets 2 3. What comes twice counts where it came first."""
    rows = [client(1, "published", "p", "p", number) for number in (1, 2, 3, 4)]
    rows += [client(2, "received", "s", "p", number) for number in (1, 3, 2, 4, 1)]
    rows += [client(2, "received", "s", "q", number, qos=2) for number in (2, 1)]
    rows += [client(2, "received", "r", "p", number) for number in (2, 3)]
    found = out_of_order(passages(small.events(*rows)))
    late = plain(found.where("is_late"), "client", "origin", "sequence")
    assert (late, found.count()) == ([("s", "p", 2), ("s", "q", 1)], 8)

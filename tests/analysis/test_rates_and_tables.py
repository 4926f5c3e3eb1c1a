"""What crosses links and what is in tables, on frames of a few rows with results worked out by hand."""

import numpy as np
import pytest

from brokerbed.analysis.faults import Life
from brokerbed.analysis.tallies import (
    MESSAGES,
    PUBLICATIONS,
    SUBSCRIPTIONS,
    Tables,
    cost_cells,
    link_cells,
    table_cells,
)
from brokerbed.analysis.transforms.moments import bin_of, compared, within
from brokerbed.analysis.transforms.unwanted import interest_below, unwanted_cells
from brokerbed.analysis.windows import BATCHES, Interval
from brokerbed.log.record import ADDITIONAL, DUPLICATE, REPLAY, RETAIN, WAITED
from brokerbed.scenario.costs import Costs
from tests.analysis.frames import LIVES, LONG_AGO_S, S, Small, cells, lives_of, plain

METRICS = ("table.remote_entries", "table.local_entries", "table.advertisements")


def tables(
    run: int, brokers: list[str], limits: tuple[tuple[int, int, int], ...], restarts_s: dict[str, int], batch_s: float
) -> Tables:
    intervals = [Interval(begin * S, end * S, batch) for begin, end, batch in limits]
    restarts = [Life(run, broker, 2, at_s * S, 0, 0) for broker, at_s in restarts_s.items()]
    return Tables(run, 0, brokers, intervals, restarts, np.full(BATCHES, batch_s), advertises=True)


def test_moments_find_their_interval(small: Small) -> None:
    """Bins of 8 s: limits of intervals at limits of bins (8, 16), inside of bins (10), and before zero."""
    intervals = small.intervals((LONG_AGO_S, 8, -1), (8, 10, 0), (10, 16, 1), (16, 40, -1))
    moments = [-500, -0.5, 0, 7.999, 8, 9.999999999, 10, 15.999999999, 16, 39, 40, 41]
    rows = small.table(
        "run int, bin_ns bigint, time_ns bigint",
        *((0, 8 * S, round(it * S)) for it in moments), (1, 8 * S, 9 * S),
    )  # fmt: skip
    found = plain(within(rows, intervals), "time_ns", "interval", "batch")
    # from 40 on there is no interval, and the other run has none at all
    wanted = [(-500, 0, -1), (-0.5, 0, -1), (0, 0, -1), (7.999, 0, -1), (8, 1, 0), (9.999999999, 1, 0), (10, 2, 1),
              (15.999999999, 2, 1), (16, 3, -1), (39, 3, -1)]  # fmt: skip
    assert found == [(round(time * S), interval, batch) for time, interval, batch in wanted]
    assert plain(compared(intervals), "interval", "bin") == [(1, 1), (2, 1)]
    bins = rows.where("run = 0").select(bin_of(rows["time_ns"], rows["bin_ns"]).alias("bin"))
    assert plain(bins, "bin") == [(-1,), (-1,), (0,), (0,), (1,), (1,), (1,), (1,), (2,), (4,), (5,), (5,)]


def test_link_cells(small: Small) -> None:
    intervals = small.intervals((LONG_AGO_S, 10, -1), (10, 20, 0), (20, 25, 1), (25, 30, -1), (30, 35, 1))
    counts = small.tally(
        small.events(
            (5, "b1", "sent", "b1>b0"),  # in the warm-up
            (10, "b1", "sent", "b1>b0"),
            (11, "b1", "queued", "b1>b0"),  # waits, and is sent one second later
            (12, "b1", "sent", "b1>b0", {"flags": WAITED | ADDITIONAL}),
            (12, "b0", "sent", "b0>b1", {"flags": RETAIN}),
            (13, "b0", "sent", "b0>b1", {"flags": DUPLICATE}),  # sent again
            (13, "b0", "sent", "b0>b1", {"flags": REPLAY}),  # a retained one for a new subscription
            (14, "b0", "sent", "c"),  # to a client
            (14, "b0", "received", "b1>b0"),
            (15, "b1", "link_subscribe", "b1>b0"),
            (16, "b0", "link_advertise", "b0>b1"),
            (19.999, "b1", "link_unsubscribe", "b1>b0"),
            (20, "b1", "link_refresh", "b1>b0"),
            (21, "b1", "link_resync", "b1>b0"),  # outside of the rate of control
            (21, "b1", "dropped", "b1>b0"),
            (26, "b1", "sent", "b1>b0", {"flags": ADDITIONAL}),  # in a cut, all three
            (27, "b1", "link_subscribe", "b1>b0"),
            (29, "b0", "sent", "b0>b1"),
            (30, "b0", "sent", "b0>b1"),
            (35, "b0", "sent", "b0>b1"),  # after the end
        ),
        intervals,
    )
    found = link_cells(counts, {0: 7}, {0: np.full(BATCHES, 10.0)}, {0: ()})
    assert set(found["point"]) == {7}
    # batch 0, of 10 s: up 2, down 1, control 3; batch 1, of 5 + 5 s: down 1, control 1
    assert cells(found) == {
        ("rate.notifications", "b1>b0", "0"): (2, 10), ("rate.control", "b1>b0", "0"): (2, 10),
        ("rate.notifications", "b0>b1", "0"): (1, 10), ("rate.control", "b0>b1", "0"): (1, 10),
        ("rate.notifications", "b1>b0", "1"): (0, 10), ("rate.control", "b1>b0", "1"): (1, 10),
        ("rate.notifications", "b0>b1", "1"): (1, 10), ("rate.control", "b0>b1", "1"): (0, 10),
        ("rate.notifications", "0"): (3, 10), ("rate.notifications", "1"): (1, 10),
        ("rate.control", "0"): (3, 10), ("rate.control", "1"): (1, 10),
        ("rate.total", "0"): (6, 10), ("rate.total", "1"): (2, 10),
    }  # fmt: skip
    # b0 stands for a medium: what it sends is counted for its link, but in no total
    of_medium = cells(link_cells(counts, {0: 7}, {0: np.full(BATCHES, 10.0)}, {0: ("b0",)}))
    assert {row: value for row, value in of_medium.items() if len(row) > 2} == {
        row: value for row, value in cells(found).items() if len(row) > 2
    }
    assert of_medium["rate.notifications", "0"] == (2, 10)
    assert of_medium["rate.control", "0"] == (2, 10)
    assert of_medium["rate.total", "0"] == (4, 10)
    assert of_medium["rate.total", "1"] == (1, 10)
    # notifications cost 2 on the link, and what b0 received in batch 0 costs 5 there; another run asks for no costs
    costs = Costs(1.0, {frozenset(("b0", "b1")): 2.0}, 7.0, {"b0": 5.0})
    lengths = {0: np.full(BATCHES, 10.0)}
    assert cells(cost_cells(counts, {0: 7}, lengths, {0: costs})) == {
        ("cost.routing", "0"): (11, 10), ("cost.routing", "1"): (2, 10),
    }  # fmt: skip
    assert cells(cost_cells(counts, {0: 7}, lengths, {1: costs})) == {}


def test_unwanted_cells(small: Small) -> None:
    """b2 below b1 below b0; c at b2 subscribes to t from 10 to 12 s and from 14 s on, d at b1 to t/+ from 16 to 17 s; b2
    begins a second life at 18 s, in which c subscribes again at 19 s. Crossings of t and t/x, at the half seconds."""
    changes = [
        (10, "b2", "subscribed", "c", {"topic": "t"}),
        (11, "b2", "subscribed", "e", {"topic": "t"}),  # a second client makes no difference
        (11.1, "b2", "unsubscribed", "e", {"topic": "t"}),
        (12, "b2", "unsubscribed", "c", {"topic": "t"}),
        (12, "b1", "subscribed", "b1>b2", {"topic": "t"}),  # tables of brokers do not count
        (14, "b2", "subscribed", "c", {"topic": "t"}),
        (16, "b1", "subscribed", "d", {"topic": "t/+"}),
        (17, "b1", "unsubscribed", "d", {"topic": "t/+"}),
        (19, "b2", "subscribed", "c", {"topic": "t"}),
    ]  # fmt: skip
    crossings = [
        *((second + 0.5, "b1", "sent", "b1>b0", {"topic": "t"}) for second in range(10, 20)),
        *((second + 0.5, "b1", "sent", "b1>b2", {"topic": "t"}) for second in range(10, 20)),
        *((second + 0.5, "b0", "sent", "b0>b1", {"topic": "t/x"}) for second in (15, 16, 17)),
        (16.5, "b1", "sent", "b1>b2", {"topic": "t/x"}),  # d is not below this link
        (13.5, "b1", "sent", "b1>b0", {"topic": "t", "flags": REPLAY}),
        (13.5, "b1", "sent", "c", {"topic": "t"}),
        (21, "b1", "sent", "b1>b0", {"topic": "u"}),  # after the end
    ]
    events = small.events(*sorted((*changes, *crossings), key=lambda row: row[0]))
    subtrees = small.table("run int, broker string, child string", (0, "b1", "b1"), (0, "b2", "b1"), (0, "b2", "b2"))
    lives = small.table(LIVES, *lives_of(0, "b2", 30, 18 * S))
    assert plain(events.where("broker = 'b2' and position >= 30"), "event", "time_ns") == [("subscribed", 19 * S)]
    links = small.table(
        "run int, client string, child string, is_up boolean",
        (0, "b1>b0", "b1", True), (0, "b0>b1", "b1", False), (0, "b2>b1", "b2", True), (0, "b1>b2", "b2", False),
    )  # fmt: skip
    wildcards = small.table("run int, filter string, topics array<string>", (0, "t/+", ["t/x"]))
    interest = interest_below(events, subtrees, wildcards, lives)
    found = unwanted_cells(events, small.intervals((LONG_AGO_S, 10, -1), (10, 15, 0), (15, 20, 1)), links, interest)
    # t is unwanted in seconds 12, 13 and 18; t/x below b1 in seconds 15 and 17, and below b2 always
    assert cells(found) == {
        ("rate.notifications.additional", "0"): (2, 5), ("rate.notifications.additional", "1"): (1, 5),
        ("rate.notifications.unwanted", "0"): (2, 5), ("rate.notifications.unwanted", "1"): (1 + 2 + 1, 5),
    }  # fmt: skip


def test_table_cells(small: Small) -> None:
    """Sizes over time, batch 0 from 10 to 20, batch 1 from 20 to 24 and from 30 to 36, a restart of b1 at 32.

    b0, remote:  1 from -5, 2 from 12, 1 from 15, 3 from 21 (in the cut 2 from 26), 2 to the end
                 batch 0: 2*1 + 3*2 + 5*1 = 13; batch 1: 1*1 + 3*3 + 6*2 = 22
    b0, local:   1 from 24 on, which is where a cut begins: 0 in batch 0; 6*1 in batch 1
    b0, advertisements: 1 from 12, 2 from 16, 1 from 19 on: 4 + 6 + 1 = 11; 10
    b1, local:   2 from 0, empty at 32, 1 from 33 on: 10*2 = 20; 4*2 + 2*2 + 1*0 + 3*1 = 15
    """
    changes = small.events(
        (-5, "b0", "subscribed", "b0>b1"),
        (0, "b1", "subscribed", "c1"),
        (0, "b1", "subscribed", "c2"),
        (12, "b0", "subscribed", "b0>b1"),
        (14, "b0", "sent", "b0>b1"),
        (15, "b0", "unsubscribed", "b0>b1"),
        (21, "b0", "subscribed", "b0>b1"),
        (21, "b0", "subscribed", "b0>b1"),
        (24, "b0", "subscribed", "c3"),
        (26, "b0", "unsubscribed", "b0>b1"),
        (33, "b1", "subscribed", "c1"),
        (37, "b1", "subscribed", "c2"),  # after the end
        (2, "b1", "advertised", "c1"),  # of a client
        (12, "b0", "advertised", "b0>b1"),
        (16, "b0", "advertised", "b0>b1"),
        (19, "b0", "unadvertised", "b0>b1"),
    )
    limits = (LONG_AGO_S, 10, -1), (10, 20, 0), (20, 24, 1), (24, 30, -1), (30, 32, 1), (32, 36, 1)
    counts = small.tally(changes, small.intervals(*limits))
    found = table_cells(counts, [tables(0, ["b0", "b1"], limits, {"b1": 32}, 10.0)])
    remote, local, advertised = METRICS
    assert cells(found) == {
        (remote, "b0", "0"): (13, 10), (remote, "b0", "1"): (22, 10),
        (remote, "b1", "0"): (0, 10), (remote, "b1", "1"): (0, 10),
        (local, "b0", "0"): (0, 10), (local, "b0", "1"): (6, 10),
        (local, "b1", "0"): (20, 10), (local, "b1", "1"): (15, 10),
        (remote, "0"): (13, 10), (remote, "1"): (22, 10),
        (local, "0"): (20, 10), (local, "1"): (21, 10),
        (advertised, "b0", "0"): (11, 10), (advertised, "b0", "1"): (10, 10),
        (advertised, "b1", "0"): (0, 10), (advertised, "b1", "1"): (0, 10),
        (advertised, "0"): (11, 10), (advertised, "1"): (10, 10),
    }  # fmt: skip


def test_tables_of_two_runs_are_kept_apart(small: Small) -> None:
    """A broker of the same name has 1 entry in one run, and from 3 s on 2 in the other; b0 of run 1 begins anew at 6."""
    changes = small.events(
        (0, "b0", "subscribed", "c"),
        (3, "b0", "subscribed", "c", {"run": 1}),
        (3, "b0", "subscribed", "d", {"run": 1}),
    )
    limits = (LONG_AGO_S, 0, -1), (0, 6, 0), (6, 12, 1)
    counts = small.tally(changes, small.intervals(*limits, runs=(0, 1)))
    found = table_cells(counts, [tables(0, ["b0"], limits, {}, 6.0), tables(1, ["b0"], limits, {"b0": 6}, 6.0)])
    rows = found[(found["metric"] == "table.local_entries") & (found["first"] == "b0")]
    assert [tuple(row) for row in rows[["run", "batch", "x"]].to_numpy()] == [
        (0, 0, 6),
        (0, 1, 6),
        (1, 0, 6),
        (1, 1, 0),
    ]


def test_arrivals_are_those_of_clients_and_not_of_links(small: Small) -> None:
    """Bins of 8 s. Class clients count at their broker, peers by name where they publish; the log of the clients tells
    of class publications and receipts, too, which are not counted twice."""
    events = small.events(
        (1, "b0", "received", "b0/pub"),
        (2, "b0", "received", "b0/pub"),
        (9, "b0", "received", "b0/pub"),
        (9, "b0", "received", "b0>b1"),
        (9, "b0", "received", "p"),
        (9, "b1", "subscribed", "b1/sub0"),
        (9, "b1", "subscribed", "b1>b2"),
        (9, "b1", "subscribed", "s"),
        (9, "clients", "published", "p"),
        (9, "clients", "published", "b0/pub"),
        (9, "clients", "received", "s"),
    )
    counts = small.tally(events, peers=("p", "s"))
    assert counts.by_time(PUBLICATIONS) == {0: {"b0": {0: 2, 1: 1}}}
    assert counts.by_time(SUBSCRIPTIONS) == {0: {"b1": {1: 1}}}
    assert counts.by_time(MESSAGES) == {0: {"p": {1: 1}}}


@pytest.mark.parametrize("weeks", [12])
def test_moments_of_long_runs_are_exact(small: Small, weeks: int) -> None:
    """A nanosecond before and at the limit of a bin, after weeks of model time."""
    bin_ns = weeks * 7 * 24 * 3600 * S // 128
    moments = [127 * bin_ns - 1, 127 * bin_ns, 127 * bin_ns + 1]
    rows = small.table("time_ns bigint, bin_ns bigint", *((it, bin_ns) for it in moments))
    found = rows.select("time_ns", bin_of(rows["time_ns"], rows["bin_ns"]).alias("bin"))
    assert plain(found, "time_ns", "bin") == list(zip(moments, (126, 127, 127), strict=True))

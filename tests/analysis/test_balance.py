"""What brokers received beside what they did with it, and tables at the end; results worked out by hand."""

from typing import Any

from pyspark.sql import DataFrame

from brokerbed.analysis import checks, tallies
from brokerbed.analysis.right_tables import compared
from brokerbed.analysis.transforms import balance, entries
from brokerbed.log.record import DUPLICATE, REPLAY, UNADVERTISED_FLAG, WAITED
from tests.analysis.frames import LIVES, S, Small, lives_of, plain

HANDOVERS = (
    "run int, broker string, link string, instead_of string, from_position bigint, to_position bigint,"
    " is_leaving boolean"
)
EPISODE = ("client", "is_on", "expected", "routed")


def message(sequence: int, topic: str = "t", **more: Any) -> dict[str, Any]:
    return {"origin": "b0.1", "sequence": sequence, "topic": topic, **more}


def change(topic: str = "t") -> dict[str, Any]:
    return {"topic": topic}


def moved(small: Small, *rows: tuple[Any, ...], lives: tuple[Any, ...] = (), routes: str = "received") -> DataFrame:
    """`lives`: run, broker, and the position at which its second life begins."""
    rows_of_lives = [row for run, broker, begins in lives for row in lives_of(run, broker, begins)]
    return balance.movements(
        small.events(*rows, routes=routes), small.table(LIVES, *rows_of_lives) if rows_of_lives else None
    )


def test_a_child_that_leaves_its_parent(small: Small) -> None:
    """b2 leaves b1, which wants t, for b0. What it would route to b1 waits for b0 from then on (4), but not what comes
    from b1 (5). After the move the same entry is at b0. Message 3 is lost before the move, and 6 after it."""
    rows = [
        (0, "b2", "subscribed", "b2>b1", change()),
        (1, "b2", "received", "p", message(1)),
        (1, "b2", "sent", "b2>b1", message(1)),
        (2, "b2", "received", "p", message(2)),
        (2, "b2", "sent", "b2>b1", message(2)),
        (2, "b2", "received", "p", message(3)),  # to nobody
        (3, "b2", "link_leaves", "b2>b0", change("b1")),
        (4, "b2", "received", "p", message(4)),
        (4, "b2", "queued", "b2>b0", message(4)),
        (4, "b2", "received", "b2>b1", message(5)),
        (5, "b2", "subscribed", "b2>b0", change()),
        (5, "b2", "unsubscribed", "b2>b1", change()),
        (5, "b2", "link_moved", "b2>b0", change("b1")),
        (5, "b2", "sent", "b2>b0", message(4, flags=WAITED)),
        (6, "b2", "received", "p", message(6)),
        (7, "b2", "received", "p", message(7)),
        (7, "b2", "sent", "b2>b0", message(7)),
    ]
    handovers = small.table(HANDOVERS, (0, "b2", "b2>b0", "b2>b1", 6, 12, True))
    found = balance.episodes(balance.movements(small.events(*rows), None, handovers))
    assert plain(found, *EPISODE) == [("b2>b0", True, 2, 1), ("b2>b1", True, 4, 3)]


def test_a_parent_that_adopts_a_child(small: Small) -> None:
    """b0 adopts b2 from b1. What comes from b1 before b1 has switched has reached b2 already: 2, but not 1, 3 and 4."""
    rows = [
        (1, "b0", "received", "b0>b1", message(1)),
        (2, "b0", "link_adopted", "b0>b2", change("b1")),
        (2, "b0", "subscribed", "b0>b2", change()),
        (3, "b0", "received", "b0>b1", message(2)),
        (3, "b0", "received", "p", message(3)),
        (3, "b0", "queued", "b0>b2", message(3)),
        (4, "b0", "link_switched", "b0>b2", change("b1")),
        (5, "b0", "received", "b0>b1", message(4)),
        (5, "b0", "queued", "b0>b2", message(4)),
    ]
    handovers = small.table(HANDOVERS, (0, "b0", "b0>b2", "b0>b1", 1, 6, False))
    moved_ = balance.to_subscribers(
        balance.movements(small.events(*rows), None, handovers), small.table("run int, broker string, client string")
    )
    assert plain(balance.episodes(moved_).where("is_on"), *EPISODE) == [("b0>b2", True, 2, 2)]
    without = balance.episodes(balance.movements(small.events(*rows), None)).where("is_on")
    assert plain(without, *EPISODE) == [("b0>b2", True, 3, 2)]


def test_episodes_of_clients(small: Small) -> None:
    """Messages 1 to 5 come to t at b0.

    a is subscribed while 2 and 3 come, again while 5 comes, and gets them all; 3 waits, which is no second routing.
    c is subscribed from 3 on: it gets 4 and not 5. d is never subscribed, and gets 2. e gets 4 before 3.
    """
    rows = [
        (0, "b0", "subscribed", "e", change()),
        (1, "b0", "received", "p", message(1)),
        (1, "b0", "sent", "e", message(1)),
        (2, "b0", "subscribed", "a", change()),
        (3, "b0", "received", "p", message(2)),
        (3, "b0", "sent", "a", message(2)),
        (3, "b0", "sent", "a", message(2, flags=DUPLICATE)),
        (3, "b0", "sent", "d", message(2)),
        (3, "b0", "dropped", "e", message(2, reason=1)),
        (4, "b0", "received", "p", message(3)),
        (4, "b0", "queued", "a", message(3)),
        (5, "b0", "subscribed", "c", change()),
        (5, "b0", "sent", "a", message(3, flags=WAITED)),
        (6, "b0", "unsubscribed", "a", change()),
        (7, "b0", "received", "p", message(4)),
        (7, "b0", "sent", "c", message(4)),
        (7, "b0", "sent", "e", message(4)),
        (7, "b0", "sent", "e", message(3)),
        (8, "b0", "subscribed", "a", change()),
        (8, "b0", "sent", "a", message(1, flags=REPLAY)),  # a retained one
        (9, "b0", "received", "p", message(5)),
        (9, "b0", "sent", "a", message(5)),
        (9, "b0", "queued", "e", message(5)),
        (9, "b0", "received", "p", message(6, "other")),
        (9, "b0", "sent", "b0>b1", message(6, "other")),
    ]
    its = moved(small, *rows)
    found = balance.episodes(its)
    assert plain(found, "topic", *EPISODE) == [
        ("other", "b0>b1", False, None, 1),
        ("t", "a", True, 1, 1),
        ("t", "a", True, 2, 2),
        ("t", "c", True, 2, 1),
        ("t", "d", False, None, 1),
        ("t", "e", True, 5, 5),
    ]
    delivered = balance.deliveries(its)
    assert plain(delivered.where("is_late"), "client", "sequence", "time_ns") == [("e", 3, 7 * S)]
    assert delivered.count() == 10  # 3 to a, 1 to c, 1 to d, 5 to e; none to the link
    judged = checks.routed(found).unionByName(checks.delivered_in_order(delivered)).where("broken > 0")
    assert plain(judged, "name", "broken", "text") == [
        ("every_message_accounted_for", 1, "other to b0>b1 at b0: 1 without a subscription"),
        ("every_message_accounted_for", 1, "t to c at b0: 2 came while it was subscribed, 1 went to it"),
        ("no_delivery_without_subscription", 1, "t to d at b0: 1 without a subscription"),
        ("publisher_order_kept", 1, "t to e at b0: 3 after a later one"),
    ]


def test_episodes_of_links(small: Small) -> None:
    """A link gets what comes while it has an entry, but for what it brought; two entries (simple routing) are one
    episode that ends with the second."""
    found = balance.episodes(
        moved(
            small,
            (1, "b0", "subscribed", "b0>b1", change()),
            (2, "b0", "received", "b0>b1", message(1)),
            (2, "b0", "received", "b0>b2", message(2)),
            (2, "b0", "sent", "b0>b1", message(2)),
            (3, "b0", "subscribed", "b0>b1", change()),
            (4, "b0", "unsubscribed", "b0>b1", change()),
            (5, "b0", "received", "p", message(3)),
            (5, "b0", "queued", "b0>b1", message(3)),
            (6, "b0", "unsubscribed", "b0>b1", change()),
            (7, "b0", "received", "p", message(4)),
        )
    )
    assert plain(found.where("client = 'b0>b1'"), *EPISODE[1:4]) == [(True, 2, 2)]
    assert plain(checks.routed(found).where("broken > 0"), "text") == []


def test_what_was_not_advertised_goes_to_links_without_an_entry(small: Small) -> None:
    """1 and 2 were not advertised: they go to b0>b1 before and while it has an entry. Message 3 was, and follows 1
    without an entry to b0>b2; only this is wrong."""
    found = balance.episodes(
        moved(
            small,
            (1, "b0", "received", "p", message(1)),
            (1, "b0", "sent", "b0>b1", message(1, flags=UNADVERTISED_FLAG)),
            (1, "b0", "sent", "b0>b2", message(1, flags=UNADVERTISED_FLAG)),
            (2, "b0", "received", "q", message(3)),
            (2, "b0", "sent", "b0>b2", message(3)),
            (3, "b0", "subscribed", "b0>b1", change()),
            (4, "b0", "received", "p", message(2)),
            (4, "b0", "sent", "b0>b1", message(2, flags=UNADVERTISED_FLAG)),
            (5, "b0", "unsubscribed", "b0>b1", change()),
        )
    )
    assert plain(found, *EPISODE, "time_ns") == [("b0>b1", True, 1, 1, 3 * S), ("b0>b2", False, None, 1, 2 * S)]
    assert plain(checks.routed(found).where("broken > 0"), "broken", "text") == [
        (1, "t to b0>b2 at b0: 1 without a subscription"),
    ]


def test_wildcards_lives_and_the_input_stage(small: Small) -> None:
    """a has t/#, which matches t/1 and t/2. With a service at the input a message counts when it is served.

    In b0's first life 1 is served and goes to a, 2 came and died with it; in the second life (from position 5 on) a is
    subscribed again before 3 comes. What goes up a link to which everything goes is none of this.
    """
    rows = [
        (0, "b0", "subscribed", "a", change("t/#")),
        (1, "b0", "received", "p", message(1, "t/1")),
        (2, "b0", "served", "p", message(1, "t/1")),
        (2, "b0", "sent", "a", message(1, "t/1")),
        (3, "b0", "received", "p", message(2, "t/2")),
        (4, "b0", "started", None),
        (4, "b0", "subscribed", "a", change("t/#")),
        (5, "b0", "received", "p", message(3, "t/2")),
        (6, "b0", "served", "p", message(3, "t/2")),
        (6, "b0", "sent", "a", message(3, "t/2")),
        (6, "b0", "sent", "b0>r", message(3, "t/2")),
    ]
    its = moved(small, *rows, lives=((0, "b0", 5),), routes="served")
    spread = balance.with_wildcards(
        its, small.table("run int, filter string, topics array<string>", (0, "t/#", ["t/1", "t/2"]))
    )
    always = small.table("run int, broker string, client string", (0, "b0", "b0>r"))
    found = balance.episodes(balance.to_subscribers(spread, always))
    # in each life an episode at each topic
    assert plain(found, "topic", *EPISODE[:4]) == [
        ("t/1", "a", True, 0, 0), ("t/1", "a", True, 1, 1), ("t/2", "a", True, 0, 0), ("t/2", "a", True, 1, 1),
    ]  # fmt: skip


def test_what_always_goes_up_and_what_crosses(small: Small) -> None:
    """b1 gets 1 and 2 from clients and 3 from its parent; 2 goes up and is lost on the way, 1 does not go up.
    b0 gets one that nobody sent on b2>b0; a repetition on b0>b1 is sent and received once."""
    events = small.events(
        (1, "b1", "received", "p", message(1)),
        (2, "b1", "received", "p", message(2)),
        (2, "b1", "queued", "b1>b0", message(2)),
        (2, "b1", "sent", "b1>b0", message(2, flags=WAITED)),
        (3, "b0", "received", "p", message(3)),
        (3, "b0", "sent", "b0>b1", message(3)),
        (3, "b0", "sent", "b0>b1", message(3, flags=DUPLICATE)),
        (3, "b1", "received", "b1>b0", message(3)),
        (4, "b0", "received", "b0>b2", message(4)),
    )
    counts = small.tally(events)
    always = list(tallies.sent_always(counts, [(0, "b1", "b1>b0"), (0, "b2", "b2>b0")]))
    assert [(it.run, it.name, it.checked, it.broken) for it in always] == [
        (0, "every_message_accounted_for", 2, 1), (0, "every_message_accounted_for", 0, 0),
    ]  # fmt: skip
    assert always[0].text == "b1>b0: 2 should have gone there, 1 did"
    gone, extra = (1, "b1>b0: 1 sent, 0 received"), (1, "b2>b0: 0 sent, 1 received")
    for struck, wanted in (([], [gone, extra]), (["b1>b0", "b2>b0"], [extra])):  # a fault takes, and does not give
        crossed = list(tallies.crossed(counts, {0: struck}))
        assert sum(it.checked for it in crossed) == 2  # one on b0>b1, one on b1>b0
        assert sorted((it.broken, it.text) for it in crossed if it.broken) == wanted


def test_entries_at_the_end(small: Small) -> None:
    """At the end b2 has f of a and c and h of a, b1 has f of d, b0 has g of e, and p advertises x there. b1 lives twice; what
    it had in its first life is nothing."""
    rows = [
        (1, "b1", "subscribed", "b1>b2", change("old")),
        (2, "b1", "started", None),
        (3, "b2", "subscribed", "a", change("f")),
        (3, "b2", "subscribed", "c", change("f")),
        (3, "b2", "subscribed", "a", change("h")),
        (3, "b2", "subscribed", "a", change("g")),
        (4, "b2", "unsubscribed", "a", change("g")),
        (4, "b1", "subscribed", "d", change("f")),
        (4, "b0", "subscribed", "e", change("g")),
        (4, "b0", "advertised", "p", change("x")),
        (4, "b0", "advertised", "p", change("y")),
        (4, "b0", "unadvertised", "p", change("y")),
        (5, "b1", "subscribed", "b1>b2", change("f")),
        (5, "b0", "subscribed", "b0>b1", change("f")),
        (5, "b0", "subscribed", "b0>b1", change("f")),
        (5, "b0", "subscribed", "b0>b1", change("g")),
    ]
    lives = small.table(LIVES, *lives_of(0, "b1", 1, 2 * S))
    final = entries.final_entries(small.events(*rows), lives)
    assert plain(final, "broker", "link", "filter", "entries") == [
        ("b0", None, "$advertise/x", 1), ("b0", None, "g", 1), ("b0", "b0>b1", "f", 2), ("b0", "b0>b1", "g", 1),
        ("b1", None, "f", 1), ("b1", "b1>b2", "f", 1), ("b2", None, "f", 2), ("b2", None, "h", 1),
    ]  # fmt: skip


def test_entries_that_are_missing_or_superfluous() -> None:
    there = {("b0", "b0>b1"): {"f": 2, "g": 1}, ("b1", "b1>b2"): {"f": 1}, ("b2", "b2>b1"): {"i": 1}}
    right = {("b0", "b0>b1"): {"f": 1}, ("b1", "b1>b2"): {"f": 1, "h": 1}, ("b1", "b1>b3"): {"$advertise/x": 1}}
    judged = list(compared(4, there, right))
    assert {(it.run, it.name) for it in judged} == {(4, "tables_right_at_end")}
    assert sum(it.checked for it in judged) == 2 + 1 + 1 + 1 + 1 + 1
    assert sorted((it.broken, it.text) for it in judged if it.broken) == [
        (1, "b0: entry for f to b0>b1 is superfluous"), (1, "b0: entry for g to b0>b1 is superfluous"),
        (1, "b1: entry for $advertise/x to b1>b3 is missing"), (1, "b1: entry for h to b1>b2 is missing"),
        (1, "b2: entry for i to b2>b1 is superfluous"),
    ]  # fmt: skip


def test_never_entered(small: Small) -> None:
    """Of what b1-pub was told to be taken, 2 never entered the tree; 3 was not acknowledged; peers are followed."""
    passed = small.table(
        "run int, client string, origin string, sequence bigint, acknowledged_ns bigint",
        *((0, "b1-pub", "b1-pub", number, at) for number, at in ((1, 5), (2, 6), (3, None))), (0, "p", "p", 1, 7),
    )  # fmt: skip
    identified = small.table("run int, publisher string, number bigint", (0, "b1-pub", 1), (0, "b2-pub", 2))
    peers = small.table("run int, id string", (0, "p"))
    found = checks.never_entered(passed, identified, peers)
    assert plain(found, "name", "checked", "broken", "text") == [
        ("no_acknowledged_message_lost", 1, 0, None),
        ("no_acknowledged_message_lost", 1, 1, "b1-pub 2 was acknowledged, and no broker has it"),
    ]

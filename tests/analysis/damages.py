"""A log with one thing wrong: each damage changes the rows, and says which invariants that breaks, and how.

How many are broken is worked out from the rows themselves, by what the damage means.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.analysis.real import PARENTS, Row

NOT_LOST, ACCOUNTED = "no_acknowledged_message_lost", "every_message_accounted_for"
SUBSCRIBED, ORDERED = "no_delivery_without_subscription", "publisher_order_kept"
ONCE, TABLES, FAULTS = "no_duplicate_at_qos2", "tables_right_at_end", "faults_took_effect"
OF_MESSAGES = ("received", "served", "queued", "sent", "acknowledged", "dropped", "identified")


@dataclass(frozen=True)
class Damaged:
    name: str
    rows: list[Row]
    broken: dict[str, tuple[int, str]]  # how many, and one of the texts


def damaged(rows: list[Row]) -> list[Damaged]:
    return [it for damage in DAMAGES for it in damage(rows)]


def _damage(function: Callable[[list[Row]], Iterator[Damaged]]) -> Callable[[list[Row]], Iterator[Damaged]]:
    DAMAGES.append(function)
    return function


DAMAGES: list[Callable[[list[Row]], Iterator[Damaged]]] = []


def _without(rows: list[Row], *gone: Row) -> list[Row]:
    return [row for row in rows if not any(row is it for it in gone)]


def _changed(rows: list[Row], row: Row, **columns: object) -> list[Row]:
    return [it | columns if it is row else it for it in rows]


def _is_class(row: Row) -> bool:
    return str(row["topic"]).startswith("class/")


def _to_classes(rows: list[Row], broker: str) -> list[Row]:
    """What a broker sends to the clients of the classes, all of it at once and for the first time."""
    its = [it for it in rows if it["broker"] == broker and it["event"] == "sent"]
    return [it for it in its if str(it["client"]).startswith(f"{broker}/sub") and it["flags"] == 0]


def _of_message(rows: list[Row], publisher: str, number: int) -> tuple[list[Row], list[Row]]:
    """What brokers tell of it, and what its subscribers do."""
    (entered,) = (
        it for it in rows if it["event"] == "identified" and (it["client"], it["number"]) == (publisher, number)
    )
    identity = entered["origin"], entered["sequence"]
    brokers = [it for it in rows if (it["origin"], it["sequence"]) == identity and it["event"] in OF_MESSAGES]
    clients = [
        it
        for it in rows
        if (it["origin"], it["sequence"]) == (publisher, number) and it["event"] in ("received", "processed")
    ]
    return brokers, clients


@_damage
def a_delivery_is_missing(rows: list[Row]) -> Iterator[Damaged]:
    """Of a client of the classes at b3."""
    gone = _to_classes(rows, "b3")[20]
    text = f"{gone['topic']} to {gone['client']} at b3: "
    yield Damaged("a delivery is missing", _without(rows, gone), {ACCOUNTED: (1, text)})


@_damage
def an_acknowledged_message_is_lost(rows: list[Row]) -> Iterator[Damaged]:
    brokers, clients = _of_message(rows, "p.0", 7)
    # b3 has it and does nothing with it: it should have gone up, and s.0 never gets it
    kept = [it for it in brokers if it["broker"] == "b3" and it["event"] in ("received", "served", "identified")]
    gone = [it for it in brokers if not any(it is other for other in kept)]
    text = "p.0 7 for s.0 is lost, last seen after 0 hops"
    yield Damaged("lost in b3", _without(rows, *gone, *clients), {NOT_LOST: (1, text), ACCOUNTED: (2, text)})
    # no broker has ever noted it
    text = "p.0 7 for s.0 is lost, never seen at a broker"
    yield Damaged("swallowed", _without(rows, *brokers, *clients), {NOT_LOST: (1, text), ACCOUNTED: (1, text)})
    # b6 gave it to s.0, which acknowledged it, and tells nothing of it; the way is b3 b1 b0 b2 b6
    text = "p.0 7 for s.0 is lost, last seen after 4 hops"
    yield Damaged("lost in s.0", _without(rows, *clients), {NOT_LOST: (1, text), ACCOUNTED: (1, text)})


@_damage
def a_message_comes_twice(rows: list[Row]) -> Iterator[Damaged]:
    last = max(it["position"] for it in rows if it["broker"] == "clients")
    for publisher, subscriber, broken in (("q.1", "r.1", {ONCE: (1, "r.1 got q.1 5 2 times")}), ("p.1", "s.1", {})):
        (got,) = (it for it in rows if it["event"] == "received" and (it["client"], it["origin"], it["sequence"]) == (subscriber, publisher, 5))  # fmt: skip
        yield Damaged(f"{publisher} 5 twice", [*rows, got | {"position": last + 1}], broken)


@_damage
def order_is_not_kept(rows: list[Row]) -> Iterator[Damaged]:
    """Two messages change places: as s.0 gets them, and as b4 sends them to a client of the classes."""
    got = [it for it in rows if (it["event"], it["client"], it["origin"]) == ("received", "s.0", "p.0")]
    one, other = got[10:12]
    swapped = _changed(_changed(rows, one, sequence=other["sequence"]), other, sequence=one["sequence"])
    text = f"s.0 got p.0 {one['sequence']} after a later one"
    yield Damaged("swapped for s.0", swapped, {ORDERED: (1, text)})
    sent = _to_classes(rows, "b4")
    one, other = next(
        (one, other)
        for position, one in enumerate(sent)
        for other in sent[position + 1 :]
        if all(one[it] == other[it] for it in ("client", "topic", "origin", "qos"))
    )
    swapped = _changed(_changed(rows, one, sequence=other["sequence"]), other, sequence=one["sequence"])
    text = f"{one['topic']} to {one['client']} at b4: {one['sequence']} after a later one"
    yield Damaged("swapped at b4", swapped, {ORDERED: (1, text)})


@_damage
def somebody_gets_what_nobody_asked_for(rows: list[Row]) -> Iterator[Damaged]:
    """A stranger; and a client just after it has unsubscribed."""
    last = max(it["position"] for it in rows if it["broker"] == "b3")
    sent = _to_classes(rows, "b3")[0]
    text = f"{sent['topic']} to stranger at b3: 1 without a subscription"
    yield Damaged("a stranger", [*rows, sent | {"position": last + 1, "client": "stranger"}], {SUBSCRIBED: (1, text)})
    left = _last_unsubscribed(rows, "b3", is_link=False)
    late = sent | {key: left[key] for key in ("topic", "client", "time_ns")}
    late |= {"position": last + 1, "origin": "b9.1"}  # from where nothing else comes, so the order is kept
    text = f"{left['topic']} to {left['client']} at b3: 1 without a subscription"
    yield Damaged("after the subscription", [*rows, late], {SUBSCRIBED: (1, text)})


def _last_unsubscribed(rows: list[Row], broker: str, is_link: bool) -> Row:
    """By somebody who did not subscribe to it again."""
    its = [it for it in rows if it["broker"] == broker]
    for row in its:
        if row["event"] == "unsubscribed" and (">" in row["client"]) == is_link:
            later = [it for it in its if it["position"] > row["position"] and it["event"] == "subscribed"]
            if not any((it["client"], it["topic"]) == (row["client"], row["topic"]) for it in later):
                return row
    raise AssertionError(f"nobody unsubscribes for good at {broker}")


def _has_entry(rows: list[Row], broker: str, client: str, topic: str) -> bool:
    its = [it["event"] for it in rows if (it["broker"], it["client"], it["topic"]) == (broker, client, topic)]
    return its.count("subscribed") > its.count("unsubscribed")


@_damage
def a_table_keeps_what_was_taken_back(rows: list[Row]) -> Iterator[Damaged]:
    """What comes to that topic should then have gone there, and above b3 the entries are missing."""
    gone = _last_unsubscribed(rows, "b3", is_link=False)
    topic = gone["topic"]
    missing = sum(
        not _has_entry(rows, above, f"{above}>{below}", topic) for below, above in (("b3", "b1"), ("b1", "b0"))
    )
    broken = {ACCOUNTED: (len(_came_after(rows, gone)), f"{topic} to {gone['client']} at b3: ")}
    if missing:
        broken[TABLES] = missing, f"entry for {topic} to b1>b3 is missing"
    yield Damaged("unsubscribed is missing at b3", _without(rows, gone), broken)
    gone = _last_unsubscribed(rows, "b1", is_link=True)
    topic, link = gone["topic"], gone["client"]
    came = [it for it in _came_after(rows, gone) if it["client"] != link]
    assert PARENTS[link.split(">")[1]] == "b1"
    broken = {TABLES: (1, f"b1: entry for {topic} to {link} is superfluous")}
    if came:
        broken[ACCOUNTED] = len(came), f"{topic} to {link} at b1: "
    yield Damaged("unsubscribed is missing at b1", _without(rows, gone), broken)


def _came_after(rows: list[Row], row: Row) -> list[Row]:
    return [
        it
        for it in rows
        if it["broker"] == row["broker"]
        and it["position"] > row["position"]
        and (it["event"], it["topic"]) == ("served", row["topic"])
    ]


@_damage
def a_link_loses_one(rows: list[Row]) -> Iterator[Damaged]:
    """Between b1 and b0, which no fault strikes; it is one that goes no further."""
    for row in rows:
        if (row["broker"], row["event"], row["client"]) == ("b0", "received", "b0>b1") and _is_class(row):
            identity = row["origin"], row["sequence"]
            its = [it for it in rows if it["broker"] == "b0" and (it["origin"], it["sequence"]) == identity]
            if [it["event"] for it in its] == ["received", "served"]:
                yield Damaged("lost between b1 and b0", _without(rows, *its), {ACCOUNTED: (1, "b1>b0: ")})
                return
    raise AssertionError("everything goes further")


@_damage
def a_fault_is_not_confirmed(rows: list[Row]) -> Iterator[Damaged]:
    for event, number, text in (
        ("fault_confirmed", 1, "crash b2: no effect was seen"),
        ("heal_confirmed", 2, "cut b4-b1: it was not seen to be over"),
    ):
        (gone,) = (it for it in rows if (it["event"], it["sequence"]) == (event, number))
        yield Damaged(f"no {event}", _without(rows, gone), {FAULTS: (1, text)})

"""Messages with a lifetime on frames of a few rows: what has become of them, when that counts, and who was wrong."""

from typing import Any

from brokerbed.analysis import checks
from brokerbed.analysis.transforms import fates, lifetimes
from brokerbed.analysis.transforms.passages import passages
from brokerbed.log.record import WAITED
from tests.analysis.frames import LONG_AGO_S, Small, cells, plain

PEERS = "run int, id string, base string, copy int, comes_and_goes boolean"
EXPIRED, INPUT_EXPIRED = {"reason": 4}, {"reason": 9, "flags": WAITED}


def of(origin: str, sequence: int, **more: Any) -> dict[str, Any]:
    return {"origin": origin, "sequence": sequence, "topic": "t", "qos": 1, **more}


def client(seconds: float, event: str, who: str, number: int, **more: Any) -> tuple[Any, ...]:
    return seconds, "clients", event, who, of("p", number, **more)


ROWS = (
    # 1 is processed at 19, and its time would be over at 21
    client(11, "published", "p", 1), client(21, "expires", "p", 1), client(12, "received", "s", 1),
    client(19, "processed", "s", 1),
    # 2 dies in the queue of its publisher, 3 at the input of b1, 4 in the session at b1, 5 in its subscriber
    client(12, "published", "p", 2), client(15, "expires", "p", 2), client(15, "dropped", "p", 2, **EXPIRED),
    client(12, "published", "p", 3), client(16, "expires", "p", 3), client(12, "sent", "p", 3),
    client(13, "published", "p", 4), client(28, "expires", "p", 4), client(14, "acknowledged", "p", 4),
    client(14, "published", "p", 5), client(18, "expires", "p", 5), client(15, "received", "s", 5),
    client(18, "dropped", "s", 5, **EXPIRED),
    # 6 is made before the end at 30, and nobody knows by then what will become of it
    client(29, "published", "p", 6), client(33, "expires", "p", 6), client(31, "received", "s", 6),
    client(32, "processed", "s", 6),
)  # fmt: skip
AT_B1 = (
    (12, "b1", "identified", "p", {"origin": "b1.1", "sequence": 103, "number": 3}),
    (12, "b1", "received", "p", of("b1.1", 103)),
    (16, "b1", "dropped", "p", of("b1.1", 103, **INPUT_EXPIRED)),
    (14, "b1", "identified", "p", {"origin": "b1.1", "sequence": 104, "number": 4}),
    (14, "b1", "received", "p", of("b1.1", 104)),
    (14, "b1", "queued", "s", of("b1.1", 104)),
    (28, "b1", "dropped", "s", of("b1.1", 104, **EXPIRED, flags=WAITED)),
)


def test_fates_and_delivery_ratio(small: Small) -> None:
    logged = small.events(*ROWS)
    audiences = small.table("run int, publisher string, subscribers array<string>", (0, "p", ["s"]))
    dies = lifetimes.lifetimes(logged)
    due = lifetimes.of_due(fates.due(passages(logged), audiences), dies, lifetimes.ends(logged, dies))
    assert plain(due, "number", "is_there", "is_expired") == [
        (1, True, False), (2, False, True), (3, False, False), (4, False, False), (5, False, True), (6, True, False),
    ]  # fmt: skip
    hops = small.table(
        "run int, publisher string, subscriber string, hop int, broker string, next string", (0, "p", "s", 0, "b1", "s")
    )
    found = fates.fates(due.where("not is_there").drop("is_there"), small.events(*AT_B1), hops)
    assert plain(found, "number", "fate", "reason", "hop") == [
        (2, "dropped", 4, None), (3, "dropped", 9, 0), (4, "dropped", 4, 0), (5, "dropped", 4, None),
    ]  # fmt: skip
    times = small.intervals((LONG_AGO_S, 10, -1), (10, 20, 0), (20, 30, 1), (30, 40, -1))
    waiting = small.table("run int, publisher string, subscriber string, number bigint")
    peers = small.table(PEERS, *((0, it, it, 0, False) for it in "ps"))
    assert cells(fates.delivery_cells(due, waiting, times, peers)) == {
        ("delivery.ratio", "p", "s", "0/0"): (1, 4),  # of 1, 2, 3 and 5; 4 dies later
        ("delivery.ratio", "p", "s", "0/1"): (0, 1),  # of 4
    }


def test_where_messages_die(small: Small) -> None:
    """2 to 5 die as above; 9 dies in the queue of a link, and another one too early to count."""
    logged = small.events(
        *ROWS, *AT_B1,
        (22, "b1", "dropped", "b1>b0", of("b1.1", 109, **EXPIRED)), (22, "b1", "dropped", "s", of("b1.1", 110, reason=3)),
        (9, "b1", "dropped", "s", of("b1.1", 111, **EXPIRED)),
    )  # fmt: skip
    times = small.intervals((LONG_AGO_S, 10, -1), (10, 20, 0), (20, 30, 1), (30, 40, -1))
    peers = small.table(PEERS, *((0, it, f"base of {it}", 0, False) for it in "ps"))
    assert cells(lifetimes.expired_cells(logged, times, peers)) == {
        ("rate.expired", "publisher", "base of p", "0"): (1, 10),
        ("rate.expired", "broker_in", "b1", "0"): (1, 10),
        ("rate.expired", "subscriber", "base of s", "0"): (1, 10),
        ("rate.expired", "session", "base of s", "1"): (1, 10),
        ("rate.expired", "link", "b1>b0", "1"): (1, 10),
    }


def broken(small: Small, *rows: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    logged = small.events(*ROWS, *AT_B1, *rows)
    clients, brokers = logged.where("broker = 'clients'"), logged.where("broker != 'clients'")
    dies = lifetimes.lifetimes(clients)
    judged = checks.died_in_time(lifetimes.ends(clients, dies), lifetimes.deaths(brokers, dies))
    return [row for part in judged for row in plain(part.where("broken > 0"), "name", "broken", "text")]


def test_the_living_and_the_dead(small: Small) -> None:
    """7 is processed half a second too late; 8 dies in its subscriber, and 9 at the link, half a second too early."""
    assert broken(small) == []
    name = "every_message_accounted_for"
    assert broken(
        small,
        client(11, "published", "p", 7), client(13, "expires", "p", 7), client(13.5, "processed", "s", 7),
        client(11, "published", "p", 8), client(13, "expires", "p", 8), client(12.5, "dropped", "s", 8, **EXPIRED),
        client(11, "published", "p", 9), client(13, "expires", "p", 9),
        (11, "b1", "identified", "p", {"origin": "b1.1", "sequence": 109, "number": 9}),
        (12.5, "b1", "dropped", "b1>b0", of("b1.1", 109, **EXPIRED)),
    ) == [
        (name, 1, "p 7 at s: processed after its time was over"),
        (name, 1, "p 8 at s: died before its time was over"),
        (name, 1, "p 9 at b1: died before its time was over"),
    ]  # fmt: skip

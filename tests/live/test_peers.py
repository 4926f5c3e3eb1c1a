"""Peers on the live page, worked out by hand."""

from typing import Any

import pytest

from brokerbed.orchestrator.live.peers import delays, table
from brokerbed.scenario import Scenario
from tests.conftest import FromText

TEXT = """
scenario: 1
name: peers
clock: {measure: 60s}
topology: {tree: star, brokers: 2}
publishers: [{id: p, broker: b0, topic: t/x, rate: 5/s}, {id: q, broker: b0, topic: t/y, rate: 5/s}]
subscribers: [{id: s, broker: b1, topic: t/+}, {id: z, broker: b1, topic: t/y}]
copies: 2
"""


@pytest.fixture
def scenario(from_text: FromText) -> Scenario:
    return from_text(TEXT).points[0]


def publisher(name: str, sent: int, queue: int = 0) -> dict[str, Any]:
    return {"id": name, "connected": True, "queue": queue, "sent": sent, "seen": {}}


def subscriber(name: str, is_on: bool, **seen: list[float]) -> dict[str, Any]:
    by_id = {key.replace("_", "."): value for key, value in seen.items()}
    return {"id": name, "connected": is_on, "queue": 0, "sent": None, "seen": by_id}


TOLD = [
    publisher("p.0", 10, 3), publisher("p.1", 20), publisher("q.0", 5), publisher("q.1", 6, 4),
    subscriber("s.0", True, p_0=[9, 9, 4.5], q_0=[5, 4, 1.0]), subscriber("s.1", False, p_1=[12, 12, 6.0]),
    subscriber("z.0", True, q_0=[5, 5, 2.5]), subscriber("z.1", False),
]  # fmt: skip


def test_what_waits_for_a_subscriber_is_what_it_has_not_worked_on_of_its_publishers(scenario: Scenario) -> None:
    """s.0: 1 of p, 0 of q; s.1: 8 of p, 6 of q; z.0: none; z.1: 6 of q."""
    rows = {row["peer"]: row for row in table(scenario, TOLD)}
    assert {name: row["queue"] for name, row in rows.items()} == {"p": 3, "q": 4, "s": 15, "z": 6}
    assert [rows["s"]["copies"], rows["s"]["connected"]] == [2, 1]


def test_delays_of_copies_are_pooled(scenario: Scenario) -> None:
    assert delays(scenario, TOLD) == {("p", "s"): (21, 10.5), ("q", "s"): (4, 1.0), ("q", "z"): (5, 2.5)}


def test_where_peers_that_roam_are(from_text: FromText) -> None:
    text = TEXT.replace(
        "{id: s, broker: b1, topic: t/+}", "{id: s, brokers: [b0, b1], topic: t/+, on: {mean: 1s}, off: {mean: 1s}}"
    )
    for copies, brokers, places in ((1, ["b1"], "b1"), (3, ["b1", "b0", "b1"], "b0 1, b1 2")):
        (scenario,) = from_text(text.replace("copies: 2", f"copies: {copies}")).points
        names = [scenario.copy_of(scenario.subscribers[0], copy).id for copy in range(copies)]
        told = [{**subscriber(name, True), "broker": broker} for name, broker in zip(names, brokers, strict=True)]
        told += [
            publisher(it.id, 0)
            for peer in scenario.publishers
            for it in (scenario.copy_of(peer, copy) for copy in range(copies))
        ]
        rows = {row["peer"]: row for row in table(scenario, told)}
        assert (rows["s"]["places"], rows["p"]["places"]) == (places, "")

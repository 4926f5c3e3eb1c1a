"""Populations, placed and roaming subscriptions in simulations, against theory, on two trees of different shape."""

from collections import Counter
from collections.abc import Iterator
from itertools import takewhile

import pytest

from brokerbed.clients.moves import Move, placed, roaming
from tests.virtual.theory import Case, compared, scenario_of

TREES = {
    "regular": "{tree: regular, arity: 2, depth: 3}",
    "explicit": "{tree: explicit, parents: {a: null, b: a, c: b, d: b, e: d, f: a, g: e}}",
}
WORKLOADS = {
    "population": "{population: {size: 2, on: {mean: 200ms}, off: {mean: 1800ms, law: uniform}}}",
    "static": "{static: {count: 2, place: random, redraw: 500ms}}",
    "roam": "{mean_active: 24, lifetime: {mean: 200ms, law: uniform}, roam: 0.6}",
}
ROWS = ("table.remote_entries", "table.local_entries", "rate.notifications", "rate.control")
TEXT = """
scenario: 1
name: subscribers
clock: {{warmup: 5s, measure: {measure}s}}
topology: {tree}
routing: {routing}
classes: 12
subscriptions: {workload}
publications: {{rate: 60/s}}
"""


@pytest.mark.parametrize("tree", TREES)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_simulations_agree_with_theory(workload: str, tree: str) -> None:
    routing = "identity" if tree == "regular" else "peer"
    text = TEXT.format(tree=TREES[tree], workload=WORKLOADS[workload], routing=routing, measure=300)
    for metric, figure in compared(Case(workload, text, 0.02, ROWS)).items():
        assert figure.measured == pytest.approx(figure.expected, rel=0.02), metric


def moves_until(moves: Iterator[Move], end_ns: int) -> list[Move]:
    return list(takewhile(lambda move: move.time_ns < end_ns, moves))


def test_new_subscribers_come_before_old_ones_leave() -> None:
    text = TEXT.format(tree=TREES["regular"], workload=WORKLOADS["static"], routing="identity", measure=9)
    scenario = scenario_of(text)
    leaves = scenario.subscriptions.placement.brokers if scenario.subscriptions.placement else ()
    there: dict[int, Counter[int]] = {number: Counter() for number in range(12)}
    sizes = Counter[int]()
    for move in moves_until(placed(scenario), 20_000_000_000):
        assert move.broker in leaves
        brokers = there[move.change.class_number]
        brokers[move.broker] += 1 if move.change.is_subscribed else -1
        assert brokers[move.broker] in (0, 1)
        assert 2 <= brokers.total() <= 4 or move.time_ns == 0
        sizes[brokers.total()] += 1
    assert sizes[2] > sizes[4] > 0


def test_nobody_moves_if_there_is_a_subscriber_at_every_leaf() -> None:
    workload = WORKLOADS["static"].replace("count: 2", "count: 4")
    scenario = scenario_of(TEXT.format(tree=TREES["regular"], workload=workload, routing="identity", measure=9))
    assert [move.time_ns for move in placed(scenario)] == [0] * 4 * 12


def test_roaming_subscriptions_leave_before_they_come() -> None:
    text = TEXT.format(tree=TREES["explicit"], workload=WORKLOADS["roam"], routing="identity", measure=9)
    scenario = scenario_of(text)
    there: Counter[tuple[int, int, int]] = Counter()
    ends: dict[tuple[int, int], int] = {}  # when a subscription to a class ended, and where
    followed = 0
    for move in moves_until(roaming(scenario), 20_000_000_000):
        place = (move.broker, move.change.class_number, move.change.slot)
        there[place] += 1 if move.change.is_subscribed else -1
        assert there[place] in (0, 1)
        if not move.change.is_subscribed:
            ends[move.time_ns, move.change.class_number] = move.broker
        else:
            old = ends.get((move.time_ns - 200_000, move.change.class_number))
            followed += old is not None
            assert old != move.broker
    assert followed / len(ends) == pytest.approx(0.6, abs=0.05)

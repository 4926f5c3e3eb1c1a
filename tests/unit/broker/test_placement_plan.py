"""Steps from one tree of a neighbourhood to another, and the counting of traffic classes."""

from itertools import product
from random import Random

import pytest

from brokerbed.broker.placement import demand, plan
from brokerbed.broker.placement.demand import Demand, Flow
from brokerbed.broker.placement.search import Costs, Link, Traffic, link
from brokerbed.broker.placement.view import Report, joint_view
from tests.unit.broker.test_placement import Classes, beyond, drawn, drawn_tree, trees


@pytest.mark.parametrize(("size", "has_parent"), [*product(range(2, 6), (False, True))])
def test_steps_lead_to_every_tree_and_keep_a_tree(size: int, has_parent: bool) -> None:
    """Each step gives a broker a neighbour of its parent as its parent, and never one below itself."""
    parents: dict[int, int | None] = dict.fromkeys(range(1, size), 0)
    parents |= {0: 1, 1: None} if has_parent else {0: None}
    root = 1 if has_parent else 0
    wanted = trees(size) if size > 2 else [frozenset({(0, 1)})]
    for tree in wanted:
        now = dict(parents)
        for step in plan.steps(parents, tree):
            assert now[step.child] == step.old
            assert now[step.new] == step.old or now[step.old] == step.new
            assert step.child not in plan.ancestors(now, step.new)
            now[step.child] = step.new
        assert now[root] is None
        assert {(min(it), max(it)) for it in now.items() if it[1] is not None} == set(tree)  # type: ignore[type-var]
        assert now == plan.after(parents, plan.steps(parents, tree))


def test_the_way_between_brokers() -> None:
    parents = {0: None, 1: 0, 2: 0, 3: 1, 4: 3}
    assert plan.path(parents, 4, 2) == [3, 1, 0, 2]
    assert plan.path(parents, 0, 4) == [1, 3, 4]
    assert plan.path(parents, 3, 3) == []


def test_counts_are_summed_up_by_class() -> None:
    counted = Demand[None, tuple[str, ...]](lambda _, receivers: frozenset(receivers))
    for members, messages in (("ab", 3), ("ba", 2), ("c", 7), ("abc", 1)):
        counted.count(None, tuple(members), "b1", members, messages)
    assert counted.by_class(frozenset("abc")) == {frozenset("ab"): 5, frozenset("abc"): 1}
    counted.count(None, ("a", "b"), "b1", "t", 1)
    assert counted.by_class(frozenset("abc"))[frozenset("ab")] == 6
    counted.restart(17)
    assert counted.by_class(frozenset("abc")) == {}
    assert counted.since_ns == 17


def test_rare_classes_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demand, "CLASSES_MAX", 2)
    monkeypatch.setattr(demand, "COUNTS_MAX", 3)
    counted = Demand[None, tuple[str, ...]](lambda _, receivers: frozenset(receivers))
    for members, messages in (("ab", 30), ("ac", 1), ("bc", 20), ("abc", 2), ("ad", 3)):
        counted.count(None, tuple(members), "b1", members, messages)
    everybody = frozenset("abcd")
    assert counted.by_class(everybody) == {frozenset("ab"): 30, frozenset("bc"): 20, frozenset("ad"): 3, everybody: 3}


def test_a_neighbour_is_told_all_flows_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the largest flows only, the two would take a tree for cheaper that costs more."""
    monkeypatch.setattr(demand, "COUNTS_REPORTED_MAX", 2)
    monkeypatch.setattr(demand, "COUNTS_MAX", 3)
    counted = Demand[None, tuple[str, ...]](lambda _, receivers: frozenset(receivers))
    known = []
    for topic in "abcd":
        counted.count(None, ("x", "y"), "b1", topic, 5)
        counted.count(None, ("x", "y"), "b1", topic, 2)
        known.append(sorted(counted.by_flow()))
    assert known == [[("b1", "a")], [("b1", "a"), ("b1", "b")], [], []]
    assert counted.by_flow() == {}
    assert counted.by_class(frozenset("xy")) == {frozenset("xy"): 28}
    counted.restart(1)
    counted.count(None, ("x", "y"), "b1", "a", 5)
    assert counted.by_flow() == {Flow("b1", "a"): (frozenset("xy"), 5)}


def test_two_neighbours_together_see_what_the_whole_tree_saves() -> None:
    """Another tree of the two and their neighbours saves as much in their view as by definition in the whole network."""
    draw = Random(5)
    for _ in range(100):
        case, root = drawn(draw, 9, 15), draw.randrange(9)
        tree = drawn_tree(draw, 9)
        one, other = draw.choice(sorted(tree))
        reports = [_report(case.classes, tree, root, broker) for broker in (one, other)]
        view = joint_view(*map(Report.read, map(Report.written, reports)))
        numbers = [int(name) for name in view.names]
        assert {frozenset(numbers[it] for it in each) for each in view.tree} == {
            frozenset(each) for each in tree if {*each} & {one, other}
        }
        links = {
            (first, second): case.costs.links[link(numbers[first], numbers[second])]
            for second in range(len(numbers))
            for first in range(second)
        }
        traffic = Traffic(Costs(links, [case.costs.brokers[it] for it in numbers]), view.demands)
        new = drawn_tree(draw, len(numbers)) if len(numbers) > 2 else view.tree
        rest = frozenset(each for each in tree if not {*each} & {one, other})
        whole = rest | {link(numbers[first], numbers[second]) for first, second in new}
        saved = case.cost_by_definition(tree) - case.cost_by_definition(whole)
        assert traffic.cost(view.tree) - traffic.cost(new) == pytest.approx(saved, rel=1e-9, abs=1e-9)


def _report(classes: Classes, tree: frozenset[Link], root: int, broker: int) -> Report:
    """What a broker would measure if every traffic class were a flow."""
    near = sorted(it for each in tree if broker in each for it in each if it != broker)
    side = {it: str(neighbour) for neighbour in near for it in beyond(tree, broker, neighbour)} | {broker: str(broker)}
    flows = {}
    for number, (members, rate) in enumerate(classes):
        seen = frozenset(side[it] for it in members)
        if len(seen) > 1:
            flows[Flow(str(min(members)), f"topic/{number}")] = seen, rate
    parent = "" if broker == root else side[root]
    return Report(str(broker), parent, tuple(str(it) for it in near if str(it) != parent), flows)

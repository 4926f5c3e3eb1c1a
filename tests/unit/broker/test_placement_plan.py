"""Steps from one tree of a neighbourhood to another, and the counting of traffic classes."""

from itertools import product

import pytest

from brokerbed.broker.placement import demand, plan
from brokerbed.broker.placement.demand import Demand
from tests.unit.broker.test_placement import trees


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
    counted = Demand[tuple[str, ...]](frozenset)
    for members, messages in (("ab", 3), ("ba", 2), ("c", 7), ("abc", 1)):
        counted.count(tuple(members), messages)
    assert counted.by_class(frozenset("abc")) == {frozenset("ab"): 5, frozenset("abc"): 1}
    counted.count(("a", "b"), 1)
    assert counted.by_class(frozenset("abc"))[frozenset("ab")] == 6
    counted.restart(17)
    assert counted.by_class(frozenset("abc")) == {}
    assert counted.since_ns == 17


def test_rare_classes_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demand, "CLASSES_MAX", 2)
    monkeypatch.setattr(demand, "COUNTS_MAX", 3)
    counted = Demand[tuple[str, ...]](frozenset)
    for members, messages in (("ab", 30), ("ac", 1), ("bc", 20), ("abc", 2), ("ad", 3)):
        counted.count(tuple(members), messages)
    everybody = frozenset("abcd")
    assert counted.by_class(everybody) == {frozenset("ab"): 30, frozenset("bc"): 20, everybody: 6}

"""The shipped scenarios of Migliavacca and Cugola 2007: what they say about their costs, by the definition of the cost."""

from collections.abc import Iterator
from itertools import product

import pytest

from brokerbed import shipped
from brokerbed.analysis.predict import predict
from brokerbed.scenario import Scenario, load
from brokerbed.scenario.moved import with_parents
from brokerbed.scenario.subscriptions import Cell

FOLDER = "migliavacca2007"
Link = frozenset[str]
Demands = list[tuple[set[str], float]]  # the brokers that exchange messages, and how many per second


def points(name: str) -> tuple[Scenario, ...]:
    return load(shipped.shipped()[f"{FOLDER}/{name}"]).points


def predicted(scenario: Scenario, **labels: str) -> float:
    rows = predict(scenario, detail=bool(labels)).rows
    (cost,) = (row.predicted for row in rows if row.metric == "cost.routing" and row.labels == labels)
    assert cost is not None
    return cost


def demands_of(scenario: Scenario) -> Demands:
    """Of the classes, whose subscribers are peers."""
    names, found = scenario.tree.names, []
    rates: dict[Cell, float] = dict(scenario.publications.overrides_per_s)
    for (broker, number), rate in rates.items():
        topic = f"class/{number:04d}"
        found.append(({names[broker], *(it.broker for it in scenario.subscribers if it.topic == topic)}, rate))
    return found


def cost_by_definition(links: set[Link], scenario: Scenario, demands: Demands, alpha: float, beta: float) -> float:
    costs, total = scenario.costs, 0.0
    assert costs is not None
    for wanted, rate in demands:
        left, there = set(links), {name for link in links for name in link}
        while leaves := {it for it in there - wanted if sum(it in link for link in left) <= 1}:
            there -= leaves
            left = {link for link in left if not link & leaves}
        on_links = sum(costs.links.get(link, costs.link) for link in left)
        total += rate * (alpha * on_links + beta * sum(costs.brokers.get(it, costs.broker) for it in there))
    return total


def all_trees(names: tuple[str, ...]) -> Iterator[set[Link]]:
    """By Prüfer sequences."""
    for sequence in product(range(len(names)), repeat=len(names) - 2):
        degrees, links = [1 + sequence.count(it) for it in range(len(names))], set()
        for broker in sequence:
            leaf = degrees.index(1)
            links.add(frozenset((names[leaf], names[broker])))
            degrees[leaf] = 0
            degrees[broker] -= 1
        yield links | {frozenset(name for name, degree in zip(names, degrees, strict=True) if degree == 1)}


@pytest.mark.parametrize(("place", "star", "cheapest"), [(0, 616, 260), (1, 971, 552)])
def test_star(place: int, star: float, cheapest: float) -> None:
    scenario = points("star")[place]
    demands = demands_of(scenario)
    assert predicted(scenario) == pytest.approx(star)
    assert sum(len(wanted) > 2 for wanted, _ in demands) == 2
    costs = {
        frozenset(tree): cost_by_definition(tree, scenario, demands, 1, place)
        for tree in all_trees(scenario.tree.names)
    }
    assert len(costs) == 1296
    assert costs[frozenset(map(frozenset, scenario.tree.links))] == pytest.approx(star)
    assert min(costs.values()) == pytest.approx(cheapest)


def test_hot_pair() -> None:
    """By hand: 3 for a message over one link, with two brokers; 5 over two links, with three brokers."""
    (scenario,) = points("hot_pair")
    over_b2 = with_parents(scenario, {"b0": None, "b2": "b0", "b1": "b2"})
    first, second = {"phase": "0"}, {"phase": "11"}
    assert predicted(scenario, **first) == pytest.approx(10 * 3 + 20 * 3 + 60 * 5) == 390
    assert predicted(over_b2, **first) == pytest.approx(10 * 5 + 20 * 3 + 60 * 3) == 290
    assert predicted(scenario, **second) == pytest.approx(10 * 3 + 20 * 3 + 2 * 5) == 100
    assert predicted(over_b2, **second) == pytest.approx(10 * 5 + 20 * 3 + 2 * 3) == 116
    before, after = points("hot_pair_measured")
    assert [predicted(before), predicted(after)] == pytest.approx([390, 116])


def test_large() -> None:
    """20 pairs of 40 different brokers, and news for a few."""
    (scenario,) = points("large")
    demands = demands_of(scenario)
    assert len(scenario.tree) == 100
    assert len({name for wanted, rate in demands if rate == 5 for name in wanted}) == 40
    links = set(map(frozenset, scenario.tree.links))
    assert predicted(scenario) == pytest.approx(cost_by_definition(links, scenario, demands, 1, 1))

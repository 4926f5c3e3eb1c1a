"""What traffic costs (`cost.routing`): by hand, and by the definition of Migliavacca and Cugola on random trees."""

import random
from itertools import combinations
from math import exp, prod

import pytest

from brokerbed.analysis.predict import predict
from tests.conftest import FromText

TREES = 40


def cost(from_text: FromText, text: str) -> float | None:
    (scenario,) = from_text(f"scenario: 1\nname: x\nclock: {{measure: 1s}}\n{text}").points
    rows = {row.metric: row.predicted for row in predict(scenario, detail=False).rows}
    return rows["cost.routing"]


def test_every_link_and_every_broker_on_the_way_costs(from_text: FromText) -> None:
    """Two messages per second from b0 over b1 to b2, and three copies: 6 (2 + 7 + 0.5 + 3 + 0.5) per second."""
    text = (
        "topology: {tree: line, brokers: 3}\nrouting: peer\ncopies: 3\n"
        "publishers: [{id: p, broker: b0, topic: t, rate: 2/s}]\nsubscribers: [{id: s, broker: b2, topic: t}]\n"
        "costs: {link: 2, links: {b2-b1: 7}, broker: 0.5, brokers: {b1: 3}}\n"
    )
    assert cost(from_text, text) == pytest.approx(6 * (2 + 7 + 0.5 + 3 + 0.5))


def minimal_subtree(parents: list[int], wanted: set[int]) -> set[int]:
    """The brokers left when leaves that are not wanted are taken away until there are none."""
    left = set(range(len(parents)))
    neighbours = {it: {parents[it]} | {child for child in left if parents[child] == it} for it in left}
    while leaves := {it for it in left - wanted if len(neighbours[it] & left) <= 1}:
        left -= leaves
    return left


def test_minimal_subtrees_by_definition(from_text: FromText) -> None:
    """The expected cost over all sets of interested brokers, of which each has its own probability."""
    for seed in range(TREES):
        draw = random.Random(seed)
        size = draw.randrange(1, 7)
        parents = [-1, *(draw.randrange(broker) for broker in range(1, size))]
        active = [draw.uniform(0, 2) for _ in parents]
        rates = [draw.uniform(0, 3) for _ in parents]
        links = {(broker, parents[broker]): round(draw.uniform(0, 5), 3) for broker in range(1, size)}
        brokers = [round(draw.uniform(0, 5), 3) for _ in parents]
        expected = 0.0
        for count in range(size + 1):
            for interested in map(set, combinations(range(size), count)):
                likely = prod(1 - exp(-active[it]) if it in interested else exp(-active[it]) for it in range(size))
                for source, rate in enumerate(rates):
                    there = minimal_subtree(parents, {*interested, source})
                    on_links = sum(cost for (child, parent), cost in links.items() if {child, parent} <= there)
                    expected += likely * rate * (on_links + sum(brokers[it] for it in there))
        text = [
            "topology:\n  tree: explicit\n  parents:\n    b0: null",
            *(f"    b{child}: b{parent}" for child, parent in links),
            "routing: peer\nclasses: 1\nsubscriptions:\n  at:",
            *(f"  - {{broker: b{at}, class: 0, arrival_rate: {it!r}/s, lifetime: {{mean: 1s}}}}" for at, it in enumerate(active)),
            "publications:\n  at:",
            *(f"  - {{broker: b{at}, class: 0, rate: {it!r}/s}}" for at, it in enumerate(rates)),
            "costs:\n  links: {" + ", ".join(f"b{child}-b{parent}: {it}" for (child, parent), it in links.items()) + "}",
            "  brokers: {" + ", ".join(f"b{at}: {it}" for at, it in enumerate(brokers)) + "}",
        ]  # fmt: skip
        assert cost(from_text, "\n".join(text) + "\n") == pytest.approx(expected, rel=1e-9), seed

"""The tables that brokers should have, against examples worked out by hand and against a second definition."""

import random
from collections import Counter

import pytest

from brokerbed.analysis.right_tables import RightTables
from brokerbed.scenario import ALGORITHMS, topology
from tests.unit.analysis.brute_force import BruteForce, Network, Source, State

LINE = topology.explicit({"a": None, "b": "a", "c": "b"})
FILTERS = ("g0/a", "g0/b", "g0/c", "g0/+", "g1/a", "t", "#", "+/a", "g0/#")
TOPICS = ("g0/a", "g0/b", "g1/a", "t", "other")


def held(
    routing: str, wanted: dict[str, list[str]], advertised: dict[str, list[str]] | None = None, **parameters: int
) -> dict[str, dict[str, int]]:
    """On a line of three brokers: filters and numbers of entries by link, without links that have none."""
    algorithm = ALGORITHMS[routing]
    local, topics = ({name: Counter(its) for name, its in of.items()} for of in (wanted, advertised or {}))
    found = RightTables(LINE, algorithm, algorithm.checked(parameters), local, topics).held()
    assert all(link.startswith(f"{broker}>") for broker, link in found)
    return {link: entries for (_, link), entries in found.items() if entries}


def test_one_way() -> None:
    wanted = {"c": ["x", "x", "y/+"], "b": ["x"], "a": ["z"]}
    assert held("flooding", wanted) == {}
    assert held("identity", wanted) == {"b>c": {"x": 1, "y/+": 1}, "a>b": {"x": 1, "y/+": 1}}
    assert held("simple", wanted) == {"b>c": {"x": 2, "y/+": 1}, "a>b": {"x": 3, "y/+": 1}}


def test_covers_and_merged_filters() -> None:
    wanted = {"c": ["x/1", "x/2", "y"], "b": ["x/3", "z/#", "z/1"]}
    assert held("covering", wanted) == {"b>c": {"x/1": 1, "x/2": 1, "y": 1},
                                        "a>b": {"x/1": 1, "x/2": 1, "x/3": 1, "y": 1, "z/#": 1}}  # fmt: skip
    assert held("merging", wanted)["a>b"] == {"x/+": 1, "y": 1, "z/#": 1}
    assert held("merging", wanted)["b>c"] == {"x/1": 1, "x/2": 1, "y": 1}
    assert held("merging", wanted, threshold=2)["b>c"] == {"x/+": 1, "y": 1}
    assert held("merging", wanted, threshold=4)["a>b"] == {"x/1": 1, "x/2": 1, "x/3": 1, "y": 1, "z/#": 1}


def test_both_ways_and_advertisements() -> None:
    wanted, advertised = {"c": ["x/1"], "a": ["x/+", "y"]}, {"c": ["x/2"], "a": ["x/1"]}
    assert held("peer", wanted, advertised) == {
        "b>c": {"x/1": 1}, "a>b": {"x/1": 1}, "c>b": {"x/+": 1, "y": 1}, "b>a": {"x/+": 1, "y": 1},
    }  # fmt: skip
    assert held("advertisement", wanted, advertised) == {
        "b>c": {"x/1": 1, "$advertise/x/2": 1}, "a>b": {"x/1": 1, "$advertise/x/2": 1},
        "c>b": {"x/+": 1}, "b>a": {"x/+": 1},
    }  # fmt: skip
    assert held("peer-advertisement", wanted, advertised) == {
        "b>c": {"x/1": 1, "$advertise/x/2": 1}, "a>b": {"x/1": 1, "$advertise/x/2": 1},
        "c>b": {"x/+": 1, "$advertise/x/1": 1}, "b>a": {"x/+": 1, "$advertise/x/1": 1},
    }  # fmt: skip
    assert held("peer-advertisement", wanted, {"c": ["x/2"]}) == {
        "b>c": {"$advertise/x/2": 1}, "a>b": {"$advertise/x/2": 1}, "c>b": {"x/+": 1}, "b>a": {"x/+": 1},
    }  # fmt: skip


@pytest.mark.parametrize("routing", [name for name in ALGORITHMS.built_in if name != "simple"])
def test_equal_the_definition_of_the_count_over_all_states(routing: str) -> None:
    """Random trees, subscriptions and advertisements; the other definition goes broker by broker and link by link."""
    for seed in range(100):
        draw = random.Random(seed)
        size = draw.randint(1, 8)
        parents = [-1, *(draw.randrange(broker) for broker in range(1, size))]
        network = Network(parents, sources=[Source(0, "t", 1.0)])
        wanted = [frozenset(draw.sample(FILTERS, draw.randint(0, 3))) for _ in parents]
        topics = [frozenset(draw.sample(TOPICS, draw.randint(0, 2))) for _ in parents]
        state, count = State(tuple(wanted), tuple(topics)), BruteForce(network, routing, threshold=2)
        names = {f"n{broker}": None if parent < 0 else f"n{parent}" for broker, parent in enumerate(parents)}
        local, advertised = ({f"n{at}": Counter(its) for at, its in enumerate(of)} for of in (wanted, topics))
        algorithm = ALGORITHMS[routing]
        parameters = algorithm.checked({"threshold": 2} if algorithm.parameters else {})
        found = RightTables(topology.explicit(names), algorithm, parameters, local, advertised).held()
        expected = {}
        entries, advertisements = count.entries(state), count.advertisements(state)
        for (here, there), told in entries.items():
            filters = {*told, *(f"$advertise/{topic}" for topic in advertisements[here, there])}
            if filters:
                expected[f"n{there}", f"n{there}>n{here}"] = dict.fromkeys(filters, 1)
        assert {link: its for link, its in found.items() if its} == expected, seed

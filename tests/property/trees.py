"""Random trees and random workloads, for the property tests."""

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import strategies as st

from brokerbed.analysis.models.contract import Classes, Interest
from brokerbed.scenario import topology
from brokerbed.scenario.topology import Tree


@st.composite
def trees(draw: Callable[[st.SearchStrategy[Any]], Any], brokers_max: int = 12) -> Tree:
    """Any rooted tree: each broker hangs below an earlier one; names and order of the file are shuffled."""
    size = draw(st.integers(1, brokers_max))
    parents: dict[str, str | None] = {"n0": None}
    for number in range(1, size):
        parents[f"n{number}"] = f"n{draw(st.integers(0, number - 1))}"
    order = draw(st.permutations(list(parents)))
    return topology.explicit({name: parents[name] for name in order})


def rates(maximum: float) -> st.SearchStrategy[float]:
    return st.one_of(st.just(0.0), st.floats(1e-3, maximum))


@st.composite
def workloads(draw: Callable[[st.SearchStrategy[Any]], Any], tree: Tree, columns_max: int = 3) -> Classes:
    """Arrival rate, lifetime and publication rate drawn per broker and class; now and then a permanent subscription."""
    columns = draw(st.integers(1, columns_max))
    shape = (len(tree), columns)
    size = shape[0] * shape[1]

    def matrix(values: st.SearchStrategy[float]) -> np.ndarray:
        return np.array(draw(st.lists(values, min_size=size, max_size=size)), dtype=float).reshape(shape)

    arrival_rate = matrix(rates(2))
    lifetime_s = matrix(st.floats(0.1, 5))
    permanent = matrix(st.sampled_from([0.0] * 8 + [1.0, 2.0]))
    multiplicity = np.array(draw(st.lists(st.sampled_from([1.0, 3.0]), min_size=columns, max_size=columns)))
    own = Interest.poisson(arrival_rate, arrival_rate * lifetime_s)
    return Classes(multiplicity, own, permanent, 0 * permanent, matrix(rates(10)))

"""Laws that the routing models obey on every tree with every rate per broker and class."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from brokerbed.analysis.models.contract import Classes, Interest, Traffic
from brokerbed.analysis.models.registry import MODELS
from brokerbed.scenario.topology import Tree
from tests.property.trees import trees, workloads

PLACES = st.data()
PARAMETERS: dict[str, dict[str, int]] = {"merging": {"threshold": 3}}  # of the algorithms that have some


def draw(data: st.DataObject) -> tuple[Tree, Classes]:
    tree = data.draw(trees())
    return tree, data.draw(workloads(tree))


def by_the_papers_equations(tree: Tree, classes: Classes) -> dict[str, float]:
    """Eq. 1 to 10 and 14 as printed: recursive, class by class, publisher by publisher."""
    children: dict[int, list[int]] = {v: [] for v in range(len(tree))}
    for v in range(1, len(tree)):
        children[int(tree.parents[v])].append(v)

    def silent(v: int, f: int) -> float:
        own = 0.0 if classes.permanent[v, f] else math.exp(-classes.own.mean_active[v, f])
        return own * math.prod(silent(c, f) for c in children[v])

    def arrivals(v: int, f: int) -> float:
        return float(classes.own.arrivals[v, f]) + sum(arrivals(c, f) for c in children[v])

    def path_to_root(v: int) -> list[int]:
        return [] if v == 0 else [v, *path_to_root(int(tree.parents[v]))]

    out = dict.fromkeys(("remote", "notifications", "additional", "identity", "simple"), 0.0)
    for f, weight in enumerate(classes.multiplicity.tolist()):
        links = range(1, len(tree))
        remote = sum(1 - silent(v, f) for v in links)
        additional = sum(classes.publication_rate[v, f] * sum(silent(u, f) for u in path_to_root(v)) for v in links)
        out["remote"] += weight * remote
        out["additional"] += weight * additional
        out["notifications"] += weight * (remote * classes.publication_rate[:, f].sum() + additional)
        out["identity"] += weight * sum(2 * arrivals(v, f) * silent(v, f) for v in links)
        out["simple"] += weight * sum(2 * arrivals(v, f) for v in links)
    return out


@given(PLACES)
def test_models_equal_the_papers_equations(data: st.DataObject) -> None:
    tree, classes = draw(data)
    expected = by_the_papers_equations(tree, classes)
    identity, simple = MODELS["identity"].traffic(tree, classes, None), MODELS["simple"].traffic(tree, classes, None)
    assert identity.entries_for_child.sum() == pytest.approx(expected["remote"], abs=1e-12)
    assert identity.additional.sum() == pytest.approx(expected["additional"], abs=1e-12)
    assert (identity.up + identity.down).sum() == pytest.approx(expected["notifications"], abs=1e-12)
    assert identity.control.sum() == pytest.approx(expected["identity"], abs=1e-12)
    assert simple.control.sum() == pytest.approx(expected["simple"], abs=1e-12)


@given(PLACES)
def test_many_subscriptions_fill_every_table(data: st.DataObject) -> None:
    """N_s -> infinity: remote entries -> links x classes, notifications -> flooding, control -> 0."""
    tree, classes = draw(data)
    many = replace(classes, own=replace(classes.own, strength=np.full_like(classes.permanent, 1e4)))
    traffic = MODELS["identity"].traffic(tree, many, None)
    flooding = MODELS["flooding"].traffic(tree, classes, None)
    assert traffic.entries_for_child.sum() == pytest.approx((len(tree) - 1) * classes.multiplicity.sum())
    assert np.allclose(traffic.up + traffic.down, flooding.up + flooding.down)
    assert traffic.control.sum() == 0
    assert traffic.additional.sum() == 0


@given(PLACES)
def test_flooding_is_links_times_rate(data: st.DataObject) -> None:
    tree, classes = draw(data)
    traffic = MODELS["flooding"].traffic(tree, classes, None)
    omega = (classes.publication_rate @ classes.multiplicity).sum()
    assert (traffic.up + traffic.down).sum() == pytest.approx((len(tree) - 1) * omega)
    assert np.allclose(traffic.notifications_in, omega)


@given(PLACES, st.floats(0.1, 100))
def test_orders_between_the_algorithms(data: st.DataObject, refresh_s: float) -> None:
    tree, classes = draw(data)
    results: dict[str, Traffic] = {
        name: model.traffic(tree, classes, refresh_s, **PARAMETERS.get(name, {}))
        for name, model in MODELS.built_in.items()
    }
    slack = 1 + 1e-12
    assert (results["identity"].control <= results["simple"].control * slack + 1e-12).all()
    assert (results["identity"].entries_for_child <= results["simple"].entries_for_child * slack + 1e-12).all()
    assert (results["identity"].down <= results["flooding"].down * slack).all()
    assert (results["identity"].up == results["flooding"].up).all()
    for traffic in results.values():
        for values in vars(traffic).values():
            assert np.isfinite(values).all()
            assert (values >= 0).all()


@given(PLACES)
def test_what_enters_a_broker_is_what_its_neighbours_and_clients_send(data: st.DataObject) -> None:
    tree, classes = draw(data)
    for name, model in MODELS.built_in.items():
        traffic = model.traffic(tree, classes, None, **PARAMETERS.get(name, {}))
        local = classes.publication_rate @ classes.multiplicity
        expected = local + tree.children_sums(traffic.up) + traffic.down
        assert np.allclose(traffic.notifications_in, expected)


@given(PLACES)
def test_equal_columns_are_one_column_with_a_multiplicity(data: st.DataObject) -> None:
    tree, classes = draw(data)

    def side_by_side(part: Any) -> dict[str, Any]:
        arrays = {name: values for name, values in vars(part).items() if isinstance(values, np.ndarray)}
        return {name: np.hstack([values, values]) for name, values in arrays.items()}

    twice = Classes(**{**side_by_side(classes), "own": Interest(**side_by_side(classes.own))})
    doubled = Classes(**{**vars(classes), "multiplicity": 2 * classes.multiplicity})
    for algorithm, model in MODELS.built_in.items():
        parameters = PARAMETERS.get(algorithm, {})
        one, other = (model.traffic(tree, columns, 5.0, **parameters) for columns in (twice, doubled))
        for name, values in vars(one).items():
            assert np.allclose(values, getattr(other, name)), (algorithm, name)

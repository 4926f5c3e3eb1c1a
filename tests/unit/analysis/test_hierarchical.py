"""The models of routing against the reference values of the literature and against examples worked out by hand."""

import numpy as np
import pytest

from brokerbed.analysis.models.contract import Classes, Interest, Traffic
from brokerbed.analysis.models.registry import MODELS
from brokerbed.scenario import topology
from brokerbed.scenario.topology import Tree

# width: N_s -> remote entries, additional notifications/s (|F| = 1000, lifetime 60 s, omega = 1000/s)
REFERENCE = {
    1: {
        100: (6095.93, 58968.73),
        1000: (46404.21, 33374.03),
        10_000: (113794.04, 1268.69),
        100_000: (125165.05, 12.06),
    },
    8: {100: (928.98, 9057.59), 1000: (7577.53, 6029.71), 10_000: (31701.72, 1695.46), 100_000: (93798.94, 304.08)},
    64: {100: (501.00, 4965.44), 1000: (4646.75, 4281.50), 10_000: (29540.51, 1952.85), 100_000: (93798.89, 304.09)},
}
MEAN_DEPTH = {1: 63, 8: 1210 / 127, 64: 642 / 127}


def uniform(
    tree: Tree, subscriptions: float, classes: int = 1000, lifetime_s: float = 60, omega: float = 1000
) -> Classes:
    """`subscriptions` and `omega` spread evenly over brokers and classes."""
    ones = np.ones((len(tree), 1))
    mean_active = subscriptions / len(tree) / classes * ones
    published = omega / len(tree) / classes * ones
    interest = Interest.poisson(mean_active / lifetime_s, mean_active)
    return Classes(np.array([float(classes)]), interest, 0 * ones, 0 * ones, published)


def total(values: np.ndarray) -> float:
    return float(values.sum())


def predict(
    routing: str, width: int, subscriptions: float, refresh_s: float | None = None, omega: float = 1000
) -> Traffic:
    tree = topology.levels(127, width)
    return MODELS[routing].traffic(tree, uniform(tree, subscriptions, omega=omega), refresh_s)


@pytest.mark.parametrize("width", REFERENCE)
@pytest.mark.parametrize("subscriptions", [100, 1000, 10_000, 100_000])
def test_identity_reference_values(width: int, subscriptions: int) -> None:
    traffic = predict("identity", width, subscriptions)
    remote, additional = REFERENCE[width][subscriptions]
    assert round(total(traffic.entries_for_child), 2) == remote
    assert round(total(traffic.additional), 2) == additional
    assert total(traffic.control) == pytest.approx(additional * subscriptions / 30_000, rel=5e-4)
    assert total(traffic.up + traffic.down) == pytest.approx(remote + additional, abs=0.011)  # b_n = x_r here
    assert total(traffic.local_entries) == pytest.approx(subscriptions)


@pytest.mark.parametrize("width", REFERENCE)
def test_simple_control_is_mean_depth(width: int) -> None:
    traffic = predict("simple", width, 3000)
    assert total(traffic.control) == pytest.approx(3000 * MEAN_DEPTH[width] / 30)
    assert total(traffic.entries_for_child) == pytest.approx(3000 * MEAN_DEPTH[width])
    same = predict("identity", width, 3000)
    assert np.allclose(traffic.up + traffic.down, same.up + same.down)
    assert np.allclose(traffic.additional, same.additional)


def test_flooding_crosses_every_link_once() -> None:
    traffic = predict("flooding", 8, 3000, refresh_s=1)
    assert np.allclose((traffic.up + traffic.down)[1:], 1000)
    assert total(traffic.entries_for_child) == total(traffic.control) == total(traffic.additional) == 0
    assert np.allclose(traffic.notifications_in, 1000)


def test_saved_rate_without_subscriptions_is_126_000_less_the_climb() -> None:
    """Erratum to the text on Fig. 6: notifications still climb to the root (eq. 12)."""
    saved = total(predict("flooding", 8, 0).up + predict("flooding", 8, 0).down)
    saved -= total(predict("identity", 8, 0).up + predict("identity", 8, 0).down)
    assert saved == pytest.approx(126_000 - 1000 * MEAN_DEPTH[8])


def crossing(routing: str, omega: float) -> float:
    """The N_s above which control costs more than filtering saves on T8, by bisection."""

    def gain(subscriptions: float) -> float:
        traffic = predict(routing, 8, subscriptions, omega=omega)
        return 126 * omega - total(traffic.up + traffic.down) - total(traffic.control)

    low, high = 1000.0, 700_000.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if gain(middle) > 0 else (low, middle)
    return low


def test_filtering_loses_to_flooding_where_the_paper_says() -> None:
    assert round(crossing("identity", 32)) == 100_959
    assert round(crossing("simple", 32)) == 9_426


@pytest.mark.parametrize(("width", "maxima"), [(1, 1), (2, 2), (4, 2), (8, 1), (16, 1), (32, 1), (64, 1)])
def test_control_rate_has_the_maxima_of_figure_5(width: int, maxima: int) -> None:
    rates = [total(predict("identity", width, n).control) for n in np.geomspace(10, 700_000, 400)]
    slopes = np.sign(np.diff(rates))
    assert int(((slopes[:-1] > 0) & (slopes[1:] < 0)).sum()) == maxima


def test_refresh_repeats_the_interest() -> None:
    without, with_refresh = predict("identity", 8, 1000), predict("identity", 8, 1000, refresh_s=30)
    assert total(with_refresh.control - without.control) == pytest.approx(7577.53 / 30, rel=1e-6)
    simple = predict("simple", 8, 1000, refresh_s=30)
    assert total(simple.control) == pytest.approx(1000 * MEAN_DEPTH[8] / 30 + 1000 * MEAN_DEPTH[8] / 30)


@pytest.fixture
def chain() -> tuple[Tree, Classes]:
    """root - a - b: one class, permanent subscriber at b; churn of load ln 2 at a; a publishes 3/s, root 5/s."""
    tree = topology.line(3)
    column = np.zeros((3, 1))
    arrival, active, permanent, published = column.copy(), column.copy(), column.copy(), column.copy()
    arrival[1], active[1] = np.log(2) / 10, np.log(2)
    permanent[2] = 1
    published[1], published[0] = 3, 5
    return tree, Classes(np.ones(1), Interest.poisson(arrival, active), permanent, 0 * column, published)


def test_identity_by_hand_with_a_permanent_subscriber(chain: tuple[Tree, Classes]) -> None:
    traffic = MODELS["identity"].traffic(*chain, None)
    assert traffic.entries_for_child.tolist() == [0, 1, 1]
    assert traffic.control.tolist() == [0, 0, 0]  # b always wants it, so a's churn never toggles
    assert traffic.up.tolist() == [0, 3, 0]
    assert traffic.down.tolist() == [0, 5, 8]
    assert traffic.additional.tolist() == [0, 0, 0]
    assert traffic.notifications_in.tolist() == [8, 8, 8]
    assert np.allclose(traffic.local_entries, [0, np.log(2), 1])


def test_identity_by_hand_without_it(chain: tuple[Tree, Classes]) -> None:
    tree, classes = chain
    gone = Classes(**{**vars(classes), "permanent": 0 * classes.permanent})
    traffic = MODELS["identity"].traffic(tree, gone, None)
    assert np.allclose(traffic.entries_for_child, [0, 0.5, 0])  # P0(a) = exp(-ln 2) = 1/2
    assert np.allclose(traffic.control, [0, 2 * np.log(2) / 10 * 0.5, 0])
    assert np.allclose(traffic.down, [0, 2.5, 0])
    assert np.allclose(traffic.additional, [0, 1.5, 0])
    assert np.allclose(traffic.notifications_in, [8, 5.5, 0])


def test_wildcard_interest_pulls_notifications_without_an_entry_of_its_own(chain: tuple[Tree, Classes]) -> None:
    tree, classes = chain
    column = 0 * classes.permanent
    wanted = column.copy()
    wanted[2] = 1
    traffic = MODELS["identity"].traffic(
        tree, Classes(**{**vars(classes), "permanent": column, "wanted_anyway": wanted}), None
    )
    assert np.allclose(traffic.entries_for_child, [0, 0.5, 0])
    assert np.allclose(traffic.down, [0, 5, 8])
    assert np.allclose(traffic.additional, [0, 0, 0])

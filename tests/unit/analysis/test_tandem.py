"""Paths with several intermittent peers, against simulations that share nothing with the model."""

import random
from collections.abc import Callable, Iterable
from itertools import pairwise

import numpy as np
import pytest

from brokerbed.analysis.models.regression import Estimate, controlled_mean
from brokerbed.analysis.models.sample_path import Outages, Variable, serve
from brokerbed.analysis.models.sample_path import drawn as drawn_periods
from brokerbed.analysis.models.stages import Flow, Hop, Key, Network, Stage
from brokerbed.analysis.models.tandem import Delays, Path, estimate
from tests.unit.analysis.tandem_truth import Tandem, Truth, drawn, table

SHORT = ("degraded", "10/5 to 8/8", "2/1 to 1/.5")
PUBLISHED = {  # simulated truths with their 95% half-widths
    "degraded": (Tandem(2, 0.0625, 1, 1, 5, 0.0625, 0.0625, 1.5, 1.5, 0.0625), 2.6385, 0.006),
    "10/5 to 8/8": (Tandem(2, 0.0625, 10, 5, 5, 0.0625, 0.0625, 8, 8, 0.0625), 8.625, 0.053),
    "2/1 to 1/.5": (Tandem(4, 0.05, 2, 1, 5, 0.05, 0.05, 1, 0.5, 0.05), 1.489, 0.002),
    "1/3 to 2/.5": (Tandem(2, 0.0625, 1, 3, 5, 0.0625, 0.0625, 2, 0.5, 0.0625), 6.1156, 0.0018),
    ".5/.5 to 4/4": (Tandem(3, 0.0625, 0.5, 0.5, 5, 0.0625, 0.0625, 4, 4, 0.0625), 4.6922, 0.005),
    "metro 1": (Tandem(1, 0.0625, 109, 121.5, 5, 0.0625, 0.0625, 146.3, 96, 0.0625), 120.2, 0.8),
    "metro 2": (Tandem(1, 0.0625, 292.1, 78.7, 5, 0.0625, 0.0625, 155.8, 72.1, 0.0625), 44.8, 0.2),
}
CORNERS = [  # of the range, at 1/s: load, ON/OFF ratio and cycle of both centres, load of the queues between and behind
    ((0.8, 1 / 6, 10), (0.8, 1 / 6, 10), 0.3, 104.054),
    ((0.8, 6, 10), (0.8, 6, 10), 0.8, 35.660),
    ((0.8, 1, 10), (0.8, 1, 1000), 0.3, 1275.15),
    ((0.1, 6, 1000), (0.1, 6, 10), 0.1, 24.979),
    ((0.1, 1 / 6, 10), (0.1, 1 / 6, 1000), 0.1, 895.88),
    ((0.8, 6, 1), (0.1, 1 / 6, 100), 0.05, 88.947),
]
QUICK = (0, 3, 6, 7, 8, 11, 12)  # sets of the table that the model needs little time for; a campaign has all of them


def exponential(mean_s: float) -> Variable:
    return Variable("exponential", mean_s)


def chain(rate: float, stages: Iterable[Stage]) -> Network:
    named = [(("stage", str(place)), stage) for place, stage in enumerate(stages)]
    hops = [Hop(named[0][0]), *(Hop(here, before) for (before, _), (here, _) in pairwise(named))]
    return Network(tuple(named), (Flow(rate, tuple(hops)),))


def network_of(tandem: Tandem) -> Network:
    between = [Stage(exponential(tandem.stage_demand))] * tandem.stages
    return chain(tandem.rate_per_s, [
        Stage(exponential(tandem.demand_1), exponential(tandem.on_1), exponential(tandem.off_1)), *between,
        Stage(exponential(tandem.demand_2), exponential(tandem.on_2), exponential(tandem.off_2)),
        Stage(exponential(tandem.last_demand)),
    ])  # fmt: skip


def delays(network: Network, flow: int = 0) -> Delays:
    return estimate(network, (Path(flow, network.flows[flow].hops[-1].stage),))


def estimated(tandem: Tandem) -> Estimate:
    (found,) = delays(network_of(tandem)).paths
    assert found is not None
    return found


@pytest.mark.parametrize("name", PUBLISHED)
def test_table_3_and_its_like(name: str) -> None:
    tandem, mean_s, half_width_s = PUBLISHED[name]
    found = estimated(tandem)
    assert found.mean == pytest.approx(mean_s, abs=half_width_s + 2.6 * found.standard_error)
    assert found.standard_error < 0.003 * mean_s


def periods(load: float, ratio: float, cycle_s: float) -> tuple[float, float, float]:
    """The demand of a centre with this load at 1/s, its ON and its OFF period."""
    on_s = cycle_s * ratio / (1 + ratio)
    return load * on_s / cycle_s, on_s, cycle_s - on_s


@pytest.mark.parametrize(("first", "second", "between", "mean_s"), CORNERS)
def test_corners_of_the_range(
    first: tuple[float, float, float], second: tuple[float, float, float], between: float, mean_s: float
) -> None:
    """By another program, with 25 to 100 million messages; its standard errors are 0.01 to 0.12%."""
    found = estimated(Tandem(1, *periods(*first), 5, between, *periods(*second), between))
    assert found.mean == pytest.approx(mean_s, rel=0.01)


def check(truth: Truth) -> None:
    """Within 3%, and within what chance explains: four standard errors of both sides."""
    found = estimated(truth.tandem)
    assert found.mean == pytest.approx(truth.mean_s, rel=0.03)
    assert found.mean == pytest.approx(truth.mean_s, abs=4 * np.hypot(truth.standard_error_s, found.standard_error))


@pytest.mark.parametrize("number", QUICK)
def test_parameters_drawn_at_random(number: int) -> None:
    (truth,) = (each for each in table() if each.number == number)
    check(truth)


def test_table_has_the_sets_that_are_drawn_and_small_errors() -> None:
    rows = list(table())
    sets = drawn()
    for row in rows:
        tandem = sets[row.number]
        assert row.tandem.on_2 == pytest.approx(tandem.on_2, rel=1e-6)
        assert row.tandem.demand_1 == pytest.approx(tandem.demand_1, rel=1e-6)
    assert max(row.standard_error_s / row.mean_s for row in rows) < 0.005


def test_same_network_has_the_same_estimate() -> None:
    network = network_of(PUBLISHED["degraded"][0])
    estimate.cache_clear()
    first = delays(network)
    estimate.cache_clear()
    assert delays(network).paths == first.paths


# -- sample paths ---------------------------------------------------------------------------------------------


def test_serve_first_come_first_served() -> None:
    passage = serve(np.array([1.0, 2.0, 3.6, 9.0]), np.array([2.0, 0.5, 1.0, 1.0]), None)
    assert passage.departures_s == pytest.approx([3.0, 3.5, 4.6, 10.0])
    assert passage.seen().tolist() == [0, 1, 0, 0]  # the second message finds the first one


def two_on_three_off() -> Outages:
    on, off = Variable("deterministic", 2.0), Variable("deterministic", 3.0)
    return Outages(drawn_periods(on, off, np.random.default_rng(1)))


def test_service_stops_while_the_server_is_off() -> None:
    """ON from 0 to 2, OFF until 5, ON until 7, OFF until 10, and so on."""
    outages = two_on_three_off()
    passage = serve(np.array([1.0, 4.0, 7.5]), np.array([1.5, 1.0, 0.5]), outages)
    assert passage.departures_s == pytest.approx([5.5, 6.5, 10.5])
    assert passage.served_s == pytest.approx([1.5, 1.5, 0.5])


def test_server_without_service_time_delays_until_it_is_back() -> None:
    outages = two_on_three_off()
    assert serve(np.array([1.0, 2.0, 4.9, 5.0]), None, outages).departures_s == pytest.approx([1.0, 5.0, 5.0, 5.0])


@pytest.mark.parametrize(
    ("law", "squared_cv"), [("exponential", 1.0), ("deterministic", 0.0), ("uniform", 1 / 3), ("lognormal", 4.0)]
)
@pytest.mark.parametrize("group", [1, 5])
def test_sums_of_durations(law: str, squared_cv: float, group: int) -> None:
    sums = Variable(law, 2.0, 2.0).sums(200_000, group, np.random.default_rng(5))
    assert sums.mean() == pytest.approx(2.0 * group, rel=0.02)
    assert sums.var() == pytest.approx(4.0 * squared_cv * group, rel=0.2)


# -- where messages come in bursts ----------------------------------------------------------------------------


def test_queues_that_keep_a_poisson_process_are_exact() -> None:
    intermittent = Stage(exponential(0.1), exponential(1.0), exponential(1.0))
    network = chain(
        1.0,
        [
            Stage(exponential(0.1)),
            intermittent,
            Stage(exponential(0.1)),
            Stage(None, exponential(1.0), exponential(1.0)),
        ],
    )
    assert [network.is_exact(key) for key, _ in network.stages] == [True, True, False, True]


def test_service_of_constant_length_spaces_messages_out() -> None:
    """Behind a queue with the same constant service nobody waits: the first one is M/D/1, D (1 + load / 2 (1 - load))."""
    constant = Stage(Variable("deterministic", 0.5))
    (found,) = delays(chain(1.0, [constant, constant])).paths
    assert found is not None
    assert found.mean == pytest.approx(0.5 * (1 + 0.5) + 0.5, rel=1e-3)


def test_messages_that_are_rarer_than_cycles_have_formulas() -> None:
    """One message per hour, cycles of two milliseconds: there are no bursts, and nothing to simulate."""
    intermittent = Stage(exponential(0.0001), exponential(0.001), exponential(0.001))
    assert delays(chain(1 / 3600, [intermittent, Stage(exponential(0.1))])).paths == (None,)


# -- flows that share stages ----------------------------------------------------------------------------------


def by_hand(
    arrivals: Iterable[float], service: Callable[[], float], on: Callable[[], float], off: Callable[[], float]
) -> list[float]:
    """Departures from an ON/OFF queue, one message and one period after the other."""
    free, on_until, left_at = 0.0, on(), []
    for arrival in arrivals:
        free, left = max(arrival, free), service()
        while free + left > on_until:
            left -= max(0.0, on_until - free)
            free = max(free, on_until + off())
            on_until = free + on()
        free += left
        left_at.append(free)
    return left_at


def test_flows_that_share_a_queue() -> None:
    """A publisher that is OFF at times, one that is always ON, and other messages meet in one queue."""
    intermittent = Stage(exponential(0.1), exponential(2.0), Variable("uniform", 2.0))
    first: Key = ("publisher", "p")
    shared: Key = ("broker_in", "b")
    network = Network(
        ((first, intermittent), (shared, Stage(exponential(0.15)))),
        (Flow(2.0, (Hop(first), Hop(shared, first, 0.05))), Flow(1.0, (Hop(shared),)), Flow(0.5, (Hop(shared),))),
    )
    found = estimate(network, (Path(0, shared),))
    stream, count = random.Random(9), 150_000

    def poisson(rate: float) -> list[float]:
        now, times = 0.0, []
        while now < count / 2:
            now += stream.expovariate(rate)
            times.append(now)
        return times

    published = poisson(2.0)
    left = by_hand(
        published, lambda: stream.expovariate(10), lambda: stream.expovariate(0.5), lambda: stream.uniform(0, 4)
    )
    arrivals = sorted([(at + 0.05, 0) for at in left] + [(at, 1) for at in (*poisson(1.0), *poisson(0.5))])
    free, spent, of_flow = 0.0, [], []
    for at, flow in arrivals:
        free = max(at, free) + stream.expovariate(1 / 0.15)
        spent.append(free - at)
        if flow == 0:
            of_flow.append(free)
    of_stage, (of_path,), (times,) = found.stages[shared], found.paths, found.times
    assert of_stage is not None
    assert of_path is not None
    assert times is not None
    assert of_stage.mean == pytest.approx(np.mean(spent), rel=0.03)
    expected = np.mean(of_flow) - np.mean(published) - 0.05  # without the constant delay
    assert of_path.mean == pytest.approx(expected, rel=0.03)
    assert times.quantile_s(0.5) == pytest.approx(np.median(np.array(of_flow) - np.array(published)), rel=0.04)


def test_flows_in_opposite_directions_have_an_order() -> None:
    keys: list[Key] = [("broker_in", "a"), ("broker_in", "b")]
    there, back = (Flow(1.0, (Hop(one), Hop(other, one))) for one, other in (keys, keys[::-1]))
    network = Network(tuple((key, Stage(exponential(0.1))) for key in keys), (there, back))
    assert sorted(network.order) == sorted(keys)


# -- control variates -----------------------------------------------------------------------------------------


def test_control_removes_what_it_explains() -> None:
    draw = np.random.default_rng(2)
    control = draw.normal(size=200)
    results = 5 + 3 * control + draw.normal(size=200) * 0.01
    found = controlled_mean(results, [control], np.zeros(0), Estimate(np.nan, np.nan))
    assert found.mean == pytest.approx(5, abs=0.005)
    assert found.standard_error == pytest.approx(0.01 / 200**0.5, rel=0.2)


def test_error_of_a_mean_from_elsewhere_is_inherited() -> None:
    draw = np.random.default_rng(2)
    other = draw.normal(size=200) + 7
    found = controlled_mean(2 * other, [], other, Estimate(6.5, 0.25))
    assert found.mean == pytest.approx(13)
    assert found.standard_error == pytest.approx(0.5)

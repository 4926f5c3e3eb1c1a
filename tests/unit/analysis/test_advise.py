"""Which algorithm is cheapest, and where that changes: beside formulas of the literature that are written out here."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from brokerbed import shipped
from brokerbed.analysis.advise import advise
from brokerbed.analysis.predict import predict
from brokerbed.analysis.totals import Totals, _can_hold_back
from brokerbed.scenario import ALGORITHMS, Scenario, load, load_at
from brokerbed.scenario.topology import Tree

EXACT = 1e-6  # what is promised, relatively
CLOSED = 1e-9  # predictions of many scenarios at once are those of each


def changes(name: str, over: str) -> list[tuple[float, str | None, str | None]]:
    along = advise(shipped.find(name), over=over).along
    assert along is not None
    return [(it.at, it.before, it.after) for it in along.crossings]


def root(function: Callable[[float], float], low: float, high: float) -> float:
    """Of a function that rises or falls, by halving."""
    is_rising = function(low) < 0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if (function(middle) < 0) == is_rising else (low, middle)
    return low


def below(tree: Tree) -> list[list[int]]:
    """For each link, by its child: the brokers below it."""
    parents = tree.parents.tolist()

    def is_below(broker: int, child: int) -> bool:
        while broker not in (child, -1):
            broker = parents[broker]
        return broker == child

    return [[broker for broker in range(len(tree)) if is_below(broker, child)] for child in range(1, len(tree))]


@cache
def network(name: str) -> tuple[Tree, list[list[int]]]:
    """The tree of a shipped scenario, and what is below each of its links."""
    tree = load_at(shipped.find(name), [{}])[0].tree
    return tree, below(tree)


# -- van Vliet's radio network (part 4: identity-based routing against flooding) ---------------------------------------

LEVELS = {"c": 16, "p": 4, "s": 8}


def radio_per_min(off_min: float) -> tuple[float, float]:
    """Links that notifications cross, and toggles per minute; one minute ON, the battalion and the publisher nobody."""
    tree, links = network("vliet2007/radio")
    sizes = [0 if name in ("bn", "s1") else LEVELS[name[0]] for name in tree.names]
    crossed = toggles = 0.0
    for brokers in links:
        silent = math.prod((off_min / (1 + off_min)) ** sizes[it] for it in brokers)
        crossed += 1 - silent
        toggles += sum(2 * sizes[it] / off_min for it in brokers) * silent
    return crossed, toggles


def test_radio_crosses_where_the_formula_says_along_the_off_time() -> None:
    def saved(off_min: float) -> float:
        crossed, toggles = radio_per_min(off_min)
        return 6 * 124 - ((6 + 6) * crossed + toggles)  # 6 notifications and 6 refreshes per minute

    ((at, before, after),) = changes("vliet2007/radio", "subscriptions.population.off.mean=250s..9000s")
    assert (before, after) == ("flooding", "identity")
    assert at == pytest.approx(60 * root(saved, 1, 200), rel=EXACT)
    assert 920 * 60 / (60 + at) == pytest.approx(44.8, abs=0.05)


@pytest.mark.parametrize("off_s", [500, 1172, 5000])
def test_radio_crosses_where_the_formula_says_along_the_rate(tmp_path: Path, off_s: int) -> None:
    """rate * x + x / r + toggles = rate * links."""
    text = shipped.find("vliet2007/radio").read_text(encoding="utf-8").partition("sweep:")[0]
    file = tmp_path / "radio.yaml"
    file.write_text(text.replace("off: {mean: 1200s}", f"off: {{mean: {off_s}s}}"))
    along = advise(file, over="publications.rate=0.1/min..100/min").along
    assert along is not None
    crossed, toggles = radio_per_min(off_s / 60)
    (crossing,) = along.crossings
    assert crossing.at * 60 == pytest.approx((6 * crossed + toggles) / (124 - crossed), rel=EXACT)


# -- eight algorithms on one tree (part 6) ------------------------------------------------------------------------------


def linear(narrow_active: float, wide_active: float, off_share: float = 0.5) -> Iterator[tuple[str, float, float]]:
    """Of algorithms/all: notifications per publication, and control messages per second, by the formulas of part 6."""
    tree, links = network("algorithms/all")
    leaves = set(range(len(tree))) - set(tree.parents.tolist())
    publishing = {tree.index[f"b{number}"] for number in (0, 2, 4, 7, 9, 14, 18, 22, 26, 30)}
    narrow, wide = narrow_active / 60 / len(leaves), wide_active / 6 / len(leaves)
    groups, size, k, lifetime_s = 6, 10, 3, 5.0
    totals = {name: [0.0, 0.0] for name in ("flooding", "identity", "covering", "merging")}
    for brokers in links:
        count, share_below = len(leaves & set(brokers)), len(publishing & set(brokers)) / len(publishing)
        absent, absent_wide = math.exp(-narrow * count), math.exp(-wide * count)
        c, c_wide = narrow * count / lifetime_s * absent, wide * count / lifetime_s * absent_wide
        present = 1 - absent
        n_all = [math.comb(size, n) * present**n * absent ** (size - n) for n in range(size + 1)]
        n_others = [math.comb(size - 1, n) * present**n * absent ** (size - 1 - n) for n in range(size)]
        up, down = share_below, 1 - share_below
        totals["flooding"][0] += 1
        for name in ("identity", "covering"):
            totals[name][0] += up + down * (1 - absent * absent_wide)
        totals["merging"][0] += up + down * (1 - absent * absent_wide * sum(n_others[:k]))
        totals["identity"][1] += groups * (size * 2 * c + 2 * c_wide)
        totals["covering"][1] += groups * (size * (2 * c * absent_wide + c_wide * present) + 2 * c_wide)
        few, mean = sum(n_all[:k]), sum(n * n_all[n] for n in range(k))
        of_one = c * absent_wide * ((k + 1) * n_others[k - 1] + 2 * sum(n_others[: k - 1]))
        totals["merging"][1] += groups * (2 * c_wide * few + c_wide * mean + size * of_one)
    for name, (notifications, control) in totals.items():
        yield name, (1 - off_share) * notifications, control


def test_eight_algorithms_cross_where_the_formulas_say_along_the_rate() -> None:
    costs = {name: (per_publication, control) for name, per_publication, control in linear(150, 10)}

    def crossing(one: str, other: str) -> float:
        return (costs[other][1] - costs[one][1]) / (costs[one][0] - costs[other][0])

    found = changes("algorithms/all", "publications.rate=1/s..600/s")
    assert [it[1:] for it in found] == [("flooding", "merging"), ("merging", "covering")]
    assert found[0][0] == pytest.approx(crossing("flooding", "merging"), rel=EXACT)
    assert found[1][0] == pytest.approx(crossing("merging", "covering"), rel=EXACT)


def test_eight_algorithms_cross_where_the_formulas_say_along_the_number_of_subscriptions() -> None:
    def more(active: float, one: str, other: str) -> float:
        costs = {name: 60 * per_publication + control for name, per_publication, control in linear(active, 10)}
        return costs[one] - costs[other]

    found = changes("algorithms/all", "subscriptions.mean_active=1..100000")
    assert [it[1:] for it in found] == [("covering", "identity"), ("identity", "flooding")]
    for at, before, after in found:
        expected = root(lambda active: more(active, str(before), str(after)), at / 1.3, at * 1.3)  # noqa: B023
        assert at == pytest.approx(expected, rel=EXACT)


# -- JEDI (part 3) ------------------------------------------------------------------------------------------------------


def jedi(coefficient: float, redraw_s: float, types: int) -> dict[str, tuple[float, float]]:
    """Per source and second: messages for each event, and control messages, on 21 dispatchers in three levels."""
    tree, links = network("bricconi2000/fig3_measured")
    distance = [[len(tree.path(name, other)) - 1 for other in tree.names] for name in tree.names]
    rings = [[{it for it, near in enumerate(row) if near == far} for far in range(1, max(row) + 1)] for row in distance]
    events, control = {"flooding": 0.0, "identity": 0.0, "peer-advertisement": 0.0}, {"identity": 0.0, "pa": 0.0}
    for brokers in links:
        inside, outside = {*brokers}, {*range(len(tree))} - {*brokers}
        for source in range(len(tree)):

            def wanted(side: set[int]) -> float:
                near = enumerate(rings[source], 1)  # noqa: B023
                return 1 - math.prod(1 - len(ring & side) / len(ring) * coefficient**far for far, ring in near)

            q_below, q_far = wanted(inside), wanted(outside if source in inside else inside)
            events["flooding"] += 1
            events["identity"] += 1 if source in inside else q_below
            events["peer-advertisement"] += q_far
            control["identity"] += 2 * types * q_below * (1 - q_below) / redraw_s
            control["pa"] += 2 * types * q_far * (1 - q_far) / redraw_s
    return {
        "flooding": (events["flooding"], 0.0),
        "identity": (events["identity"], control["identity"]),
        "peer-advertisement": (events["peer-advertisement"], control["pa"]),
    }


def test_dispatchers_cross_where_the_formulas_say() -> None:
    costs = jedi(0.5, 5.0, 10)
    found = changes("bricconi2000/fig3_measured", "spreading.rate=0.1/s..100/s")
    assert [it[1:] for it in found] == [("flooding", "identity"), ("identity", "peer-advertisement")]
    for at, before, after in found:
        (events, control), (fewer_events, more_control) = costs[str(before)], costs[str(after)]
        assert at == pytest.approx((more_control - control) / (events - fewer_events), rel=EXACT)
    for at, before, after in changes("bricconi2000/fig3_measured", "spreading.coefficient=0.1..0.95"):

        def more(coefficient: float) -> float:
            costs = {name: sum(each) for name, each in jedi(coefficient, 5.0, 10).items()}
            return costs[str(before)] - costs[str(after)]  # noqa: B023

        assert more(at * (1 - EXACT)) * more(at * (1 + EXACT)) < 0


# -- many scenarios at once -----------------------------------------------------------------------------------------------


SHIPPED = (
    "algorithms/all", "bouloukakis2017/fig11", "bricconi2000/fig3_measured", "migliavacca2007/star", "muehl2009/points",
    "vliet2007/advertisements", "vliet2007/cafes", "vliet2007/covering", "vliet2007/radio_refresh", "vliet2007/roaming",
    "vliet2007/static", "vliet2007/transient",
)  # fmt: skip


@pytest.mark.parametrize("name", SHIPPED)
def test_many_scenarios_at_once_have_the_values_of_each(name: str) -> None:
    """For every algorithm: a point of a shipped scenario beside twice as many messages and half as many."""
    base = load(shipped.find(name)).points[0]
    alike = [base, changed(base, 2.0), changed(base, 0.5)]
    for by in ("rate.total", "table.remote_entries"):
        assert not any(map(_can_hold_back, alike))
        every = Totals(alike, by)
        for routing, algorithm in ALGORITHMS.built_in.items():
            if base.placement is not None and not algorithm.lets_links_move:
                continue
            parameters = algorithm.checked({})
            expected = [value(replace(it, routing=routing, routing_parameters=parameters), by) for it in alike]
            found = every.of(routing, [parameters] * len(alike))
            assert found.tolist() == pytest.approx(expected, rel=CLOSED, abs=1e-12)


def changed(scenario: Scenario, factor: float) -> Scenario:
    given = scenario.publications
    rates = {cell: factor * rate for cell, rate in given.overrides_per_s.items()}
    own = replace(given, spread_per_s=factor * given.spread_per_s, overrides_per_s=rates)
    refresh_ns = None if scenario.refresh_ns is None else round(scenario.refresh_ns * factor)
    return replace(scenario, publications=own, refresh_ns=refresh_ns)


def value(scenario: Scenario, by: str) -> float:
    rows = predict(replace(scenario, model="algorithm1"), detail=False).rows
    found = next((row.predicted for row in rows if row.metric == by and not row.labels), None)
    return math.inf if found is None else found

"""Links that moved, from the few rows of the log that tell of them, and predictions for the trees that they led to."""

from dataclasses import replace
from pathlib import Path

import pytest

from brokerbed.analysis.cost_over_time import Stretch, stretches
from brokerbed.analysis.faults import FOREVER_NS, Mark
from brokerbed.analysis.link_moves import Handover, Move, handovers_of, links_ever, moves_of, parents_over_time
from brokerbed.analysis.moved_runs import tree_at_end, trees_of
from brokerbed.analysis.placement import note_of, placement_of, predict_runs
from brokerbed.analysis.predict import predict
from brokerbed.analysis.runs import Run
from brokerbed.scenario import Scenario
from brokerbed.scenario.moved import parents_of, with_parents
from tests.conftest import FromText

S = 1_000_000_000
FIRST = {"b0": None, "b1": "b0", "b2": "b0", "b3": "b1"}
TEXT = """
scenario: 1
name: x
clock: {{warmup: 100s, measure: 400s}}
topology: {{tree: explicit, parents: {{{parents}}}}}
routing: {routing}
{placement}
classes: 3
subscriptions:
  mean_active: 4
  where: [b3, b2]
  lifetime: {{mean: 7s}}
  at: [{{broker: b1, class: 2, arrival_rate: 0.2/s}}, {{broker: b3, class: 0, population: {{size: 3, on: {{mean: 2s}}, off: {{mean: 5s}}}}}}]
publications: {{rate: 5/s, where: [b0, b3], at: [{{broker: b2, class: 1, rate: 2/s}}]}}
service: {{broker_in: {{mean: 1ms}}}}
publishers: [{{id: p, broker: b3, topic: t, rate: 1/s}}]
subscribers: [{{id: s, broker: b2, topic: t}}]
costs: {{links: {{b2-b3: 5}}, brokers: {{b1: 3}}}}
"""


def text(parents: dict[str, str | None], routing: str = "peer", placement: str = "placement: {period: 10s}") -> str:
    listed = ", ".join(f"{child}: {parent or 'null'}" for child, parent in parents.items())
    return TEXT.format(parents=listed, routing=routing, placement=placement)


def scenario_of(from_text: FromText, parents: dict[str, str | None]) -> Scenario:
    (scenario,) = from_text(text(parents)).points
    return scenario


def run_of(scenario: Scenario, *moves: Move, parents: dict[str, str | None] | None = None, seed: int = 1) -> Run:
    moved = with_parents(replace(scenario, seed=seed), parents or parents_of(scenario.tree))
    return Run(0, 0, Path(), moved, "virtual", 400.0, 1.0, (100 * S, 500 * S), (), (), moves, scenario)


def mark(broker: str, event: str, link: str, other: str, position: int, time_s: int = 0, run: int = 0) -> Mark:
    return Mark(run, broker, event, time_s * S, position, link, None, other)


def test_moves_in_order() -> None:
    marks = [
        mark("b3", "link_moved", "b3>b2", "b0", 90, 7),
        mark("b1", "link_moved", "b1>b2", "b0", 50, 6),
        mark("b3", "link_moved", "b3>b0", "b1", 20, 5),
        mark("b3", "link_leaves", "b3>b0", "b1", 10, 4),
        Mark(0, "b3", "started", 0, 0, None, None),
    ]
    moves = moves_of(marks)
    assert moves == [Move(5 * S, "b3", "b1", "b0"), Move(6 * S, "b1", "b0", "b2"), Move(7 * S, "b3", "b0", "b2")]


def test_trees_over_time(from_text: FromText) -> None:
    begin = scenario_of(from_text, FIRST)
    moves = (Move(200 * S, "b3", "b1", "b0"), Move(300 * S, "b1", "b0", "b3"), Move(600 * S, "b2", "b0", "b3"))
    measured = {"b0": None, "b1": "b3", "b2": "b0", "b3": "b0"}
    assert parents_over_time(begin.tree, moves) == [
        FIRST, FIRST | {"b3": "b0"}, measured, {"b0": None, "b1": "b3", "b2": "b3", "b3": "b0"},
    ]  # fmt: skip
    assert links_ever(begin.tree, moves) == [
        ("b1", "b0"), ("b2", "b0"), ("b3", "b1"), ("b3", "b0"), ("b1", "b3"), ("b2", "b3"),
    ]  # fmt: skip
    run = run_of(begin, *moves, parents=measured)
    assert [parents_of(tree) for tree in trees_of(run)] == parents_over_time(begin.tree, moves)
    assert parents_of(tree_at_end(run)) == {"b0": None, "b1": "b3", "b2": "b3", "b3": "b0"}
    assert tree_at_end(run_of(begin)) is begin.tree


def test_handovers() -> None:
    """b3 leaves b1 for b0 and is adopted there; a second move is still going on at the end, and one of another run."""
    marks = [
        mark("b3", "link_leaves", "b3>b0", "b1", 10),
        mark("b3", "link_moved", "b3>b0", "b1", 20),
        mark("b0", "link_adopted", "b0>b3", "b1", 11),
        mark("b0", "link_switched", "b0>b3", "b1", 14),
        mark("b3", "link_leaves", "b3>b2", "b0", 40),
        mark("b0", "link_adopted", "b0>b3", "b1", 3, run=1),
    ]
    assert sorted(handovers_of(marks)) == [
        Handover(0, "b0", "b0>b3", "b0>b1", 11, 14, False),
        Handover(0, "b3", "b3>b0", "b3>b1", 10, 20, True),
        Handover(0, "b3", "b3>b2", "b3>b0", 40, FOREVER_NS, True),
        Handover(1, "b0", "b0>b3", "b0>b1", 3, FOREVER_NS, False),
    ]


@pytest.mark.parametrize("parents", [
    {"b0": None, "b1": "b3", "b2": "b0", "b3": "b0"},
    {"b0": None, "b1": "b2", "b2": "b3", "b3": "b0"},
    {"b0": None, "b1": "b0", "b2": "b1", "b3": "b2"},
])  # fmt: skip
def test_a_moved_scenario_is_the_one_written_with_that_tree(
    from_text: FromText, parents: dict[str, str | None]
) -> None:
    moved = with_parents(scenario_of(from_text, FIRST), parents)
    written = scenario_of(from_text, parents)
    values = {(row.metric, *row.labels.values()): row.predicted for row in predict(moved).rows}
    expected = {(row.metric, *row.labels.values()): row.predicted for row in predict(written).rows}
    assert values == pytest.approx(expected)
    assert values != pytest.approx(
        {(row.metric, *row.labels.values()): row.predicted for row in predict(scenario_of(from_text, FIRST)).rows}
    )


def test_a_prediction_before_the_run_is_for_the_first_tree_and_says_so(from_text: FromText) -> None:
    (still,) = from_text(text(FIRST, placement="")).points
    with_moves = predict(scenario_of(from_text, FIRST))
    assert [row.predicted for row in with_moves.rows] == [row.predicted for row in predict(still).rows]
    (said,) = [note for note in with_moves.notes if note not in predict(still).notes]
    assert said.startswith("links move during a run, because of placement, so the final tree is not known before; ")
    assert said.endswith("the predictions are for the tree at the beginning")


def test_costs_of_the_first_and_the_last_tree(from_text: FromText) -> None:
    """By hand, with one peer's messages: 2 links and 3 brokers first, 1 link of cost 5 and 2 brokers then."""
    (begin,) = from_text(
        "scenario: 1\nname: x\nclock: {measure: 1s}\nrouting: peer\nplacement: {period: 1s, alpha: 2, beta: 0.5}\n"
        "topology: {tree: star, brokers: 3}\ncosts: {links: {b1-b2: 5}, brokers: {b0: 3}}\n"
        "publishers: [{id: p, broker: b1, topic: t, rate: 2/s}]\nsubscribers: [{id: s, broker: b2, topic: t}]\n"
    ).points
    found = placement_of(run_of(begin, Move(200 * S, "b2", "b0", "b1")))
    assert found is not None
    assert found.as_json() == {
        "initial": {"b1": "b0", "b2": "b0"}, "final": {"b1": "b0", "b2": "b1"}, "moves": 1,
        "cost_initial": pytest.approx(2 * (2 * (1 + 1) + 0.5 * (1 + 3 + 1))),
        "cost_final": pytest.approx(2 * (2 * 5 + 0.5 * (1 + 1))), "costs": [],
    }  # fmt: skip


PAIR = """
scenario: 1
name: x
clock: {measure: 100s}
routing: peer
placement: {period: 1s}
topology: {tree: star, brokers: 3}
publications: {at: [{broker: b1, class: 0, rate: 2/s}]PROFILE}
subscribers: [{id: s, broker: b2, topic: class/0000}]
"""


def test_costs_over_time(from_text: FromText) -> None:
    """In ten parts of 10 s. Two messages per second cost 5 each first, and 3 each after b2 has moved at 34 s. There are no
    messages from 70 s on; the part with the move is left out."""
    (begin,) = from_text(PAIR.replace("PROFILE", "")).points
    run = run_of(begin, Move(34 * S, "b2", "b0", "b1"))
    by_bin = {0: 90.0, 1: 110.0, 2: 106.0, 3: 80.0, 4: 60.0, 5: 66.0, 6: 54.0}
    found = stretches(run, by_bin, 10 * S, 10)
    assert [(it.begin_s, it.end_s) for it in found] == [(0, 30), (40, 100)]
    assert [it.measured for it in found] == pytest.approx([10.2, 3.0])
    assert [it.predicted for it in found] == pytest.approx([10, 6])
    (whole,) = stretches(run_of(begin), by_bin, 10 * S, 2)
    assert whole == Stretch(0, 20, 10, whole.predicted)


def test_costs_over_time_of_rates_that_vary(from_text: FromText) -> None:
    """The rate is three times as high in the last quarter. Parts of 5 s in which two phases of 8.33 s meet are left out."""
    profile = ", profile: {steps: [[0s, 1], [75s, 3]], period: 100s}"
    (begin,) = from_text(PAIR.replace("PROFILE", profile)).points
    run = run_of(begin, Move(50 * S, "b2", "b0", "b1"))
    found = stretches(run, {}, 5 * S, 20)
    assert [(it.begin_s, it.end_s) for it in found] == [(0, 50), (50, 75), (75, 100)]
    assert [it.predicted for it in found] == pytest.approx([10, 6, 18])


def test_notes(from_text: FromText) -> None:
    begin = scenario_of(from_text, FIRST)
    early, late = Move(50 * S, "b3", "b1", "b0"), Move(450 * S, "b3", "b0", "b2")
    compared = "is compared, with the prediction for the final tree"
    assert note_of(run_of(begin), 9.0, False) is None
    assert (
        note_of(run_of(begin, early), 9.0, False) == f"links moved once, at 50 s; all of the measured time {compared}"
    )
    twice = run_of(begin, early, Move(300 * S, "b3", "b0", "b2"))
    assert note_of(twice, 9.0, False) == (
        f"links moved 2 times, the last time at 300 s; only the time from then on {compared}"
    )
    assert note_of(twice, 0.0, False) == (
        "links moved 2 times, the last time at 300 s; nothing is compared, as too little time without moves was measured"
    )
    advice = "to compare it with the prediction for one tree, run it longer or with a larger placement.gain"
    assert note_of(run_of(begin, early, late), 9.0, True) == (
        f"the tree with seed 1 was still changing at the end, as the last of 2 moves came at 450 s; {advice}"
    )
    assert "came after the measured time" in str(note_of(run_of(begin, Move(501 * S, "b3", "b0", "b2")), 9.0, False))


def test_runs_that_ended_with_different_trees_are_compared_with_the_mean(from_text: FromText) -> None:
    """Two thirds of the compared time are of the first tree, so a third of what crosses b3>b0 is due."""
    begin = scenario_of(from_text, FIRST)
    other = {**FIRST, "b3": "b0"}
    runs = [run_of(begin), run_of(begin, Move(200 * S, "b3", "b1", "b0"), parents=other, seed=2)]
    mean = predict_runs(runs, [400.0, 200.0])
    values = {(row.metric, *row.labels.values()): row.predicted for row in mean.rows}
    one, two = (
        {(row.metric, *row.labels.values()): row.predicted for row in predict(scenario_of(from_text, parents)).rows}
        for parents in (FIRST, other)
    )
    for key in (
        ("rate.notifications",),
        ("cost.routing",),
        ("table.remote_entries", "b1"),
        ("delay.end_to_end", "p", "s"),
    ):
        first, second = one[key], two[key]
        assert first is not None
        assert second is not None
        assert values[key] == pytest.approx((2 * first + second) / 3)
    on_new, on_old = two["rate.notifications", "b3>b0"], one["rate.notifications", "b3>b1"]
    assert on_new is not None
    assert on_old is not None
    assert values["rate.notifications", "b3>b0"] == pytest.approx(on_new / 3)
    assert values["rate.notifications", "b3>b1"] == pytest.approx(2 * on_old / 3)
    assert any("different trees" in note for note in mean.notes)
    assert not any("different trees" in note for note in predict_runs(runs[:1], [400.0]).notes)

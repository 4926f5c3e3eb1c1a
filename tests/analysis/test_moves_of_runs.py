"""Runs in which links move: what is measured after the last move agrees with the models of the final tree, and every
invariant holds over all of the run, also while links move, are slow, and are hit by faults."""

import json
import shutil
from itertools import combinations
from pathlib import Path
from statistics import fmean
from typing import Any

import pyarrow.parquet as pq
import pytest

from brokerbed.analysis.report.scales import number
from brokerbed.shipped import shipped
from tests.analysis.commands import Commands
from tests.analysis.moving import moving_run
from tests.report.wellformed import read

HEAD = """
scenario: 1
name: moving
seed: 5
topology: {tree: regular, arity: 2, depth: 3}
routing: peer
"""
STEADY = """
clock: {warmup: 20s, measure: 600s}
placement: {period: 1h, alpha: 2, beta: 0.5}
costs: {links: {b3-b0: 3}, brokers: {b2: 4}}
classes: 12
subscriptions: {mean_active: 30, lifetime: {mean: 1s}}
publications: {rate: 40/s}
publishers:
  - {id: p, broker: b3, topic: t/x, rate: 10/s, service: {mean: 20ms}}
  - {id: q, broker: b4, topic: u, rate: 2/s, qos: 2}
subscribers:
  - {id: s, broker: b6, topic: 't/#', session_service: {mean: 20ms}, service: {mean: 20ms}}
  - {id: r, broker: b5, topic: u, qos: 2}
  - {id: z, broker: b3, topic: u, qos: 0}
tolerance: 5%
"""
BUSY = """
clock: {warmup: 5s, measure: 40s}
placement: {period: 1h}
classes: 6
subscriptions: {mean_active: 20, lifetime: {mean: 2s}, qos: 1}
publications: {rate: 100/s, qos: 1}
service: {broker_in: {mean: 2ms}, link: {mean: 3ms}}
publishers:
  - {id: p, broker: b3, topic: t/x, rate: 10/s, on: {mean: 5s}, off: {mean: 2s}}
  - {id: q, broker: b4, topic: u, rate: 10/s, qos: 2}
subscribers:
  - {id: s, broker: b6, topic: 't/#', on: {mean: 3s}, off: {mean: 1s}}
  - {id: r, broker: b5, topic: u, qos: 2}
  - {id: z, broker: b3, topic: u, qos: 0}
faults:
  - {at: 10.05s, crash: b1, for: 1s}
  - {at: 13.1s, crash: b3, for: 1s}
  - {at: 16.2s, cut: [b4, b1], for: 1s}
  - {at: 19.08s, crash: b2, for: 1s}
"""
DELAYS = "links:\n" + "".join(
    f"  - {{between: [{one}, {other}], delay: {{mean: 30ms, law: deterministic}}}}\n"
    for one, other in combinations([f"b{number}" for number in range(7)], 2)
)
STEPS = (("b3", "b0"), ("b1", "b3"), ("b4", "b3"), ("b3", "b2"), ("b5", "b0"), ("b6", "b3"))  # b1 was above b3 and b4
FIRST = {"b1": "b0", "b2": "b0", "b3": "b1", "b4": "b1", "b5": "b2", "b6": "b2"}
LAST = {"b1": "b3", "b2": "b0", "b3": "b2", "b4": "b3", "b5": "b0", "b6": "b3"}
CUT_S = "only the time from then on is compared, with the prediction for the final tree"


def test_after_the_last_move_all_is_as_predicted_for_the_final_tree(command: Commands, tmp_path: Path) -> None:
    moves = [(40 + 16 * place, child, parent) for place, (child, parent) in enumerate(STEPS)]
    place = moving_run(tmp_path, HEAD + STEADY, moves)
    said = command("analyse", place, "--json")
    told = said.json
    assert {it["metric"]: it["verdict"] for it in told["metrics"] if not it["labels"]} == dict.fromkeys(
        ("table.remote_entries", "table.local_entries", "rate.notifications", "rate.notifications.additional",
         "rate.control", "rate.total", "cost.routing"), "agrees",
    )  # fmt: skip
    assert {it["verdict"] for it in told["metrics"] if it["metric"] in ("delay.end_to_end", "delivery.ratio")} == {
        "agrees"
    }
    assert said.code == 0
    links = {it["labels"]["link"] for it in told["metrics"] if it["metric"] == "rate.notifications" and it["labels"]}
    assert links == {way for child, parent in LAST.items() for way in (f"{child}>{parent}", f"{parent}>{child}")}
    assert all(it["verdict"] != "differs" for it in told["metrics"] if it["metric"] == "rate.received")
    assert 499 < told["compared_seconds"] < 500
    assert told["notes"] == [f"links moved 6 times, the last time at 120 s; {CUT_S}"]
    assert (told["placement"]["initial"], told["placement"]["final"], told["placement"]["moves"]) == (FIRST, LAST, 6)
    (cost,) = (it for it in told["metrics"] if it["metric"] == "cost.routing")
    assert told["placement"]["cost_final"] == cost["predicted"] != told["placement"]["cost_initial"]
    _check_report(place, told, cost["measured"])
    summary = json.loads((place / "analysis" / "summary.json").read_text())
    assert summary["placement"] == told["placement"]


def _check_report(place: Path, told: dict[str, Any], measured_cost: float) -> None:
    """Both trees, and the cost over time: before the first move it is what the models say of the first tree, and after
    the last one what is measured. There are 128 parts of 620 s."""
    series = pq.read_table(place / "analysis" / "series.parquet").to_pylist()
    costs = [(it["x"], it["y"]) for it in series if it["kind"] == "rate.cost"]
    assert len(costs) == 128
    assert fmean(y for x, y in costs if x > 123) == pytest.approx(measured_cost, rel=0.01)
    assert fmean(y for x, y in costs if x < 37) == pytest.approx(told["placement"]["cost_initial"], rel=0.1)
    moves = {it["name"]: it["x"] for it in series if it["kind"] == "move"}
    assert list(moves) == [
        "b3: b1 to b0",
        "b1: b0 to b3",
        "b4: b1 to b3",
        "b3: b0 to b2",
        "b5: b2 to b0",
        "b6: b2 to b3",
    ]
    assert list(moves.values()) == pytest.approx([40 + 16 * step for step in range(6)], abs=0.01)
    html = (place / "report.html").read_text(encoding="utf-8")
    text = "".join(read(html).text)
    initial, final = (told["placement"][f"cost_{when}"] for when in ("initial", "final"))
    assert f"The tree at the beginning; by the models, its traffic costs {number(initial)} per second" in text
    assert (
        f"7 brokers, peer routing, after 6 moves; by the models, its traffic costs {number(final)} per second" in text
    )
    assert "b3: b1 to b0, 40 s" in text
    for child, parent in (*FIRST.items(), *LAST.items()):
        assert f"{child} – {parent}" in text
    assert html.count('class="move"') % 6 == 0


def test_hot_pair_that_changes_at_half_time(command: Commands, tmp_path: Path) -> None:
    """The brokers move links by themselves in each half, and what is measured before, between and after the moves is
    what the scenario says, also if nothing is compared."""
    described = shipped()["migliavacca2007/hot_pair"].read_text(encoding="utf-8")
    place = moving_run(tmp_path, described, [])
    told = command("analyse", place, "--json", "--allow-inconclusive").json
    assert told["placement"]["moves"] == 2
    costs = told["placement"]["costs"]
    assert [it["predicted"] for it in costs] == pytest.approx([390, 290, 116, 100])
    assert [it["measured"] for it in costs] == pytest.approx([390, 290, 116, 100], rel=0.05)
    begins, ends = zip(*(it["seconds"] for it in costs), strict=True)
    assert (begins[0], ends[1], begins[2], ends[3]) == pytest.approx((0, 600, 600, 1200), abs=10)
    assert 50 < ends[0] < begins[1] < 180  # parts of 9.4 s, without those in which something changed
    assert 660 < ends[2] < begins[3] < 800
    assert all(it["verdict"] == "inconclusive" for it in told["metrics"] if not it["labels"])
    assert all(it["holds"] for it in told["invariants"])
    text = "".join(read((place / "report.html").read_text(encoding="utf-8")).text)
    assert "Cost of routing per second, from one move to the next" in text


def test_seeds_that_ended_with_different_trees_are_pooled(command: Commands, tmp_path: Path) -> None:
    """290 per second in the tree that the first run has for 320 s, and 390 in the star that the second has for 400 s.

    The sources are those of the hot pair in its first half. Both runs are put into one directory, as --seeds 2 does.
    """
    described = shipped()["migliavacca2007/hot_pair_measured"].read_text(encoding="utf-8").partition("sweep:")[0]
    described = described.replace("measure: 3000s", "measure: 400s").replace("period: 60s", "period: 1h")
    moved = moving_run(tmp_path / "a", described, [(90, "b1", "b2")])
    still = moving_run(tmp_path / "b", described.replace("routing: peer", "routing: peer\nseed: 2"), [])
    together = tmp_path / "both"
    together.mkdir()
    shutil.copy(moved / "scenario.yaml", together)
    for seed, place in enumerate((moved, still), 1):
        shutil.copytree(place, together / "seeds" / str(seed))
    told = command("analyse", together, "--json").json
    (cost,) = (it for it in told["metrics"] if it["metric"] == "cost.routing")
    assert cost["predicted"] == pytest.approx((290 * 320 + 390 * 400) / 720, rel=1e-4)
    assert cost["measured"] == pytest.approx(cost["predicted"], rel=0.02)
    assert [it["moves"] for it in told["placements"]] == [1, 0]
    assert told["placement"] == told["placements"][0]
    assert told["notes"][0].startswith("links moved once with seed 1, at 90 s; ")
    assert told["notes"][1].startswith("the runs ended with different trees")
    assert all(it["holds"] for it in told["invariants"])


def test_invariants_hold_while_links_move_and_faults_strike(command: Commands, tmp_path: Path) -> None:
    moves = [(10 + 3 * place, child, parent) for place, (child, parent) in enumerate(STEPS)]
    place = moving_run(tmp_path, HEAD + BUSY + DELAYS, moves)
    told = command("analyse", place, "--json").json
    assert [it for it in told["invariants"] if not it["holds"]] == []
    checked = {it["name"]: it["checked"] for it in told["invariants"]}
    assert checked["faults_took_effect"] == 4
    assert checked["tables_right_at_end"] > 0
    assert checked["every_message_accounted_for"] > 20_000
    assert told["placement"]["final"] == LAST

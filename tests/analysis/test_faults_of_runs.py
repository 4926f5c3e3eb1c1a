"""What faults take out of the comparison: on a run that is struck, beside the same run that is not; faults by hand."""

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from brokerbed.analysis.jobs.facts import Facts
from brokerbed.analysis.jobs.frames import Frames
from brokerbed.analysis.jobs.judge import judge
from brokerbed.analysis.jobs.measure import cells, measure
from brokerbed.analysis.runs import find
from brokerbed.orchestrator.faults import Faults
from brokerbed.orchestrator.simulator import simulation
from tests.analysis.frames import S
from tests.analysis.real import simulate

QUEUES = """
scenario: 1
name: queues
seed: 3
clock: {warmup: 10s, measure: 200s}
topology: {tree: star, brokers: 2}
publishers:
  - {id: p, broker: b1, topic: t, rate: 5/s, qos: 1}
  - {id: v, broker: b1, topic: u, rate: 1/s, qos: 1, on: {mean: 20s}, off: {mean: 5s}, service: {mean: 10ms}}
subscribers:
  - {id: s, broker: b0, topic: t, qos: 1, session_service: {mean: 140ms}}
  - {id: w, broker: b0, topic: u, qos: 1, on: {mean: 5s}, off: {mean: 10s}}
copies: 2
"""
CUT = "faults: [{at: 60s, cut: [b0, b1], for: 10s}]\n"
PEACEFUL = """
scenario: 1
name: peaceful
clock: {warmup: 5s, measure: 40s}
topology: {tree: star, brokers: 2}
publishers: [{id: p, broker: b0, topic: t/x, rate: 5/s}]
subscribers: [{id: s, broker: b1, topic: t/x}, {id: r, broker: b1, topic: 't/#'}, {id: z, broker: b1, topic: t/+}]
"""


def facts_of(spark: SparkSession, folder: Path) -> Facts:
    return Facts(Frames(spark, find(folder)))


def ends(folder: Path) -> dict[tuple[str, ...], int]:
    """When each subscriber was through with each message."""
    rows = pq.ParquetFile(folder / "log/broker=clients/events.parquet").read().to_pylist()
    found = [it for it in rows if it["event"] == "processed"]
    return {(it["origin"], str(it["sequence"]), it["client"]): it["time_ns"] for it in found}


def test_delays_compared_after_a_cut_are_those_of_the_run_without_it(spark: SparkSession, tmp_path: Path) -> None:
    """The same seed gives the same publications, demands and connections. So once the backlog is gone, every message is
    through at the very moment at which it is through if nothing is cut. None of them is missing, and none is added."""
    calm, struck = simulate(tmp_path / "calm", QUEUES), simulate(tmp_path / "struck", QUEUES + CUT)
    facts = facts_of(spark, struck)
    (cut,) = facts.faults
    compared = [it for it in facts.intervals[0] if it.batch >= 0]

    def compared_after_the_cut(folder: Path) -> dict[tuple[str, ...], int]:
        return {
            key: time_ns
            for key, time_ns in ends(folder).items()
            if time_ns > cut.struck_ns and any(it.begin_ns <= time_ns < it.end_ns for it in compared)
        }

    found = compared_after_the_cut(struck)
    assert {subscriber for *_, subscriber in found} == {"s.0", "s.1", "w.0", "w.1"}
    assert found == compared_after_the_cut(calm)


class ByHand(Faults):
    """Somebody crashes b1 from 15 to 20 s, on the live page."""

    def __init__(self, network: Any, peers: Any) -> None:
        super().__init__(network, peers)
        self._by_hand = network.clock

    def begin(self) -> None:
        super().begin()
        self._by_hand.at(15 * S, self._struck_by_hand, None)

    def _struck_by_hand(self, _: None) -> None:
        number = self.strike("crash", "b1")
        self._by_hand.at(20 * S, self.heal_one, number)


@pytest.fixture(scope="module")
def by_hand(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Facts:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(simulation, "Faults", ByHand)
        return facts_of(spark, simulate(tmp_path_factory.mktemp("by_hand"), PEACEFUL))


def test_fault_by_hand_is_cut_out_though_the_scenario_has_none(by_hand: Facts) -> None:
    (crash,) = by_hand.faults
    assert (crash.what, crash.struck_ns, crash.healed_ns) == ("crash b1", 15 * S, 20 * S)
    compared = [it for it in by_hand.intervals[0] if it.batch >= 0]
    assert compared
    assert not any(it.begin_ns < 20 * S and it.end_ns > 15 * S for it in compared)


def test_fault_by_hand_is_judged(by_hand: Facts) -> None:
    (invariant,) = (it for it in judge(by_hand)[0] if it.name == "faults_took_effect")
    assert (invariant.checked, invariant.holds) == (1, True)


def test_entries_that_are_logged_anew_after_a_restart_by_hand_count_once(by_hand: Facts) -> None:
    """The three subscribers of b1 are never away but for the crash, and each has an entry of its own at b0."""
    measured = measure(by_hand, cells(by_hand))
    assert measured[0, "table.local_entries", ("b1",)].value == pytest.approx(3)
    assert measured[0, "table.remote_entries", ("b0",)].value == pytest.approx(3)

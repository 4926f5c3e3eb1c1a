"""Peers that roam in simulations, against theory: all algorithms, and delays where something takes time on the way."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from brokerbed.analysis.predict import predict
from brokerbed.scenario import ALGORITHMS
from tests.analysis.real import simulate as simulated
from tests.virtual.figures import simulate
from tests.virtual.theory import Case, compared, delays, scenario_of

TEXT = """
scenario: 1
name: roaming
clock: {{warmup: 30s, measure: {measure}s}}
topology: {{tree: explicit, parents: {{a: null, b: a, c: b, d: b, e: d, f: a, g: e}}}}
routing: {routing}
subscribers:
  - {{id: s, brokers: [c, e, f, g], topic: "n/1", on: {{mean: 2s}}, off: {{mean: 1s}}, session_service: {{mean: 100ms}}}}
  - {{id: w, brokers: [a, c, g], topic: "n/+", on: {{mean: 3s}}, off: {{mean: 3s, law: deterministic}}}}
  - {{id: z, brokers: [c, d], topic: "n/2", qos: 0, on: {{mean: 1s}}, off: {{mean: 1s}}}}
publishers:
  - {{id: p, brokers: [d, f, b], topic: "n/1", rate: 2/s, on: {{mean: 2s}}, off: {{mean: 2s, law: uniform}}}}
  - {{id: q, broker: g, topic: "n/2", rate: 1/s}}
copies: {copies}
"""
ROWS = (
    "table.remote_entries", "table.local_entries", "rate.notifications", "rate.notifications.additional", "rate.control",
    "rate.moved", "table.advertisements",
)  # fmt: skip


@pytest.mark.parametrize("routing", ALGORITHMS.built_in)
def test_tables_and_rates_agree_with_theory(routing: str) -> None:
    form = "{algorithm: merging, threshold: 2}" if routing == "merging" else routing
    text = TEXT.format(routing=form, measure=200, copies=12)
    for metric, figure in compared(Case(routing, text, 0.08, ROWS)).items():
        assert figure.measured == pytest.approx(figure.expected, rel=0.08, abs=1e-9), metric


WAITING = """
scenario: 1
name: roaming
clock: {{warmup: 200s, measure: {measure}s}}
topology: {{tree: line, brokers: 3}}
tolerance: 5%
{keys}
copies: {copies}
"""
BROKERS = "brokers: [b0, b1, b2], topic: t"
CASES = {
    "nothing takes time": (
        (f"publishers: [{{id: p, {BROKERS}, rate: 1/s, on: {{mean: 3s}}, off: {{mean: 1s}}}}]\n"
        f"subscribers: [{{id: s, {BROKERS}, on: {{mean: 4s}}, off: {{mean: 4s}}}}]"), 1500,
    ),
    "service of the session": (
        ("publishers: [{id: p, broker: b1, topic: t, rate: 2/s}]\n"
        f"subscribers: [{{id: s, {BROKERS}, on: {{mean: 4s}}, off: {{mean: 4s}}, session_service: {{mean: 125ms}}}}]"), 2500,
    ),
    "input of brokers, of which there are one or two on the way": (
        ("service: {broker_in: {mean: 400ms}}\npublishers: [{id: p, broker: b1, topic: t, rate: 0.2/s}]\n"
        f"subscribers: [{{id: s, {BROKERS}, on: {{mean: 300s}}, off: {{mean: 30s, law: deterministic}}}}]"), 20_000,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_delays_agree_with_theory(case: str) -> None:
    """Copies would hold one another's sessions up at the inputs of brokers, as notices wait for what came before them."""
    keys, measure = CASES[case]
    copies, seeds = (1, 5) if "input" in case else (20, 1)
    scenario = scenario_of(WAITING.format(keys=keys, measure=measure, copies=copies))
    (way,) = predict(scenario).ways
    of_seeds = [delays(scenario, simulate(replace(scenario, seed=seed))) for seed in range(1, seeds + 1)]
    measured = float(np.concatenate([copy for of_seed in of_seeds for copy in of_seed]).mean())
    assert measured == pytest.approx(way.end_to_end_s, rel=0.05)


def test_emulated_service_does_not_hold_back_clients_that_connect_before_time_zero(tmp_path: Path) -> None:
    """A client waits for some crossings of two links, which take no service time as nothing is published yet."""
    keys = "service: {broker_in: {mean: 50ms}, link: {mean: 50ms}}\nsubscribers:\n  - {id: s, " + BROKERS
    keys += ", on: {mean: 4s}, off: {mean: 4s}}"
    place = simulated(tmp_path, WAITING.format(measure=20, keys=keys, copies=1).replace("warmup: 200s", "warmup: 1s"))
    logs = [pq.ParquetFile(file).read().to_pylist() for file in sorted(place.glob("log/broker=b*/events.parquet"))]
    times = {
        event: min(row["time_ns"] for log in logs for row in log if row["event"] == event and row["client"] == "s")
        for event in ("connecting", "connected")
    }
    assert times["connecting"] <= times["connected"] < times["connecting"] + 1_000_000_000 < 0

"""The log of a small run on the virtual ground, as plain rows: seven brokers, two copies of the peers, two faults."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from brokerbed.analysis.runs import Finished, find
from brokerbed.orchestrator.grounds.registry import VIRTUAL
from brokerbed.orchestrator.run import run
from brokerbed.scenario import load

TEXT = """
scenario: 1
name: whole
seed: 5
clock: {warmup: 10s, measure: 40s}
topology: {tree: regular, arity: 2, depth: 3}
classes: 4
subscriptions: {mean_active: 20, lifetime: {mean: 10s}}
publications: {rate: 3/s}
service: {broker_in: {mean: 5ms}, link: {mean: 5ms}}
publishers:
  - {id: p, broker: b3, topic: t/x, rate: 1/s, on: {mean: 10s}, off: {mean: 3s}, service: {mean: 20ms}}
  - {id: q, broker: b4, topic: u, rate: 0.5/s, qos: 2}
subscribers:
  - {id: s, broker: b6, topic: 't/#', on: {mean: 10s}, off: {mean: 3s}, session_service: {mean: 20ms}, service: {mean: 20ms}}
  - {id: r, broker: b5, topic: u, qos: 2}
  - {id: z, broker: b3, topic: u, qos: 0, on: {mean: 5s}, off: {mean: 5s}}
copies: 2
faults:
  - {at: 22s, crash: b2, for: 2s}
  - {at: 37s, cut: [b1, b4], for: 3s}
"""
PARENTS = {"b1": "b0", "b2": "b0", "b3": "b1", "b4": "b1", "b5": "b2", "b6": "b2"}
LINKS = [f"{a}>{b}" for child, parent in PARENTS.items() for a, b in ((child, parent), (parent, child))]
Row = dict[str, Any]


@dataclass(frozen=True)
class Real:
    finished: Finished
    rows: list[Row]  # of all brokers and the clients; each part in the order of its log


def simulate(folder: Path, text: str, seeds: int = 1) -> Path:
    """The run directory."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "scenario.yaml"
    file.write_text(text, encoding="utf-8")
    return run(load(file), VIRTUAL, None, seeds, folder / "runs", lambda _: None)


def real_run(folder: Path) -> Real:
    place = simulate(folder, TEXT)
    rows: list[Row] = []
    for part in sorted((place / "log").iterdir()):
        broker = part.name.removeprefix("broker=")
        rows += [row | {"broker": broker} for row in pq.ParquetFile(part / "events.parquet").read().to_pylist()]
    return Real(find(place), rows)


def position_of(row: Row) -> int:
    return int(row["position"])

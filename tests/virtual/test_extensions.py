"""docs/extend.md: a fault, a part of a workload and a ground from somebody else's package, end to end on the virtual ground."""

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests import extension_page
from tests.broker.running import COMMAND

RUN_S_MAX = 60
NS_PER_S = 10**9
SCENARIO = """
scenario: 1
name: extended
clock: {measure: 30s}
topology: {tree: line, brokers: 3}
publishers:
  - {id: far, broker: b0, topic: far, rate: 5/s}
  - {id: near, broker: b1, topic: near, rate: 5/s}
subscribers:
  - {id: end, broker: b2, topic: far}
  - {id: beside, broker: b1, topic: near}
  - {id: doctor, broker: b2, topic: alive/+}
heartbeats: [{broker: b0, topic: alive/slow, period: 4s}, {broker: b2, topic: alive/quick, period: 500ms}]
faults: [{at: 5s, isolate: b1, for: 10s}]
"""
GROUPS = ("brokerbed.faults", "brokerbed.workload", "brokerbed.grounds")
Done = subprocess.CompletedProcess[str]
Command = Callable[..., Done]


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    """Runs brokerbed in a folder, with the packages of the page installed."""
    site = extension_page.install(tmp_path_factory.mktemp("acme") / "site", *GROUPS)
    environment = {**os.environ, "PYTHONPATH": str(site)}

    def run(folder: Path, *words: str) -> Done:
        return subprocess.run(
            [COMMAND, *words], cwd=folder, capture_output=True, text=True, timeout=RUN_S_MAX, env=environment
        )

    return run


@pytest.fixture(scope="module")
def log(command: Command, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The message log of a run of the scenario."""
    return run_on("virtual", tmp_path_factory.mktemp("run"), command)


def run_on(ground: str, folder: Path, command: Command) -> Path:
    (folder / "s.yaml").write_text(SCENARIO)
    done = command(folder, "run", "s.yaml", "--on", ground, "--no-analyse")
    assert done.returncode == 0, done.stderr
    return folder / "runs" / "latest" / "log"


def rows_of(log: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(log / f"broker={name}").to_pylist()
    return rows


def times_s(rows: list[dict[str, Any]], **wanted: str) -> list[float]:
    return [row["time_ns"] / NS_PER_S for row in rows if all(row[key] == value for key, value in wanted.items())]


def test_fault_of_another_package_strikes_and_heals(log: Path) -> None:
    """Nothing leaves b1 while it is isolated, but its own clients hear each other."""
    rows = rows_of(log, "clients")
    assert times_s(rows, client="isolate b1", event="fault") == [5.0]
    assert times_s(rows, client="isolate b1", event="healed") == [15.0]
    assert times_s(rows, client="isolate b1", event="heal_confirmed")
    far, near = times_s(rows, client="end", event="received"), times_s(rows, client="beside", event="received")
    assert not [time_s for time_s in far if 5.1 < time_s < 15]
    assert [time_s for time_s in near if 5.1 < time_s < 15]
    assert len(far) == len(times_s(rows, client="far", event="published")) > 50
    assert len(near) == len(times_s(rows, client="near", event="published")) > 50


def test_workload_part_of_another_package_is_played(log: Path) -> None:
    """What is published at b0 passes b1, and comes late if b1 is isolated."""
    rows = rows_of(log, "b0")
    assert times_s(rows, client="b0/heart0", event="received") == [0, 4, 8, 12, 16, 20, 24, 28]
    rows = rows_of(log, "b2")
    assert times_s(rows, client="b2/heart1", event="received") == [count / 2 for count in range(60)]
    sent = times_s(rows, client="doctor", topic="alive/slow", event="sent")
    assert [round(time_s) for time_s in sent] == [0, 4, 15, 15, 16, 20, 24, 28]


def test_ground_of_another_package_plays(command: Command, tmp_path: Path) -> None:
    """The same scenario, but without its fault."""
    log = run_on("faultless", tmp_path, command)
    assert not times_s(rows_of(log, "clients"), event="fault")
    sent = times_s(rows_of(log, "b2"), client="doctor", topic="alive/slow", event="sent")
    assert [round(time_s) for time_s in sent] == [0, 4, 8, 12, 16, 20, 24, 28]


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("isolate: b1", "isolate: b7", "14: faults.0.isolate: there is no broker b7; brokers are b0, b1, b2"),
        ("broker: b0, topic: a", "broker: b7, topic: a", "13: heartbeats.0.broker: there is no broker b7; brokers are b0, b1, b2"),
        ("period: 4s", "period: 4", "13: heartbeats.0.period: must be a duration"),
        ("heartbeats", "heartbeat", "13: heartbeat: unknown key; did you mean heartbeats?"),
    ],
    ids=["target", "broker", "unit", "key"],
)  # fmt: skip
def test_mistakes_are_told_like_all_others(tmp_path: Path, command: Command, right: str, wrong: str, said: str) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO.replace(right, wrong, 1))
    done = command(tmp_path, "predict", "s.yaml")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"s.yaml:{said}")


def test_keys_are_in_the_schema(tmp_path: Path, command: Command) -> None:
    schema = json.loads(command(tmp_path, "scenarios", "--schema").stdout)
    assert "isolate" in schema["$defs"]["Fault"]["properties"]
    assert "period" in schema["$defs"]["Heartbeat"]["properties"]
    assert "heartbeats" in schema["properties"]


def test_nothing_is_predicted_without_a_model(tmp_path: Path, command: Command) -> None:
    (tmp_path / "s.yaml").write_text(SCENARIO)
    done = command(tmp_path, "predict", "s.yaml", "--json")
    assert {row["predicted"] for row in json.loads(done.stdout)["metrics"]} == {None}
    assert done.stderr.count("warning") == done.stderr.count("there is no model of heartbeats") == 1

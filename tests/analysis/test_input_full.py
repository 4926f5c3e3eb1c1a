"""A run in which a broker's input is overloaded: what is dropped there is accounted for, exactly."""

from pathlib import Path

import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from brokerbed.analysis.jobs.facts import Facts
from brokerbed.analysis.jobs.frames import Frames
from brokerbed.analysis.jobs.judge import judge
from brokerbed.analysis.runs import find
from brokerbed.log.record import Reason
from tests.analysis.damages import ACCOUNTED, NOT_LOST
from tests.analysis.real import simulate

TEXT = """
scenario: 1
name: overloaded
seed: 3
clock: {warmup: 5s, measure: 30s}
topology: {tree: star, brokers: 3}
classes: 2
subscriptions: {mean_active: 8, lifetime: {mean: 10s}}
publications: {rate: 20/s}
service: {broker_in: {mean: 60ms}}
limits: {messages: 20}
publishers:
  - {id: p, broker: b1, topic: t, rate: 3/s, qos: 1}
subscribers:
  - {id: s, broker: b2, topic: t, qos: 1}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulate(tmp_path_factory.mktemp("overloaded"), TEXT)


def test_what_is_dropped_at_the_input_is_accounted_for(spark: SparkSession, folder: Path) -> None:
    log = ds.dataset(folder / "log", format="parquet", partitioning="hive").to_table().to_pylist()
    dropped = [it for it in log if it["event"] == "dropped" and it["reason"] == Reason.INPUT_FULL]
    assert len(dropped) > 50
    assert {it["broker"] for it in dropped if it["topic"] == "t"} >= {"b0", "b1"}  # where p publishes, and above
    found = {it.name: it for it in judge(Facts(Frames(spark, find(folder))))[0]}
    assert found[ACCOUNTED].checked > 500
    assert found[NOT_LOST].checked > 50
    assert [it for it in found.values() if not it.holds] == []

"""The audit's job: which batches it looks at, and which runs."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from pyspark.sql import SparkSession

from brokerbed.analysis.jobs.audit import audit, batch_values
from brokerbed.analysis.jobs.facts import Facts
from brokerbed.analysis.jobs.frames import Frames
from brokerbed.analysis.jobs.measure import cells
from brokerbed.analysis.jobs.series import gather
from brokerbed.analysis.runs import find
from tests.analysis.commands import SHORT
from tests.analysis.real import simulate

CELLS = ["run", "metric", "first", "second", "batch", "x", "n"]


def test_batch_without_messages_has_no_delay_and_a_rate_of_zero() -> None:
    """Of 64 batches of 2 s, merged to 32: rates in the first (6 events) and the last (2); delays of p in three, and of
    two copies in one of them."""
    timed = [
        (0, "rate.total", "", "", 0, 6.0, 2.0), (0, "rate.total", "", "", 63, 2.0, 2.0),
        (0, "rate.total", "b1>b0", "", 3, 2.0, 2.0),
    ]  # fmt: skip
    delays = (11, 9.0, 3.0), (2, 1.0, 4.0), (7, 1.0, 1.0), (7, 2.0, 1.0)
    counted = [(0, "delay.end_to_end", "p", "s", *it) for it in delays]
    counted.append((0, "delay.stage", "link", "x", 3, 1.0, 1.0))
    assert batch_values(pd.DataFrame([*timed, *counted], columns=CELLS), {0: np.full(64, 2.0)}) == {
        0: {"rate.total": [1.5, *[0.0] * 30, 0.5], "delay.end_to_end p s": [0.25, 1.5, 3.0]}
    }


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return simulate(tmp_path_factory.mktemp("seeds"), SHORT, seeds=2)


def test_every_seed_is_audited(spark: SparkSession, seeds: Path) -> None:
    """The testbed of the second seed did not keep up; nothing is wrong with the first."""
    file = seeds / "seeds/2/run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"warnings": ["late"]}))
    facts = Facts(Frames(spark, find(seeds)))
    found = audit(facts, cells(facts), gather(facts).on_periods)[0]
    assert [(it.name, it.at) for it in found if not it.holds] == [("the testbed keeps up (late)", "virtual (seed 2)")]
    for seed in (1, 2):
        tested = {it.name for it in found if it.at.endswith(f"(seed {seed})")}
        assert tested >= {"publications are Poisson", "stationary", "load generators keep their rates"}

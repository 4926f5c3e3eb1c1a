"""All measures of a whole run, with a crash and a cut, beside an independent count over its log."""

import numpy as np
import pytest
from pyspark.sql import SparkSession

from brokerbed.analysis.estimates import rates
from brokerbed.analysis.jobs.facts import Facts
from brokerbed.analysis.jobs.frames import Frames
from brokerbed.analysis.jobs.measure import Key, cells, measure
from brokerbed.analysis.predict import predict
from brokerbed.analysis.transforms.quantiles import PER_DECADE
from brokerbed.analysis.verdicts import Measured
from brokerbed.analysis.windows import BATCHES
from tests.analysis.counting import Count
from tests.analysis.real import Real

BUCKET = 10 ** (1 / PER_DECADE) - 1  # delays are put into buckets of this relative width before quantiles are taken


@pytest.fixture(scope="module")
def facts(spark: SparkSession, real: Real) -> Facts:
    return Facts(Frames(spark, real.finished))


@pytest.fixture(scope="module")
def measured(facts: Facts) -> dict[Key, Measured]:
    return measure(facts, cells(facts))


@pytest.fixture(scope="module")
def count(facts: Facts, real: Real) -> Count:
    return Count(real.rows, facts.intervals[0])


def test_faults_are_cut_out(facts: Facts, count: Count) -> None:
    """The crash from 22 to 24 s, the cut from 37 to 40 s, each until all was well and had arrived."""
    crash, cut = facts.faults
    assert (crash.what, crash.struck_ns, crash.healed_ns) == ("crash b2", 22_000_000_000, 24_000_000_000)
    assert (cut.what, cut.struck_ns, cut.healed_ns) == ("cut b4-b1", 37_000_000_000, 40_000_000_000)
    assert crash.has_effect
    assert cut.has_effect
    assert not any(count.is_compared(it) for it in (22_000_000_000, 24_000_000_000, 37_000_000_000, 40_000_000_000))
    lasted = sum(it.until_ns - it.struck_ns for it in (crash, cut)) / 1e9
    assert 5 < lasted < 25
    assert count.seconds == pytest.approx(40 - lasted)


def test_every_row_equals_the_count(measured: dict[Key, Measured], count: Count) -> None:
    wanted = count.all()
    got = {(metric, *labels): it.value for (_, metric, labels), it in measured.items()}
    assert got.keys() <= wanted.keys()
    for key, value in wanted.items():
        rel = BUCKET if ".p" in key[0] else 1e-9
        assert got.get(key, 0.0) == pytest.approx(value, rel=rel, abs=1e-12), key
    assert wanted["delivery.ratio", "q", "z"] < 0.9  # what came while it was off is gone
    assert wanted["delivery.ratio", "p", "s"] == 1


def test_every_predicted_row_was_counted(real: Real, count: Count) -> None:
    """No row of the table has been forgotten, here or there."""
    predicted = {(row.metric, *row.labels.values()) for row in predict(real.finished.experiment.points[0]).rows}
    assert predicted <= count.all().keys()


def test_intervals_of_rates_are_those_of_the_counted_batches(measured: dict[Key, Measured], count: Count) -> None:
    for kind in ("notifications", "control"):
        per_batch = np.zeros((1, 1, BATCHES))
        for row, its in count.crossings():
            if its == kind:
                (batch,) = (it.batch for it in count.compared if it.begin_ns <= row["time_ns"] < it.end_ns)
                per_batch[0, 0, batch] += 1
        wanted = rates(per_batch, np.full(per_batch.shape, count.seconds / BATCHES))
        it = measured[0, f"rate.{kind}", ()]
        assert [it.value, it.ci_low, it.ci_high] == pytest.approx([float(limit[0]) for limit in wanted])

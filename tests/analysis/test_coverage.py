"""The short version of coverage.py: a few runs, all rows together. The long one: `make coverage-campaign`."""

from pathlib import Path
from statistics import fmean

import pytest

from brokerbed.analysis.verdicts import AGREES, DIFFERS
from tests.analysis.coverage import covered

RUNS = 24


@pytest.mark.usefixtures("one_java")
def test_intervals_hold_the_true_value_though_the_memory_is_long(tmp_path: Path) -> None:
    """Rows of one run depend on one another, so the part of those that hold it scatters: 95% with a deviation of 3%."""
    found = covered("long", RUNS, tmp_path, measure_s=1000)
    shares = {metric: found.share(metric) for metric in found.covered}
    assert shares.pop("delivery.ratio") == 1
    assert len(shares) == 7
    assert 0.86 <= fmean(shares.values()) < 1
    rows = 7 * RUNS
    assert sum(found.without.values()) <= 0.05 * rows
    assert found.wrongly[AGREES] == 0
    assert found.wrongly[DIFFERS] <= 0.05 * rows

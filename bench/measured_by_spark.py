"""`python -m bench.measured_by_spark measures|everything RUN_DIR`: the product's own job on two cores."""

import os
import sys
import time
from pathlib import Path

from pyspark import SparkContext

from bench.measurement import Means, Measurement, cpu_s, peak_bytes
from brokerbed.analysis.jobs.analyse import _analysis
from brokerbed.analysis.jobs.facts import Facts
from brokerbed.analysis.jobs.frames import Frames
from brokerbed.analysis.jobs.measure import cells, measure
from brokerbed.analysis.jobs.session import session
from brokerbed.analysis.runs import find
from brokerbed.analysis.windows import BATCHES
from brokerbed.metrics import END_TO_END_DELAY

MASTER = "local[2]"
DELAY = END_TO_END_DELAY.name


def measurement(folder: Path, is_everything: bool) -> Measurement:
    begun = time.monotonic()
    finished = find(folder)
    with session(MASTER, finished.runs[0].rows) as spark:
        pids = os.getpid(), SparkContext._gateway.proc.pid  # type: ignore[union-attr]
        started, before_s = time.monotonic(), sum(map(cpu_s, pids))
        facts = Facts(Frames(spark, finished))
        means: Means = {}
        if is_everything:
            _analysis(facts, lambda _, __: None)
        else:
            means = _measures(facts)
        ended = time.monotonic()
        cpu = sum(map(cpu_s, pids)) - before_s
        return Measurement(ended - started, started - begun, cpu, sum(map(peak_bytes, pids)), means=means)


def _measures(facts: Facts) -> Means:
    """Computes every row with its interval; returns the headline rows and their batches."""
    measured_cells = cells(facts)
    estimates = measure(facts, measured_cells)
    headline = measured_cells[(measured_cells["first"] == "") | (measured_cells["metric"] == DELAY)]
    sums = headline.groupby(["metric", "batch"])[["x", "n"]].sum()
    batches = (sums["x"] / sums["n"]).to_dict()
    return {
        metric: [estimate.value, *(batches.get((metric, number), 0.0) for number in range(BATCHES))]
        for (_, metric, labels), estimate in estimates.items()
        if not labels or metric == DELAY
    }


if __name__ == "__main__":
    measurement(Path(sys.argv[2]), sys.argv[1] == "everything").print_json()

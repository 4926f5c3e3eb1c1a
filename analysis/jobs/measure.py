"""The measuring job: turns the logs of all runs of a directory into the measured rows of every metric."""

from functools import reduce

import pandas as pd
from pyspark.sql import DataFrame

from brokerbed.analysis.jobs.facts import Facts
from brokerbed.analysis.measured import measured_by_count, measured_by_time
from brokerbed.analysis.metrics.registry import definitions, metrics
from brokerbed.analysis.verdicts import Measured
from brokerbed.analysis.windows import BATCHES, compared_ns
from brokerbed.scenario.units import NS_PER_S

Key = tuple[int, str, tuple[str, ...]]  # point, metric, values of its labels


def cells(facts: Facts) -> DataFrame:
    """The cells of all metrics; a function that measures several of them is called once."""
    measures = dict.fromkeys(measure for definition in definitions() for measure in definition.measured_by)
    parts = [part for measure in measures if (part := measure(facts)) is not None]
    return reduce(DataFrame.unionByName, parts).persist()


def measure(facts: Facts, cells: DataFrame) -> dict[Key, Measured]:
    """The measured rows of all metrics. There are few cells, so the statistics need no Spark."""
    runs = facts.frames.finished.runs
    seconds = {run.number: compared_ns(facts.intervals[run.number]) / NS_PER_S / BATCHES for run in runs}
    table: pd.DataFrame = cells.toArrow().to_pandas()
    over_time = [metric.name for metric in metrics().values() if metric.statistic.is_over_time]
    is_over_time = table["metric"].isin(over_time)
    measured: dict[Key, Measured] = {}
    for point in dict.fromkeys(run.point for run in runs):
        is_here = table["point"] == point
        lengths = {run.number: seconds[run.number] for run in runs if run.point == point}
        measured |= {(point, *row): value for row, value in measured_by_time(table[is_here & is_over_time], lengths)}
        measured |= {(point, *row): value for row, value in measured_by_count(table[is_here & ~is_over_time])}
    return measured

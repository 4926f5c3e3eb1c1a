"""The measuring job: turns the logs of all runs of a directory into the measured rows of every metric."""

from functools import reduce

import pandas as pd
from pyspark.sql import DataFrame

from brokerbed.analysis.jobs.facts import Facts
from brokerbed.analysis.measured import measured_by_count, measured_by_time
from brokerbed.analysis.metrics.registry import definitions, metrics
from brokerbed.analysis.tallies import CELL
from brokerbed.analysis.verdicts import Measured

Key = tuple[int, str, tuple[str, ...]]  # point, metric, values of its labels


def cells(facts: Facts) -> pd.DataFrame:
    """The cells of all metrics, collected in one job; a function that measures several of them is called once."""
    measures = dict.fromkeys(measure for definition in definitions() for measure in definition.measured_by)
    parts = [part for measure in measures if (part := measure(facts)) is not None]
    tables = [part for part in parts if isinstance(part, pd.DataFrame)]
    if frames := [part.select(*CELL) for part in parts if not isinstance(part, pd.DataFrame)]:
        tables.append(reduce(DataFrame.unionByName, frames).toArrow().to_pandas())
    return pd.concat(tables, ignore_index=True)


def measure(facts: Facts, cells: pd.DataFrame) -> dict[Key, Measured]:
    """The measured rows of all metrics. There are few cells, so the statistics need no Spark."""
    runs = facts.frames.finished.runs
    seconds = facts.batch_s
    over_time = [metric.name for metric in metrics().values() if metric.statistic.is_over_time]
    is_over_time = cells["metric"].isin(over_time)
    measured: dict[Key, Measured] = {}
    for point in dict.fromkeys(run.point for run in runs):
        is_here = cells["point"] == point
        lengths = {run.number: seconds[run.number] for run in runs if run.point == point}
        measured |= {(point, *row): value for row, value in measured_by_time(cells[is_here & is_over_time], lengths)}
        measured |= {(point, *row): value for row, value in measured_by_count(cells[is_here & ~is_over_time])}
    return measured

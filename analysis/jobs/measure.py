"""The measuring job: turns the logs of all runs of a directory into the measured rows of every metric."""

from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from itertools import chain

import pandas as pd
from pyspark.sql import DataFrame

from brokerbed.analysis.jobs.facts import Facts
from brokerbed.analysis.measured import measured_by_count, measured_by_quantile, measured_by_time
from brokerbed.analysis.metrics.registry import definitions, metrics
from brokerbed.analysis.runs import Run
from brokerbed.analysis.tallies import CELL
from brokerbed.analysis.verdicts import Measured
from brokerbed.metrics import PHASES, Statistic
from brokerbed.scenario.topology import Floats
from brokerbed.scenario.units import NS_PER_S

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
    quantiles = [metric.name for metric in metrics().values() if metric.statistic is Statistic.QUANTILE]
    is_over_time, is_quantile = (cells["metric"].isin(names) for names in (over_time, quantiles))
    measured: dict[Key, Measured] = {}
    for point in dict.fromkeys(run.point for run in runs):
        is_here = cells["point"] == point
        lengths = {run.number: seconds[run.number] for run in runs if run.point == point}
        phases = phases_of(run for run in runs if run.point == point)
        by_time = measured_by_time(cells[is_here & is_over_time], lengths, phases > 1)
        counted = cells[is_here & ~is_over_time & ~is_quantile]
        at_most = batches_max([run for run in runs if run.point == point], lengths)
        by_count = measured_by_count(counted, max(map(len, lengths.values())), phases, at_most)
        by_quantile = measured_by_quantile(cells[is_here & is_quantile])
        measured |= {(point, *row): value for row, value in chain(by_time, by_count, by_quantile)}
    return measured


def phases_of(runs: Iterable[Run]) -> int:
    """Into how many phases a period is divided; 1 if nothing varies."""
    return PHASES if any(run.scenario.profiles for run in runs) else 1


def batches_max(runs: Sequence[Run], lengths: Mapping[int, Floats]) -> int | None:
    """The measured passes of a recorded trace, of which a part says nothing about the rest; None without a trace."""
    passes = [
        int(lengths[run.number].sum() * NS_PER_S) // pass_ns
        for run in runs
        if (pass_ns := run.scenario.longest_pass_ns) is not None
    ]
    return max(1, min(passes)) if passes else None

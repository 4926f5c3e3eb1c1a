"""The audit of assumptions: what the models take for granted, tested on the runs themselves."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from brokerbed.analysis.assumptions import (
    Assumption,
    are_exponential,
    are_poisson,
    is_stationary,
    judged_together,
    keep_rates,
)
from brokerbed.analysis.estimates import Numbers, independent
from brokerbed.analysis.jobs.frames import BINS, bin_ns_of
from brokerbed.analysis.jobs.measure import Facts
from brokerbed.analysis.runs import Run
from brokerbed.analysis.transforms import arrivals
from brokerbed.analysis.windows import BATCHES, NOT_COMPARED, Interval
from brokerbed.scenario import Scenario
from brokerbed.scenario.units import NS_PER_S

POISSON = {
    arrivals.PUBLICATIONS: "publications are Poisson",
    arrivals.SUBSCRIPTIONS: "subscriptions arrive as a Poisson process",
    arrivals.MESSAGES: "messages of peers are Poisson",
}
DELAY = "delay.end_to_end"
Counts = dict[tuple[int, str], dict[str, dict[int, int]]]  # by run and kind: place -> bin -> count


def audit(facts: Facts, timed: DataFrame, counted: DataFrame | None) -> dict[int, list[Assumption]]:
    """The assumptions of each point, on all of its runs; if there are several, `at` names the seed."""
    frames = facts.frames
    bins = {run.number: _whole_bins(facts.intervals[run.number], bin_ns_of(run)) for run in frames.finished.runs}
    table = frames.table([(run, bin_) for run, its in bins.items() for bin_ in its], "run int, bin bigint")
    rows = arrivals.arrivals(frames.logged, frames.peers, table).unionByName(
        arrivals.on_periods(frames.events, frames.peers, facts.times)
    )
    counts: Counts = defaultdict(lambda: defaultdict(dict))
    for run, kind, at, bin_, count in rows.collect():
        counts[run, kind][at][bin_] = count
    batches = batch_values(timed, counted)
    runs_of_point: dict[int, list[Run]] = defaultdict(list)
    for run in frames.finished.runs:
        runs_of_point[run.point].append(run)
    found: dict[int, list[Assumption]] = {}
    for point, runs in runs_of_point.items():
        of_runs = []
        for run in runs:
            seed = "" if len(runs) == 1 else f" (seed {run.scenario.seed})"
            of_run = _of_run(run, counts, bins[run.number], batches.get(run.number, {}))
            of_runs += [replace(it, at=it.at + seed) for it in of_run]
        found[point] = judged_together(of_runs)
    return found


def _of_run(run: Run, counts: Counts, bins: list[int], batches: dict[str, list[float]]) -> list[Assumption]:
    found = []
    for kind, name in POISSON.items():
        its = {at: list(by_bin.values()) for at, by_bin in counts[run.number, kind].items()}
        found += are_poisson(name, its, len(bins))
    tenths = {
        at: [by_bin.get(place, 0) for place in range(arrivals.QUANTILES)]
        for at, by_bin in counts[run.number, arrivals.ON_PERIODS].items()
    }
    found += are_exponential("ON periods are exponential", tenths)
    found += is_stationary("stationary", batches)
    found += keep_rates("load generators keep their rates", _rates(run, counts, len(bins) * bin_ns_of(run) / NS_PER_S))
    found += [Assumption(f"the testbed keeps up ({it})", run.ground, 0.0, False) for it in run.warnings]
    return found


def _rates(run: Run, counts: Counts, seconds: float) -> list[tuple[str, int, float]]:
    """Where, how many were generated, and how many were due."""
    scenario = run.scenario
    made = {at: sum(its.values()) for at, its in counts[run.number, arrivals.PUBLICATIONS].items()}
    found = [
        (name, made.get(name, 0), rate * seconds)
        for name, rate in zip(scenario.tree.names, _publication_rates(scenario), strict=True)
    ]
    of_peers = counts[run.number, arrivals.MESSAGES]
    for peer in scenario.publishers:
        ids = [scenario.copy_of(peer, copy).id for copy in range(scenario.copies)]
        total = sum(sum(of_peers.get(its, {}).values()) for its in ids)
        found.append((peer.id, total, peer.rate * scenario.copies * seconds))
    return found


def _publication_rates(scenario: Scenario) -> list[float]:
    """Of each broker, over all classes."""
    given = scenario.publications
    rates = [given.everywhere_per_s * scenario.classes] * len(scenario.tree)
    for (broker, _), rate in given.overrides_per_s.items():
        rates[broker] += rate - given.everywhere_per_s
    return rates


def _whole_bins(found: list[Interval], bin_ns: int) -> list[int]:
    """Bins of time that are compared from end to end."""
    compared = [it for it in found if it.batch != NOT_COMPARED]
    full: dict[int, int] = defaultdict(int)
    for it in compared:
        for bin_ in range(max(0, it.begin_ns // bin_ns), min(BINS, (it.end_ns - 1) // bin_ns) + 1):
            full[bin_] += min(it.end_ns, (bin_ + 1) * bin_ns) - max(it.begin_ns, bin_ * bin_ns)
    return [bin_ for bin_, covered_ns in sorted(full.items()) if covered_ns == bin_ns]


def batch_values(timed: DataFrame, counted: DataFrame | None) -> dict[int, dict[str, list[float]]]:
    """Per run and headline row: the values of its batches in their order, merged until neighbours are not alike.

    A rate was 0 in a batch without messages; but there is no delay in it, so it is left out of a row of delays.
    """
    cells = timed.where(F.col("first") == "")
    if counted is not None:
        cells = cells.unionByName(counted.where(F.col("metric") == DELAY))
    sums = cells.groupBy("run", "metric", "first", "second", "batch").agg(F.sum("x").alias("x"), F.sum("n").alias("n"))
    found: dict[tuple[int, str], Numbers] = defaultdict(lambda: np.zeros((2, BATCHES)))
    for run, metric, first, second, batch, x, n in sums.collect():
        its = found[run, " ".join((metric, *filter(None, (first, second))))]
        its[:, batch] = x, n
        if metric != DELAY:
            its[1] = n
    values: dict[int, dict[str, list[float]]] = defaultdict(dict)
    for (run, name), (x_, n_) in sorted(found.items()):
        values[run][name] = independent(x_[None], n_[None])
    return dict(values)

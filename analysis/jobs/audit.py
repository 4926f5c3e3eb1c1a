"""The audit: tests of the models' assumptions on the runs themselves."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from brokerbed.analysis.assumptions import (
    Assumption,
    are_exponential,
    are_poisson,
    is_stationary,
    judged_together,
    keep_rates,
)
from brokerbed.analysis.estimates import Numbers, independent
from brokerbed.analysis.jobs.facts import Facts
from brokerbed.analysis.jobs.frames import BINS, bin_ns_of
from brokerbed.analysis.metrics.registry import metrics
from brokerbed.analysis.runs import Run
from brokerbed.analysis.tallies import MESSAGES, PUBLICATIONS, SUBSCRIPTIONS
from brokerbed.analysis.transforms.connections import QUANTILES
from brokerbed.analysis.windows import NOT_COMPARED, Interval
from brokerbed.metrics import PHASES, TOTAL, Metric, Statistic
from brokerbed.scenario import Peer, Scenario
from brokerbed.scenario.profile import Factor
from brokerbed.scenario.recorded import Arrivals
from brokerbed.scenario.topology import Floats
from brokerbed.scenario.units import NS_PER_S

POISSON = {
    PUBLICATIONS: "publications are Poisson",
    SUBSCRIPTIONS: "subscriptions arrive as a Poisson process",
    MESSAGES: "messages of peers are Poisson",
}
Bins = dict[str, dict[int, int]]  # place -> bin -> count
Counts = dict[tuple[int, str], Bins]  # by run and kind
Tenths = Mapping[int, Bins]  # by run: ON periods of each peer in equally likely bins


def audit(facts: Facts, cells: pd.DataFrame, on_periods: Tenths) -> dict[int, list[Assumption]]:
    """Tests the assumptions of each point on all of its runs; if there are several, `at` contains the seed."""
    frames = facts.frames
    bins = {run.number: _whole_bins(facts.intervals[run.number], bin_ns_of(run)) for run in frames.finished.runs}
    counts: Counts = {}
    for kind in POISSON:
        by_run = facts.tally.by_time(kind)
        for run in frames.finished.runs:
            is_whole = set(bins[run.number])
            counts[run.number, kind] = {
                at: whole
                for at, by_bin in by_run[run.number].items()
                if (whole := {bin_: count for bin_, count in by_bin.items() if bin_ in is_whole})
            }
    runs_with_phases = {run.number for run in frames.finished.runs if run.scenario.profiles}
    batches = batch_values(cells, facts.batch_s, runs_with_phases)
    runs_of_point: dict[int, list[Run]] = defaultdict(list)
    for run in frames.finished.runs:
        runs_of_point[run.point].append(run)
    assumptions: dict[int, list[Assumption]] = {}
    for point, runs in runs_of_point.items():
        of_runs = []
        for run in runs:
            seed = "" if len(runs) == 1 else f" (seed {run.scenario.seed})"
            of_run = _of_run(run, counts, bins[run.number], on_periods[run.number], batches.get(run.number, {}))
            of_runs += [replace(assumption, at=assumption.at + seed) for assumption in of_run]
        assumptions[point] = judged_together(of_runs)
    return assumptions


def _of_run(
    run: Run, counts: Counts, bins: list[int], on_periods: Bins, batches: dict[str, list[float]]
) -> list[Assumption]:
    assumptions = []
    for kind, name in POISSON.items():
        if kind == PUBLICATIONS and not run.scenario.publications_are_poisson:
            continue
        if kind == SUBSCRIPTIONS and not run.scenario.subscriptions_are_poisson:
            continue
        bin_counts = {
            at: [by_bin.get(bin_, 0) for bin_ in bins]
            for at, by_bin in counts[run.number, kind].items()
            if "/" not in at  # answers are made when requests were served
        }
        if kind == MESSAGES:
            of_traces = _copies(run.scenario, [it for it in run.scenario.publishers if it.arrivals is not None])
            bin_counts = {at: it for at, it in bin_counts.items() if at not in of_traces}
        profile = {
            PUBLICATIONS: run.scenario.publications.profile,
            SUBSCRIPTIONS: run.scenario.subscriptions.profile,
        }.get(kind)
        weights = [] if profile is None else _seconds(profile, bins, bin_ns_of(run))
        if kind == SUBSCRIPTIONS:
            tree, subscriptions = run.scenario.tree, run.scenario.subscriptions
            bin_counts = {at: it for at, it in bin_counts.items() if subscriptions.is_poisson_at(tree.index[at])}
        assumptions += are_poisson(name, bin_counts, len(bins), weights)
    scenario = run.scenario
    recorded = {it.id for it in (*scenario.publishers, *scenario.subscribers) if it.connectivity is not None}
    tenths = {
        at: [by_bin.get(place, 0) for place in range(QUANTILES)]
        for at, by_bin in on_periods.items()
        if at not in recorded
    }
    assumptions += are_exponential("ON periods are exponential", tenths)
    assumptions += is_stationary("stationary", batches)
    assumptions += keep_rates("load generators keep their rates", _rates(run, counts, bins))
    assumptions += [Assumption(f"the testbed keeps up ({warning})", run.ground, 0.0, False) for warning in run.warnings]
    return assumptions


def _copies(scenario: Scenario, peers: Iterable[Peer]) -> set[str]:
    return {scenario.copy_of(peer, copy).id for peer in peers for copy in range(scenario.copies)}


def _seconds(profile: Factor, bins: list[int], bin_ns: int) -> list[float]:
    """How long the rate of factor 1 would take for what is expected in each bin."""
    limits = [(bin_ * bin_ns, (bin_ + 1) * bin_ns) for bin_ in bins]
    return [(profile.integral_ns(end) - profile.integral_ns(begin)) / NS_PER_S for begin, end in limits]


def _rates(run: Run, counts: Counts, bins: list[int]) -> list[tuple[str, int, float]]:
    """Places with the number of messages that were generated there, and the expected number."""
    scenario = run.scenario
    seconds, profile = len(bins) * bin_ns_of(run) / NS_PER_S, scenario.publications.profile
    due_s = seconds if profile is None else sum(_seconds(profile, bins, bin_ns_of(run)))
    published = {at: sum(by_bin.values()) for at, by_bin in counts[run.number, PUBLICATIONS].items()}
    rates = [
        (name, published.get(name, 0), rate * due_s)
        for name, rate in zip(scenario.tree.names, scenario.publication_rates_per_s, strict=True)
        if scenario.publications_are_poisson  # otherwise their number varies too much for this test
    ]
    of_peers = counts[run.number, MESSAGES]
    for peer in scenario.generators:
        ids = [scenario.copy_of(peer, copy).id for copy in range(scenario.copies)]
        total = sum(sum(of_peers.get(peer_id, {}).values()) for peer_id in ids)
        due = peer.rate * scenario.copies * seconds
        if peer.arrivals is not None:  # no fewer than where the fewest were recorded
            due = float(scenario.copies * _fewest(peer.arrivals, bins, bin_ns_of(run)))
        rates.append((peer.id, total, due))
    return rates


def _fewest(arrivals: Arrivals, bins: list[int], bin_ns: int) -> int:
    """The fewest messages that these bins can contain, wherever the trace begins."""
    stretches = [0]
    for place, bin_ in enumerate(bins):
        if place and bin_ != bins[place - 1] + 1:
            stretches.append(0)
        stretches[-1] += bin_ns
    return sum(map(arrivals.fewest_within, stretches))


def _whole_bins(intervals: list[Interval], bin_ns: int) -> list[int]:
    """The bins of time that lie completely in compared time."""
    compared = [interval for interval in intervals if interval.batch != NOT_COMPARED]
    full: dict[int, int] = defaultdict(int)
    for interval in compared:
        for bin_ in range(max(0, interval.begin_ns // bin_ns), min(BINS, (interval.end_ns - 1) // bin_ns) + 1):
            full[bin_] += min(interval.end_ns, (bin_ + 1) * bin_ns) - max(interval.begin_ns, bin_ * bin_ns)
    return [bin_ for bin_, covered_ns in sorted(full.items()) if covered_ns == bin_ns]


def batch_values(
    cells: pd.DataFrame, batch_s: Mapping[int, Floats], with_phases: Collection[int] = ()
) -> dict[int, dict[str, list[float]]]:
    """The values of successive batches, by run and headline row, merged until neighbours are uncorrelated.

    In a batch without messages a rate is 0, but there is no delay, so such batches are left out of rows of delays.
    Shares are not tested for trends.
    """
    tested = {
        name: metric
        for name, metric in metrics().items()
        if metric.headline is not None and metric.statistic is not Statistic.SHARE
    }
    sums_by_row: dict[tuple[int, str], Numbers] = {}
    sums = cells[_is_headline(cells, tested)].groupby(["run", "metric", "first", "second", "batch"])[["x", "n"]].sum()
    for (run, metric, first, second, batch), x, n in zip(sums.index, sums["x"], sums["n"], strict=True):
        row = run, " ".join((metric, *filter(None, (first, second))))
        if row not in sums_by_row:
            sums_by_row[row] = np.zeros((2, len(batch_s[run])))
            if tested[metric].statistic.is_over_time:
                sums_by_row[row][1] = batch_s[run]
        sums_by_row[row][:, batch] = x, n
    values: dict[int, dict[str, list[float]]] = defaultdict(dict)
    for (run, name), sums_of_row in sorted(sums_by_row.items(), key=lambda item: item[0]):
        phases = PHASES if run in with_phases else 1  # whole periods are compared with one another
        x_, n_ = sums_of_row.reshape(2, -1, phases).sum(2)
        values[run][name] = independent(x_[None], n_[None])
    return dict(values)


def _is_headline(cells: pd.DataFrame, tested: Mapping[str, Metric]) -> "pd.Series[bool]":
    """Whether a cell belongs to a headline row of one of these metrics; the number of its labels decides."""
    labels = (cells["first"] != "").astype(int) + (cells["second"] != "").astype(int)
    wanted = cells["metric"].map({name: len(metric.headline or TOTAL) for name, metric in tested.items()})
    return labels == wanted

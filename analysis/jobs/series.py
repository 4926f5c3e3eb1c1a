"""The job that collects ON periods and the series that the report draws."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from brokerbed.analysis.jobs.facts import Facts
from brokerbed.analysis.jobs.frames import BINS, bin_ns_of
from brokerbed.analysis.runs import Run
from brokerbed.analysis.series import Sample, connected, longer_than
from brokerbed.analysis.tallies import SERIES, cost_by_bin
from brokerbed.analysis.transforms import series
from brokerbed.analysis.transforms.connections import on_periods
from brokerbed.analysis.transforms.delays import peer_spans
from brokerbed.analysis.transforms.moves import moves_of_peers
from brokerbed.analysis.windows import NOT_COMPARED
from brokerbed.metrics import END_TO_END_DELAY, STAGE_DELAY
from brokerbed.scenario.sampling import sampled_pairs, sampled_peers, sampled_points, sampled_queues
from brokerbed.scenario.units import NS_PER_S

MOVES, DELAYS, IN_QUEUES, ON_PERIODS = "moves", "delays", "delays in queues", "on periods"
ROAMED = "moves of sessions"
Rows = dict[tuple[int, str], dict[str, list[tuple[int, int]]]]  # by run and kind, then by name: pairs of key and value


@dataclass(frozen=True, slots=True)
class Gathered:
    samples: list[Sample]
    on_periods: dict[int, dict[str, dict[int, int]]]  # of every run, by peer: counts in equally likely bins


def gather(facts: Facts) -> Gathered:
    """The ON periods of all runs, and the series of a sample of points, for the first of several seeds."""
    finished = facts.frames.finished
    runs = [
        runs_of_point[0]
        for point in sampled_points(finished.experiment.points)
        if (runs_of_point := finished.of_point(point))
    ]
    rows: Rows = defaultdict(lambda: defaultdict(list))
    for number, what, name, key, value in _rows(facts, runs):
        rows[number, what][name].append((key, value))
    periods = {
        run.number: {name: dict(tenths) for name, tenths in rows[run.number, ON_PERIODS].items()}
        for run in finished.runs
    }
    counts = {kind: facts.tally.by_time(what) for kind, what in SERIES.items()}
    samples: list[Sample] = []
    for run in runs:
        samples += _rates(run, {kind: by_run[run.number].get("", {}) for kind, by_run in counts.items()})
        samples += _samples(facts, run, rows)
        samples += _placement(facts, run)
    return Gathered(samples, periods)


def _rows(facts: Facts, runs: list[Run]) -> Iterable[tuple[int, str, str, int, int]]:
    """The rows (run, what, name, key, value) of all that is gathered, in one job."""
    frames, parts = facts.frames, []
    if any(peer.is_intermittent for run in facts.scenarios for peer in (*run.publishers, *run.subscribers)):
        periods = on_periods(facts.connected, facts.times)
        parts.append(_named(periods, ON_PERIODS, F.col("at"), F.col("bin"), F.col("count")))
    if peers := [(run.number, peer) for run in runs for peer in sampled_peers(run.scenario)]:
        is_on = (F.col("event") == "connected").cast("long")
        moved = series.moves(facts.connected, frames.table(peers, "run int, client string"))
        parts.append(_named(moved, MOVES, F.col("client"), F.col("time_ns"), is_on))
    if frames.peers_roam:
        roamed = moves_of_peers(frames.events, frames.peers)
        parts.append(_named(roamed, ROAMED, F.col("base"), F.col("moves"), F.col("links")))
    if wanted := [
        *((run.number, END_TO_END_DELAY.name, *way) for run in runs for way in sampled_pairs(run.scenario)),
        *((run.number, STAGE_DELAY.name, *queue) for run in runs for queue in sampled_queues(run.scenario)),
    ]:
        table = frames.table(wanted, "run int, metric string, first string, second string")
        spans = (peer_spans(facts.passed, frames.peers), facts.inputs, facts.outputs)
        together = reduce(DataFrame.unionByName, [part for part in spans if part is not None])
        delays = series.delays(together, facts.times, table)
        is_queue = F.col("metric") == STAGE_DELAY.name
        name = F.when(is_queue, F.concat_ws(" ", "first", "second")).otherwise(F.concat_ws(" -> ", "first", "second"))
        of_kind = ((is_queue, IN_QUEUES), (~is_queue, DELAYS))
        for condition, what in of_kind:
            parts.append(_named(delays.where(condition), what, name, F.col("bucket").cast("long"), F.col("count")))
    return reduce(DataFrame.unionByName, parts).collect() if parts else ()


def _named(rows: DataFrame, what: str, name: Column, key: Column, value: Column) -> DataFrame:
    return rows.select("run", F.lit(what).alias("what"), name.alias("name"), key.alias("key"), value.alias("value"))


def _samples(facts: Facts, run: Run, rows: Rows) -> Iterator[Sample]:
    for what, kind in ((DELAYS, "delay"), (IN_QUEUES, "delay.stage")):
        for name, counts in sorted(rows[run.number, what].items()):
            for x, y in longer_than(dict(counts), series.PER_DECADE):
                yield Sample(run.point, kind, name, x, y)
    yield from _periods(run, rows[run.number, MOVES])
    for name, ((moves, links),) in sorted(rows[run.number, ROAMED].items()):
        yield Sample(run.point, "moves_of", name, float(moves), float(links))
    for fault in facts.faults:
        if fault.run == run.number:
            healed_s = None if fault.healed_ns is None else fault.healed_ns / NS_PER_S
            yield Sample(run.point, "fault", fault.what, fault.struck_ns / NS_PER_S, healed_s)
    for piece in facts.intervals[run.number]:
        if piece.batch == NOT_COMPARED and piece.begin_ns >= 0 and piece.begin_ns >= run.measured_ns[0]:
            yield Sample(run.point, "left_out", "", piece.begin_ns / NS_PER_S, piece.end_ns / NS_PER_S)


def _rates(run: Run, counted: dict[str, dict[int, int]]) -> Iterator[Sample]:
    """An interval without events has the rate 0; kinds of events that never happened are left out."""
    width_s = bin_ns_of(run) / NS_PER_S
    for kind, by_bin in counted.items():
        if counts := {bin_: count for bin_, count in by_bin.items() if 0 <= bin_ < BINS}:
            for bin_ in range(BINS):
                yield Sample(run.point, f"rate.{kind}", "", (bin_ + 0.5) * width_s, counts.get(bin_, 0) / width_s)


def _placement(facts: Facts, run: Run) -> Iterator[Sample]:
    """What the traffic of a run costs over time, and the moves of its links."""
    costs = run.scenario.costs
    if run.scenario.placement is None or costs is None:
        return
    by_bin, width_s = cost_by_bin(facts.tally, run.number, costs), bin_ns_of(run) / NS_PER_S
    for bin_ in range(BINS):
        yield Sample(run.point, "rate.cost", "", (bin_ + 0.5) * width_s, by_bin.get(bin_, 0.0) / width_s)
    for move in run.moves:
        what = f"{move.child}: {move.parent_before} to {move.parent}"
        yield Sample(run.point, "move", what, move.time_ns / NS_PER_S, None)


def _periods(run: Run, moved: dict[str, list[tuple[int, int]]]) -> Iterator[Sample]:
    end_s = run.measured_ns[1] / NS_PER_S
    for name in sampled_peers(run.scenario):
        moves = sorted(moved.get(name, ()))
        known_s = moves[-1][0] / NS_PER_S if len(moves) == series.MOVES_MAX else end_s
        events = [("connected" if is_on else "disconnected", time_ns / NS_PER_S) for time_ns, is_on in moves]
        yield Sample(run.point, "seen", name, None, min(known_s, end_s))
        for begin, end in connected(events, 0.0, min(known_s, end_s)):
            yield Sample(run.point, "on", name, begin, end)

"""The job that collects the series that the report draws."""

from collections import defaultdict
from collections.abc import Iterator
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from brokerbed.analysis.jobs.facts import Facts
from brokerbed.analysis.jobs.frames import BINS, bin_ns_of
from brokerbed.analysis.runs import Run
from brokerbed.analysis.series import Sample, connected, longer_than
from brokerbed.analysis.transforms import series
from brokerbed.analysis.transforms.delays import peer_spans
from brokerbed.analysis.windows import NOT_COMPARED
from brokerbed.scenario.sampling import sampled_pairs, sampled_peers, sampled_points
from brokerbed.scenario.units import NS_PER_S

KINDS = ("published", "notifications", "delivered", "control", "resynchronised", "dropped")
Rows = dict[tuple[int, str], dict[str, list[Any]]]  # by run and kind, then by name: pairs of key and value


def gather(facts: Facts) -> list[Sample]:
    """The series of a sample of points; if there are several seeds, of the first one."""
    finished = facts.frames.finished
    runs = [
        runs_of_point[0]
        for point in sampled_points(finished.experiment.points)
        if (runs_of_point := finished.of_point(point))
    ]
    if not runs:
        return []
    rows: Rows = defaultdict(lambda: defaultdict(list))
    for run, what, name, key, value in _rows(facts, runs).collect():
        rows[run, what][name].append((key, value))
    return [sample for run in runs for sample in _samples(facts, run, rows)]


def _rows(facts: Facts, runs: list[Run]) -> DataFrame:
    """The rows (run, what, name, key, value) of all series, in one job."""
    frames, numbers = facts.frames, [run.number for run in runs]
    is_all = len(numbers) == len(frames.finished.runs)
    events = frames.events if is_all else frames.events.where(F.col("run").isin(numbers))
    parts = [
        series.counts(events, BINS).select("run", F.lit("counts").alias("what"), F.col("kind").alias("name"),
                                           F.col("bin").alias("key"), F.col("count").alias("value"))
    ]  # fmt: skip
    if peers := [(run.number, peer) for run in runs for peer in sampled_peers(run.scenario)]:
        is_on = (F.col("event") == "connected").cast("long")
        moved = series.moves(events, frames.table(peers, "run int, client string"))
        parts.append(moved.select("run", F.lit("moves").alias("what"), F.col("client").alias("name"),
                                  F.col("time_ns").alias("key"), is_on.alias("value")))  # fmt: skip
    if ways := [(run.number, *way) for run in runs for way in sampled_pairs(run.scenario)]:
        table = frames.table(ways, "run int, first string, second string")
        delays = series.delays(peer_spans(facts.passed, frames.peers), facts.times, table)
        way = F.concat_ws(" -> ", "first", "second").alias("name")
        bucket = F.col("bucket").cast("long").alias("key")
        parts.append(delays.select("run", F.lit("delays").alias("what"), way, bucket, F.col("count").alias("value")))
    return reduce(DataFrame.unionByName, parts)


def _samples(facts: Facts, run: Run, rows: Rows) -> Iterator[Sample]:
    yield from _rates(run, rows[run.number, "counts"])
    for name, counts in sorted(rows[run.number, "delays"].items()):
        for x, y in longer_than(dict(counts), series.PER_DECADE):
            yield Sample(run.point, "delay", name, x, y)
    yield from _periods(run, rows[run.number, "moves"])
    for fault in facts.faults:
        if fault.run == run.number:
            healed_s = None if fault.healed_ns is None else fault.healed_ns / NS_PER_S
            yield Sample(run.point, "fault", fault.what, fault.struck_ns / NS_PER_S, healed_s)
    for piece in facts.intervals[run.number]:
        if piece.batch == NOT_COMPARED and piece.begin_ns >= 0 and piece.begin_ns >= run.measured_ns[0]:
            yield Sample(run.point, "left_out", "", piece.begin_ns / NS_PER_S, piece.end_ns / NS_PER_S)


def _rates(run: Run, counted: dict[str, list[Any]]) -> Iterator[Sample]:
    """An interval without events has the rate 0; kinds of events that never happened are left out."""
    width_s = bin_ns_of(run) / NS_PER_S
    for kind in KINDS:
        if counts := dict(counted.get(kind, ())):
            for bin_ in range(BINS):
                yield Sample(run.point, f"rate.{kind}", "", (bin_ + 0.5) * width_s, counts.get(bin_, 0) / width_s)


def _periods(run: Run, moved: dict[str, list[Any]]) -> Iterator[Sample]:
    end_s = run.measured_ns[1] / NS_PER_S
    for name in sampled_peers(run.scenario):
        moves = sorted(moved.get(name, ()))
        known_s = moves[-1][0] / NS_PER_S if len(moves) == series.MOVES_MAX else end_s
        events = [("connected" if is_on else "disconnected", time_ns / NS_PER_S) for time_ns, is_on in moves]
        yield Sample(run.point, "seen", name, None, min(known_s, end_s))
        for begin, end in connected(events, 0.0, min(known_s, end_s)):
            yield Sample(run.point, "on", name, begin, end)

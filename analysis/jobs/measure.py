"""The measuring job: from the logs of all runs of a directory to the rows of DESIGN's metric table."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, reduce

import pandas as pd
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from brokerbed.analysis.faults import RESYNC_NS, Fault, Life, Mark, faults_of, restarts_of
from brokerbed.analysis.jobs.frames import Frames
from brokerbed.analysis.measured import measured_by_count, measured_by_time
from brokerbed.analysis.transforms import delays, fates
from brokerbed.analysis.transforms.faults import aftermath, marks
from brokerbed.analysis.transforms.links import link_cells
from brokerbed.analysis.transforms.passages import passages
from brokerbed.analysis.transforms.tables import table_cells, table_changes
from brokerbed.analysis.verdicts import Measured
from brokerbed.analysis.windows import BATCHES, Interval, compared_ns, intervals
from brokerbed.scenario import Scenario
from brokerbed.scenario.units import NS_PER_S

Key = tuple[int, str, tuple[str, ...]]  # point, metric, values of its labels


@dataclass(frozen=True)
class Facts:
    """What several measurements and checks need, worked out once."""

    frames: Frames

    @property
    def scenarios(self) -> list[Scenario]:
        return [run.scenario for run in self.frames.finished.runs]

    @cached_property
    def passed(self) -> DataFrame:
        """What the clients tell of their messages."""
        return passages(self.frames.clients).persist()

    @cached_property
    def due(self) -> DataFrame:
        return fates.due(self.passed, self.frames.audiences)

    @cached_property
    def fates(self) -> DataFrame | None:
        """Of the messages that did not arrive; None if all did."""
        missing = self.due.where(~F.col("is_there")).drop("is_there").persist()
        if missing.isEmpty():
            return None
        return fates.fates(missing, self.frames.events, self.frames.hops).persist()

    @cached_property
    def marks(self) -> list[Mark]:
        """Also of runs whose scenario has no faults: somebody may have struck them on the live page."""
        return [Mark(*row) for row in marks(self.frames.logged).collect()]

    @cached_property
    def struck(self) -> list[Fault]:
        return faults_of(self.marks)

    @cached_property
    def faults(self) -> list[Fault]:
        """The same, with how long their effects lasted."""
        found = self.struck
        if not found:
            return []
        healed = [(it, it.confirmed_ns) for it in found if it.confirmed_ns is not None]
        rows = [(it.run, it.number, it.struck_ns, confirmed_ns + RESYNC_NS) for it, confirmed_ns in healed]
        frames = self.frames
        table = frames.table(rows, "run int, fault bigint, struck_ns bigint, confirmed_ns bigint")
        ends = aftermath(self.passed, frames.events, frames.peers, frames.inputs, table)
        lasted = {(run, fault): through_ns for run, fault, through_ns in ends.collect()}
        return [replace(it, through_ns=lasted.get((it.run, it.number))) for it in found]

    @cached_property
    def restarts(self) -> list[Life]:
        return restarts_of(self.marks)

    @cached_property
    def lives(self) -> DataFrame:
        ddl = "run int, broker string, life int, restarted_ns bigint, from_position bigint, to_position bigint"
        return self.frames.table(self.restarts, ddl)

    @cached_property
    def intervals(self) -> dict[int, list[Interval]]:
        """Of each run: what of its time is compared."""
        return {
            run.number: intervals(
                *run.measured_ns,
                [(it.struck_ns, it.until_ns) for it in self.faults if it.run == run.number],
                [it.restarted_ns for it in self.restarts if it.run == run.number],
            )
            for run in self.frames.finished.runs
        }

    @cached_property
    def times(self) -> DataFrame:
        return self.frames.intervals(self.intervals)


def cells(facts: Facts) -> tuple[DataFrame, DataFrame | None]:
    """Everything that is measured: per unit of time, and per unit that counts messages."""
    frames, times = facts.frames, facts.times
    restarts = facts.lives.select("run", "broker", "restarted_ns")
    timed = [
        link_cells(frames.events, times),
        table_cells(table_changes(frames.events), times, frames.brokers, restarts),
    ]
    counted = _counted(facts)
    return _union(timed).persist(), _union(counted).persist() if counted else None


def measure(facts: Facts, timed: DataFrame, counted: DataFrame | None) -> dict[Key, Measured]:
    """Every row of the metric table that the log has something to say of."""
    runs = facts.frames.finished.runs
    seconds = {run.number: compared_ns(facts.intervals[run.number]) / NS_PER_S / BATCHES for run in runs}
    points: dict[int, list[int]] = {}
    for run in runs:
        points.setdefault(run.point, []).append(run.number)
    found: dict[Key, Measured] = {}
    for point, its in _of_points(timed):
        found |= {(point, *row): it for row, it in measured_by_time(its, {run: seconds[run] for run in points[point]})}
    if counted is not None:
        for point, its in _of_points(counted):
            found |= {(point, *row): it for row, it in measured_by_count(its)}
    return found


def _of_points(cells_: DataFrame) -> Iterator[tuple[int, pd.DataFrame]]:
    """Some thousand cells per point are left: statistics are worked out here."""
    table: pd.DataFrame = cells_.toArrow().to_pandas()
    for point in table["point"].unique():
        yield int(point), table[table["point"] == point]


def _counted(facts: Facts) -> list[DataFrame]:
    """Delays and delivery, as far as the scenarios have peers and queues."""
    frames, times = facts.frames, facts.times
    scenarios = facts.scenarios
    found = []
    if any(it.publishers for it in scenarios):
        found.append(delays.peer_cells(facts.passed, times, frames.peers))
        waiting = frames.table([], "run int, publisher string, subscriber string, number bigint")
        if facts.fates is not None:
            waiting = facts.fates.where(F.col("fate") == fates.WAITING).select(*fates.PAIR)
        found.append(fates.delivery_cells(facts.due, waiting, times, frames.peers))
    if any(it.service.broker_in for it in scenarios):
        found.append(delays.input_cells(frames.events, times))
    if any(it.service.link for it in scenarios) or any(
        peer.session_service or peer.on for it in scenarios for peer in it.subscribers
    ):
        found.append(delays.output_cells(frames.events, times, frames.queues))
    return found


def _union(parts: list[DataFrame]) -> DataFrame:
    return reduce(DataFrame.unionByName, parts)

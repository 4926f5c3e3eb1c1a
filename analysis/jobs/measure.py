"""The measuring job: from the logs of all runs of a directory to the rows of DESIGN's metric table."""

from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from analysis.faults import FOREVER_NS, RESYNC_NS, Fault, Life, Mark, faults_of, restarts_of
from analysis.jobs.frames import Frames
from analysis.transforms import delays, fates
from analysis.transforms.estimates import estimates, sums_by_count, sums_by_exposure
from analysis.transforms.faults import aftermath, marks
from analysis.transforms.links import link_cells
from analysis.transforms.passages import passages
from analysis.transforms.tables import table_cells, table_changes
from analysis.verdicts import Measured, labels_of
from analysis.windows import Interval, intervals
from orchestrator.scenario import Scenario

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
        if not any(run.scenario.faults for run in self.frames.finished.runs):
            return []
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
        rows = [(it.run, it.number, it.struck_ns, (it.confirmed_ns or FOREVER_NS) + RESYNC_NS) for it in found]
        table = self.frames.table(rows, "run int, fault bigint, struck_ns bigint, confirmed_ns bigint")
        lasted = {
            (run, fault): through for run, fault, through in aftermath(self.passed, self.frames.events, table).collect()
        }
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
        runs_of_point = Counter(run.point for run in self.frames.finished.runs)
        return self.frames.intervals(self.intervals, runs_of_point)


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
    sums = sums_by_exposure(timed, facts.frames.exposures(facts.intervals))
    if counted is not None:
        sums = sums.unionByName(sums_by_count(counted))
    found: dict[Key, Measured] = {}
    for point, metric, first, second, value, low, high, _ in estimates(sums).collect():
        found[point, metric, tuple(labels_of(metric, first, second).values())] = Measured(value, low, high)
    return found


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
    return reduce(DataFrame.unionByName, (part.withColumn("unit", part["unit"].cast("string")) for part in parts))

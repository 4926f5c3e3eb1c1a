"""Intermediate results about the runs of a directory that several measurements and checks share."""

from dataclasses import dataclass, replace
from functools import cached_property

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from brokerbed.analysis.faults import RESYNC_NS, Fault, Life, Mark, faults_of, restarts_of
from brokerbed.analysis.jobs.frames import Frames
from brokerbed.analysis.transforms import fates
from brokerbed.analysis.transforms.faults import aftermath, marks
from brokerbed.analysis.transforms.passages import passages
from brokerbed.analysis.windows import Interval, intervals
from brokerbed.scenario import Scenario


@dataclass(frozen=True)
class Facts:
    """Intermediate results that several measurements and checks share; each is computed once."""

    frames: Frames

    @property
    def scenarios(self) -> list[Scenario]:
        return [run.scenario for run in self.frames.finished.runs]

    @cached_property
    def passed(self) -> DataFrame:
        """One row per message and client, from the clients' logs."""
        return passages(self.frames.clients).persist()

    @cached_property
    def due(self) -> DataFrame:
        return fates.due(self.passed, self.frames.audiences)

    @cached_property
    def fates(self) -> DataFrame | None:
        """What became of the messages that did not arrive; None if all did."""
        missing = self.due.where(~F.col("is_there")).drop("is_there").persist()
        if missing.isEmpty():
            return None
        return fates.fates(missing, self.frames.events, self.frames.hops).persist()

    @cached_property
    def waiting(self) -> DataFrame:
        """The messages that were still waiting at the end of a run."""
        if self.fates is None:
            return self.frames.table([], "run int, publisher string, subscriber string, number bigint")
        return self.fates.where(F.col("fate") == fates.WAITING).select(*fates.PAIR)

    @cached_property
    def marks(self) -> list[Mark]:
        """The rows about faults and restarts. Faults may come from the live page, not only from the scenario."""
        return [Mark(*row) for row in marks(self.frames.logged).collect()]

    @cached_property
    def struck(self) -> list[Fault]:
        return faults_of(self.marks)

    @cached_property
    def faults(self) -> list[Fault]:
        """All faults, with the end of their effects."""
        faults = self.struck
        if not faults:
            return []
        healed = [(fault, fault.confirmed_ns) for fault in faults if fault.confirmed_ns is not None]
        rows = [(fault.run, fault.number, fault.struck_ns, confirmed_ns + RESYNC_NS) for fault, confirmed_ns in healed]
        frames = self.frames
        table = frames.table(rows, "run int, fault bigint, struck_ns bigint, confirmed_ns bigint")
        ends = aftermath(self.passed, frames.events, frames.peers, frames.inputs, table)
        lasted = {(run, fault): through_ns for run, fault, through_ns in ends.collect()}
        return [replace(fault, through_ns=lasted.get((fault.run, fault.number))) for fault in faults]

    @cached_property
    def restarts(self) -> list[Life]:
        return restarts_of(self.marks)

    @cached_property
    def lives(self) -> DataFrame:
        ddl = "run int, broker string, life int, restarted_ns bigint, from_position bigint, to_position bigint"
        return self.frames.table(self.restarts, ddl)

    @cached_property
    def intervals(self) -> dict[int, list[Interval]]:
        """The intervals of time of each run, with the batches of compared time."""
        return {
            run.number: intervals(
                *run.measured_ns,
                [(fault.struck_ns, fault.until_ns) for fault in self.faults if fault.run == run.number],
                [life.restarted_ns for life in self.restarts if life.run == run.number],
            )
            for run in self.frames.finished.runs
        }

    @cached_property
    def times(self) -> DataFrame:
        return self.frames.intervals(self.intervals)

"""Intermediate results about the runs of a directory that several measurements and checks share."""

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from brokerbed.analysis.faults import FOREVER_NS, RESYNC_NS, Fault, Life, Mark, faults_of, restarts_of
from brokerbed.analysis.jobs.frames import Frames
from brokerbed.analysis.jobs.once import once
from brokerbed.analysis.link_moves import handovers_of
from brokerbed.analysis.marks import marks_of
from brokerbed.analysis.runs import Run
from brokerbed.analysis.tallies import Tally
from brokerbed.analysis.transforms import delays, fates, lifetimes, moves
from brokerbed.analysis.transforms.connections import connections
from brokerbed.analysis.transforms.exchanges import exchanges
from brokerbed.analysis.transforms.faults import aftermath
from brokerbed.analysis.transforms.passages import passages
from brokerbed.analysis.transforms.tally import tally
from brokerbed.analysis.windows import Interval, batch_seconds, intervals, periodic_intervals
from brokerbed.scenario import Scenario
from brokerbed.scenario.topology import Floats

FEW_MISSING = 100_000  # as many can be sent to every worker, which spares sorting the log to find their traces


@dataclass(frozen=True)
class Facts:
    """Intermediate results that several measurements and checks share; each is computed once, in the thread that
    needs it first."""

    frames: Frames

    @property
    def scenarios(self) -> list[Scenario]:
        return [run.scenario for run in self.frames.finished.runs]

    @once
    def passed(self) -> DataFrame:
        """One row per message and client, from the clients' logs."""
        return passages(self.frames.clients).persist()

    @once
    def inputs(self) -> DataFrame | None:
        """The delays at the inputs of brokers; None if no run has any."""
        if not any(scenario.service.broker_in for scenario in self.scenarios):
            return None
        return delays.input_spans(self.frames.events).persist()

    @once
    def outputs(self) -> DataFrame | None:
        """The delays at the outputs of brokers, to links and sessions; None if no run has any."""
        subscribers = [subscriber for scenario in self.scenarios for subscriber in scenario.subscribers]
        has_sessions = any(subscriber.session_service or subscriber.is_intermittent for subscriber in subscribers)
        if not has_sessions and not any(scenario.service.link for scenario in self.scenarios):
            return None
        return delays.output_spans(self.frames.events, self.frames.queues).persist()

    @once
    def connected(self) -> DataFrame:
        """When peers connected and disconnected."""
        return connections(self.frames.events, self.frames.peers).persist()

    @once
    def exchanges(self) -> DataFrame | None:
        """One row per request and responder; None if there are none."""
        roles = self.frames.exchange_roles
        return None if roles is None else exchanges(self.passed, roles).persist()

    @once
    def due(self) -> DataFrame:
        due = fates.due(self.passed, self.frames.audiences)
        if self.lifetimes is None:
            return due
        return lifetimes.of_due(due, self.lifetimes, lifetimes.ends(self.frames.clients, self.lifetimes)).persist()

    @once
    def lifetimes(self) -> DataFrame | None:
        """When the time of each message that has a lifetime is over; None if no publisher gives its messages one."""
        has_any = any(publisher.expiry is not None for run in self.scenarios for publisher in run.publishers)
        return lifetimes.lifetimes(self.frames.clients).persist() if has_any else None

    @once
    def fates(self) -> DataFrame | None:
        """What became of the messages that did not arrive; None if all did."""
        missing = self.due.where(~F.col("is_there")).drop("is_there").persist()
        count = missing.count()
        if not count:
            return None
        return fates.fates(
            missing,
            self.frames.events,
            self.frames.hops,
            count <= FEW_MISSING,
            self.frames.links_move or self.frames.peers_roam,
            moves.departures(self.frames.events) if self.frames.peers_roam else None,
        ).persist()

    @once
    def arrivals(self) -> DataFrame | None:
        """Sessions that came to brokers after their peers; None if no peer roams."""
        return moves.arrivals(self.frames.events).persist() if self.frames.peers_roam else None

    @once
    def waiting(self) -> DataFrame:
        """The messages that were still waiting at the end of a run."""
        if self.fates is None:
            return self.frames.table([], "run int, publisher string, subscriber string, number bigint")
        return self.fates.where(F.col("fate") == fates.WAITING).select(*fates.PAIR)

    @once
    def marks(self) -> list[Mark]:
        """The rows about faults and restarts. Faults may come from the live page, not only from the scenario."""
        return marks_of(self.frames.finished.runs)

    @once
    def struck(self) -> list[Fault]:
        return faults_of(self.marks)

    @once
    def faults(self) -> list[Fault]:
        """All faults, with the end of their effects."""
        faults = self.struck
        if not faults:
            return []
        healed = [(fault, fault.confirmed_ns) for fault in faults if fault.confirmed_ns is not None]
        rows = [(fault.run, fault.number, fault.struck_ns, confirmed_ns + RESYNC_NS) for fault, confirmed_ns in healed]
        frames = self.frames
        table = frames.table(rows, "run int, fault bigint, struck_ns bigint, confirmed_ns bigint")
        ends = aftermath(self.passed, frames.events, self.connected, table)
        lasted = {(run, fault): through_ns for run, fault, through_ns in ends.collect()}
        return [replace(fault, through_ns=lasted.get((fault.run, fault.number))) for fault in faults]

    @once
    def restarts(self) -> list[Life]:
        return restarts_of(self.marks)

    @once
    def lives(self) -> DataFrame | None:
        """All lives of the brokers that were restarted, by the positions in their logs; None if none was."""
        if not self.restarts:
            return None
        lives = [*self.restarts]
        lives += [
            life._replace(life=1, restarted_ns=0, from_position=0, to_position=life.from_position)
            for life in self.restarts
            if life.life == 2
        ]
        ddl = "run int, broker string, life int, restarted_ns bigint, from_position bigint, to_position bigint"
        rows = [(*life, life.to_position == FOREVER_NS) for life in lives]
        return self.frames.table(rows, f"{ddl}, is_last boolean")

    @once
    def handovers(self) -> DataFrame | None:
        """What messages took another link than they would have without a move; None if no link moved."""
        if not self.frames.links_move:
            return None
        ddl = "run int, broker string, link string, instead_of string, from_position bigint, to_position bigint"
        return self.frames.table(handovers_of(self.marks), f"{ddl}, is_leaving boolean")

    @once
    def intervals(self) -> dict[int, list[Interval]]:
        """The intervals of time of each run, with the batches of compared time."""
        found = {}
        for run in self.frames.finished.runs:
            cuts = [(fault.struck_ns, fault.until_ns) for fault in self.faults if fault.run == run.number]
            cuts += _before_last_move(run)
            marks = [life.restarted_ns for life in self.restarts if life.run == run.number]
            period_ns = run.scenario.period_ns
            found[run.number] = (
                intervals(*run.measured_ns, cuts, marks)
                if period_ns is None
                else periodic_intervals(*run.measured_ns, cuts, marks, period_ns)
            )
        return found

    @property
    def points(self) -> dict[int, int]:
        """The point of each run."""
        return {run.number: run.point for run in self.frames.finished.runs}

    @once
    def batch_s(self) -> dict[int, Floats]:
        """The lengths of the batches of each run."""
        return {run: batch_seconds(pieces) for run, pieces in self.intervals.items()}

    @once
    def times(self) -> DataFrame:
        return self.frames.intervals(self.intervals)

    @once
    def tally(self) -> Tally:
        """The counts from which rates, tables, arrivals, series and the balance of links follow."""
        links_may_move = any(scenario.placement is not None for scenario in self.scenarios)
        counted = tally(self.frames.logged, self.frames.peers, self.times, has_costs_over_time=links_may_move)
        return Tally(counted.toArrow().to_pandas())


def _before_last_move(run: Run) -> list[tuple[int, int]]:
    """Predictions are for the last tree, so that all time before it is like a warm-up."""
    begin_ns, end_ns = run.measured_ns
    moved_ns = [move.time_ns for move in run.moves if begin_ns <= move.time_ns < end_ns]
    return [(begin_ns, moved_ns[-1] + 1)] if moved_ns else []

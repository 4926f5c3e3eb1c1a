"""The judging job: checks the invariants of all runs of a directory."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from brokerbed.analysis import checks
from brokerbed.analysis.jobs.facts import Facts
from brokerbed.analysis.right_tables import RightTables
from brokerbed.analysis.transforms import balance, entries, order
from brokerbed.analysis.transforms.links import is_link
from brokerbed.scenario.faults.registry import FAULTS
from brokerbed.topics import ADVERTISE

Local = dict[str, dict[str, int]]  # by broker and filter: how many of its clients have it
OFFENDERS_MAX = 5  # violations of each invariant that are described


@dataclass(frozen=True, slots=True)
class Invariant:
    name: str
    checked: int
    broken: int
    offenders: tuple[str, ...]

    @property
    def holds(self) -> bool:
        return self.broken == 0

    def as_json(self) -> dict[str, Any]:
        entry: dict[str, Any] = {"name": self.name, "holds": self.holds, "checked": self.checked}
        if not self.holds:
            entry |= {"broken": self.broken, "offenders": list(self.offenders)}
        return entry


def judge(facts: Facts) -> dict[int, list[Invariant]]:
    """Checks all invariants of each point; the runs of a point are judged together."""
    judged = reduce(DataFrame.unionByName, _judged(facts))
    sums = {(run, name): (checked, broken) for run, name, checked, broken in checks.totals(judged).collect()}
    offenders: dict[tuple[int, str], list[str]] = {}
    if any(broken for _, broken in sums.values()):
        first = Window.partitionBy("run", "name").orderBy("moment", "text")
        numbered = judged.where(F.col("broken") > 0).withColumn("place", F.row_number().over(first))
        for row in numbered.where(F.col("place") <= OFFENDERS_MAX).orderBy("run", "name", "place").collect():
            offenders.setdefault((row["run"], row["name"]), []).append(row["text"])
    for run, broken in _faults(facts).items():
        offenders[run, checks.FAULTS] = broken[1]
        sums[run, checks.FAULTS] = broken[0], len(broken[1])
    return _by_point(facts, sums, offenders)


def _by_point(
    facts: Facts, sums: dict[tuple[int, str], tuple[int, int]], offenders: dict[tuple[int, str], list[str]]
) -> dict[int, list[Invariant]]:
    points: dict[int, list[int]] = {}
    for run in facts.frames.finished.runs:
        points.setdefault(run.point, []).append(run.number)
    return {
        point: [
            Invariant(
                name,
                sum(sums.get((run, name), (0, 0))[0] for run in runs),
                sum(sums.get((run, name), (0, 0))[1] for run in runs),
                tuple(text for run in runs for text in offenders.get((run, name), []))[:OFFENDERS_MAX],
            )
            for name in checks.INVARIANTS
        ]
        for point, runs in points.items()
    }


def _judged(facts: Facts) -> Iterator[DataFrame]:
    frames, events = facts.frames, facts.frames.events
    if any(scenario.publishers for scenario in facts.scenarios):
        yield from checks.messages_lost(facts.due, facts.fates)
        yield checks.order_and_once(order.out_of_order(facts.passed))
    if any(scenario.publications.qos > 0 for scenario in facts.scenarios):
        identified = events.where(F.col("event") == "identified").select(
            "run", F.col("client").alias("publisher"), F.col("number").cast("long")
        )
        yield checks.never_entered(facts.passed, identified, frames.peers)
    moved = balance.movements(events, frames.inputs, facts.lives)
    last = facts.lives.groupBy("run", "broker").agg(F.max("life").alias("last_life"))
    changes = balance.with_life(events.where(F.col("event").isin(list(entries.CHANGES))), facts.lives)
    final = entries.final_entries(changes, last).persist()
    there = final.where(is_link(F.col("client"))).withColumnRenamed("entries", "there")
    yield checks.tables(entries.compared_entries(there, _right_tables(facts, final)))
    spread = moved if frames.wildcards is None else balance.with_wildcards(moved, frames.wildcards)
    yield checks.routed(balance.episodes(balance.to_subscribers(spread, frames.always)))
    counts = balance.per_client(events, frames.inputs).persist()
    yield checks.sent_always(balance.always_balance(counts, frames.always))
    yield checks.crossed(balance.crossings_balance(counts), _struck(facts))


def _right_tables(facts: Facts, final: DataFrame) -> DataFrame:
    """The remote entries that brokers should have, for what their clients subscribe to and advertise at the end."""
    local = final.where(~is_link(F.col("client"))).groupBy("run", "broker", "filter").agg(F.sum("entries"))
    clients: dict[int, tuple[Local, Local]] = {}
    for run, broker, topic_filter, count in local.collect():
        wanted, advertised = clients.setdefault(run, (defaultdict(dict), defaultdict(dict)))
        if topic_filter.startswith(ADVERTISE):
            advertised[broker][topic_filter.removeprefix(ADVERTISE)] = count
        elif not topic_filter.startswith("$"):  # these stay on their broker
            wanted[broker][topic_filter] = count
    rows = []
    for run in facts.frames.finished.runs:
        scenario = run.scenario
        right = RightTables(
            scenario.tree, scenario.algorithm, scenario.routing_parameters, *clients.get(run.number, ({}, {}))
        )
        for (broker, link), entries_ in right.held().items():
            rows += [(run.number, broker, link, topic_filter, count) for topic_filter, count in entries_.items()]
    return facts.frames.table(rows, "run int, broker string, client string, filter string, wanted bigint")


def _struck(facts: Facts) -> DataFrame:
    """The directions of links on which a fault may have lost messages in transit."""
    rows = []
    for run in facts.frames.finished.runs:
        hit = {fault.what for fault in facts.struck if fault.run == run.number}
        for ends in run.scenario.tree.links:
            directions = ends, ends[::-1]
            kinds = FAULTS.all.values()
            causes = {f"{kind.name} {text}" for kind in kinds for text in kind.target.texts_near_link(ends)}
            if hit & causes:
                rows += [(run.number, ">".join(direction), True) for direction in directions]
    return facts.frames.table(rows, "run int, link string, is_struck boolean")


def _faults(facts: Facts) -> dict[int, tuple[int, list[str]]]:
    """The number of faults of each run, and which of them were not confirmed."""
    judged: dict[int, tuple[int, list[str]]] = {}
    for run in facts.frames.finished.runs:
        struck = [fault for fault in facts.struck if fault.run == run.number]
        wrong = [f"{fault.what}: no effect was seen" for fault in struck if not fault.has_effect]
        wrong += [f"{fault.what}: it was not seen to be over" for fault in struck if fault.confirmed_ns is None]
        judged[run.number] = len(struck), wrong
    return judged

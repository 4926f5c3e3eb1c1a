"""The judging job: checks the invariants of all runs of a directory."""

from collections.abc import Iterator
from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from brokerbed.analysis import checks
from brokerbed.analysis.invariants import FAULTS, INVARIANTS, Invariant, Judged
from brokerbed.analysis.jobs.facts import Facts
from brokerbed.analysis.tallies import crossed, sent_always
from brokerbed.analysis.transforms import balance, entries, order
from brokerbed.scenario.faults.registry import FAULTS as FAULT_KINDS

OFFENDERS_MAX = 5  # violations of each invariant that are described


def judge(facts: Facts) -> dict[int, list[Invariant]]:
    """Checks all invariants of each point; the runs of a point are judged together."""
    judged = reduce(DataFrame.unionByName, _judged(facts))
    sums: dict[tuple[int, str], tuple[int, int]] = {}
    for run, name, checked, broken in checks.totals(judged).collect():
        sums[run, name] = checked, broken
    first: list[Judged] = []
    if any(broken for _, broken in sums.values()):
        in_order = Window.partitionBy("run", "name").orderBy("moment", "text")
        numbered = judged.where(F.col("broken") > 0).withColumn("place", F.row_number().over(in_order))
        rows = numbered.where(F.col("place") <= OFFENDERS_MAX).select(*Judged._fields).collect()
        first = [Judged(*row) for row in rows]
    for balanced in (*sent_always(facts.tally, facts.frames.always_links), *crossed(facts.tally, _struck(facts))):
        checked, broken = sums.get((balanced.run, balanced.name), (0, 0))
        sums[balanced.run, balanced.name] = checked + balanced.checked, broken + balanced.broken
        if balanced.broken > 0:
            first.append(balanced)
    offenders: dict[tuple[int, str], list[str]] = {}
    for row in sorted(first, key=lambda row: (row.moment is not None, row.moment, row.text)):
        offenders.setdefault((row.run, row.name), []).append(row.text)
    for run, (number, wrong) in _faults(facts).items():
        offenders[run, FAULTS] = wrong
        sums[run, FAULTS] = number, len(wrong)
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
                tuple(text for run in runs for text in offenders.get((run, name), [])[:OFFENDERS_MAX])[:OFFENDERS_MAX],
            )
            for name in INVARIANTS
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
    moved = balance.movements(events, facts.lives)
    final = entries.final_entries(moved)
    yield checks.tables(entries.wrong_entries(final, frames.ancestors, frames.sends_each))
    yield checks.delivered_in_order(balance.deliveries(moved))
    spread = moved if frames.wildcards is None else balance.with_wildcards(moved, frames.wildcards)
    yield checks.routed(balance.episodes(balance.to_subscribers(spread, frames.always)))


def _struck(facts: Facts) -> dict[int, list[str]]:
    """The directions of links on which a fault may have lost messages in transit, by run."""
    struck: dict[int, list[str]] = {}
    for run in facts.frames.finished.runs:
        hit = {fault.what for fault in facts.struck if fault.run == run.number}
        for ends in run.scenario.tree.links:
            kinds = FAULT_KINDS.all.values()
            causes = {f"{kind.name} {text}" for kind in kinds for text in kind.target.texts_near_link(ends)}
            if hit & causes:
                struck.setdefault(run.number, []).extend((">".join(ends), ">".join(ends[::-1])))
    return struck


def _faults(facts: Facts) -> dict[int, tuple[int, list[str]]]:
    """The number of faults of each run, and which of them were not confirmed."""
    judged: dict[int, tuple[int, list[str]]] = {}
    for run in facts.frames.finished.runs:
        struck = [fault for fault in facts.struck if fault.run == run.number]
        wrong = [f"{fault.what}: no effect was seen" for fault in struck if not fault.has_effect]
        wrong += [f"{fault.what}: it was not seen to be over" for fault in struck if fault.confirmed_ns is None]
        judged[run.number] = len(struck), wrong
    return judged

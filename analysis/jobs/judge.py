"""The judging job: checks the invariants of all runs of a directory."""

from collections import defaultdict
from collections.abc import Iterator
from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from brokerbed.analysis import checks
from brokerbed.analysis.invariants import FAULTS, INVARIANTS, Invariant, Judged
from brokerbed.analysis.jobs.facts import Facts
from brokerbed.analysis.moved_runs import links_of, tree_at_end
from brokerbed.analysis.right_tables import Held, RightTables, compared
from brokerbed.analysis.tallies import crossed, sent_always
from brokerbed.analysis.transforms import balance, entries, lifetimes, moves, order
from brokerbed.scenario.faults.registry import FAULTS as FAULT_KINDS
from brokerbed.topics import ADVERTISE

Local = dict[str, dict[str, int]]  # by broker and filter: how many of its clients have it
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
    for row in _judged_without_spark(facts):
        checked, broken = sums.get((row.run, row.name), (0, 0))
        sums[row.run, row.name] = checked + row.checked, broken + row.broken
        if row.broken > 0:
            first.append(row)
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
    if any(scenario.generators for scenario in facts.scenarios):
        yield from checks.messages_lost(facts.due, facts.fates)
        yield checks.order_and_once(order.out_of_order(facts.passed))
    if facts.lifetimes is not None:
        died = lifetimes.ends(frames.clients, facts.lifetimes), lifetimes.deaths(events, facts.lifetimes)
        yield from checks.died_in_time(*died)
    if facts.exchanges is not None:
        yield checks.requests_answered(facts.exchanges)
    if any(scenario.has_acknowledged_publications for scenario in facts.scenarios):
        identified = events.where(F.col("event") == "identified").select(
            "run", F.col("client").alias("publisher"), F.col("number").cast("long")
        )
        yield checks.never_entered(facts.passed, identified, frames.peers)
    moved = balance.movements(events, facts.lives, facts.handovers)
    if facts.arrivals is not None:
        moved = moves.left_by_last_broker(moved, facts.arrivals)
    yield checks.delivered_in_order(balance.deliveries(moved))
    spread = moved if frames.wildcards is None else balance.with_wildcards(moved, frames.wildcards)
    yield checks.routed(balance.episodes(balance.to_subscribers(spread, frames.always)))


def _judged_without_spark(facts: Facts) -> Iterator[Judged]:
    """What few numbers tell: the counts of the tally, and the entries at the end."""
    yield from sent_always(facts.tally, facts.frames.always_links)
    yield from crossed(facts.tally, _struck(facts))
    yield from _tables(facts)


def _tables(facts: Facts) -> Iterator[Judged]:
    """The remote entries that brokers have at the end, beside those that their clients and the tree require."""
    there: dict[int, Held] = defaultdict(lambda: defaultdict(dict))
    clients: dict[int, tuple[Local, Local]] = defaultdict(lambda: (defaultdict(dict), defaultdict(dict)))
    for run, broker, link, topic_filter, count in entries.final_entries(facts.frames.events, facts.lives).collect():
        wanted, advertised = clients[run]
        if link is not None:
            there[run][broker, link][topic_filter] = count
        elif topic_filter.startswith(ADVERTISE):
            advertised[broker][topic_filter.removeprefix(ADVERTISE)] = count
        elif not topic_filter.startswith("$"):  # these stay on their broker
            wanted[broker][topic_filter] = count
    for finished in facts.frames.finished.runs:
        scenario, run = finished.scenario, finished.number
        right = RightTables(tree_at_end(finished), scenario.algorithm, scenario.routing_parameters, *clients[run])
        yield from compared(run, there[run], right.held())


def _struck(facts: Facts) -> dict[int, list[str]]:
    """The directions of links on which a fault may have lost messages in transit, by run."""
    struck: dict[int, list[str]] = {}
    for run in facts.frames.finished.runs:
        hit = {fault.what for fault in facts.struck if fault.run == run.number}
        for ends in links_of(run):
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

"""What follows from the tally of a log: rates of links, sizes of tables, arrivals, series, and the balance of links.

transforms/tally.py counts; this module adds up, for a few thousand counts per run, without Spark. Pure.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from brokerbed.analysis.faults import Life
from brokerbed.analysis.invariants import ACCOUNTED, Judged
from brokerbed.analysis.windows import NOT_COMPARED, Interval
from brokerbed.metrics import (
    ADVERTISEMENTS,
    ALL_MESSAGES,
    CONTROL_MESSAGES,
    DELIVERED_MESSAGES,
    LOCAL_ENTRIES,
    MOVED_MESSAGES,
    NOTIFICATIONS,
    RECEIVED_NOTIFICATIONS,
    REMOTE_ENTRIES,
    ROUTING_COST,
    Metric,
)
from brokerbed.scenario.costs import Costs
from brokerbed.scenario.topology import Floats
from brokerbed.scenario.units import NS_PER_S

NOTIFIED, CONTROL_SENT = "link.notifications", "link.control"  # by link and batch
MOVED = "moved"  # by batch: messages of sessions that move
BROKER_RECEIVED = "broker.received"  # by broker and batch
DELIVERED = "delivered"  # by batch: messages to clients
REMOTE, LOCAL, ADVERTISED = "entries.remote", "entries.local", "entries.advertised"  # changes, by broker and interval
PUBLICATIONS, SUBSCRIPTIONS, MESSAGES = "publications", "subscriptions", "messages"  # by broker or peer, and bin
KINDS = ("published", "notifications", "delivered", "control", "resynchronised", "dropped")
SERIES = {kind: f"series.{kind}" for kind in KINDS}  # of all brokers, by bin
NOTIFIED_IN_BIN, RECEIVED_IN_BIN = "bin.notifications", "bin.received"  # by link, and by broker; only if links move
RECEIVED, CAME, ROUTED, SENT = "whole.received", "whole.came", "whole.routed", "whole.sent"  # by link; CAME by broker
CELL = ["run", "point", "metric", "first", "second", "copy", "batch", "x", "n"]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Tally:
    """The counts of all runs: columns run, what, name, time, count and left_ns (see transforms/tally.py)."""

    counts: pd.DataFrame

    @cached_property
    def _by_kind(self) -> Mapping[str, pd.DataFrame]:
        return {str(what): rows for what, rows in self.counts.groupby("what")}

    def of(self, what: str) -> pd.DataFrame:
        return self._by_kind.get(what, self.counts[:0])

    def by_time(self, what: str) -> dict[int, dict[str, dict[int, int]]]:
        """By run and name: counts by time."""
        found: dict[int, dict[str, dict[int, int]]] = defaultdict(lambda: defaultdict(dict))
        for run, name, time, count in _rows(self.of(what), "run", "name", "time", "count"):
            found[run][name][time] = count
        return found

    def whole(self, what: str) -> dict[tuple[int, str], int]:
        """Counts over whole runs, by run and name."""
        return {(run, name): count for run, name, count in _rows(self.of(what), "run", "name", "count")}


def _rows(table: pd.DataFrame, *columns: str) -> Iterator[tuple[Any, ...]]:
    return zip(*(table[column].tolist() for column in columns), strict=True)


@dataclass(frozen=True, slots=True)
class Tables:
    """The brokers of one run, with the intervals of time and the restarts, between which sizes of tables add up."""

    run: int
    point: int
    brokers: Sequence[str]
    intervals: Sequence[Interval]
    restarts: Sequence[Life]
    batch_s: Floats  # the lengths of the batches
    advertises: bool  # whether brokers have tables of advertisements

    @property
    def kinds(self) -> dict[str, Metric]:
        """The metrics of the tables that brokers have."""
        entries = {REMOTE: REMOTE_ENTRIES, LOCAL: LOCAL_ENTRIES}
        return {**entries, ADVERTISED: ADVERTISEMENTS} if self.advertises else entries


def link_cells(
    tally: Tally, points: Mapping[int, int], batch_s: Mapping[int, Floats], media: Mapping[int, Sequence[str]]
) -> pd.DataFrame:
    """Counts per link and batch, and in total. `points` and `batch_s` have the point and the lengths of batches by run.

    A link has cells for the batches in which anything crossed it. What the `media` of a run send is in no total.
    """
    kinds = [NOTIFIED, CONTROL_SENT]
    counted = pd.concat([tally.of(kind) for kind in kinds])
    per_link = counted.pivot_table("count", ["run", "name", "time"], "what", "sum", fill_value=0)
    per_link = per_link.reindex(columns=kinds, fill_value=0).astype(float)
    is_counted = [link.partition(">")[0] not in media[run] for run, link, _ in per_link.index.tolist()]
    totals = per_link[np.array(is_counted, bool)].groupby(["run", "time"]).sum()
    parts = [
        _link_part(NOTIFICATIONS, per_link[NOTIFIED]),
        _link_part(CONTROL_MESSAGES, per_link[CONTROL_SENT]),
        _link_part(NOTIFICATIONS, totals[NOTIFIED]),
        _link_part(CONTROL_MESSAGES, totals[CONTROL_SENT]),
        _link_part(ALL_MESSAGES, totals[NOTIFIED] + totals[CONTROL_SENT]),
    ]
    return _complete(pd.concat(parts, ignore_index=True), points, batch_s)


def received_cells(tally: Tally, points: Mapping[int, int], batch_s: Mapping[int, Floats]) -> pd.DataFrame:
    """Counts per broker and batch."""
    counts = tally.of(BROKER_RECEIVED).set_index(["run", "name", "time"])["count"].astype(float)
    return _complete(_link_part(RECEIVED_NOTIFICATIONS, counts), points, batch_s)


def moved_cells(tally: Tally, points: Mapping[int, int], batch_s: Mapping[int, Floats]) -> pd.DataFrame:
    counts = tally.of(MOVED).set_index(["run", "time"])["count"].astype(float)
    return _complete(_link_part(MOVED_MESSAGES, counts), points, batch_s)


def delivered_cells(tally: Tally, points: Mapping[int, int], batch_s: Mapping[int, Floats]) -> pd.DataFrame:
    counts = tally.of(DELIVERED).set_index(["run", "time"])["count"].astype(float)
    return _complete(_link_part(DELIVERED_MESSAGES, counts), points, batch_s)


def cost_cells(
    tally: Tally, points: Mapping[int, int], batch_s: Mapping[int, Floats], costs: Mapping[int, Costs]
) -> pd.DataFrame:
    """What all notifications of each batch cost, for the runs that have `costs`."""
    parts = []
    for what, price in ((NOTIFIED, _price_of_link), (BROKER_RECEIVED, Costs.of_broker)):
        counts = tally.of(what)[["run", "name", "time", "count"]]
        counts = counts[counts["run"].isin(list(costs))]
        each = [price(costs[run], name) for run, name in zip(counts["run"], counts["name"], strict=True)]
        parts.append(counts.assign(x=counts["count"] * np.array(each, float)))
    totals = pd.concat(parts).groupby(["run", "time"])["x"].sum()
    return _complete(_link_part(ROUTING_COST, totals), points, batch_s)


def cost_by_bin(tally: Tally, run: int, costs: Costs) -> dict[int, float]:
    """What all notifications of each bin of time cost in a run whose links may move."""
    totals: dict[int, float] = defaultdict(float)
    for what, price in ((NOTIFIED_IN_BIN, _price_of_link), (RECEIVED_IN_BIN, Costs.of_broker)):
        for name, counts in tally.by_time(what)[run].items():
            each = price(costs, name)
            for bin_, count in counts.items():
                totals[bin_] += each * count
    return dict(totals)


def _price_of_link(costs: Costs, name: str) -> float:
    return costs.of_link(*name.split(">"))


def _complete(cells: pd.DataFrame, points: Mapping[int, int], batch_s: Mapping[int, Floats]) -> pd.DataFrame:
    """The cells with the points of their runs and the lengths of their batches."""
    run = cells["run"]
    n = np.array([batch_s[number][batch] for number, batch in zip(run, cells["batch"], strict=True)], float)
    return cells.assign(point=run.map(points), second="", copy=-1, n=n)[CELL]


def _link_part(metric: Metric, counts: "pd.Series[float]") -> pd.DataFrame:
    rows = counts.rename("x").reset_index().rename(columns={"name": "first", "time": "batch"})
    return rows.assign(metric=metric.name) if "first" in rows else rows.assign(metric=metric.name, first="")


def table_cells(tally: Tally, runs: Sequence[Tables]) -> pd.DataFrame:
    """Entry-seconds per broker and batch. Tables are empty when brokers start, and restarts are limits of intervals."""
    parts = [
        _table_part(metric, changes[changes["run"] == run.run], run)
        for run in runs
        for kind, metric in run.kinds.items()
        for changes in (tally.of(kind),)
    ]
    return pd.concat(parts, ignore_index=True)


def _table_part(metric: Metric, changes: pd.DataFrame, run: Tables) -> pd.DataFrame:
    place = {name: number for number, name in enumerate(run.brokers)}
    net, area_ns = np.zeros((2, len(place), len(run.intervals)), np.int64)
    where = changes["name"].map(place).to_numpy(np.int64), changes["time"].to_numpy(np.int64)
    net[where], area_ns[where] = changes["count"], changes["left_ns"]
    size = _sizes(net, place, run)
    batches = np.array([interval.batch for interval in run.intervals])
    is_compared = batches != NOT_COMPARED
    length_ns = np.array([interval.end_ns - interval.begin_ns for interval in run.intervals])
    entry_ns = (size * length_ns + area_ns)[:, is_compared]
    used, number = np.unique(batches[is_compared], return_inverse=True)
    sums = np.zeros((1 + len(place), len(used)), np.int64)
    np.add.at(sums.T[:, 1:], number, entry_ns.T)
    sums[0] = sums[1:].sum(axis=0)
    first = np.repeat(np.array(["", *run.brokers], object), len(used))
    n = np.tile(run.batch_s[used], len(sums))
    cells = pd.DataFrame({"first": first, "batch": np.tile(used, len(sums)), "x": sums.ravel() / NS_PER_S})
    return cells.assign(run=run.run, point=run.point, metric=metric.name, second="", copy=-1, n=n)[CELL]


def _sizes(net: Integers, place: Mapping[str, int], run: Tables) -> Integers:
    """The number of entries of each broker at the beginning of each interval."""
    sizes = np.cumsum(net, axis=1) - net
    begins = [interval.begin_ns for interval in run.intervals]
    emptied = sizes.copy()
    for life in sorted(run.restarts, key=lambda life: life.restarted_ns):
        first = int(np.searchsorted(begins, life.restarted_ns))
        if first < len(begins):
            broker = place[life.broker]
            emptied[broker, first:] = sizes[broker, first:] - sizes[broker, first]
    return emptied


def sent_always(tally: Tally, always: Iterable[tuple[int, str, str]]) -> Iterator[Judged]:
    """Every message that reached a broker went to its parent, and with flooding to its children, but not back.

    `always` has the run, the broker and the link to which everything is sent.
    """
    came, routed = tally.whole(CAME), tally.whole(ROUTED)
    for run, broker, link in always:
        expected = came.get((run, broker), 0) - came.get((run, link), 0)
        went = routed.get((run, link), 0)
        text = f"{link}: {expected} should have gone there, {went} did"
        yield Judged(run, ACCOUNTED, expected, abs(expected - went), 0, text)


def crossed(tally: Tally, struck: Mapping[int, Iterable[str]]) -> Iterator[Judged]:
    """What one end of a link sent reached the other end; a fault on the link may have lost what was in transit.

    `struck` has the directions of links that a fault affected, by run.
    """
    sent = tally.whole(SENT)
    received = {
        (run, ">".join(reversed(link.split(">")))): count for (run, link), count in tally.whole(RECEIVED).items()
    }
    for run, link in dict.fromkeys((*sent, *received)):
        went, came = sent.get((run, link), 0), received.get((run, link), 0)
        broken = came - went if came > went else 0 if link in struck.get(run, ()) else went - came
        yield Judged(run, ACCOUNTED, went, broken, 0, f"{link}: {went} sent, {came} received")

"""The tally: one pass over the log that counts events by broker, link or peer, and by part of time.

Rates, sizes of tables, arrivals, series over time and the balance of links are all sums of these counts, and there are
few of them, so that analysis/tallies.py computes the rest without Spark.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from brokerbed.analysis.tallies import (
    ADVERTISED,
    BROKER_RECEIVED,
    CAME,
    CONTROL_SENT,
    DELIVERED,
    LOCAL,
    MESSAGES,
    MOVED,
    NOTIFIED,
    NOTIFIED_IN_BIN,
    PUBLICATIONS,
    RECEIVED,
    RECEIVED_IN_BIN,
    REMOTE,
    ROUTED,
    SENT,
    SERIES,
    SUBSCRIPTIONS,
)
from brokerbed.analysis.transforms.balance import ROUTED as ROUTING
from brokerbed.analysis.transforms.links import ADDED, CHANGES, CONTROL, is_link
from brokerbed.analysis.transforms.moments import bin_of
from brokerbed.log.record import CLIENTS, DUPLICATE, REPLAY, WAITED

OF_BROKERS = (*ROUTING, *CHANGES, *CONTROL, "received", "served", "link_resync", "moved")
CELL = ("run", "broker", "event", "is_in", "flags", "who", "is_peer", "bin", "interval", "batch")


def tally(logged: DataFrame, peers: DataFrame, intervals: DataFrame, has_costs_over_time: bool = False) -> DataFrame:
    """(run, what, name, time, count, left_ns): how often `what` happened at the broker, link or peer called `name`.

    `time` is a batch, an interval or a bin of time, or 0 where a count is over the whole run. `left_ns` adds up, for
    changes of tables, the time that was left until the end of the interval. `has_costs_over_time`: notifications are
    also counted by link and bin, and by broker and bin.
    """
    rows = F.explode(F.filter(F.array(*_rows(has_costs_over_time)), lambda row: row.isNotNull())).alias("row")
    return (
        _cells(logged, peers, intervals)
        .select("run", rows)
        .groupBy("run", "row.what", "row.name", "row.time")
        .agg(F.sum("row.count").alias("count"), F.sum("row.left_ns").alias("left_ns"))
    )


def _cells(logged: DataFrame, peers: DataFrame, intervals: DataFrame) -> DataFrame:
    """Counts of events of one kind, so that rows of the log are spread over several tallies only when they are few."""
    event, client, time_ns = F.col("event"), F.col("client"), F.col("time_ns")
    is_of_client = F.col("broker") == CLIENTS
    counted = logged.where(
        (~is_of_client & event.isin(*OF_BROKERS)) | (is_of_client & (event == "published"))
    ).withColumn("bin", bin_of(time_ns, F.col("bin_ns")))
    # A key that is null is not looked up: most rows need neither their peer nor their interval.
    is_entering = event.isin("received", "subscribed", "published") & ~is_link(client)
    is_timed = event.isin(*CHANGES, *CONTROL, "received", "moved", "sent")
    keyed = counted.withColumns(
        {"peer": F.when(is_entering, client), "timed": F.when(is_timed, F.col("bin")), "number": F.col("run")}
    )
    names = peers.select("run", F.col("id").alias("peer"), F.lit(True).alias("is_peer"))
    limits = intervals.select(
        F.col("run").alias("number"), F.col("bin").alias("timed"), "interval", "batch", "begin_ns", "end_ns"
    )
    is_here = (
        (keyed["number"] == limits["number"])
        & (keyed["timed"] == limits["timed"])
        & (keyed["time_ns"] >= limits["begin_ns"])
        & (keyed["time_ns"] < limits["end_ns"])
    )
    noted = DUPLICATE | REPLAY | WAITED
    is_peer = F.col("is_peer").isNotNull()
    return (
        keyed.join(F.broadcast(limits), is_here, "left")
        .join(F.broadcast(names), ["run", "peer"], "left")
        .withColumns(
            {
                "is_in": event == F.col("input"),
                "flags": F.when(event.isin(*ROUTING), F.col("flags").bitwiseAND(F.lit(noted))).otherwise(F.lit(0)),
                "is_peer": is_peer,
                "who": F.when(is_link(client) | ((event == "published") & is_peer), client),
                "left_ns": F.when(event.isin(*CHANGES), F.col("end_ns") - time_ns),
            }
        )
        .groupBy(*CELL)
        .agg(F.count("*").alias("count"), F.sum("left_ns").alias("left_ns"))
    )


def _rows(has_costs_over_time: bool) -> list[Column]:
    """The tallies to which a cell of _cells belongs."""
    event, broker, link, bin_, batch = (F.col(name) for name in ("event", "broker", "who", "bin", "batch"))
    over_link, count, whole = link.isNotNull(), F.col("count"), F.lit(0)
    is_new = F.col("flags").bitwiseAND(F.lit(DUPLICATE | REPLAY)) == 0
    is_first = is_new & (F.col("flags").bitwiseAND(F.lit(WAITED)) == 0)
    is_sent, is_control = event == "sent", event.isin(*CONTROL)
    is_notification, is_compared = is_sent & over_link & is_new, batch >= 0
    is_change = event.isin(*CHANGES) & F.col("interval").isNotNull()
    sign = F.when(event.isin(*ADDED), 1).otherwise(-1)
    is_advertisement = event.isin("advertised", "unadvertised")
    table = F.when(is_advertisement, ADVERTISED).when(over_link, REMOTE).otherwise(LOCAL)
    is_of_class = ~over_link & ~F.col("is_peer")
    series = (
        F.when(is_notification, SERIES["notifications"])
        .when(is_control, SERIES["control"])
        .when((event == "received") & ~over_link, SERIES["published"])
        .when(is_sent & ~over_link, SERIES["delivered"])
        .when(event == "dropped", SERIES["dropped"])
        .when(event == "link_resync", SERIES["resynchronised"])
    )
    over_time = [
        _row(is_notification, F.lit(NOTIFIED_IN_BIN), link, bin_, count),
        _row(event == "received", F.lit(RECEIVED_IN_BIN), broker, bin_, count),
    ]
    return [
        *(over_time if has_costs_over_time else ()),
        _row(is_notification & is_compared, F.lit(NOTIFIED), link, batch, count),
        _row((event == "received") & is_compared, F.lit(BROKER_RECEIVED), broker, batch, count),
        _row((event == "moved") & is_compared, F.lit(MOVED), F.lit(""), batch, count),
        _row(is_sent & ~over_link & is_new & is_compared, F.lit(DELIVERED), F.lit(""), batch, count),
        _row(is_control & is_compared, F.lit(CONTROL_SENT), link, batch, count),
        _row(is_change & (over_link | ~is_advertisement), table, broker, F.col("interval"), sign * count,
             sign * F.col("left_ns")),  # advertisements of clients are in no table that is measured
        _row((event == "received") & is_of_class, F.lit(PUBLICATIONS), broker, bin_, count),
        _row((event == "subscribed") & is_of_class, F.lit(SUBSCRIPTIONS), broker, bin_, count),
        _row((event == "published") & F.col("is_peer"), F.lit(MESSAGES), link, bin_, count),
        _row(series.isNotNull(), series, F.lit(""), bin_, count),
        _row((event == "received") & over_link, F.lit(RECEIVED), link, whole, count),
        _row(F.col("is_in") & over_link, F.lit(CAME), link, whole, count),
        _row(F.col("is_in"), F.lit(CAME), broker, whole, count),
        _row(event.isin(*ROUTING) & is_first & over_link, F.lit(ROUTED), link, whole, count),
        _row(is_sent & is_new & over_link, F.lit(SENT), link, whole, count),
    ]  # fmt: skip


def _row(
    condition: Column, what: Column, name: Column, time: Column, count: Column, left_ns: Column | None = None
) -> Column:
    left = F.lit(0) if left_ns is None else left_ns  # pandas would turn integers into fractions if some were null
    row = F.struct(
        what.alias("what"),
        name.alias("name"),
        time.cast("long").alias("time"),
        count.cast("long").alias("count"),
        left.cast("long").alias("left_ns"),
    )
    return F.when(condition, row)

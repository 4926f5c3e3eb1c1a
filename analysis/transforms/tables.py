"""Sizes of routing tables over time, computed from the entries that were added and removed."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from brokerbed.analysis.transforms.entries import CHANGES, change
from brokerbed.analysis.transforms.links import is_link
from brokerbed.analysis.transforms.moments import within
from brokerbed.metrics import ADVERTISEMENTS, LOCAL_ENTRIES, REMOTE_ENTRIES
from brokerbed.scenario.units import NS_PER_S


def table_changes(events: DataFrame) -> DataFrame:
    """One row for each entry that was added (+1) or removed (-1), with the metric that counts it."""
    is_remote, is_interest = is_link(F.col("client")), F.col("event").isin("subscribed", "unsubscribed")
    metric = (
        F.when(is_interest & is_remote, REMOTE_ENTRIES.name)
        .when(is_interest, LOCAL_ENTRIES.name)
        .when(is_remote, ADVERTISEMENTS.name)  # those of clients are not counted
    )
    changes = events.where(F.col("event").isin(list(CHANGES)))
    return changes.withColumns({"change": change(), "metric": metric}).where(F.col("metric").isNotNull())


def table_cells(changes: DataFrame, intervals: DataFrame, brokers: DataFrame, restarts: DataFrame) -> DataFrame:
    """Entry-seconds per broker and batch. Tables are empty when brokers start, and restarts are limits of intervals.

    `brokers` has a row for each broker and metric that applies.
    """
    in_interval = (
        within(changes.select("run", "bin_ns", "time_ns", "broker", "metric", "change"), intervals)
        .groupBy("run", "broker", "metric", "interval")
        .agg(
            F.sum("change").alias("net"),
            F.sum(F.col("change") * (F.col("end_ns") - F.col("time_ns"))).alias("area"),
        )
    )
    grid = _grid(intervals, brokers, restarts)
    before = (
        Window.partitionBy("run", "broker", "metric", "life")
        .orderBy("interval")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    sized = (
        grid.join(in_interval, ["run", "broker", "metric", "interval"], "left")
        .withColumn("size", F.coalesce(F.sum("net").over(before), F.lit(0)))
        .where(F.col("batch") >= 0)
    )
    entry_ns = F.col("size") * (F.col("end_ns") - F.col("begin_ns")) + F.coalesce("area", F.lit(0))
    return (
        sized.withColumn("first", F.explode(F.array(F.lit(""), F.col("broker"))))
        .groupBy("run", "point", "metric", "first", "batch", "seconds")
        .agg((F.sum(entry_ns) / NS_PER_S).alias("x"))
        .withColumns({"second": F.lit(""), "copy": F.lit(-1), "n": F.col("seconds")})
        .select("run", "point", "metric", "first", "second", "copy", "batch", "x", "n")
    )


def _grid(intervals: DataFrame, brokers: DataFrame, restarts: DataFrame) -> DataFrame:
    """Every broker in every interval, for each metric that applies, with the number of its restarts so far."""
    times = intervals.select("run", "point", "interval", "begin_ns", "end_ns", "batch", "seconds").distinct()
    cells = times.join(F.broadcast(brokers), "run")
    is_before = (
        (cells["run"] == restarts["run"])
        & (cells["broker"] == restarts["broker"])
        & (restarts["restarted_ns"] <= cells["begin_ns"])
    )
    return (
        cells.join(F.broadcast(restarts), is_before, "left")
        .groupBy([cells[name] for name in cells.columns])
        .agg(F.count("restarted_ns").alias("life"))
    )

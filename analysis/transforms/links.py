"""What crosses overlay links: notifications, additional ones, control messages."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from brokerbed.analysis.transforms.moments import compared, within
from brokerbed.log.record import ADDITIONAL, DUPLICATE, REPLAY

CONTROL = ("link_subscribe", "link_unsubscribe", "link_refresh")


def is_link(client: Column) -> Column:
    return client.contains(">")


def has_flag(flags: int) -> Column:
    return F.col("flags").bitwiseAND(F.lit(flags)) != 0


def link_cells(events: DataFrame, intervals: DataFrame) -> DataFrame:
    """Counts per link and batch; `n` is left to the exposure, as a batch without messages counts, too."""
    is_sent = (F.col("event") == "sent") & is_link(F.col("client")) & ~has_flag(REPLAY | DUPLICATE)
    crossings = events.where(is_sent | F.col("event").isin(*CONTROL))
    per_link = (
        within(crossings.select("run", "bin_ns", "time_ns", "event", "client", "flags"), compared(intervals))
        .groupBy("run", "point", F.col("client").alias("link"), "batch", "seconds")
        .agg(
            F.sum((F.col("event") == "sent").cast("double")).alias("notifications"),
            F.sum(((F.col("event") == "sent") & has_flag(ADDITIONAL)).cast("double")).alias("additional"),
            F.sum((F.col("event") != "sent").cast("double")).alias("control"),
        )
    )
    rows = F.array(
        _row("rate.notifications", F.col("link"), "notifications"),
        _row("rate.control", F.col("link"), "control"),
        _row("rate.notifications", F.lit(""), "notifications"),
        _row("rate.notifications.additional", F.lit(""), "additional"),
        _row("rate.control", F.lit(""), "control"),
        F.struct(
            F.lit("rate.total").alias("metric"),
            F.lit("").alias("first"),
            (F.col("notifications") + F.col("control")).alias("x"),
        ),
    )
    return (
        per_link.select("run", "point", "batch", "seconds", F.explode(rows).alias("row"))
        .groupBy("run", "point", "row.metric", "row.first", "batch", F.col("seconds").alias("n"))
        .agg(F.sum("row.x").alias("x"))
        .withColumns({"second": F.lit(""), "copy": F.lit(-1)})
        .select("run", "point", "metric", "first", "second", "copy", "batch", "x", "n")
    )


def _row(metric: str, first: Column, counted: str) -> Column:
    return F.struct(F.lit(metric).alias("metric"), first.alias("first"), F.col(counted).alias("x"))

"""Messages on overlay links: notifications and control messages."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from brokerbed.analysis.transforms.moments import compared, within
from brokerbed.log.record import DUPLICATE, REPLAY
from brokerbed.metrics import ALL_MESSAGES, CONTROL_MESSAGES, NOTIFICATIONS, Metric

CONTROL = ("link_subscribe", "link_unsubscribe", "link_advertise", "link_unadvertise", "link_refresh")


def is_link(client: Column) -> Column:
    return client.contains(">")


def has_flag(flags: int) -> Column:
    return F.col("flags").bitwiseAND(F.lit(flags)) != 0


def crosses() -> Column:
    """Whether a row is a notification that crosses a link, for the first time."""
    return (F.col("event") == "sent") & is_link(F.col("client")) & ~has_flag(REPLAY | DUPLICATE)


def link_cells(events: DataFrame, intervals: DataFrame) -> DataFrame:
    """Counts per link and batch, and in total."""
    crossings = events.where(crosses() | F.col("event").isin(*CONTROL))
    per_link = (
        within(crossings.select("run", "bin_ns", "time_ns", "event", "client"), compared(intervals))
        .groupBy("run", "point", F.col("client").alias("link"), "batch", "seconds")
        .agg(
            F.sum((F.col("event") == "sent").cast("double")).alias("notifications"),
            F.sum((F.col("event") != "sent").cast("double")).alias("control"),
        )
    )
    notifications, control = F.col("notifications"), F.col("control")
    rows = F.array(
        _row(NOTIFICATIONS, F.col("link"), notifications),
        _row(CONTROL_MESSAGES, F.col("link"), control),
        _row(NOTIFICATIONS, F.lit(""), notifications),
        _row(CONTROL_MESSAGES, F.lit(""), control),
        _row(ALL_MESSAGES, F.lit(""), notifications + control),
    )
    return (
        per_link.select("run", "point", "batch", "seconds", F.explode(rows).alias("row"))
        .groupBy("run", "point", "row.metric", "row.first", "batch", F.col("seconds").alias("n"))
        .agg(F.sum("row.x").alias("x"))
        .withColumns({"second": F.lit(""), "copy": F.lit(-1)})
        .select("run", "point", "metric", "first", "second", "copy", "batch", "x", "n")
    )


def _row(metric: Metric, first: Column, count: Column) -> Column:
    return F.struct(F.lit(metric.name).alias("metric"), first.alias("first"), count.alias("x"))

"""Notifications that cross a link below which nobody subscribes to them, judged by the subscriptions of clients.

Brokers know less: with merging, they ask for more than their clients do. So what a client of some broker below the link
subscribes to at that moment decides, whatever the tables of brokers say.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from brokerbed.analysis.transforms.balance import with_life, with_wildcards
from brokerbed.analysis.transforms.links import crosses, is_link
from brokerbed.analysis.transforms.moments import compared, within
from brokerbed.metrics import ADDITIONAL_NOTIFICATIONS, UNWANTED_NOTIFICATIONS


def unwanted_cells(events: DataFrame, intervals: DataFrame, links: DataFrame, interest: DataFrame) -> DataFrame:
    """Counts of those sent up (additional) and of those sent down (unwanted), over all links.

    `links` has the directions of links that count, with the lower end of each.
    """
    crossings = (
        events.where(crosses())
        .join(F.broadcast(links), ["run", "client"])
        .select("run", "child", "topic", "time_ns", "bin_ns", "is_up", F.lit(0).alias("change"))
    )
    changes = interest.withColumns({"bin_ns": F.lit(None).cast("long"), "is_up": F.lit(None).cast("boolean")})
    in_time = Window.partitionBy("place").orderBy("time_ns", F.col("change").desc())
    judged = (
        crossings.unionByName(changes)
        .withColumn("place", F.xxhash64("run", "child", "topic"))  # numbers sort faster than names
        .withColumn("brokers", F.sum("change").over(in_time))
        .where(F.col("is_up").isNotNull() & (F.col("brokers") == 0))
    )
    metric = F.when(F.col("is_up"), ADDITIONAL_NOTIFICATIONS.name).otherwise(UNWANTED_NOTIFICATIONS.name)
    return (
        within(judged.select("run", "bin_ns", "time_ns", "is_up"), compared(intervals))
        .groupBy("run", "point", metric.alias("metric"), "batch", F.col("seconds").alias("n"))
        .agg(F.count("*").cast("double").alias("x"))
        .withColumns({"first": F.lit(""), "second": F.lit(""), "copy": F.lit(-1)})
        .select("run", "point", "metric", "first", "second", "copy", "batch", "x", "n")
    )


def interest_below(
    events: DataFrame, subtrees: DataFrame, wildcards: DataFrame | None, lives: DataFrame | None
) -> DataFrame:
    """(run, child, topic, time_ns, change): a broker below a link begins or ceases to have subscribers to a topic."""
    local = events.where(F.col("event").isin("subscribed", "unsubscribed") & ~is_link(F.col("client"))).select(
        "run", "broker", "topic", "position", "time_ns", _change().alias("change")
    )
    lived = with_life(local, lives)
    spread = lived if wildcards is None else with_wildcards(lived, wildcards)
    at_broker = Window.partitionBy("place").orderBy("position")
    counted = spread.withColumn("place", F.xxhash64("run", "broker", "life", "topic")).withColumn(
        "clients", F.sum("change").over(at_broker)
    )
    is_first = (F.col("change") > 0) & (F.col("clients") == 1)
    is_last = (F.col("change") < 0) & (F.col("clients") == 0)
    columns = ("run", "broker", "topic", "time_ns", "change")
    switched = counted.where(is_first | is_last).select(*columns)
    if lives is not None:
        switched = switched.unionByName(_ended_with_life(counted, lives).select(*columns))
    return switched.join(F.broadcast(subtrees), ["run", "broker"]).select("run", "child", "topic", "time_ns", "change")


def _ended_with_life(counted: DataFrame, lives: DataFrame) -> DataFrame:
    """When a broker begins another life, what its clients subscribed to before is void."""
    last = counted.groupBy("run", "broker", "life", "topic").agg(F.sum("change").alias("clients"))
    following = lives.select("run", "broker", (F.col("life") - 1).alias("life"), "restarted_ns")
    return (
        last.where(F.col("clients") > 0)
        .join(F.broadcast(following), ["run", "broker", "life"])
        .withColumns({"time_ns": F.col("restarted_ns"), "change": F.lit(-1)})
    )


def _change() -> Column:
    return F.when(F.col("event") == "subscribed", 1).otherwise(-1)

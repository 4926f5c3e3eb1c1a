"""The routing tables at the end of a run, and the tables that the subscriptions require."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from brokerbed.analysis.transforms.links import is_link


def final_entries(moved: DataFrame) -> DataFrame:
    """The entries at the end of a run (run, broker, client, filter, entries), from the last life of each broker."""
    return (
        moved.where((F.col("change") != 0) & F.col("is_last_life"))
        .groupBy("run", "broker", "client", F.col("topic").alias("filter"))
        .agg(F.sum("change").alias("entries"))
        .where(F.col("entries") != 0)
    )


def wrong_entries(entries: DataFrame, ancestors: DataFrame, sends_each: Sequence[int]) -> DataFrame:
    """Remote entries that exist, and those that the local subscriptions below require: (..., there, wanted).

    `ancestors` has every link above each broker, named from the parent's end. With identity-based routing a filter has
    one entry per link, with simple routing (the runs in `sends_each`) one per subscription, with flooding none, as it
    has no ancestors here.
    """
    local = (
        entries.where(~is_link(F.col("client")))
        .groupBy("run", F.col("broker").alias("below"), "filter")
        .agg(F.sum("entries").alias("entries"))
    )
    wanted = (
        local.join(F.broadcast(ancestors), ["run", "below"])
        .groupBy("run", "broker", "client", "filter")
        .agg(F.sum("entries").alias("subscriptions"))
        .withColumn("wanted", F.when(F.col("run").isin(*sends_each), F.col("subscriptions")).otherwise(F.lit(1)))
        .select("run", "broker", "client", "filter", "wanted")
    )
    there = entries.where(is_link(F.col("client"))).withColumnRenamed("entries", "there")
    return there.join(wanted, ["run", "broker", "client", "filter"], "full").select(
        "run",
        "broker",
        "client",
        "filter",
        F.coalesce("there", F.lit(0)).alias("there"),
        F.coalesce("wanted", F.lit(0)).alias("wanted"),
    )

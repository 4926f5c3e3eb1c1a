"""The routing tables at the end of a run, beside those that subscriptions and advertisements require."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from brokerbed.topics import ADVERTISE

CHANGES = {"subscribed": 1, "advertised": 1, "unsubscribed": -1, "unadvertised": -1}


def final_entries(changes: DataFrame, lives: DataFrame) -> DataFrame:
    """The entries at the end of a run (run, broker, client, filter, entries), from the last life of each broker.

    Filters of advertisements begin with `$advertise/`.
    """
    last = changes.join(F.broadcast(lives), ["run", "broker"], "left").where(
        F.col("life") == F.coalesce("last_life", F.lit(1))
    )
    is_advertisement = F.col("event").isin("advertised", "unadvertised")
    topic_filter = F.when(is_advertisement, F.concat(F.lit(ADVERTISE), "topic")).otherwise(F.col("topic"))
    return (
        last.groupBy("run", "broker", "client", topic_filter.alias("filter"))
        .agg(F.sum(change()).alias("entries"))
        .where(F.col("entries") != 0)
    )


def change() -> Column:
    """By how much an event changes the number of entries."""
    event = F.col("event")
    is_added = event.isin([name for name, sign in CHANGES.items() if sign > 0])
    return F.when(is_added, 1).when(event.isin(list(CHANGES)), -1).otherwise(0)


def compared_entries(there: DataFrame, wanted: DataFrame) -> DataFrame:
    """Remote entries that exist, and those that there should be: (..., there, wanted)."""
    return there.join(wanted, ["run", "broker", "client", "filter"], "full").select(
        "run",
        "broker",
        "client",
        "filter",
        F.coalesce("there", F.lit(0)).alias("there"),
        F.coalesce("wanted", F.lit(0)).alias("wanted"),
    )

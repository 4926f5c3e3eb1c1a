"""The clients' view of messages: one row per message and client that published or received it."""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

MESSAGE = ("run", "origin", "sequence")  # in the clients' log: the publisher, and its number of the message
NOTED = ("published", "sent", "acknowledged", "received", "processed")


def passages(clients: DataFrame) -> DataFrame:
    """The publisher's row of a message has `client` = `origin`; subscribers' rows contain the publisher's times, too.

    Times are those of the first event of a kind; `received_times` counts how often the message was received.
    """
    of_message = Window.partitionBy(*MESSAGE)
    per_client = (
        clients.where(F.col("event").isin(*NOTED))
        .repartition(*MESSAGE)
        .groupBy(*MESSAGE, "client")
        .agg(
            *(_first_ns(event).alias(f"{event}_ns") for event in NOTED),
            F.count(F.when(F.col("event") == "received", 1)).alias("received_times"),
            F.min(F.when(F.col("event") == "received", F.col("position"))).alias("received_position"),
            F.max(_hash_of("topic")).alias("topic_hash"),
            F.max("qos").alias("qos"),
            F.max("bin_ns").alias("bin_ns"),
        )
    )
    by_publisher = {
        f"{event}_ns": F.max(f"{event}_ns").over(of_message) for event in ("published", "sent", "acknowledged")
    }
    got = F.collect_set(F.when(F.col("received_ns").isNotNull(), F.col("client"))).over(of_message)
    return per_client.withColumns({**by_publisher, "got": F.when(F.col("client") == F.col("origin"), got)})


def _hash_of(name: str) -> Column:
    """A number instead of text: Spark aggregates numbers by hashing, but text by sorting."""
    return F.when(F.col(name).isNotNull(), F.xxhash64(name))


def _first_ns(event: str) -> Column:
    return F.min(F.when(F.col("event") == event, F.col("time_ns")))

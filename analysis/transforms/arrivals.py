"""Arrivals of publications and subscriptions, and ON periods of peers, for the tests of assumptions.

Each function returns rows (run, kind, at, bin, count), with the counts in bins of time or of equal probability.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from brokerbed.analysis.transforms.links import is_link
from brokerbed.analysis.transforms.moments import bin_of, compared, within
from brokerbed.log.record import CLIENTS

PUBLICATIONS, SUBSCRIPTIONS, MESSAGES, ON_PERIODS = "publications", "subscriptions", "messages", "on"
QUANTILES = 10  # equally likely bins of a law


def arrivals(logged: DataFrame, peers: DataFrame, bins: DataFrame) -> DataFrame:
    """Publications and subscriptions of clients per broker, and messages per peer, in bins of compared time."""
    event = F.col("event")
    is_entering = event.isin("received", "subscribed") & ~is_link(F.col("client"))
    rows = logged.where(is_entering | (event == "published")).join(
        F.broadcast(peers.select("run", F.col("id").alias("client"), "base")), ["run", "client"], "left"
    )
    is_peers = F.col("base").isNotNull()
    kind = (
        F.when((event == "published") & is_peers, MESSAGES)
        .when((event == "received") & ~is_peers & (F.col("broker") != CLIENTS), PUBLICATIONS)
        .when((event == "subscribed") & ~is_peers, SUBSCRIPTIONS)
    )
    at = F.when(is_peers, F.col("client")).otherwise(F.col("broker"))
    arrived = rows.withColumns({"kind": kind, "at": at, "bin": bin_of(F.col("time_ns"), F.col("bin_ns"))})
    return (
        arrived.where(F.col("kind").isNotNull())
        .join(F.broadcast(bins), ["run", "bin"])
        .groupBy("run", "kind", "at", F.col("bin").cast("long"))
        .agg(F.count("*").alias("count"))
    )


def on_periods(events: DataFrame, peers: DataFrame, intervals: DataFrame) -> DataFrame:
    """The ON periods of peers that come and go, by tenths of an exponential law with the same mean."""
    of_peer = Window.partitionBy("run", "broker", "client").orderBy("position")
    moves = events.where(F.col("event").isin("connected", "disconnected")).join(
        F.broadcast(peers.where("comes_and_goes").select("run", F.col("id").alias("client"), "base")), ["run", "client"]
    )
    ended = (
        moves.withColumns({"before": F.lag("event").over(of_peer), "since_ns": F.lag("time_ns").over(of_peer)})
        .where((F.col("event") == "disconnected") & (F.col("before") == "connected"))
        .withColumn("on_ns", (F.col("time_ns") - F.col("since_ns")).cast("double"))
    )
    timed = within(ended.select("run", "bin_ns", "time_ns", "base", "on_ns"), compared(intervals))
    mean = F.avg("on_ns").over(Window.partitionBy("run", "base"))
    place = F.floor(QUANTILES * (1 - F.exp(-F.col("on_ns") / mean)))
    return (
        timed.withColumn("bin", F.least(place, F.lit(QUANTILES - 1)).cast("long"))
        .groupBy("run", F.lit(ON_PERIODS).alias("kind"), F.col("base").alias("at"), "bin")
        .agg(F.count("*").alias("count"))
    )

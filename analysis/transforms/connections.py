"""Connections and disconnections of peers, and their ON periods, for the tests of assumptions."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from brokerbed.analysis.transforms.moments import compared, within

QUANTILES = 10  # equally likely bins of a law


def connections(events: DataFrame, peers: DataFrame) -> DataFrame:
    """When each peer connected and disconnected; of whom it is a copy (`base`), and whether it does so by itself."""
    names = peers.select("run", F.col("id").alias("client"), "base", "comes_and_goes")
    return (
        events.where(F.col("event").isin("connected", "disconnected"))
        .join(F.broadcast(names), ["run", "client"])
        .select("run", "broker", "client", "base", "comes_and_goes", "event", "time_ns", "position", "bin_ns")
    )


def on_periods(connected: DataFrame, intervals: DataFrame) -> DataFrame:
    """(run, at, bin, count): ON periods of peers that come and go, by tenths of an exponential law with their mean."""
    of_peer = Window.partitionBy("run", "broker", "client").orderBy("position")
    moves = connected.where("comes_and_goes")
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
        .groupBy("run", F.col("base").alias("at"), "bin")
        .agg(F.count("*").alias("count"))
    )

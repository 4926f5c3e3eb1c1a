"""Series that the report draws: distributions of delays, and connections. The tally has the counts over time.

Each function returns a bounded number of rows for the few runs that brokerbed/scenario/sampling.py selects.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from brokerbed.analysis.transforms.moments import compared, within
from brokerbed.scenario.units import NS_PER_S

PER_DECADE = 24  # buckets of delays, which are 10% apart
SHORTEST_S = 1e-6  # shorter delays are in the first bucket
MOVES_MAX = 300  # connections and disconnections of one peer


def delays(spans: DataFrame, intervals: DataFrame, wanted: DataFrame) -> DataFrame:
    """(run, metric, first, second, bucket, count): the delays of pairs and in queues that ended in compared time.

    `wanted` has the rows (run, metric, first, second) of the pairs and queues.
    """
    complete = spans.where(F.col("time_ns").isNotNull() & F.col("begun_ns").isNotNull()).join(
        F.broadcast(wanted), ["run", "metric", "first", "second"]
    )
    seconds = F.greatest((F.col("time_ns") - F.col("begun_ns")) / NS_PER_S, F.lit(SHORTEST_S))
    return (
        within(complete, compared(intervals))
        .groupBy("run", "metric", "first", "second", F.floor(F.log10(seconds) * PER_DECADE).alias("bucket"))
        .agg(F.count("*").alias("count"))
    )


def moves(connected: DataFrame, peers: DataFrame) -> DataFrame:
    """(run, client, place, event, time_ns): the first connections and disconnections of the given peers."""
    of_peer = Window.partitionBy("run", "client").orderBy("time_ns", "position")
    return (
        connected.join(F.broadcast(peers), ["run", "client"])
        .withColumn("place", F.row_number().over(of_peer))
        .where(F.col("place") <= MOVES_MAX)
        .select("run", "client", "place", "event", "time_ns")
    )

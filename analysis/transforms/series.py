"""Series that the report draws: counts over time, distributions of delays, and connections.

Each function returns a bounded number of rows for the few runs that brokerbed/scenario/sampling.py selects.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from brokerbed.analysis.transforms.links import CONTROL, crosses, is_link
from brokerbed.analysis.transforms.moments import bin_of, compared, within
from brokerbed.metrics import END_TO_END_DELAY
from brokerbed.scenario.units import NS_PER_S

PER_DECADE = 24  # buckets of delays, which are 10% apart
SHORTEST_S = 1e-6  # shorter delays are in the first bucket
MOVES_MAX = 300  # connections and disconnections of one peer


def counts(events: DataFrame, bins: int) -> DataFrame:
    """(run, kind, bin, count): what brokers did in each of the `bins` equal parts of a run."""
    rows = events.withColumns({"kind": _kind(), "bin": bin_of(F.col("time_ns"), F.col("bin_ns"))})
    return (
        rows.where(F.col("kind").isNotNull() & (F.col("bin") >= 0) & (F.col("bin") < bins))
        .groupBy("run", "kind", F.col("bin").cast("long").alias("bin"))
        .agg(F.count("*").alias("count"))
    )


def _kind() -> Column:
    event, over_link = F.col("event"), is_link(F.col("client"))
    return (
        F.when(crosses(), "notifications")
        .when(event.isin(*CONTROL), "control")
        .when((event == "received") & ~over_link, "published")
        .when((event == "sent") & ~over_link, "delivered")
        .when(event == "dropped", "dropped")
        .when(event == "link_resync", "resynchronised")
    )


def delays(spans: DataFrame, intervals: DataFrame, pairs: DataFrame) -> DataFrame:
    """(run, first, second, bucket, count): the delays of the given pairs that ended in compared time."""
    complete = spans.where((F.col("metric") == END_TO_END_DELAY.name) & F.col("time_ns").isNotNull()).join(
        F.broadcast(pairs), ["run", "first", "second"]
    )
    seconds = F.greatest((F.col("time_ns") - F.col("begun_ns")) / NS_PER_S, F.lit(SHORTEST_S))
    return (
        within(complete, compared(intervals))
        .groupBy("run", "first", "second", F.floor(F.log10(seconds) * PER_DECADE).alias("bucket"))
        .agg(F.count("*").alias("count"))
    )


def moves(events: DataFrame, peers: DataFrame) -> DataFrame:
    """(run, client, place, event, time_ns): the first connections and disconnections of the given peers."""
    of_peer = Window.partitionBy("run", "client").orderBy("time_ns", "position")
    return (
        events.where(F.col("event").isin("connected", "disconnected"))
        .join(F.broadcast(peers), ["run", "client"])
        .withColumn("place", F.row_number().over(of_peer))
        .where(F.col("place") <= MOVES_MAX)
        .select("run", "client", "place", "event", "time_ns")
    )

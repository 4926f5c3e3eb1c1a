"""Messages with a lifetime: those that died at a peer, and whether brokers and peers kept to the lifetimes.

What such a message has become is known when it was processed, or when its time was over. It counts at that moment, as
delays do: then the end of a run, after which all peers are connected, saves no message.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from brokerbed.analysis.transforms.moments import compared, within
from brokerbed.log.record import CLIENTS, Reason
from brokerbed.metrics import EXPIRED_MESSAGES
from brokerbed.scenario.units import NS_PER_S

CLOCKS_NS = NS_PER_S // 10  # by how much the clocks of brokers and of clients may differ, in model time
EXPIRED = (int(Reason.EXPIRED), int(Reason.INPUT_EXPIRED))
NUMBERED = ("run", "publisher", "number")


def lifetimes(clients: DataFrame) -> DataFrame:
    """When the time of each message that has a lifetime is over."""
    return clients.where(F.col("event") == "expires").select(
        "run", F.col("origin").alias("publisher"), F.col("sequence").alias("number"), F.col("time_ns").alias("dies_ns")
    )


def ends(clients: DataFrame, lifetimes: DataFrame) -> DataFrame:
    """When each of these messages was processed by a client, or died there."""
    return (
        clients.where(F.col("event").isin("processed", "dropped"))
        .groupBy("run", F.col("origin").alias("publisher"), F.col("sequence").alias("number"), "client")
        .agg(_time_of("processed").alias("processed_ns"), _time_of("dropped").alias("died_ns"))
        .join(lifetimes, list(NUMBERED))
    )


def of_due(due: DataFrame, lifetimes: DataFrame, ends: DataFrame) -> DataFrame:
    """The messages of fates.due, with those that died at a peer as `is_expired`, at the time when that was known."""
    at_publisher = ends.where(F.col("client") == F.col("publisher")).select(*NUMBERED, F.lit(True).alias("is_unsent"))
    at_subscriber = ends.select(
        *NUMBERED,
        F.col("client").alias("subscriber"),
        "processed_ns",
        (F.col("died_ns").isNotNull() & F.col("processed_ns").isNull()).alias("is_unprocessed"),
    )
    is_unprocessed = F.coalesce("is_unprocessed", F.lit(False))
    return (
        due.join(lifetimes, list(NUMBERED), "left")
        .join(at_publisher, list(NUMBERED), "left")
        .join(at_subscriber, [*NUMBERED, "subscriber"], "left")
        .withColumns(
            {
                "is_expired": F.coalesce("is_unsent", F.lit(False)) | is_unprocessed,
                "is_there": F.col("is_there") & ~is_unprocessed,
                "time_ns": F.when(F.col("dies_ns").isNull(), F.col("time_ns")).otherwise(
                    F.coalesce("processed_ns", "dies_ns")
                ),
            }
        )
        .select(*due.columns)
    )


def deaths(events: DataFrame, lifetimes: DataFrame) -> DataFrame:
    """When brokers dropped these messages because their time was over."""
    identified = events.where(F.col("event") == "identified").select(
        "run", F.col("client").alias("publisher"), F.col("number").cast("long"), "origin", "sequence"
    )
    dropped = events.where((F.col("event") == "dropped") & F.col("reason").isin(*EXPIRED)).select(
        "run", "broker", "origin", "sequence", F.col("time_ns").alias("died_ns")
    )
    return dropped.join(identified, ["run", "origin", "sequence"]).join(lifetimes, list(NUMBERED))


def expired_cells(logged: DataFrame, intervals: DataFrame, peers: DataFrame) -> DataFrame:
    """Counts of the messages that died, by the kind of queue and where it is."""
    base = F.broadcast(peers.select("run", F.col("id").alias("client"), "base"))
    died = logged.where((F.col("event") == "dropped") & F.col("reason").isin(*EXPIRED))
    at_client, at_input = F.col("broker") == CLIENTS, F.col("reason") == int(Reason.INPUT_EXPIRED)
    named = died.join(base, ["run", "client"], "left").withColumns(
        {
            "first": F.when(at_client & (F.col("client") == F.col("origin")), "publisher")
            .when(at_client, "subscriber")
            .when(at_input, "broker_in")
            .when(F.col("base").isNull(), "link")
            .otherwise("session"),
            "second": F.when(~at_client & at_input, F.col("broker")).otherwise(F.coalesce("base", "client")),
        }
    )
    return (
        within(named.select("run", "bin_ns", "time_ns", "first", "second"), compared(intervals))
        .groupBy("run", "point", "first", "second", "batch", F.col("seconds").alias("n"))
        .agg(F.count("*").cast("double").alias("x"))
        .withColumns({"metric": F.lit(EXPIRED_MESSAGES.name), "copy": F.lit(-1)})
        .select("run", "point", "metric", "first", "second", "copy", "batch", "x", "n")
    )


def _time_of(event: str) -> Column:
    return F.min(F.when(F.col("event") == event, F.col("time_ns")))

"""What became of each message that a peer published, for each subscriber that it was meant for.

A message that did not arrive is looked for hop by hop: where it was seen last, and what was done with it there.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from brokerbed.analysis.transforms.moments import compared, within
from brokerbed.log.record import Reason

WAITING, DROPPED, GONE, LOST = "waiting", "dropped", "gone", "lost"
PAIR = ("run", "publisher", "subscriber", "number")


def due(passed: DataFrame, audiences: DataFrame) -> DataFrame:
    """One row per message of a peer and subscriber that it is meant for: whether it `is_there`."""
    made = passed.where(F.col("client") == F.col("origin")).select(
        "run",
        F.col("origin").alias("publisher"),
        F.col("sequence").alias("number"),
        "qos",
        F.col("published_ns").alias("time_ns"),
        F.col("sent_ns").isNotNull().alias("is_sent"),
        F.col("acknowledged_ns").isNotNull().alias("is_acknowledged"),
        "bin_ns",
        "got",
    )
    return (
        made.join(F.broadcast(audiences), ["run", "publisher"])
        .withColumn("subscriber", F.explode("subscribers"))
        .withColumn("is_there", F.array_contains("got", F.col("subscriber")))
        .drop("subscribers", "got")
    )


def fates(missing: DataFrame, events: DataFrame, hops: DataFrame) -> DataFrame:
    """Where each message that did not arrive is: `fate`, and for what was dropped the `reason`.

    `waiting`: in a queue, or sent and not acknowledged, when the run ended; `gone`: at QoS 0, with a connection that
    broke; `lost`: somebody took responsibility for it, and nobody has it.
    """
    identified = (
        events.where(F.col("event") == "identified")
        .select("run", F.col("client").alias("publisher"), F.col("number").cast("long"), "origin", "sequence")
        .join(missing.select("run", "publisher", "number").distinct(), ["run", "publisher", "number"])
    )
    at_hop = (
        identified.join(F.broadcast(hops), ["run", "publisher"])
        .join(_seen(events, identified), ["run", "origin", "sequence", "broker"], "left")
        .groupBy(*PAIR, "hop")
        .agg(
            _any(F.col("event") == "received").alias("is_here"),
            *(_any(_to_next() & (F.col("event") == it)).alias(it) for it in ("queued", "sent", "acknowledged")),
            F.max(F.when((_to_next() | _at_input()) & (F.col("event") == "dropped"), F.col("reason"))).alias("reason"),
        )
        .where("is_here")
    )
    last = at_hop.groupBy(*PAIR).agg(
        F.max_by(F.struct("hop", "queued", "sent", "acknowledged", "reason"), "hop").alias("last")
    )
    return (
        missing.join(last, list(PAIR), "left")
        .withColumns(
            {
                "fate": _fate(),
                "reason": F.coalesce(F.col("last.reason").cast("int"), F.lit(0)),
                "hop": F.col("last.hop"),
            }
        )
        .drop("last")
    )


def delivery_cells(due: DataFrame, waiting: DataFrame, intervals: DataFrame, peers: DataFrame) -> DataFrame:
    """Of what was published in compared time and is not still waiting: how much was delivered."""
    base = peers.select("run", "id", "base", "copy")
    named = (
        due.join(F.broadcast(waiting), list(PAIR), "left_anti")
        .join(F.broadcast(base.toDF("run", "publisher", "first", "copy")), ["run", "publisher"])
        .join(F.broadcast(base.select("run", "id", "base").toDF("run", "subscriber", "second")), ["run", "subscriber"])
    )
    return (
        within(named, compared(intervals))
        .groupBy("run", "point", "first", "second", "copy", "batch")
        .agg(F.sum(F.col("is_there").cast("double")).alias("x"), F.count("*").cast("double").alias("n"))
        .select("run", "point", F.lit("delivery.ratio").alias("metric"), "first", "second", "copy", "batch", "x", "n")
    )


def _fate() -> Column:
    at, is_kept, was_taken = F.col("last"), F.col("qos") > 0, F.col("is_acknowledged")
    at_publisher = F.when(was_taken, LOST).when(is_kept | ~F.col("is_sent"), WAITING).otherwise(GONE)
    return (
        F.when(at.isNull(), at_publisher)
        .when(at["reason"].isNotNull(), DROPPED)
        .when(at["acknowledged"], LOST)
        .when(at["sent"], F.when(is_kept, WAITING).otherwise(GONE))
        .when(at["queued"], WAITING)
        .otherwise(F.when(was_taken, LOST).when(is_kept, WAITING).otherwise(GONE))
    )


def _seen(events: DataFrame, identified: DataFrame) -> DataFrame:
    """All that brokers noted of these messages."""
    wanted = identified.select("run", "origin", "sequence")
    return (
        events.where(F.col("event").isin("received", "queued", "sent", "acknowledged", "dropped"))
        .join(wanted, ["run", "origin", "sequence"])
        .select("run", "origin", "sequence", "broker", F.col("client").alias("seen_client"), "event", "reason")
    )


def _to_next() -> Column:
    return F.col("seen_client") == F.col("next")


def _at_input() -> Column:
    """What the emulated service at a broker's input had no room for has gone to nobody."""
    return F.col("reason") == int(Reason.INPUT_FULL)


def _any(condition: Column) -> Column:
    return F.coalesce(F.bool_or(condition), F.lit(False))

"""What became of each message that a peer published, for each of its subscribers.

A message that did not arrive is followed hop by hop, to the last broker that saw it.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from brokerbed.analysis.transforms.moments import compared, within
from brokerbed.log.record import Reason
from brokerbed.metrics import DELIVERY_RATIO

WAITING, DROPPED, GONE, LOST = "waiting", "dropped", "gone", "lost"
PAIR = ("run", "publisher", "subscriber", "number")


def due(passed: DataFrame, audiences: DataFrame) -> DataFrame:
    """One row per message of a peer and subscriber; `is_there` if the message arrived.

    `is_expired` if it died at the publisher or the subscriber, which lifetimes.py finds out.
    """
    published = passed.where(F.col("client") == F.col("origin")).select(
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
        published.join(F.broadcast(audiences), ["run", "publisher"])
        .withColumn("subscriber", F.explode("subscribers"))
        .withColumns({"is_there": F.array_contains("got", F.col("subscriber")), "is_expired": F.lit(False)})
        .drop("subscribers", "got")
    )


def fates(
    missing: DataFrame, events: DataFrame, hops: DataFrame, is_few: bool = False, ways_vary: bool = False,
    departures: DataFrame | None = None,
) -> DataFrame:  # fmt: skip
    """The `fate` of each message that did not arrive, and the `reason` if it was dropped.

    If there are few such messages, the log is searched for them where it is, without sorting it.

    If links or peers move, a message may have gone any of several ways. Then the broker that dropped it counts, or else
    the last one in time that had it for the subscriber, or else the last one in time, instead of the last hop.

    `departures` (moves.py) are those of sessions that followed their peers. What such a session took along and did not
    bring to the next broker is lost.

    `waiting`: it was in a queue, or sent and not acknowledged, when the run ended; `gone`: it had QoS 0, and its
    connection broke; `lost`: somebody took responsibility for it, and nobody has it.
    """
    wanted = missing.select("run", "publisher", "number").distinct()
    identified = (
        events.where(F.col("event") == "identified")
        .select("run", F.col("client").alias("publisher"), F.col("number").cast("long"), "origin", "sequence")
        .join(F.broadcast(wanted) if is_few else wanted, ["run", "publisher", "number"])
    )
    place = "broker" if ways_vary else "hop"
    is_of_subscriber = _to_next() & (F.col("next") == F.col("subscriber"))
    is_seen = (F.col("event") == "received") | (is_of_subscriber & (F.col("event") == "queued"))
    last_ns, last_position = (F.max(F.when(is_seen, F.col(name))) for name in ("seen_ns", "seen_position"))
    more = (
        F.min("hop").alias("hop"), last_ns.alias("seen_ns"), last_position.alias("seen_position"),
        _any(is_of_subscriber).alias("is_for_subscriber"),
    )  # fmt: skip
    at_hop = (
        identified.join(F.broadcast(hops), ["run", "publisher"])
        .join(_seen(events, identified, is_few, ways_vary), ["run", "origin", "sequence", "broker"], "left")
        .groupBy(*PAIR, place)
        .agg(
            *(more if ways_vary else ()),
            _any(is_seen).alias("is_here"),
            *(
                _any(_to_next() & (F.col("event") == event)).alias(event)
                for event in ("queued", "sent", "acknowledged")
            ),
            F.max(F.when((_to_next() | _at_input()) & (F.col("event") == "dropped"), F.col("reason"))).alias("reason"),
        )
        .where("is_here")
    )
    at_hop = _with_departures(at_hop, departures)
    was_dropped = F.col("reason").isNotNull()
    order = F.struct(was_dropped, "is_for_subscriber", "seen_ns", ~F.col("has_left")) if ways_vary else F.col("hop")
    last = at_hop.groupBy(*PAIR).agg(
        F.max_by(F.struct("hop", "queued", "sent", "acknowledged", "reason", "has_left"), order).alias("last")
    )
    return (
        missing.join(last, list(PAIR), "left")
        .withColumns(
            {
                "fate": _fate(),
                "reason": F.when(F.col("is_expired"), int(Reason.EXPIRED)).otherwise(
                    F.coalesce(F.col("last.reason").cast("int"), F.lit(0))
                ),
                "hop": F.col("last.hop"),
            }
        )
        .drop("last")
    )


def _with_departures(at_hop: DataFrame, departures: DataFrame | None) -> DataFrame:
    """`has_left`: the session was here when the message was, and has left since."""
    if departures is None:
        return at_hop.withColumn("has_left", F.lit(False))
    left = F.coalesce(F.col("left_position") > F.col("seen_position"), F.lit(False)) & F.col("is_for_subscriber")
    return at_hop.join(F.broadcast(departures), ["run", "broker", "subscriber"], "left").withColumn("has_left", left)


def delivery_cells(due: DataFrame, waiting: DataFrame, intervals: DataFrame, peers: DataFrame) -> DataFrame:
    """The delivered share of the messages that were published in compared time and are not still waiting."""
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
        .withColumn("metric", F.lit(DELIVERY_RATIO.name))
        .select("run", "point", "metric", "first", "second", "copy", "batch", "x", "n")
    )


def _fate() -> Column:
    at, is_kept, was_taken = F.col("last"), F.col("qos") > 0, F.col("is_acknowledged")
    at_publisher = F.when(was_taken, LOST).when(is_kept | ~F.col("is_sent"), WAITING).otherwise(GONE)
    return (
        F.when(F.col("is_expired"), DROPPED)
        .when(at.isNull(), at_publisher)
        .when(at["reason"].isNotNull(), DROPPED)
        .when(at["acknowledged"] | at["has_left"], LOST)
        .when(at["sent"], F.when(is_kept, WAITING).otherwise(GONE))
        .when(at["queued"], WAITING)
        .otherwise(F.when(was_taken, LOST).when(is_kept, WAITING).otherwise(GONE))
    )


def _seen(events: DataFrame, identified: DataFrame, is_few: bool, has_times: bool) -> DataFrame:
    """All rows of brokers about these messages."""
    when = F.col("time_ns").alias("seen_ns"), F.col("position").alias("seen_position")
    named = identified.select("run", "origin", "sequence")
    wanted = F.broadcast(named) if is_few else named
    return (
        events.where(F.col("event").isin("received", "queued", "sent", "acknowledged", "dropped"))
        .join(wanted, ["run", "origin", "sequence"])
        .select(
            "run",
            "origin",
            "sequence",
            "broker",
            F.col("client").alias("seen_client"),
            "event",
            "reason",
            *(when if has_times else ()),
        )
    )


def _to_next() -> Column:
    return F.col("seen_client") == F.col("next")


def _at_input() -> Column:
    """Whether the input queue of a broker dropped the message, which then went to nobody."""
    return F.col("reason").isin(int(Reason.INPUT_FULL), int(Reason.INPUT_EXPIRED))


def _any(condition: Column) -> Column:
    return F.coalesce(F.bool_or(condition), F.lit(False))

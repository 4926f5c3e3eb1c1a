"""Sessions that follow their peers from broker to broker.

On each link of its way a session is at two brokers for a while. The next one has its subscriptions already, but leaves
to the last one what comes from there, or still goes there, and the last one sends it on with the session. The log says
when a session came to a broker, when it left, and when all of it was at the broker of its peer. It does not say when
the next broker began to route messages to it by itself.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from brokerbed.analysis.transforms.balance import with_own
from brokerbed.analysis.transforms.delays import SPAN
from brokerbed.metrics import MOVE_DELAY

FOREVER = (1 << 62) - 1
BUCKET = 4096  # positions in a log
MESSAGE_AT_CLIENT = ("run", "broker", "client", "origin", "sequence")


def arrivals(events: DataFrame) -> DataFrame:
    """(run, broker, client, from_position, to_position): while a session comes to a broker.

    The positions are those of its first row there, and of the row which says that all of it is there, or that it left.
    """
    of_session = Window.partitionBy("run", "broker", "client").orderBy("position")
    return (
        events.where(F.col("event").isin("session_came", "session_here", "session_left"))
        .withColumn("to_position", F.coalesce(F.lead("position").over(of_session), F.lit(FOREVER)))
        .where(F.col("event") == "session_came")
        .select(
            "run", "broker", "client", F.col("position").alias("from_position"), "to_position",
        )
    )  # fmt: skip


def left_by_last_broker(moved: DataFrame, arrivals: DataFrame) -> DataFrame:
    """The movements of balance.py with messages that the next broker need not route to a session.

    They are rows of the session's client, as if the message had come from there: what came while the session was
    coming, if the broker did not route it to the session.
    """
    bucket, others = _bucket(F.col("position")), [name for name in moved.columns if name not in ("client", "is_in")]
    closed = arrivals.where(F.col("to_position") < FOREVER)
    buckets = F.explode(F.sequence(_bucket(F.col("from_position")), _bucket(F.col("to_position"))))
    came = moved.where("is_in").withColumn("bucket", bucket)
    skipped = _within(came, closed.withColumn("bucket", buckets), others, "bucket").unionByName(
        _within(came, arrivals.where(F.col("to_position") == FOREVER), others)
    )
    sessions = arrivals.select("run", "broker", "client").distinct()
    routed = moved.where("is_routed").join(F.broadcast(sessions), ["run", "broker", "client"], "left_semi")
    own = skipped.join(routed.select(*MESSAGE_AT_CLIENT), list(MESSAGE_AT_CLIENT), "left_anti")
    return with_own(moved).unionByName(own.withColumn("is_own", F.lit(True)))


def _bucket(position: Column) -> Column:
    """A part of a log, by which rows find the sessions that were coming: most of these were for a moment."""
    return F.floor(position / BUCKET)


def _within(came: DataFrame, arrivals: DataFrame, others: list[str], *keys: str) -> DataFrame:
    """The messages that came while a session was coming, as rows of its client."""
    there = arrivals.withColumnRenamed("client", "session")
    is_then = F.col("position").between(F.col("from_position"), F.col("to_position"))
    rows = came.join(F.broadcast(there), ["run", "broker", *keys]).where(is_then)
    return rows.select(*others, F.col("session").alias("client"), F.lit(False).alias("is_in"))


def departures(events: DataFrame) -> DataFrame:
    """(run, broker, subscriber, left_position): when the session of a client left a broker for the last time."""
    left = events.where(F.col("event") == "session_left")
    last = F.max("position").alias("left_position")
    return left.groupBy("run", "broker", F.col("client").alias("subscriber")).agg(last)


def moves_of_peers(events: DataFrame, peers: DataFrame) -> DataFrame:
    """(run, base, links, moves): how often the sessions of all copies of a peer moved since time zero, and over how
    many links. `peers` has id and base of each."""
    names = peers.select("run", F.col("id").alias("client"), "base").distinct()
    rows = events.where(F.col("event").isin("session_came", "session_here") & (F.col("time_ns") >= 0))
    links, moves = (F.sum((F.col("event") == event).cast("long")) for event in ("session_came", "session_here"))
    return (
        rows.join(F.broadcast(names), ["run", "client"])
        .groupBy("run", "base")
        .agg(links.alias("links"), moves.alias("moves"))
    )


def move_spans(events: DataFrame, subscribers: DataFrame) -> DataFrame:
    """From the CONNECT of a subscriber that roams until all of its session was at its broker.

    `subscribers` has id, base and copy of each.
    """
    of_client = Window.partitionBy("run", "broker", "client").orderBy("position")
    rows = events.where(F.col("event").isin("connecting", "session_here")).withColumns(
        {"before": F.lag("event").over(of_client), "begun_ns": F.lag("time_ns").over(of_client)}
    )
    ended = rows.where((F.col("event") == "session_here") & (F.col("before") == "connecting"))
    names = subscribers.select("run", F.col("id").alias("client"), F.col("base").alias("first"), "copy")
    labels = {"metric": F.lit(MOVE_DELAY.name), "second": F.lit("")}
    return ended.join(F.broadcast(names), ["run", "client"]).withColumns(labels).select(*SPAN)

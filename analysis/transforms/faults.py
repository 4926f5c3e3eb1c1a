"""How long the effects of faults lasted."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from brokerbed.analysis.transforms.delays import copy_of
from brokerbed.analysis.transforms.links import has_flag, is_link
from brokerbed.analysis.transforms.passages import MESSAGE
from brokerbed.log.record import WAITED

STAY = ("run", "publisher", "client", "published_ns", "ended_ns", "through_ns")


def aftermath(passed: DataFrame, events: DataFrame, connected: DataFrame, faults: DataFrame) -> DataFrame:
    """The end of each fault's effects: of the last resynchronisation, and of the backlog that it caused.

    The fault may have delayed every message that was in transit, and the messages behind it. So the backlog is gone
    when all messages that were in transit have arrived, and every queue that one of them passed has been empty once
    since. Messages that wait for a peer that is away are no backlog of the fault: see _held. `connected` is of
    transforms/connections.py.
    """
    resync = events.where(F.col("event") == "link_resync").join(F.broadcast(faults), "run")
    resynchronised = resync.where(F.col("time_ns").between(F.col("struck_ns"), F.col("confirmed_ns"))).select(
        "run", "fault", F.col("time_ns").alias("through_ns")
    )
    arrived = passed.withColumns({"ended_ns": F.col("processed_ns"), "through_ns": F.col("processed_ns")})
    queued = _peer_stays(passed).unionByName(_broker_stays(passed, _since_first(events, faults)))
    stays = _with_busy_periods(queued).unionByName(arrived.withColumnRenamed("origin", "publisher").select(*STAY))
    return (
        resynchronised.unionByName(_held(stays, _away(connected, faults), faults))
        .groupBy("run", "fault")
        .agg(F.max("through_ns").alias("through_ns"))
        .select("run", "fault", "through_ns")
    )


def _since_first(events: DataFrame, faults: DataFrame) -> DataFrame:
    """The events of each run from its first fault on."""
    first = faults.groupBy("run").agg(F.min("struck_ns").alias("first_ns"))
    return events.join(F.broadcast(first), "run").where(F.col("time_ns") >= F.col("first_ns"))


def _peer_stays(passed: DataFrame) -> DataFrame:
    """The time of each message in its publisher's own queue, and in its subscriber."""
    is_publisher = F.col("client") == F.col("origin")
    return passed.select(
        "run",
        F.concat_ws(" ", F.when(is_publisher, "publisher").otherwise("subscriber"), "client").alias("queue"),
        F.col("origin").alias("publisher"),
        "client",
        "published_ns",
        F.when(is_publisher, F.col("published_ns")).otherwise(F.col("received_ns")).alias("begun_ns"),
        F.when(is_publisher, F.col("sent_ns")).otherwise(F.col("processed_ns")).alias("ended_ns"),
    )


def _broker_stays(passed: DataFrame, events: DataFrame) -> DataFrame:
    """The time of each message at the input of a broker, and at its outputs to links and sessions.

    Copies of the peers have stages of their own. If no peer published a message, its publication time is unknown, and
    the time at which a broker first saw it is used.
    """
    event = F.col("event")
    is_input = event.isin("received", "served") & (F.col("input") == "served")
    is_output = (event == "queued") | ((event == "sent") & (is_link(F.col("client")) | has_flag(WAITED)))
    place = F.when(is_input, F.lit("")).otherwise(F.col("client"))
    stays = (
        events.where(is_input | is_output)
        .groupBy(*MESSAGE, "broker", place.alias("client"))
        .agg(
            F.min("time_ns").alias("begun_ns"),
            F.max(F.when(event.isin("served", "sent"), F.col("time_ns"))).alias("ended_ns"),
            F.max(copy_of(F.col("topic"))).alias("copy"),
        )
    )
    published = passed.where(F.col("client") == F.col("origin")).select(
        "run", F.col("origin").alias("publisher"), F.col("sequence").alias("number"), "published_ns"
    )
    identified = (
        events.where(event == "identified")
        .select(*MESSAGE, F.col("client").alias("publisher"), F.col("number").cast("long"))
        .join(published, ["run", "publisher", "number"])
        .select(*MESSAGE, "publisher", "published_ns")
    )
    first_ns = F.min("begun_ns").over(Window.partitionBy(*MESSAGE))
    return stays.join(identified, list(MESSAGE), "left").select(
        "run",
        F.concat_ws(" ", "broker", "client", F.col("copy").cast("string")).alias("queue"),
        "publisher",
        "client",
        F.coalesce("published_ns", first_ns).alias("published_ns"),
        "begun_ns",
        "ended_ns",
    )


def _with_busy_periods(stays: DataFrame) -> DataFrame:
    """Each stay with the moment at which its queue was empty again."""
    in_order = Window.partitionBy("run", "queue").orderBy("begun_ns", "ended_ns")
    ended_before = F.max("ended_ns").over(in_order.rowsBetween(Window.unboundedPreceding, -1))
    is_first = F.coalesce(F.col("begun_ns") > ended_before, F.lit(True))
    return (
        stays.where(F.col("ended_ns") > F.col("begun_ns"))
        .withColumn("is_first", is_first.cast("int"))
        .withColumn("period", F.sum("is_first").over(in_order))
        .withColumn("through_ns", F.max("ended_ns").over(Window.partitionBy("run", "queue", "period")))
        .select(*STAY)
    )


def _away(connected: DataFrame, faults: DataFrame) -> DataFrame:
    """The peers that had disconnected by themselves when a fault was over, and since when."""
    last = F.max_by(F.struct("event", "time_ns"), F.struct("time_ns", "position"))
    return (
        connected.where("comes_and_goes")
        .join(F.broadcast(faults), "run")
        .where(F.col("time_ns") <= F.col("confirmed_ns"))
        .groupBy("run", "fault", "client")
        .agg(last.alias("last"))
        .where(F.col("last.event") == "disconnected")
        .select("run", "fault", "client", F.col("last.time_ns").alias("since_ns"))
    )


def _held(stays: DataFrame, away: DataFrame, faults: DataFrame) -> DataFrame:
    """The stays of messages that were in transit during a fault.

    If the publisher or the subscriber was away from the publication until the repair, the message would have waited
    without the fault, too, and is left out.
    """
    of_publisher = away.select("run", "fault", F.col("client").alias("publisher"), F.col("since_ns").alias("gone_ns"))
    is_held = (F.col("published_ns") <= F.col("confirmed_ns")) & (F.col("ended_ns") >= F.col("struck_ns"))
    had_left = F.least(F.col("since_ns"), F.col("gone_ns")) <= F.col("published_ns")
    return (
        stays.join(F.broadcast(faults), "run")
        .where(is_held)
        .join(F.broadcast(away), ["run", "fault", "client"], "left")
        .join(F.broadcast(of_publisher), ["run", "fault", "publisher"], "left")
        .where(~F.coalesce(had_left, F.lit(False)))
        .select("run", "fault", "through_ns")
    )

"""Checks that the messages which brokers received and routed add up exactly.

A message that comes to a broker is routed to every client that has a subscription to its topic at that moment, and to
every link whose entry matches. Rows are `routed` if they say so (sent, queued or dropped, each for the first time). In
an episode, which lasts from the moment a subscription appears until it disappears, every message of its topic that
reaches the broker is routed to the subscriber, except to the link that brought it.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from brokerbed.analysis.transforms.links import has_flag, is_link
from brokerbed.log.record import DUPLICATE, REPLAY, UNADVERTISED_FLAG, WAITED

ROUTED = ("queued", "sent", "dropped")
NAMES = ("run", "broker", "topic", "client", "is_link")
ALL_ROWS = Window.unboundedPreceding, Window.unboundedFollowing


def movements(events: DataFrame, lives: DataFrame | None, handovers: DataFrame | None = None) -> DataFrame:
    """Changes of tables, messages that arrive, and messages that are routed, with the life of the broker.

    `lives` has all lives of the brokers that were restarted; None if none was. `handovers` are those of link_moves.py;
    None if no link moved.
    """
    event = F.col("event")
    wanted = events.select(
        "run",
        "broker",
        "topic",
        "client",
        "position",
        "time_ns",
        F.when(event == "subscribed", 1).when(event == "unsubscribed", -1).otherwise(0).alias("change"),
        (event == F.col("input")).alias("is_in"),
        _is_routed().alias("is_routed"),
        "qos",
        "origin",
        "sequence",
        has_flag(UNADVERTISED_FLAG).alias("is_unadvertised"),
    )
    kept = wanted.where((F.col("change") != 0) | F.col("is_in") | F.col("is_routed"))
    return with_life(kept if handovers is None else _with_handovers(kept, handovers), lives)


def _with_handovers(moved: DataFrame, handovers: DataFrame) -> DataFrame:
    """Messages count for the link over which they would go if links did not move, in both kinds of handovers.

    What waits for the next parent counts for the present one, which has the entries. What a child gets from its old
    parent counts as if it had come from the child, to which it does not go back; these are additional rows.
    """
    leaving, adopted = (handovers.where(condition) for condition in ("is_leaving", "NOT is_leaving"))

    def during(link: Column, table: DataFrame) -> Column:
        return (
            (moved["run"] == table["run"]) & (moved["broker"] == table["broker"]) & (moved["client"] == link)
            & moved["position"].between(table["from_position"], table["to_position"])
        )  # fmt: skip

    others = [name for name in moved.columns if name != "client"]
    is_early = moved["is_routed"] & during(leaving["link"], leaving)
    renamed = moved.join(F.broadcast(leaving), is_early, "left").select(
        *(moved[name] for name in others), F.coalesce(leaving["instead_of"], moved["client"]).alias("client")
    )
    of_child = moved.join(F.broadcast(adopted), moved["is_in"] & during(adopted["instead_of"], adopted)).select(
        *(moved[name] for name in others if name != "is_in"), F.lit(False).alias("is_in"),
        adopted["link"].alias("client"), F.lit(True).alias("is_own"),
    )  # fmt: skip
    return with_own(renamed).unionByName(of_child)


def with_own(moved: DataFrame) -> DataFrame:
    """With the column `is_own`: the message does not go to the client of its row, as a rule because it came from there.

    Without additional rows there is no such column.
    """
    return moved if "is_own" in moved.columns else moved.withColumn("is_own", F.col("is_in"))


def with_life(rows: DataFrame, lives: DataFrame | None) -> DataFrame:
    """The rows with the life of the broker that logged them, and whether this is its last one."""
    if lives is None:
        return rows.withColumns({"life": F.lit(1), "is_last_life": F.lit(True)})
    is_then = (
        (rows["run"] == lives["run"])
        & (rows["broker"] == lives["broker"])
        & (rows["position"] >= lives["from_position"])
        & (rows["position"] < lives["to_position"])
    )
    life = F.coalesce(lives["life"], F.lit(1)).alias("life")
    is_last = F.coalesce(lives["is_last"], F.lit(True)).alias("is_last_life")
    return rows.join(F.broadcast(lives), is_then, "left").select(*(rows[name] for name in rows.columns), life, is_last)


def with_wildcards(moved: DataFrame, wildcards: DataFrame) -> DataFrame:
    """A filter with wildcards counts as a subscription to each topic that it matches."""
    is_change = F.col("change") != 0
    spread = (
        moved.where(is_change)
        .withColumnRenamed("topic", "filter")
        .join(F.broadcast(wildcards), ["run", "filter"], "left")
        .withColumn("topic", F.explode(F.coalesce("topics", F.array("filter"))))
        .drop("topics", "filter")
    )
    return moved.where(~is_change).unionByName(spread)


def to_subscribers(moved: DataFrame, always: DataFrame) -> DataFrame:
    """The movements without messages that went to links to which everything is sent."""
    marked = moved.join(F.broadcast(always.withColumn("is_always", F.lit(True))), ["run", "broker", "client"], "left")
    is_routed = F.col("is_routed") & F.col("is_always").isNull()
    kept = marked.withColumn("is_routed", is_routed).drop("is_always")
    return kept.where((F.col("change") != 0) | _is_own(kept) | F.col("is_in") | F.col("is_routed"))


def episodes(moved: DataFrame) -> DataFrame:
    """One row per period in which a client was subscribed to a topic: how many messages came and were routed to it.

    Messages that were routed outside of any episode have `is_on` false.
    """
    of_client = Window.partitionBy("place", "who").orderBy("stretch", F.col("is_change").desc())
    begins = (F.col("change") > 0) & (F.col("entries") == F.col("change"))
    ends = (F.col("change") < 0) & (F.col("entries") == 0)
    numbered = (
        _stretches(moved)
        .withColumn("entries", F.sum("change").over(of_client))
        .withColumns({"begins": begins, "ends": ends})
        .withColumn("episode", F.sum(F.col("begins").cast("int")).over(of_client))
        .withColumn("is_on", (F.col("entries") > 0) | F.col("ends"))
        # what was not advertised goes to links whether or not they have an entry
        .where(F.col("is_on") | ~F.col("is_unadvertised") | (F.col("change") != 0))
    )
    first_ns = F.when(F.col("begins") | (F.col("routed") > 0), F.col("time_ns"))
    return (
        numbered.groupBy("place", "who", "episode", "is_on")
        .agg(
            *(F.first(name).alias(name) for name in NAMES),
            F.sum("routed").alias("routed"),
            F.sum("own").alias("own"),
            F.min(F.when(F.col("begins"), F.col("came"))).alias("came_before"),
            F.coalesce(F.max(F.when(F.col("ends"), F.col("came"))), F.max("came_in_all")).alias("came_by_end"),
            F.min(first_ns).alias("time_ns"),
        )
        .withColumn("expected", F.when(F.col("is_on"), F.col("came_by_end") - F.col("came_before") - F.col("own")))
        .drop("place", "who", "came_before", "came_by_end", "own")
    )


def _stretches(moved: DataFrame) -> DataFrame:
    """Changes one by one, and between two changes of any subscription to a topic at a broker the numbers of messages
    that were routed to each client, or came from it.

    Episodes follow from these few rows. Each further sort of all messages would cost as much as everything else.
    """
    place = F.xxhash64("run", "broker", "life", "topic")  # numbers sort faster than names
    is_own = _is_own(moved)
    is_change = F.col("change") != 0
    keys = {
        "place": place,
        "who": F.xxhash64("client"),
        "is_link": is_link(F.col("client")),
        "is_change": is_change,
    }
    keyed = moved.withColumns(keys).drop("life", "is_last_life", "origin", "qos", "sequence").repartition("place")
    at_place = Window.partitionBy("place").orderBy("position")
    until_now, came = at_place.rowsBetween(Window.unboundedPreceding, Window.currentRow), F.col("is_in").cast("long")
    return (
        keyed.withColumns(
            {
                "came": F.sum(came).over(until_now),
                "stretch": F.sum(F.col("is_change").cast("int")).over(until_now),
                "came_in_all": F.sum(came).over(at_place.rowsBetween(*ALL_ROWS)),
            }
        )
        .where(F.col("is_change") | F.col("is_routed") | F.col("is_link") | (is_own & ~F.col("is_in")))
        .groupBy("place", "who", "stretch", "is_change", "is_unadvertised")
        .agg(
            *(F.first(name).alias(name) for name in NAMES),
            F.sum("change").alias("change"),
            _count(F.col("is_routed")).alias("routed"),
            _count(is_own).alias("own"),
            F.max("came").alias("came"),
            F.max("came_in_all").alias("came_in_all"),
            F.min(F.when(F.col("is_routed") | F.col("is_change"), F.col("time_ns"))).alias("time_ns"),
        )
    )


def deliveries(moved: DataFrame) -> DataFrame:
    """The messages that brokers routed to clients; `is_late` if one of the same topic, quality of service and broker at
    which it entered the tree was routed before, although it had entered later."""
    stream = F.xxhash64("run", "broker", "life", "topic", "client", "origin", "qos")
    in_order = Window.partitionBy("stream").orderBy("position")
    is_late = F.coalesce(F.lag("sequence").over(in_order) > F.col("sequence"), F.lit(False))
    to_clients = moved.where(F.col("is_routed") & ~is_link(F.col("client"))).withColumn("stream", stream)
    return to_clients.withColumn("is_late", is_late).select(
        "run", "broker", "client", "topic", "sequence", "time_ns", "is_late"
    )


def _is_routed() -> Column:
    return F.col("event").isin(*ROUTED) & ~has_flag(WAITED | DUPLICATE | REPLAY)


def _is_own(moved: DataFrame) -> Column:
    """Whether a message does not go to the client of its row, because it comes from there."""
    return F.col("is_own") if "is_own" in moved.columns else F.col("is_in")


def _count(condition: Column) -> Column:
    return F.sum(condition.cast("long"))

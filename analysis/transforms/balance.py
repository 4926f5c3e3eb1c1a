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


def movements(events: DataFrame, inputs: DataFrame, restarts: DataFrame) -> DataFrame:
    """Changes of tables, messages that arrive, and messages that are routed, with the life of the broker.

    `inputs` has the event at which a message is routed: when it is received, or after the service at the input.
    """
    event = F.col("event")
    wanted = events.join(F.broadcast(inputs), "run").select(
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
    return with_life(wanted.where((F.col("change") != 0) | F.col("is_in") | F.col("is_routed")), restarts)


def with_life(rows: DataFrame, restarts: DataFrame) -> DataFrame:
    """The rows with the life of the broker that logged them."""
    is_later = (
        (rows["run"] == restarts["run"])
        & (rows["broker"] == restarts["broker"])
        & (rows["position"] >= restarts["from_position"])
        & (rows["position"] < restarts["to_position"])
    )
    life = F.coalesce(restarts["life"], F.lit(1)).alias("life")
    return rows.join(F.broadcast(restarts), is_later, "left").select(*(rows[name] for name in rows.columns), life)


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
    return kept.where((F.col("change") != 0) | F.col("is_in") | F.col("is_routed"))


def episodes(moved: DataFrame) -> DataFrame:
    """One row per period in which a client was subscribed to a topic: how many messages came and were routed to it.

    Messages that were routed outside of any episode have `is_on` false. `late` counts messages that were routed after
    one that had entered the tree later, at the same broker and with the same quality of service.
    """
    place = F.xxhash64("run", "broker", "life", "topic")  # numbers sort faster than names
    keys = {"place": place, "who": F.xxhash64("client"), "source": F.xxhash64("origin", "qos")}
    keyed = moved.withColumns(keys).drop("life", "origin", "qos").repartition("place")
    at_place = Window.partitionBy("place").orderBy("position", F.col("change").desc())
    of_client = Window.partitionBy("place", "who").orderBy("position", F.col("change").desc())
    in_order = Window.partitionBy("place", "who", "source", "is_routed").orderBy("position")
    counted = keyed.withColumns(
        {
            "came": F.sum(F.col("is_in").cast("long")).over(at_place),
            "came_in_all": F.sum(F.col("is_in").cast("long")).over(Window.partitionBy("place")),
        }
    ).where((F.col("change") != 0) | F.col("is_routed") | is_link(F.col("client")))
    begins = (F.col("change") > 0) & (F.col("entries") == F.col("change"))
    ends = (F.col("change") < 0) & (F.col("entries") == 0)
    numbered = (
        counted.withColumn("entries", F.sum("change").over(of_client))
        .withColumns({"begins": begins, "ends": ends})
        .withColumn("episode", F.sum(F.col("begins").cast("int")).over(of_client))
        .withColumn("is_late", F.col("is_routed") & (F.lag("sequence").over(in_order) > F.col("sequence")))
        .withColumn("is_on", (F.col("entries") > 0) | F.col("ends"))
        # what was not advertised goes to links whether or not they have an entry
        .where(F.col("is_on") | ~F.col("is_unadvertised") | (F.col("change") != 0))
    )
    return (
        numbered.groupBy("place", "who", "episode", "is_on")
        .agg(
            *(F.first(name).alias(name) for name in ("run", "broker", "topic", "client")),
            _count(F.col("is_routed")).alias("routed"),
            _count(F.col("is_in")).alias("own"),
            F.min(F.when(F.col("begins"), F.col("came"))).alias("came_before"),
            F.coalesce(F.max(F.when(F.col("ends"), F.col("came"))), F.max("came_in_all")).alias("came_by_end"),
            F.min(F.when(F.col("is_routed") | F.col("begins"), F.col("time_ns"))).alias("time_ns"),
            _count(F.coalesce("is_late", F.lit(False))).alias("late"),
            F.min(F.when(F.col("is_late"), F.col("sequence"))).alias("late_sequence"),
        )
        .withColumn("expected", F.when(F.col("is_on"), F.col("came_by_end") - F.col("came_before") - F.col("own")))
        .drop("place", "who", "came_before", "came_by_end", "own")
    )


def per_client(events: DataFrame, inputs: DataFrame) -> DataFrame:
    """Counts of messages over a whole run, per broker and client or link."""
    event = F.col("event")
    return (
        events.where(event.isin("received", "served", *ROUTED))
        .join(F.broadcast(inputs), "run")
        .groupBy("run", "broker", "client")
        .agg(
            _count(event == "received").alias("received"),
            _count(event == F.col("input")).alias("came"),
            _count(_is_routed()).alias("routed"),
            _count((event == "sent") & ~has_flag(DUPLICATE | REPLAY)).alias("sent"),
        )
    )


def always_balance(counts: DataFrame, always: DataFrame) -> DataFrame:
    """Expected and routed messages of links to which everything goes, except what came from there."""
    total = counts.groupBy("run", "broker").agg(F.sum("came").alias("came_in_all"))
    return (
        always.join(counts, ["run", "broker", "client"], "left")
        .join(total, ["run", "broker"], "left")
        .select(
            "run",
            "broker",
            "client",
            (F.coalesce("came_in_all", F.lit(0)) - F.coalesce("came", F.lit(0))).alias("expected"),
            F.coalesce("routed", F.lit(0)).alias("routed"),
        )
    )


def crossings_balance(counts: DataFrame) -> DataFrame:
    """What one end of a link sent and the other end received, for each direction."""
    ends = F.split("client", ">")
    at_links = counts.where(is_link(F.col("client")))
    sent = at_links.select("run", F.col("client").alias("link"), "sent", F.lit(0).cast("long").alias("received"))
    received = at_links.select(
        "run", F.concat_ws(">", ends[1], ends[0]).alias("link"), F.lit(0).cast("long").alias("sent"), "received"
    )
    both = sent.unionByName(received).groupBy("run", "link")
    return both.agg(F.sum("sent").alias("sent"), F.sum("received").alias("received"))


def _is_routed() -> Column:
    return F.col("event").isin(*ROUTED) & ~has_flag(WAITED | DUPLICATE | REPLAY)


def _count(condition: Column) -> Column:
    return F.sum(condition.cast("long"))

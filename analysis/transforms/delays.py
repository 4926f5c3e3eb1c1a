"""Delays: from publishing to the end of processing, and in each queue on the way.

A delay counts at its end: the mean includes every delay that ends in compared time, whenever it began. So no delay is
cut off at the end of a run, and waiting that only the end of a run terminates is not counted. The copies of the peers
are pooled; each copy is a series of its own, as copies do not load one another.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from brokerbed.analysis.transforms.moments import compared, within
from brokerbed.analysis.transforms.passages import MESSAGE
from brokerbed.metrics import END_TO_END_DELAY, STAGE_DELAY, Metric
from brokerbed.scenario.units import NS_PER_S

SPAN = ("run", "bin_ns", "copy", "metric", "first", "second", "begun_ns", "time_ns")
COPY_IN_TOPIC = r"^copy(\d+)/"


def peer_cells(passed: DataFrame, intervals: DataFrame, peers: DataFrame) -> DataFrame:
    return delay_cells(peer_spans(passed, peers), intervals)


def peer_spans(passed: DataFrame, peers: DataFrame) -> DataFrame:
    """Begin and end of each delay: end to end, in the queue of the publisher, and in the subscriber."""
    base = peers.select("run", "id", "base", "copy")
    named = passed.join(F.broadcast(base.toDF("run", "origin", "publisher", "copy")), ["run", "origin"]).join(
        F.broadcast(base.select("run", "id", "base").toDF("run", "client", "peer")), ["run", "client"]
    )
    is_publisher = F.col("client") == F.col("origin")
    spans = F.when(
        is_publisher, F.array(_span(STAGE_DELAY, F.lit("publisher"), F.col("peer"), "published_ns", "sent_ns"))
    ).otherwise(
        F.array(
            _span(END_TO_END_DELAY, F.col("publisher"), F.col("peer"), "published_ns", "processed_ns"),
            _span(STAGE_DELAY, F.lit("subscriber"), F.col("peer"), "received_ns", "processed_ns"),
        )
    )
    return (
        named.select("run", "bin_ns", "copy", F.explode(spans).alias("span"))
        .select("run", "bin_ns", "copy", "span.*")
        .select(*SPAN)
    )


def output_cells(events: DataFrame, intervals: DataFrame, queues: DataFrame) -> DataFrame:
    return delay_cells(output_spans(events, queues), intervals)


def output_spans(events: DataFrame, queues: DataFrame) -> DataFrame:
    """Begin and end of each delay at the outputs of brokers to links and sessions, from routing to sending.

    The session of a peer that roams may have got a message at one broker and sent it at another one.
    """
    rows = events.where(F.col("event").isin("queued", "sent")).join(F.broadcast(queues), ["run", "client"])
    passed = rows.groupBy(*MESSAGE, "client", F.col("stage").alias("first"), F.col("at").alias("second")).agg(
        F.min("time_ns").alias("begun_ns"),
        F.min(F.when(F.col("event") == "sent", F.col("time_ns"))).alias("time_ns"),
        F.max(copy_of(F.col("topic"))).alias("copy"),
        F.max("bin_ns").alias("bin_ns"),
    )
    return passed.withColumn("metric", F.lit(STAGE_DELAY.name)).select(*SPAN)


def input_cells(events: DataFrame, intervals: DataFrame) -> DataFrame:
    return delay_cells(input_spans(events), intervals)


def input_spans(events: DataFrame) -> DataFrame:
    """Begin and end of each delay at the inputs of brokers, also of messages that nobody wants."""
    passed = (
        events.where(F.col("event").isin("received", "served"))
        .groupBy(*MESSAGE, "broker")
        .agg(
            *(
                F.min(F.when(F.col("event") == event, F.col("time_ns"))).alias(name)
                for event, name in (("received", "begun_ns"), ("served", "time_ns"))
            ),
            F.max(copy_of(F.col("topic"))).alias("copy"),
            F.max("bin_ns").alias("bin_ns"),
        )
    )
    named = passed.withColumns(
        {
            "metric": F.lit(STAGE_DELAY.name),
            "first": F.lit("broker_in"),
            "second": F.col("broker"),
        }
    )
    return named.select(*SPAN)


def _span(metric: Metric, first: Column, second: Column, begun: str, ended: str) -> Column:
    return F.struct(
        F.lit(metric.name).alias("metric"),
        first.alias("first"),
        second.alias("second"),
        F.col(begun).alias("begun_ns"),
        F.col(ended).alias("time_ns"),
    )


def copy_of(topic: Column) -> Column:
    """The number of the copy of the peers, from the topic; -1 for the classes."""
    number = F.regexp_extract(topic, COPY_IN_TOPIC, 1)
    return F.when(~topic.startswith("copy") | (number == ""), F.lit(-1)).otherwise(number.cast("int"))


def delay_cells(passed: DataFrame, intervals: DataFrame) -> DataFrame:
    """The cells of delays from `begun_ns` to `time_ns`, if both are known."""
    seconds = (F.col("time_ns") - F.col("begun_ns")) / NS_PER_S
    complete = passed.where(F.col("time_ns").isNotNull() & F.col("begun_ns").isNotNull())
    return (
        within(complete, compared(intervals))
        .groupBy("run", "point", "metric", "first", "second", "copy", "batch")
        .agg(F.sum(seconds).alias("x"), F.count("*").cast("double").alias("n"))
        .select("run", "point", "metric", "first", "second", "copy", "batch", "x", "n")
    )

"""The order in which messages reach clients, which must be that of publication per publisher, topic and QoS."""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F


def out_of_order(passed: DataFrame) -> DataFrame:
    """The messages of peers that subscribers received; `is_late` if one that was published later came first."""
    before = (
        Window.partitionBy("run", "client", "origin", "topic_hash", "qos")
        .orderBy("received_position")
        .rowsBetween(Window.unboundedPreceding, -1)
    )
    got = passed.where(F.col("received_ns").isNotNull())
    return got.withColumn("is_late", F.coalesce(F.max("sequence").over(before) > F.col("sequence"), F.lit(False)))

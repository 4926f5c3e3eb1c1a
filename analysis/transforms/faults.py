"""Faults in the log: when they struck and healed, and until when their effects lasted."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from analysis.transforms.links import is_link
from analysis.transforms.passages import MESSAGE

MARKS = ("started", "fault", "fault_confirmed", "healed", "heal_confirmed")


def marks(logged: DataFrame) -> DataFrame:
    """The few rows that tell of faults, and of brokers that began a life."""
    return logged.where(F.col("event").isin(*MARKS)).select(
        "run", "broker", "event", "time_ns", "position", "client", "sequence"
    )


def aftermath(passed: DataFrame, events: DataFrame, faults: DataFrame) -> DataFrame:
    """Per fault: when the last resynchronisation was made, and when the last message that it may have held up was
    through: one that a peer published, or that waited for a link, while it lasted."""
    told = events.where(F.col("event") == "link_resync").select("run", "time_ns", F.col("time_ns").alias("through_ns"))
    made = passed.select("run", F.col("published_ns").alias("time_ns"), F.col("processed_ns").alias("through_ns"))
    waited = (
        _during(events.where(is_link(F.col("client")) & F.col("event").isin("queued", "sent")), faults)
        .groupBy(*MESSAGE, "broker", "client")
        .agg(
            F.min(F.when(F.col("event") == "queued", F.col("time_ns"))).alias("time_ns"),
            F.max(F.when(F.col("event") == "sent", F.col("time_ns"))).alias("through_ns"),
        )
        .select("run", "time_ns", "through_ns")
    )
    return (
        told.unionByName(made)
        .unionByName(waited)
        .join(F.broadcast(faults), "run")
        .where((F.col("time_ns") >= F.col("struck_ns")) & (F.col("time_ns") <= F.col("confirmed_ns")))
        .groupBy("run", "fault")
        .agg(F.max("through_ns").alias("through_ns"))
        .select("run", "fault", "through_ns")
    )


def _during(rows: DataFrame, faults: DataFrame) -> DataFrame:
    """From the first fault of a run on."""
    first = faults.groupBy("run").agg(F.min("struck_ns").alias("first_ns"))
    return rows.join(F.broadcast(first), "run").where(F.col("time_ns") >= F.col("first_ns"))

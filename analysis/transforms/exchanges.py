"""Requests and their answers, for each responder that answers.

An answer has the number of its request, and a stream of its own for each responder and requester, so that the four
passages of an exchange are found by that number: the request is made, served by the responder, replied to, answered.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from brokerbed.analysis.transforms.delays import delay_cells
from brokerbed.analysis.transforms.moments import compared, within
from brokerbed.metrics import ANSWERED_RATIO, ROUND_TRIP_DELAY

ASKED, SERVED, REPLIED, ANSWERED = "asked", "served", "replied", "answered"  # the roles of passages
EXCHANGE = ("run", "requester", "responder", "copy", "sequence")


def exchanges(passed: DataFrame, roles: DataFrame) -> DataFrame:
    """One row per request and responder, with the time of each step that there was.

    `is_received` says whether an answer came to the requester, also if the requester did not take it for one.
    """
    rows = passed.join(F.broadcast(roles), ["run", "origin", "client"]).groupBy(*EXCHANGE)
    return rows.agg(
        _time(ASKED, "published_ns").alias("asked_ns"),
        _time(SERVED, "processed_ns").alias("served_ns"),
        _time(REPLIED, "published_ns").alias("replied_ns"),
        _time(ANSWERED, "received_ns").isNotNull().alias("is_received"),
        _time(ANSWERED, "processed_ns").alias("answered_ns"),
        F.max("bin_ns").alias("bin_ns"),
    )


def round_trip_cells(exchanged: DataFrame, intervals: DataFrame) -> DataFrame:
    named = exchanged.withColumns({**_labels(ROUND_TRIP_DELAY.name), "begun_ns": F.col("asked_ns")})
    return delay_cells(named.withColumnRenamed("answered_ns", "time_ns"), intervals)


def answered_cells(exchanged: DataFrame, intervals: DataFrame) -> DataFrame:
    """The share of the requests made in compared time that were answered, whenever that was."""
    named = exchanged.where(F.col("asked_ns").isNotNull()).withColumns(_labels(ANSWERED_RATIO.name))
    return (
        within(named.withColumnRenamed("asked_ns", "time_ns"), compared(intervals))
        .groupBy("run", "point", "metric", "first", "second", "copy", "batch")
        .agg(F.count("answered_ns").cast("double").alias("x"), F.count("*").cast("double").alias("n"))
        .select("run", "point", "metric", "first", "second", "copy", "batch", "x", "n")
    )


def _labels(metric: str) -> dict[str, Column]:
    return {"metric": F.lit(metric), "first": F.col("requester"), "second": F.col("responder")}


def _time(role: str, column: str) -> Column:
    return F.min(F.when(F.col("role") == role, F.col(column)))

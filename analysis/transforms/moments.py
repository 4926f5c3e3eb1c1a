"""Moments in time and the intervals of analysis/windows.py in which they are."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def bin_of(time_ns: Column, bin_ns: Column) -> Column:
    """All time before zero is one bin: what happens there is only ever added up."""
    return F.greatest(F.floor(time_ns / bin_ns), F.lit(-1))


def within(rows: DataFrame, intervals: DataFrame) -> DataFrame:
    """Each row with the interval in which its `time_ns` is; rows in none of them are gone."""
    binned = rows.withColumn("bin", bin_of(F.col("time_ns"), F.col("bin_ns")))
    is_in = (F.col("time_ns") >= F.col("begin_ns")) & (F.col("time_ns") < F.col("end_ns"))
    return binned.join(F.broadcast(intervals), ["run", "bin"]).where(is_in)


def compared(intervals: DataFrame) -> DataFrame:
    """Those intervals whose measurements are compared with predictions."""
    return intervals.where(F.col("batch") >= 0)

"""Joins rows with the intervals of analysis/windows.py that contain their time."""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F


def bin_of(time_ns: Column, bin_ns: Column) -> Column:
    """The bin of a time. All time before zero is one bin, because it is never divided."""
    return F.greatest(F.floor(time_ns / bin_ns), F.lit(-1))


def within(rows: DataFrame, intervals: DataFrame) -> DataFrame:
    """Each row with the interval that contains its `time_ns`; rows outside of all intervals are dropped."""
    binned = rows.withColumn("bin", bin_of(F.col("time_ns"), F.col("bin_ns")))
    is_in = (F.col("time_ns") >= F.col("begin_ns")) & (F.col("time_ns") < F.col("end_ns"))
    return binned.join(F.broadcast(intervals), ["run", "bin"]).where(is_in)


def compared(intervals: DataFrame) -> DataFrame:
    """The intervals whose measurements are compared with predictions."""
    return intervals.where(F.col("batch") >= 0)

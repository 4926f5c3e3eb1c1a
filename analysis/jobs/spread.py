"""Distributes work over a Spark cluster, one task per item."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")


def spread(spark: SparkSession, items: Sequence[Item], work: Callable[[Item], Result]) -> list[Result]:
    """Returns `work` of each item. It must be importable on the workers, and its files must be on shared storage."""
    return spark.sparkContext.parallelize(list(items), len(items)).map(work).collect()

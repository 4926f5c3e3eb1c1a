"""Work spread over a Spark cluster: one task per item."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from pyspark.sql import SparkSession

Item = TypeVar("Item")
Result = TypeVar("Result")


def spread(spark: SparkSession, items: Sequence[Item], work: Callable[[Item], Result]) -> list[Result]:
    """`work` must be importable on the workers, and finds its files on storage that all machines share."""
    return spark.sparkContext.parallelize(list(items), len(items)).map(work).collect()

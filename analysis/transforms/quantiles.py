"""Quantiles of end-to-end delays: of all compared delays of a pair, and of each section of time.

Delays are first counted in buckets that are so narrow that the mean of each can stand for its delays; what is left is
small, and its quantiles are exact.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from brokerbed.analysis.tallies import CELL
from brokerbed.analysis.transforms.delays import peer_spans
from brokerbed.analysis.transforms.moments import compared, within
from brokerbed.metrics import DELAY_QUANTILES, END_TO_END_DELAY
from brokerbed.scenario.units import NS_PER_S

PER_DECADE = 1000  # buckets, which are 0.23% apart
SHORTEST_S = 1e-9  # shorter delays are in the first bucket
BATCHES_PER_SECTION = 4  # a section is longer than a batch, as a quantile of few delays is biased
WHOLE = -1  # the batch and the run of a cell for all compared time


def quantile_cells(passed: DataFrame, intervals: DataFrame, peers: DataFrame, phases: int) -> DataFrame:
    """Cells whose x is a quantile and whose n counts the delays; the batch is the number of a section, or WHOLE.

    A batch is a phase of a period if rates vary; otherwise `phases` is 1.
    """
    spans = peer_spans(passed, peers).where((F.col("metric") == END_TO_END_DELAY.name) & F.col("time_ns").isNotNull())
    seconds = (F.col("time_ns") - F.col("begun_ns")) / NS_PER_S
    bucket = F.floor(F.log10(F.greatest(F.col("seconds"), F.lit(SHORTEST_S))) * PER_DECADE)
    section = F.floor(F.col("batch") / (BATCHES_PER_SECTION * phases)).cast("int")
    counted = (
        within(spans, compared(intervals))
        .select("run", "point", "first", "second", section.alias("section"), seconds.alias("seconds"))
        .groupBy("run", "point", "first", "second", "section", bucket.alias("bucket"))
        .agg(F.avg("seconds").alias("seconds"), F.count("*").alias("count"))
    )
    places = F.array(
        F.struct(F.col("run"), F.col("section").alias("batch")),
        F.struct(F.lit(WHOLE).alias("run"), F.lit(WHOLE).alias("batch")),
    )
    shares = [metric.share for metric in DELAY_QUANTILES]
    found = (
        counted.select("point", "first", "second", F.explode(places).alias("place"), "seconds", "count")
        .groupBy("place.run", "point", "first", "second", "place.batch")
        .agg(
            F.percentile("seconds", F.array(*map(F.lit, shares)), F.col("count")).alias("quantiles"),
            F.sum("count").cast("double").alias("n"),
        )
    )
    values = F.array(
        *(
            F.struct(F.lit(metric.name).alias("metric"), F.col("quantiles")[place].alias("x"))
            for place, metric in enumerate(DELAY_QUANTILES)
        )
    )
    return (
        found.withColumn("value", F.explode(values))
        .withColumns({"copy": F.lit(-1), "metric": F.col("value.metric"), "x": F.col("value.x")})
        .select(*CELL)
    )

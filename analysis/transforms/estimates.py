"""From cells to measured values with their 95% confidence intervals.

The measured value is the ratio of sums R = sum(x) / sum(n) over units that hardly depend on one another (batches of
time, copies of the peers, runs with other seeds). Its variance is that of the residuals x - R n, and the interval is
Student's with as many degrees of freedom as there are units but one.

Batches of time that are too short depend on one another, and their scatter tells too little. If successive ones are
alike by more than chance, the variance is that of a first-order autoregressive process, so that the interval is as wide
as it has to be.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F
from scipy.special import stdtrit

from analysis.windows import BATCHES

CONFIDENCE = 0.95
FREEDOM_MAX = 400  # beyond it the quantile is that of the normal distribution, but for less than 0.3%
QUANTILES = stdtrit(range(1, FREEDOM_MAX + 1), 0.5 + CONFIDENCE / 2).tolist()
LIKENESS_MAX = 0.9  # of successive batches; beyond it nothing can be told from them
KEY = ("point", "metric", "first", "second")


def sums_by_count(cells: DataFrame) -> DataFrame:
    """Where `n` counts what was observed: a unit in which nothing was is none."""
    units = cells.groupBy(*KEY, "run", "unit").agg(F.sum("x").alias("x"), F.sum("n").alias("n"))
    sums = units.groupBy(*KEY).agg(
        F.count("*").alias("units"), *_sums_of_x(), F.sum("n").alias("sn"), F.sum(F.col("n") ** 2).alias("snn")
    )
    return sums.withColumns({"next": F.lit(None).cast("double"), "edges": F.lit(None).cast("double")})


def sums_by_exposure(cells: DataFrame, exposures: DataFrame) -> DataFrame:
    """Where `n` is time: a batch in which nothing happened has no cell, and counts all the same."""
    in_time = Window.partitionBy(*KEY, "run").orderBy("batch")
    is_next = F.lag("batch").over(in_time) == F.col("batch") - 1
    followed = cells.withColumn("before", F.when(is_next, F.lag("x").over(in_time)))
    is_edge = F.col("batch").isin(0, BATCHES - 1)
    return (
        followed.groupBy(*KEY)
        .agg(
            *_sums_of_x(),
            F.coalesce(F.sum(F.col("x") * F.col("before")), F.lit(0.0)).alias("next"),
            F.coalesce(F.sum(F.when(is_edge, F.col("x") * F.col("n"))), F.lit(0.0)).alias("edges"),
        )
        .join(F.broadcast(exposures), "point")
    )


def estimates(sums: DataFrame) -> DataFrame:
    """Measured value and interval of each row; without at least two units there is no interval."""
    value = F.col("sx") / F.col("sn")
    residuals = F.greatest(F.col("sxx") - 2 * value * F.col("sxn") + value * value * F.col("snn"), F.lit(0.0))
    units = F.col("units")
    error = F.sqrt(residuals * units / (units - 1) * _inflation(value, residuals)) / F.col("sn")
    half = F.when(units >= 2, _quantile(units - 1) * error)
    return (
        sums.where(F.col("sn") > 0)
        .withColumns({"measured": value, "half": half})
        .select(
            *KEY,
            "measured",
            (F.col("measured") - F.col("half")).alias("ci_low"),
            (F.col("measured") + F.col("half")).alias("ci_high"),
            "units",
        )
    )


def _inflation(value: Column, residuals: Column) -> Column:
    """Of the variance, by the likeness of successive batches: the sum of the products of their residuals."""
    pairs = F.col("snn") * (BATCHES - 1) / BATCHES
    lagged = F.col("next") - value * (2 * F.col("sxn") - F.col("edges")) + value * value * pairs
    likeness = F.least(F.coalesce(lagged / residuals, F.lit(0.0)), F.lit(LIKENESS_MAX))
    is_too_alike = (residuals > 0) & (likeness > 2 / F.sqrt(F.col("units")))
    return F.when(is_too_alike, (1 + likeness) / (1 - likeness)).otherwise(F.lit(1.0))


def _sums_of_x() -> tuple[Column, ...]:
    return (
        F.sum("x").alias("sx"),
        F.sum(F.col("x") ** 2).alias("sxx"),
        F.sum(F.col("x") * F.col("n")).alias("sxn"),
    )


def _quantile(freedom: Column) -> Column:
    table = F.array(*map(F.lit, QUANTILES))
    return F.element_at(table, F.least(freedom, F.lit(FREEDOM_MAX)).cast("int"))

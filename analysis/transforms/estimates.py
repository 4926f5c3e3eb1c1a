"""From cells to measured values with their 95% confidence intervals.

The measured value is the ratio of sums R = sum(x) / sum(n) over units that hardly depend on one another (batches of
time, copies of the peers, runs with other seeds). Its variance is that of the residuals x - R n, and the interval is
Student's with as many degrees of freedom as there are units but one.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from scipy.stats import t as student

CONFIDENCE = 0.95
FREEDOM_MAX = 400  # beyond it the quantile is that of the normal distribution, but for less than 0.3%
QUANTILES = student.ppf(0.5 + CONFIDENCE / 2, range(1, FREEDOM_MAX + 1)).tolist()
KEY = ("point", "metric", "first", "second")


def sums_by_count(cells: DataFrame) -> DataFrame:
    """Where `n` counts what was observed: a unit in which nothing was is none."""
    units = cells.groupBy(*KEY, "run", "unit").agg(F.sum("x").alias("x"), F.sum("n").alias("n"))
    return units.groupBy(*KEY).agg(
        F.count("*").alias("units"), *_sums_of_x(), F.sum("n").alias("sn"), F.sum(F.col("n") ** 2).alias("snn")
    )


def sums_by_exposure(cells: DataFrame, exposures: DataFrame) -> DataFrame:
    """Where `n` is time: a batch in which nothing happened has no cell, and counts all the same."""
    return cells.groupBy(*KEY).agg(*_sums_of_x()).join(F.broadcast(exposures), "point")


def estimates(sums: DataFrame) -> DataFrame:
    """Measured value and interval of each row; without at least two units there is no interval."""
    value = F.col("sx") / F.col("sn")
    residuals = F.greatest(F.col("sxx") - 2 * value * F.col("sxn") + value * value * F.col("snn"), F.lit(0.0))
    units = F.col("units")
    error = F.sqrt(residuals * units / (units - 1)) / F.col("sn")
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


def _sums_of_x() -> tuple[Column, ...]:
    return (
        F.sum("x").alias("sx"),
        F.sum(F.col("x") ** 2).alias("sxx"),
        F.sum(F.col("x") * F.col("n")).alias("sxn"),
    )


def _quantile(freedom: Column) -> Column:
    table = F.array(*map(F.lit, QUANTILES))
    return F.element_at(table, F.least(freedom, F.lit(FREEDOM_MAX)).cast("int"))

"""How much of its bandwidth each direction of a narrow link uses, from the bytes that were counted on it."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from brokerbed.analysis.transforms.moments import compared, within
from brokerbed.metrics import LINK_UTILISATION

BITS = 8  # in a byte


def utilisation_cells(clients: DataFrame, intervals: DataFrame, bandwidths: DataFrame) -> DataFrame:
    """The seconds that the counted bytes took, by direction and batch. `bandwidths`: by run and direction, in bit/s."""
    counted = clients.where(F.col("event") == "link_bytes")
    busy_s = F.col("size") * F.lit(BITS) / F.col("bandwidth")
    return (
        within(counted, compared(intervals))
        .join(F.broadcast(bandwidths), ["run", "client"])
        .groupBy("run", "point", F.col("client").alias("first"), "batch", F.col("seconds").alias("n"))
        .agg(F.sum(busy_s).alias("x"))
        .withColumns({"metric": F.lit(LINK_UTILISATION.name), "second": F.lit(""), "copy": F.lit(-1)})
    )

"""The routing tables at the end of a run."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from brokerbed.analysis.transforms.balance import with_life
from brokerbed.analysis.transforms.links import ADDED, CHANGES, is_link
from brokerbed.topics import ADVERTISE


def final_entries(events: DataFrame, lives: DataFrame | None) -> DataFrame:
    """The entries at the end of a run (run, broker, link, filter, entries), from the last life of each broker.

    `link` is null for those of clients, which are counted together. Filters of advertisements begin with `$advertise/`.
    """
    event, client, topic = F.col("event"), F.col("client"), F.col("topic")
    is_advertisement = event.isin("advertised", "unadvertised")
    changes = events.where(event.isin(*CHANGES)).select(
        "run",
        "broker",
        "position",
        F.when(is_link(client), client).alias("link"),
        F.when(is_advertisement, F.concat(F.lit(ADVERTISE), topic)).otherwise(topic).alias("filter"),
        F.when(event.isin(*ADDED), 1).otherwise(-1).alias("change"),
    )
    return (
        with_life(changes, lives)
        .where(F.col("is_last_life"))
        .groupBy("run", "broker", "link", "filter")
        .agg(F.sum("change").alias("entries"))
        .where(F.col("entries") != 0)
        .select("run", "broker", "link", "filter", "entries")
    )

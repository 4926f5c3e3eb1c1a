"""What tells rows about overlay links from others."""

from pyspark.sql import Column
from pyspark.sql import functions as F

CONTROL = ("link_subscribe", "link_unsubscribe", "link_refresh")


def is_link(client: Column) -> Column:
    return client.contains(">")


def has_flag(flags: int) -> Column:
    return F.col("flags").bitwiseAND(F.lit(flags)) != 0

"""What tells rows about overlay links from others."""

from pyspark.sql import Column
from pyspark.sql import functions as F

from brokerbed.log.record import DUPLICATE, REPLAY

ADDED, REMOVED = ("subscribed", "advertised"), ("unsubscribed", "unadvertised")
CHANGES = (*ADDED, *REMOVED)  # of routing tables
CONTROL = ("link_subscribe", "link_unsubscribe", "link_advertise", "link_unadvertise", "link_refresh")


def is_link(client: Column) -> Column:
    return client.contains(">")


def has_flag(flags: int) -> Column:
    return F.col("flags").bitwiseAND(F.lit(flags)) != 0


def crosses() -> Column:
    """Whether a row is a notification that crosses a link, for the first time."""
    return (F.col("event") == "sent") & is_link(F.col("client")) & ~has_flag(REPLAY | DUPLICATE)

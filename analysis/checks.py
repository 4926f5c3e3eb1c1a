"""The invariants, checked on the log: each yields rows with the number of checks and of violations.

A row is (run, name, checked, broken, moment, text), where the text describes one violation. These functions take and
return DataFrames; jobs/judge.py adds the rows up.
"""

from collections.abc import Iterator

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from brokerbed.analysis.invariants import ACCOUNTED, NOT_LOST, ONCE, ORDERED, SUBSCRIBED
from brokerbed.analysis.transforms.fates import LOST
from brokerbed.analysis.transforms.lifetimes import CLOCKS_NS


def messages_lost(due: DataFrame, fates: DataFrame | None) -> Iterator[DataFrame]:
    """Messages that were lost: of those that brokers acknowledged to peers, and of all that peers published."""
    is_taken = (F.col("qos") > 0) & F.col("is_acknowledged")
    counted = due.groupBy("run").agg(F.count("*").alias("all"), F.sum(is_taken.cast("long")).alias("taken"))
    nothing = F.lit(0), F.lit(""), F.lit(0)
    yield _explode(counted, _row(NOT_LOST, F.col("taken"), *nothing), _row(ACCOUNTED, F.col("all"), *nothing))
    if fates is not None:
        lost = fates.where(F.col("fate") == LOST)
        where = F.when(F.col("hop").isNull(), F.lit("never seen at a broker")).otherwise(
            F.format_string("last seen after %d hops", F.col("hop"))
        )
        text = F.format_string("%s %d for %s is lost, %s", "publisher", "number", "subscriber", where)
        taken = _row(NOT_LOST, F.lit(0), is_taken.cast("int"), text, F.col("time_ns"))
        yield _explode(lost, taken, _row(ACCOUNTED, F.lit(0), F.lit(1), text, F.col("time_ns")))


def died_in_time(ends: DataFrame, deaths: DataFrame) -> Iterator[DataFrame]:
    """Nothing was processed when its time was over, and nothing died before that."""
    dies_ns, processed_ns = F.col("dies_ns"), F.col("processed_ns")
    late = processed_ns > dies_ns
    text = F.format_string("%s %d at %s: ", "publisher", "number", "client")
    fault = F.when(late, F.lit("processed after its time was over")).otherwise(F.lit("died before its time was over"))
    broken = F.coalesce(late, F.lit(False)) | F.coalesce(F.col("died_ns") < dies_ns - CLOCKS_NS, F.lit(False))
    moment = F.coalesce(processed_ns, F.col("died_ns"))
    yield _explode(ends, _row(ACCOUNTED, F.lit(1), broken.cast("int"), F.concat(text, fault), moment))
    early = (F.col("died_ns") < dies_ns - CLOCKS_NS).cast("int")
    text = F.format_string("%s %d at %s: died before its time was over", "publisher", "number", "broker")
    yield _explode(deaths, _row(ACCOUNTED, F.lit(1), early, text, F.col("died_ns")))


def never_entered(passed: DataFrame, identified: DataFrame, peers: DataFrame) -> DataFrame:
    """Messages of the classes that a broker acknowledged without forwarding them; fates.py follows those of peers."""
    taken = passed.where((F.col("client") == F.col("origin")) & F.col("acknowledged_ns").isNotNull()).select(
        "run", F.col("origin").alias("publisher"), F.col("sequence").alias("number"), "acknowledged_ns"
    )
    others = taken.join(
        F.broadcast(peers.select("run", F.col("id").alias("publisher"))), ["run", "publisher"], "left_anti"
    )
    marked = others.join(identified.withColumn("is_in", F.lit(True)), ["run", "publisher", "number"], "left")
    text = F.format_string("%s %d was acknowledged, and no broker has it", "publisher", "number")
    gone = F.col("is_in").isNull().cast("int")
    return _explode(marked, _row(NOT_LOST, F.lit(1), gone, text, F.col("acknowledged_ns")))


def requests_answered(exchanges: DataFrame) -> DataFrame:
    """A responder answers every request that it has served, and the requester takes every answer for what it is."""
    is_served = F.col("served_ns").isNotNull()
    unanswered = is_served & F.col("replied_ns").isNull()
    unknown = F.col("is_received") & F.col("answered_ns").isNull()
    fault = F.when(unanswered, "served, and not answered").otherwise("answered, but not taken for an answer")
    text = F.format_string("%s %d at %s: %s", "requester", "sequence", "responder", fault)
    broken = (unanswered | unknown).cast("int")
    return _explode(exchanges, _row(ACCOUNTED, is_served.cast("int"), broken, text, F.col("asked_ns")))


def routed(episodes: DataFrame) -> DataFrame:
    """Every message that reached a broker was routed to exactly the subscribers of that moment."""
    is_local = ~F.col("is_link")
    expected, went = F.coalesce("expected", F.lit(0)), F.col("routed")
    missing, extra = F.greatest(expected - went, F.lit(0)), F.greatest(went - expected, F.lit(0))
    text = F.when(
        F.col("is_on"),
        F.format_string(
            "%s to %s at %s: %d came while it was subscribed, %d went to it", "topic", "client", "broker", "expected",
            "routed",
        ),
    ).otherwise(
        F.format_string("%s to %s at %s: %d without a subscription", "topic", "client", "broker", "routed")
    )  # fmt: skip
    moment = F.col("time_ns")
    return _explode(
        episodes,
        _row(ACCOUNTED, expected, missing + F.when(is_local, F.lit(0)).otherwise(extra), text, moment),
        _row(SUBSCRIBED, F.when(is_local, went).otherwise(0), F.when(is_local, extra).otherwise(0), text, moment),
    )


def delivered_in_order(deliveries: DataFrame) -> DataFrame:
    """Brokers gave clients the messages of each publisher's broker in the order in which they had entered the tree."""
    text = F.format_string("%s to %s at %s: %d after a later one", "topic", "client", "broker", "sequence")
    return _explode(deliveries, _row(ORDERED, F.lit(1), F.col("is_late").cast("int"), text, F.col("time_ns")))


def order_and_once(got: DataFrame) -> DataFrame:
    """Subscribers received the messages of each peer in order, and at QoS 2 once."""
    late = F.format_string("%s got %s %d after a later one", "client", "origin", "sequence")
    again = F.format_string("%s got %s %d %d times", "client", "origin", "sequence", "received_times")
    is_exact, moment = F.col("qos") == 2, F.col("received_ns")
    more = F.when(is_exact, F.col("received_times") - 1).otherwise(0)
    return _explode(
        got,
        _row(ORDERED, F.lit(1), F.col("is_late").cast("int"), late, moment),
        _row(ONCE, is_exact.cast("int"), more, again, moment),
    )


def totals(judged: DataFrame) -> DataFrame:
    return judged.groupBy("run", "name").agg(F.sum("checked").alias("checked"), F.sum("broken").alias("broken"))


def _row(name: str, checked: Column, broken: Column, text: Column, moment: Column) -> Column:
    return F.struct(
        F.lit(name).alias("name"),
        checked.cast("long").alias("checked"),
        broken.cast("long").alias("broken"),
        F.when(broken > 0, moment).cast("long").alias("moment"),
        F.when(broken > 0, text).alias("text"),
    )


def _explode(rows: DataFrame, *judged: Column) -> DataFrame:
    if len(judged) == 1:
        return rows.select("run", judged[0].alias("row")).select("run", "row.*")
    return rows.select("run", F.explode(F.array(*judged)).alias("row")).select("run", "row.*")

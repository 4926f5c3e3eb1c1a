"""The share of messages that reach their subscribers, and of requests that are answered."""

from typing import TYPE_CHECKING

from brokerbed.analysis.metrics.definition import Definition
from brokerbed.metrics import ANSWERED_RATIO, DELIVERY_RATIO

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from brokerbed.analysis.jobs.facts import Facts


def _cells(facts: "Facts") -> "DataFrame | None":
    from brokerbed.analysis.transforms.fates import delivery_cells

    if not any(scenario.generators for scenario in facts.scenarios):
        return None
    return delivery_cells(facts.due, facts.waiting, facts.times, facts.frames.peers)


def _answered(facts: "Facts") -> "DataFrame | None":
    from brokerbed.analysis.transforms.exchanges import answered_cells

    return None if facts.exchanges is None else answered_cells(facts.exchanges, facts.times)


DEFINITIONS = (
    Definition(
        DELIVERY_RATIO,
        headline=lambda theory: theory.per_pair(lambda way: way.delivery),
        measured_by=(_cells,),
    ),
    Definition(
        ANSWERED_RATIO,
        detail=lambda theory: theory.per_exchange(lambda there, back: there.delivery_ratio * back.delivery_ratio),
        measured_by=(_answered,),
    ),
)

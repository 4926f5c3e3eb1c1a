"""The share of messages that reach their subscribers."""

from typing import TYPE_CHECKING

from brokerbed.analysis.metrics.definition import Definition
from brokerbed.metrics import DELIVERY_RATIO

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from brokerbed.analysis.jobs.facts import Facts


def _cells(facts: "Facts") -> "DataFrame | None":
    from brokerbed.analysis.transforms.fates import delivery_cells

    if not any(scenario.publishers for scenario in facts.scenarios):
        return None
    return delivery_cells(facts.due, facts.waiting, facts.times, facts.frames.peers)


DEFINITIONS = (
    Definition(
        DELIVERY_RATIO,
        headline=lambda theory: theory.per_pair(lambda way: way.delivery_ratio),
        measured_by=(_cells,),
    ),
)

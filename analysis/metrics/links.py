"""Messages per second over the links between brokers."""

from typing import TYPE_CHECKING

from brokerbed.analysis.metrics.definition import Definition
from brokerbed.metrics import ADDITIONAL_NOTIFICATIONS, ALL_MESSAGES, CONTROL_MESSAGES, NOTIFICATIONS

if TYPE_CHECKING:
    import pandas as pd

    from brokerbed.analysis.jobs.facts import Facts


def _cells(facts: "Facts") -> "pd.DataFrame":
    from brokerbed.analysis.tallies import link_cells

    return link_cells(facts.tally, facts.points, facts.batch_s)


DEFINITIONS = (
    Definition(
        NOTIFICATIONS,
        headline=lambda theory: theory.total(theory.traffic.up + theory.traffic.down),
        detail=lambda theory: theory.per_link(theory.traffic.up, theory.traffic.down),
        measured_by=(_cells,),
    ),
    Definition(
        ADDITIONAL_NOTIFICATIONS,
        headline=lambda theory: theory.total(theory.traffic.additional),
        measured_by=(_cells,),
    ),
    Definition(
        CONTROL_MESSAGES,
        headline=lambda theory: theory.total(theory.traffic.control),
        detail=lambda theory: theory.per_link(theory.traffic.control),
        measured_by=(_cells,),
    ),
    Definition(
        ALL_MESSAGES,
        headline=lambda theory: theory.total(theory.traffic.up + theory.traffic.down, theory.traffic.control),
        measured_by=(_cells,),
    ),
)

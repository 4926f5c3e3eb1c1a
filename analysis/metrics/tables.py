"""Sizes of routing tables."""

from typing import TYPE_CHECKING

from brokerbed.analysis.metrics.definition import Definition
from brokerbed.metrics import ADVERTISEMENTS, LOCAL_ENTRIES, REMOTE_ENTRIES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from brokerbed.analysis.jobs.facts import Facts


def _cells(facts: "Facts") -> "DataFrame":
    from brokerbed.analysis.transforms.tables import table_cells, table_changes

    restarts = facts.lives.select("run", "broker", "restarted_ns")
    return table_cells(table_changes(facts.frames.events), facts.times, facts.frames.tables, restarts)


DEFINITIONS = (
    Definition(
        REMOTE_ENTRIES,
        headline=lambda theory: theory.total(theory.traffic.entries_for_child, theory.traffic.entries_for_parent),
        detail=lambda theory: theory.per_broker(
            theory.scenario.tree.children_sums(theory.traffic.entries_for_child) + theory.traffic.entries_for_parent
        ),
        measured_by=(_cells,),
    ),
    Definition(
        LOCAL_ENTRIES,
        headline=lambda theory: theory.total(theory.traffic.local_entries),
        detail=lambda theory: theory.per_broker(theory.traffic.local_entries),
        measured_by=(_cells,),
    ),
    Definition(
        ADVERTISEMENTS,
        headline=lambda theory: theory.total(
            theory.traffic.advertisements_of_child, theory.traffic.advertisements_of_parent
        ),
        detail=lambda theory: theory.per_broker(
            theory.scenario.tree.children_sums(theory.traffic.advertisements_of_child)
            + theory.traffic.advertisements_of_parent
        ),
        measured_by=(_cells,),
        applies=lambda scenario: scenario.algorithm.advertises,
    ),
)

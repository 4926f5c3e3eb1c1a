"""Sizes of routing tables."""

from typing import TYPE_CHECKING

from brokerbed.analysis.metrics.definition import Definition
from brokerbed.metrics import ADVERTISEMENTS, LOCAL_ENTRIES, REMOTE_ENTRIES

if TYPE_CHECKING:
    import pandas as pd

    from brokerbed.analysis.jobs.facts import Facts


def _cells(facts: "Facts") -> "pd.DataFrame":
    from brokerbed.analysis.tallies import Tables, table_cells

    runs = [
        Tables(
            run.number,
            run.point,
            run.scenario.tree.names,
            facts.intervals[run.number],
            [life for life in facts.restarts if life.run == run.number],
            facts.batch_s[run.number],
            run.scenario.algorithm.advertises,
        )
        for run in facts.frames.finished.runs
    ]
    return table_cells(facts.tally, runs)


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

"""Sessions that follow peers which roam: how many messages they take along, and how long a move takes."""

from typing import TYPE_CHECKING

from brokerbed.analysis.metrics.definition import Definition
from brokerbed.analysis.moved_messages import moved_per_s
from brokerbed.analysis.queues import NAN
from brokerbed.analysis.roaming import those_who_roam
from brokerbed.metrics import MOVE_DELAY, MOVED_MESSAGES
from brokerbed.scenario import Scenario

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

    from brokerbed.analysis.jobs.facts import Facts


def _moved_cells(facts: "Facts") -> "pd.DataFrame | None":
    from brokerbed.analysis.tallies import moved_cells

    return moved_cells(facts.tally, facts.points, facts.batch_s) if facts.frames.peers_roam else None


def _move_cells(facts: "Facts") -> "DataFrame | None":
    from brokerbed.analysis.transforms.delays import delay_cells
    from brokerbed.analysis.transforms.moves import move_spans

    if not facts.frames.peers_roam:
        return None
    return delay_cells(move_spans(facts.frames.events, facts.frames.roaming_subscribers), facts.times)


def _has_roaming(scenario: Scenario) -> bool:
    return bool(those_who_roam(scenario.publishers) or those_who_roam(scenario.subscribers))


DEFINITIONS = (
    Definition(
        MOVED_MESSAGES,
        detail=lambda theory: theory.total_of(moved_per_s(theory.scenario, theory.stages)),
        measured_by=(_moved_cells,),
        applies=_has_roaming,
    ),
    Definition(
        MOVE_DELAY,
        detail=lambda theory: [((peer.id,), NAN) for peer in those_who_roam(theory.scenario.subscribers)],
        measured_by=(_move_cells,),
        applies=_has_roaming,
    ),
)

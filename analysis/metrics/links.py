"""Messages per second over the links between brokers."""

from typing import TYPE_CHECKING

import numpy as np

from brokerbed.analysis.metrics.definition import Definition, Theory, Values
from brokerbed.metrics import (
    ADDITIONAL_NOTIFICATIONS,
    ALL_MESSAGES,
    CONTROL_MESSAGES,
    DELIVERED_MESSAGES,
    LINK_UTILISATION,
    NOTIFICATIONS,
    RECEIVED_NOTIFICATIONS,
    ROUTING_COST,
    UNWANTED_NOTIFICATIONS,
)

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

    from brokerbed.analysis.jobs.facts import Facts


def _cells(facts: "Facts") -> "pd.DataFrame":
    from brokerbed.analysis.tallies import link_cells

    media = {run.number: run.scenario.media for run in facts.frames.finished.runs}
    return link_cells(facts.tally, facts.points, facts.batch_s, media)


def _received_cells(facts: "Facts") -> "pd.DataFrame":
    from brokerbed.analysis.tallies import received_cells

    return received_cells(facts.tally, facts.points, facts.batch_s)


def _delivered_cells(facts: "Facts") -> "pd.DataFrame":
    from brokerbed.analysis.tallies import delivered_cells

    return delivered_cells(facts.tally, facts.points, facts.batch_s)


def _cost(theory: Theory) -> Values:
    """Every message costs something on each link that it crosses, and in each broker that it comes to."""
    costs, tree, traffic = theory.scenario.costs, theory.scenario.tree, theory.traffic
    assert costs is not None
    of_links = np.array([0.0, *(costs.of_link(*ends) for ends in tree.links)])
    of_brokers = np.array([costs.of_broker(name) for name in tree.names])
    return theory.total(of_links * (traffic.up + traffic.down), of_brokers * traffic.notifications_in)


def _cost_cells(facts: "Facts") -> "pd.DataFrame | None":
    from brokerbed.analysis.tallies import cost_cells

    costs = {run.number: run.scenario.costs for run in facts.frames.finished.runs if run.scenario.costs is not None}
    return cost_cells(facts.tally, facts.points, facts.batch_s, costs) if costs else None


def _unwanted_cells(facts: "Facts") -> "DataFrame | None":
    from brokerbed.analysis.transforms.unwanted import interest_below, unwanted_cells

    frames = facts.frames
    events = frames.suspect_events
    if events is None:
        return None
    interest = interest_below(events, frames.subtrees, frames.wildcards, facts.lives)
    return unwanted_cells(events, facts.times, frames.suspect_links, interest)


def _utilisation_cells(facts: "Facts") -> "DataFrame | None":
    from brokerbed.analysis.transforms.utilisation import utilisation_cells

    bandwidths = facts.frames.bandwidths
    return None if bandwidths is None else utilisation_cells(facts.frames.clients, facts.times, bandwidths)


DEFINITIONS = (
    Definition(
        NOTIFICATIONS,
        headline=lambda theory: theory.total_counted(theory.traffic.up, theory.traffic.down),
        detail=lambda theory: theory.per_link(theory.traffic.up, theory.traffic.down),
        measured_by=(_cells,),
    ),
    Definition(
        ADDITIONAL_NOTIFICATIONS,
        headline=lambda theory: theory.total_counted(theory.traffic.additional, 0 * theory.traffic.additional),
        measured_by=(_unwanted_cells,),
    ),
    Definition(
        UNWANTED_NOTIFICATIONS,
        headline=lambda theory: theory.total_counted(0 * theory.traffic.unwanted, theory.traffic.unwanted),
        measured_by=(_unwanted_cells,),
        applies=lambda scenario: scenario.algorithm.merges,
    ),
    Definition(
        CONTROL_MESSAGES,
        headline=lambda theory: theory.total_counted(theory.traffic.control_up, theory.traffic.control_down),
        detail=lambda theory: theory.per_link(
            theory.traffic.control_up,
            theory.traffic.control_down if theory.scenario.algorithm.speaks_downward else None,
        ),
        measured_by=(_cells,),
    ),
    Definition(
        ALL_MESSAGES,
        headline=lambda theory: theory.total_counted(
            theory.traffic.up + theory.traffic.control_up, theory.traffic.down + theory.traffic.control_down
        ),
        measured_by=(_cells,),
    ),
    Definition(
        RECEIVED_NOTIFICATIONS,
        detail=lambda theory: theory.per_broker(theory.traffic.notifications_in),
        measured_by=(_received_cells,),
    ),
    Definition(
        DELIVERED_MESSAGES,
        measured_by=(_delivered_cells,),
    ),
    Definition(
        ROUTING_COST,
        headline=_cost,
        measured_by=(_cost_cells,),
        applies=lambda scenario: scenario.costs is not None,
    ),
    Definition(
        LINK_UTILISATION,
        detail=lambda theory: [((direction.at,), direction.utilisation) for direction in theory.narrow],
        measured_by=(_utilisation_cells,),
    ),
)

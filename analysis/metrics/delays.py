"""Delays: end to end, and in each queue on the way."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from brokerbed.analysis.metrics.definition import Definition, Predict, Theory, Values
from brokerbed.analysis.models.regression import Estimate
from brokerbed.analysis.queues import NAN, Way, together
from brokerbed.metrics import DELAY_QUANTILES, END_TO_END_DELAY, PHASES, ROUND_TRIP_DELAY, STAGE_DELAY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from brokerbed.analysis.jobs.facts import Facts


def _end_to_end(theory: Theory) -> Values:
    return _per_pair(theory, lambda way: way.end_to_end)


def _quantile(share: float) -> Predict:
    return lambda theory: _per_pair(theory, lambda way: way.distribution.quantile_s(share) if way.distribution else NAN)


def _per_pair(theory: Theory, value: Callable[[Way], float | Estimate]) -> Values:
    """Of all pairs but requesters and responders, for which the delay is that of both ways together."""
    exchanges = [(requester.id, responder.id) for requester, responder in theory.scenario.exchanges()]
    others = {*exchanges, *((responder, requester) for requester, responder in exchanges)}
    return [(pair, found) for pair, found in theory.per_pair(value) if pair not in others]


def _peers(facts: "Facts") -> "DataFrame | None":
    """End to end, and in the queues of publishers and subscribers."""
    from brokerbed.analysis.transforms.delays import peer_cells

    if not any(scenario.generators for scenario in facts.scenarios):
        return None
    return peer_cells(facts.passed, facts.times, facts.frames.peers)


def _quantiles(facts: "Facts") -> "DataFrame | None":
    """All quantiles of end-to-end delays."""
    from brokerbed.analysis.transforms.quantiles import quantile_cells

    if not any(scenario.generators for scenario in facts.scenarios):
        return None
    phases = PHASES if any(scenario.profiles for scenario in facts.scenarios) else 1
    return quantile_cells(facts.passed, facts.times, facts.frames.peers, phases)


def _inputs(facts: "Facts") -> "DataFrame | None":
    """At the inputs of brokers."""
    from brokerbed.analysis.transforms.delays import delay_cells

    return None if facts.inputs is None else delay_cells(facts.inputs, facts.times)


def _outputs(facts: "Facts") -> "DataFrame | None":
    """At the outputs of brokers, to links and sessions."""
    from brokerbed.analysis.transforms.delays import delay_cells

    return None if facts.outputs is None else delay_cells(facts.outputs, facts.times)


def _round_trips(facts: "Facts") -> "DataFrame | None":
    from brokerbed.analysis.transforms.exchanges import round_trip_cells

    return None if facts.exchanges is None else round_trip_cells(facts.exchanges, facts.times)


DEFINITIONS = (
    Definition(
        END_TO_END_DELAY,
        headline=_end_to_end,
        measured_by=(_peers,),
    ),
    *(
        Definition(metric, detail=_quantile(metric.share), measured_by=(_quantiles,))
        for metric in DELAY_QUANTILES
        if metric.share is not None
    ),
    Definition(
        ROUND_TRIP_DELAY,
        headline=lambda theory: theory.per_exchange(lambda there, back: together(there.end_to_end, back.end_to_end)),
        measured_by=(_round_trips,),
    ),
    Definition(
        STAGE_DELAY,
        detail=lambda theory: [((queue.stage, queue.at), queue.response) for queue in theory.stages],
        measured_by=(_peers, _inputs, _outputs),
    ),
)

"""Delays: end to end, and in each queue on the way."""

from typing import TYPE_CHECKING

from brokerbed.analysis.metrics.definition import Definition
from brokerbed.metrics import END_TO_END_DELAY, STAGE_DELAY

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from brokerbed.analysis.jobs.facts import Facts


def _peers(facts: "Facts") -> "DataFrame | None":
    """End to end, and in the queues of publishers and subscribers."""
    from brokerbed.analysis.transforms.delays import peer_cells

    if not any(scenario.publishers for scenario in facts.scenarios):
        return None
    return peer_cells(facts.passed, facts.times, facts.frames.peers)


def _inputs(facts: "Facts") -> "DataFrame | None":
    """At the inputs of brokers."""
    from brokerbed.analysis.transforms.delays import input_cells

    if not any(scenario.service.broker_in for scenario in facts.scenarios):
        return None
    return input_cells(facts.frames.events, facts.times)


def _outputs(facts: "Facts") -> "DataFrame | None":
    """At the outputs of brokers, to links and sessions."""
    from brokerbed.analysis.transforms.delays import output_cells

    subscribers = [subscriber for scenario in facts.scenarios for subscriber in scenario.subscribers]
    has_sessions = any(subscriber.session_service or subscriber.on for subscriber in subscribers)
    if not has_sessions and not any(scenario.service.link for scenario in facts.scenarios):
        return None
    return output_cells(facts.frames.events, facts.times, facts.frames.queues)


DEFINITIONS = (
    Definition(
        END_TO_END_DELAY,
        headline=lambda theory: theory.per_pair(lambda way: way.end_to_end_s),
        measured_by=(_peers,),
    ),
    Definition(
        STAGE_DELAY,
        detail=lambda theory: [((queue.stage, queue.at), queue.response_s) for queue in theory.stages],
        measured_by=(_peers, _inputs, _outputs),
    ),
)

"""The share of messages that reach their subscribers, and of requests that are answered."""

from typing import TYPE_CHECKING

from brokerbed.analysis.metrics.definition import Definition, Theory, Values
from brokerbed.analysis.models.regression import Estimate
from brokerbed.metrics import ANSWERED_RATIO, DELIVERY_RATIO, EXPIRED_MESSAGES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from brokerbed.analysis.jobs.facts import Facts


def _cells(facts: "Facts") -> "DataFrame | None":
    from brokerbed.analysis.transforms.fates import delivery_cells

    if not any(scenario.generators for scenario in facts.scenarios):
        return None
    return delivery_cells(facts.due, facts.waiting, facts.times, facts.frames.peers)


def _expired(facts: "Facts") -> "DataFrame | None":
    from brokerbed.analysis.transforms.lifetimes import expired_cells

    if facts.lifetimes is None:
        return None
    return expired_cells(facts.frames.logged, facts.times, facts.frames.peers)


def _expiring(theory: Theory) -> Values:
    """The time of messages can be over wherever they wait, also where theory has no model."""
    copies = theory.scenario.copies
    for queue in theory.stages:
        each = queue.expired_per_s
        total = (
            Estimate(copies * each.mean, copies * each.standard_error) if isinstance(each, Estimate) else copies * each
        )
        yield (queue.stage, queue.at), total


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
        EXPIRED_MESSAGES,
        detail=_expiring,
        measured_by=(_expired,),
        applies=lambda scenario: any(publisher.expiry for publisher in scenario.publishers),
    ),
    Definition(
        ANSWERED_RATIO,
        detail=lambda theory: theory.per_exchange(lambda there, back: there.delivery_ratio * back.delivery_ratio),
        measured_by=(_answered,),
    ),
)

"""Links that move to where the traffic is (`placement`), after Migliavacca and Cugola; and what they go with."""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from brokerbed.broker.routing.registry import ALGORITHMS
from brokerbed.scenario.checks import Report
from brokerbed.scenario.part import Count, Part
from brokerbed.scenario.units import NS_PER_S, DurationNs, Fraction
from brokerbed.scenario.workload import WORKLOAD

if TYPE_CHECKING:
    from brokerbed.scenario.model import Scenario

PERIOD_MIN_NS = NS_PER_S // 100  # in less, a broker counts too few messages, and does nothing but search
Weight = Annotated[float, Field(strict=True, ge=0, le=1e9)]


class PlacementSection(Part):
    """How often brokers look for a cheaper tree, and how. It is complete as written: a Scenario has it as it is."""

    example = "{period: 60s}"
    period: DurationNs
    alpha: Weight = 1.0
    beta: Weight = 1.0
    moves: Count = 100
    iterations: Count = 50
    tenure: Count = 2
    gain: Fraction = 0.05


def check(scenario: "Scenario", report: Report) -> None:
    if scenario.placement is None:
        return
    if scenario.placement.period < PERIOD_MIN_NS:
        report(("placement", "period"), "must be at least 10ms: brokers count messages in it")
    if not scenario.algorithm.lets_links_move:
        *others, last = [name for name, algorithm in ALGORITHMS.all.items() if algorithm.lets_links_move]
        allowed = f"{', '.join(others)} or {last}" if others else last
        report(("placement",), f"placement needs routing under which links can move: {allowed}, not {scenario.routing}")
    for name in scenario.parts:
        if WORKLOAD[name].depends_on_tree:
            report(("placement",), f"placement does not go with {name}, whose workload depends on the tree")
    if scenario.durability == "memory" and any(fault.kind.kills_brokers for fault in scenario.faults):
        text = "placement does not go with durability: memory if faults kill brokers, which must remember their parents"
        report(("placement",), text)

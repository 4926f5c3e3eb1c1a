"""The total of one metric for many scenarios that differ in one value, by the models."""

from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from functools import reduce
from math import inf

import numpy as np

from brokerbed.analysis.columns import class_columns, peer_columns
from brokerbed.analysis.demands import part_columns
from brokerbed.analysis.metrics.definition import Definition, Theory
from brokerbed.analysis.metrics.registry import DEFINITIONS
from brokerbed.analysis.models.contract import Classes, Model, NotPredictedError, Traffic
from brokerbed.analysis.models.registry import MODELS
from brokerbed.analysis.models.stacking import Weighted, stacks
from brokerbed.analysis.peer_queues import ALGORITHM_1
from brokerbed.analysis.phases import phases_of
from brokerbed.analysis.predict import predict
from brokerbed.metrics import END_TO_END_DELAY, TOTAL, Row
from brokerbed.scenario import Scenario
from brokerbed.scenario.topology import Floats, Tree
from brokerbed.scenario.units import NS_PER_S

DELAY = "delay"  # the mean over publishers and subscribers, who publish with different rates


def totals(scenario: Scenario, rows: Sequence[Row], by: str) -> dict[str, float | None]:
    """Predicted totals by metric, with the mean delay if that is asked for."""
    found = {row.metric: row.predicted for row in rows if tuple(row.labels) == TOTAL}
    if by == DELAY:
        delays = {tuple(row.labels.values()): row.predicted for row in rows if row.kind is END_TO_END_DELAY}
        if delays:
            found[DELAY] = mean_delay(scenario, delays)
    return found


def mean_delay(scenario: Scenario, delays: Mapping[tuple[str, ...], float | None]) -> float | None:
    """Over all messages that publishers send to subscribers; None if one of the delays is unknown."""
    rates: dict[str, float] = {}
    for stream in scenario.generators:
        rates[stream.sender] = rates.get(stream.sender, 0.0) + stream.rate
    weights = [rates.get(publisher, 0.0) for publisher, _ in delays]
    known = [delay for delay in delays.values() if delay is not None]
    if len(known) < len(delays) or not sum(weights):
        return None
    return float(np.average(known, weights=weights))


def as_compared(scenario: Scenario, by: str) -> Scenario:
    """Formulas suffice for all but delays: how long messages take does not change where they go."""
    return scenario if by == DELAY else replace(scenario, model=ALGORITHM_1)


class Totals:
    """Values of one metric for scenarios that differ in one key, under one algorithm after the other."""

    def __init__(self, scenarios: Sequence[Scenario], by: str) -> None:
        self._scenarios = scenarios
        self._by = by
        self._definition = DEFINITIONS.built_in.get(by)
        self._is_held_back = any(map(_can_hold_back, scenarios))
        self._class_columns: dict[tuple[int, bool, bool], list[tuple[Classes, float]]] = {}

    def of(self, routing: str, parameters: Sequence[Mapping[str, int]]) -> Floats:
        """One value for each scenario with this algorithm and these parameters; inf where there is no prediction."""
        scenarios = [
            replace(scenario, routing=routing, routing_parameters=own)
            for scenario, own in zip(self._scenarios, parameters, strict=True)
        ]
        model = MODELS.built_in.get(routing)  # those of other packages may expect one scenario at a time
        if model is not None and self._definition is not None and not self._is_held_back:
            try:
                return self._at_once(scenarios, model, self._definition)
            except NotPredictedError:
                pass  # perhaps some of them have a prediction
        return np.array([_one(scenario, self._by) for scenario in scenarios])

    def _at_once(self, scenarios: Sequence[Scenario], model: Model, definition: Definition) -> Floats:
        values = np.full(len(scenarios), inf)
        alike: dict[tuple[Tree, tuple[tuple[str, int], ...]], list[int]] = {}
        for number, scenario in enumerate(scenarios):
            alike.setdefault((scenario.tree, tuple(scenario.routing_parameters.items())), []).append(number)
        for (tree, parameters), numbers in alike.items():
            traffic = self._traffic(tree, {number: scenarios[number] for number in numbers}, model, dict(parameters))
            for place, number in enumerate(numbers):
                own = Traffic(*(getattr(traffic, field.name)[:, place] for field in fields(Traffic)))
                rows = [*definition.headline_rows(Theory(scenarios[number], own, (), (), ()))]
                if rows and rows[0].predicted is not None:
                    values[number] = rows[0].predicted
        return values

    def _traffic(
        self, tree: Tree, scenarios: Mapping[int, Scenario], model: Model, parameters: Mapping[str, int]
    ) -> Traffic:
        """With a column for each scenario, by its number; all have this tree, and their algorithm these parameters."""
        parts: list[Weighted] = []
        for place, (number, scenario) in enumerate(scenarios.items()):
            here = np.zeros(len(scenarios))
            here[place] = 1.0
            parts += [(classes, here * weight) for classes, weight in self._columns(number, scenario, model)]
            parts += [(classes, here) for classes in part_columns(scenario)]
        periods_ns = np.array([inf if it.refresh_ns is None else it.refresh_ns for it in scenarios.values()])
        refresh_s = periods_ns / NS_PER_S if np.isfinite(periods_ns).any() else None
        nothing = Traffic(*(np.zeros((len(tree), len(scenarios))) for _ in fields(Traffic)))
        every = (model.traffic(tree, it, refresh_s, **parameters) for it in stacks(parts))
        return reduce(Traffic.__add__, every, nothing)

    def _columns(self, number: int, scenario: Scenario, model: Model) -> list[tuple[Classes, float]]:
        """Of classes and peers, with their weights. They are the same for all models with the same needs."""
        key = number, model.uses_groups, model.uses_advertisements
        if key not in self._class_columns:
            phases = phases_of(scenario)
            found = [(it, 1 / len(phases)) for phase in phases for it in class_columns(scenario, model, phase)]
            found += [(it, float(scenario.copies)) for it in peer_columns(scenario, model)]
            self._class_columns[key] = found
        return self._class_columns[key]


def _one(scenario: Scenario, by: str) -> float:
    rows = predict(as_compared(scenario, by), detail=False).rows
    total = totals(scenario, rows, by).get(by)
    return inf if total is None else total


def _can_hold_back(scenario: Scenario) -> bool:
    """Whether messages can be held back or die on their way to other brokers, so that rates depend on queues."""
    senders = scenario.generators
    return (
        scenario.service.broker_in is not None
        or scenario.service.link is not None
        or any(link.bandwidth is not None for link in scenario.links)
        or any(sender.service or sender.is_intermittent or sender.expiry for sender in senders)
        or bool(scenario.responders)
    )

"""The parts of a workload that bring models of their own (clients/parts) as columns for the models of routing."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from brokerbed.analysis.models.contract import Classes, Interest, NotPredictedError, Wire
from brokerbed.scenario import Scenario, matches
from brokerbed.scenario.demand import Demand, SideInterest
from brokerbed.scenario.topology import Floats
from brokerbed.scenario.workload import WORKLOAD
from brokerbed.topics import merged_filter

CELLS_MAX = 1_000_000  # brokers x columns processed at a time


def part_columns(scenario: Scenario) -> Iterator[Classes]:
    """A column for each demand, in chunks that fit into memory."""
    for name, section in scenario.parts.items():
        part = WORKLOAD[name]
        if part.demand is None:
            raise NotPredictedError(name)
        chunk: list[Demand] = []
        for demand in part.demand(scenario, section):
            _check(scenario, name, demand)
            chunk.append(demand)
            if len(chunk) * len(scenario.tree) >= CELLS_MAX:
                yield _classes(chunk, part.qos(section))
                chunk = []
        if chunk:
            yield _classes(chunk, part.qos(section))


def _check(scenario: Scenario, name: str, demand: Demand) -> None:
    """The columns stand for these topics alone: no other filter matches them, and none takes their place."""
    merged = Counter(map(merged_filter, demand.topics))
    if scenario.algorithm.merges and max(merged.values()) >= scenario.routing_parameters["threshold"]:
        raise NotPredictedError(f"merging with {name}")
    peers = {peer.topic: peer.id for peer in (*scenario.publishers, *scenario.subscribers)}
    for pattern, peer in peers.items():
        if any(matches(pattern, topic) for topic in demand.topics):
            raise NotPredictedError(f"{name} together with a peer that has the same topics ({peer})")


def _classes(demands: list[Demand], qos: int) -> Classes:
    rate = _columns([demand.publication_rate for demand in demands])
    nothing = np.zeros_like(rate)
    lengths = [sum(len(topic.encode()) for topic in demand.topics) / len(demand.topics) for demand in demands]
    rates = (rate if qos == 0 else nothing, rate if qos == 1 else nothing, rate if qos == 2 else nothing)
    return Classes(
        multiplicity=np.array([float(len(demand.topics)) for demand in demands]),
        own=_interest(demands),
        permanent=nothing,
        wanted_anyway=nothing,
        publication_rate=rate,
        below=_sides([demand.below for demand in demands]),
        above=_sides([demand.above for demand in demands]),
        wire=Wire(np.array(lengths), rates),
    )


def _interest(demands: list[Demand]) -> Interest:
    arrivals = _columns([demand.arrival_rate for demand in demands])
    mean_active = _columns([demand.mean_active for demand in demands])
    if demands[0].below is None:
        return Interest.poisson(arrivals, mean_active)
    return replace(Interest.none(*arrivals.shape), mean_active=mean_active, arrivals=arrivals, departures=arrivals)


def _columns(values: list[Floats]) -> Floats:
    return np.column_stack(values)


def _sides(sides: list[SideInterest | None]) -> SideInterest | None:
    """Either all topics of a part are known in this way or none."""
    known = [side for side in sides if side is not None]
    if not known:
        return None
    assert len(known) == len(sides)
    return SideInterest(_columns([side.absent for side in known]), _columns([side.appearing_odds for side in known]))

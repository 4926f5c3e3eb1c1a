"""One round of a simulation of a network of stages: results and control variates, block by block.

A round has warm-up and blocks of equal length, to which messages belong by the time of their publication. Controls are
differences from known expectations; `tandem.py` lists them. Pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isnan

import numpy as np

from brokerbed.analysis.models.intermittent import Centre
from brokerbed.analysis.models.sample_path import Integers, Order, Outages, Passage, order_of, serve
from brokerbed.analysis.models.stages import Hop, Key, Network, Stage
from brokerbed.scenario.topology import Floats

BLOCKS = 40  # per round
WARMUP_SHARE, WARMUP_SHARE_MAX = 0.05, 0.25  # of a round
WARMUP_CYCLES = 30  # of the longest ON/OFF cycle, if that is more
CYCLES_MAX = 3_000_000  # of one server in a round, as they are kept in memory
SPARE = 6  # standard deviations of a count, so that the arrivals of a flow last until the end of a round

Place = tuple[int, Key]  # of a flow in a stage


@dataclass(frozen=True)
class Plan:
    """What a round simulates: those stages of a network that bursty stages depend on."""

    network: Network
    passages: int  # of messages through stages

    @cached_property
    def stages(self) -> tuple[Key, ...]:
        network, needed = self.network, dict[Key, None]()
        for key in reversed(network.order):
            if network.bursty[key]:
                needed[key] = None
            if key in needed:
                needed.update(dict.fromkeys(hop.after for _, hop in network.inputs[key] if hop.after is not None))
        return tuple(key for key in network.order if key in needed)

    def horizon_s(self, group: int = 1) -> float:
        """The length of a round."""
        by_messages = group * self.passages / sum(self.network.rate_per_s(key) for key in self.stages)
        horizon_s = min(by_messages, CYCLES_MAX * min(self._cycles_s, default=by_messages))
        return max(horizon_s, self._pass_s / (1 - WARMUP_SHARE_MAX))

    @cached_property
    def _cycles_s(self) -> list[float]:
        stages = (self.network.by_key[key] for key in self.stages)
        return [cycle_s for each in stages if (cycle_s := each.cycle_s) is not None]

    @cached_property
    def _pass_s(self) -> float:
        """Of a recorded trace that is repeated in its order; 0 without one."""
        recorded = [it for key in self.stages if (it := self.network.by_key[key].recorded) and not it.is_shuffled]
        return max((it.centre(0.0).pass_s for it in recorded), default=0.0)

    @property
    def longest_cycle_s(self) -> float:
        return max(self._cycles_s, default=0.0)

    def block_ends_s(self, end_s: float) -> Floats:
        """The end of the warm-up, and then of each block."""
        warmup_s = max(WARMUP_SHARE * end_s, min(WARMUP_SHARE_MAX * end_s, WARMUP_CYCLES * self.longest_cycle_s))
        if self._pass_s:  # whole passes count, in all blocks equally many if there are enough
            counted_s = end_s - warmup_s
            whole_s = self._pass_s * (BLOCKS if counted_s >= BLOCKS * self._pass_s else 1)
            warmup_s = end_s - max(1, counted_s // whole_s) * whole_s
        return np.linspace(warmup_s, end_s, BLOCKS + 1)

    @cached_property
    def expected_s(self) -> dict[Key, float]:
        """The mean time in each stage, if its arrivals were Poisson."""
        network = self.network
        return {key: float(network.by_key[key].centre().response_s(network.rate_per_s(key))) for key in self.stages}


@dataclass
class Played:
    """Per block; the values of results are so much that their mean is the mean over messages."""

    of_flows: dict[Place, Floats] = field(default_factory=dict)
    of_stages: dict[Key, Floats] = field(default_factory=dict)
    controls: dict[Key, list[Floats]] = field(default_factory=dict)
    times_s: dict[Place, Floats] = field(default_factory=dict)  # from publication until the stage is left


@dataclass(frozen=True)
class Draws:
    """The random numbers of a round. `group` messages come and are served as one."""

    group: int
    end_s: float  # of the round
    arrivals_s: tuple[Floats, ...]  # by flow
    services_s: Mapping[Place, Floats | None]
    outages: Mapping[Key, Outages | None]

    def grouped(self, group: int) -> "Draws":
        """The same random numbers, with several messages as one, which comes with the last of them."""
        assert self.group == 1
        arrivals = tuple(np.ascontiguousarray(each[group - 1 :: group]) for each in self.arrivals_s)
        services = {
            place: None if each is None else each[: len(each) // group * group].reshape(-1, group).sum(axis=1)
            for place, each in self.services_s.items()
        }
        return Draws(group, self.end_s, arrivals, services, self.outages)


def draw(plan: Plan, group: int, generator: np.random.Generator) -> Draws:
    network = plan.network
    arrivals = []
    for flow in network.flows:
        if not any(hop.stage in plan.stages for hop in flow.hops):
            arrivals.append(np.zeros(0))
            continue
        expected = plan.horizon_s(group) * flow.rate_per_s / group
        count = int(expected + SPARE * np.sqrt(expected) + SPARE)
        gaps = generator.standard_exponential(count) if group == 1 else generator.standard_gamma(group, count)
        arrivals.append(np.cumsum(gaps) / flow.rate_per_s)
    services: dict[Place, Floats | None] = {}
    outages: dict[Key, Outages | None] = {}
    for key in plan.stages:
        stage = network.by_key[key]
        for number, _ in network.inputs[key]:
            count = len(arrivals[number])
            services[number, key] = stage.service.sums(count, group, generator) if stage.service else None
        outages[key] = stage.outages(generator)
    return Draws(group, plan.horizon_s(group), tuple(arrivals), services, outages)


def play(plan: Plan, draws: Draws, poisson: np.random.Generator | None, kept: Sequence[Place] = ()) -> Played:
    """Lets all messages pass; with controls if there is a generator for them. Keeps the times of some places."""
    return _Round(plan, draws, poisson).run(kept)


class _Round:
    def __init__(self, plan: Plan, draws: Draws, poisson: np.random.Generator | None) -> None:
        self._plan, self._network, self._draws, self._poisson = plan, plan.network, draws, poisson
        ends = plan.block_ends_s(draws.end_s)
        self._edges = [np.searchsorted(each, ends) for each in draws.arrivals_s]
        self._departures: dict[Place, Floats] = {}
        self._found = Played()

    def run(self, kept: Sequence[Place]) -> Played:
        for key in self._plan.stages:
            self._pass(key)
        for number, key in kept:
            edges = self._edges[number]
            times = self._departures[number, key] - self._draws.arrivals_s[number]
            self._found.times_s[number, key] = times[edges[0] : edges[-1]]
        return self._found

    def _pass(self, key: Key) -> None:
        stage, inputs = self._network.by_key[key], self._network.inputs[key]
        arrivals = [self._arrivals(number, hop) for number, hop in inputs]
        passage, order = self._served(key, arrivals)
        self._departures |= dict(
            zip(((number, key) for number, _ in inputs), order.split(passage.departures_s), strict=True)
        )
        times = order.split(passage.departures_s - passage.arrivals_s)
        numbers = [number for number, _ in inputs]
        self._found.of_stages[key] = self._blocks(numbers, times, is_centred=True)
        for number, each in zip(numbers, times, strict=True):
            self._found.of_flows[number, key] = self._blocks([number], [each], is_centred=True)
        if self._poisson is not None:
            self._found.controls[key] = self._controls(key, stage, passage, order, times)

    def _arrivals(self, number: int, hop: Hop) -> Floats:
        """From the stage before, or the last one before that was simulated already."""
        after, hops = hop.after, {each.stage: each for each in self._network.flows[number].hops}
        delay_s = hop.delay_s
        while after is not None and (number, after) not in self._departures:
            delay_s += hops[after].delay_s
            after = hops[after].after
        base = self._draws.arrivals_s[number] if after is None else self._departures[number, after]
        return base + delay_s if delay_s else base

    def _served(self, key: Key, arrivals: list[Floats]) -> tuple[Passage, Order]:
        order = order_of(arrivals)
        services = [self._draws.services_s[number, key] for number, _ in self._network.inputs[key]]
        known = [each for each in services if each is not None]
        outages = self._draws.outages[key]
        merged = order.merged(arrivals)
        if outages is not None:
            outages.draw_until(float(merged[-1]))
        return serve(merged, order.merged(known) if known else None, outages), order

    def _blocks(self, numbers: Sequence[int], parts: Sequence[Floats], is_centred: bool = False) -> Floats:
        """Sums by block over the messages of some flows, divided by their mean number per block.

        Centred, each block has the overall mean and what its messages deviate from it: a ratio of sums, made linear.
        """
        sums, counts = np.zeros(BLOCKS), np.zeros(BLOCKS)
        for number, part in zip(numbers, parts, strict=True):
            edges = self._edges[number]
            counts += np.diff(edges)
            sums += _between(part, edges)
        per_block = max(float(counts.mean()), 1e-9)
        if not is_centred:
            return sums / per_block
        mean = float(sums.sum() / max(float(counts.sum()), 1e-9))
        return mean + (sums - mean * counts) / per_block

    def _controls(self, key: Key, stage: Stage, passage: Passage, order: Order, times: list[Floats]) -> list[Floats]:
        numbers = [number for number, _ in self._network.inputs[key]]
        group, rate = self._draws.group, self._network.rate_per_s(key)
        found = []
        if self._network.bursty[key] or group > 1:
            arrivals = [self._poisson_arrivals(number, key) for number in numbers]
            twin, twin_order = self._served(key, arrivals)
            expected = float(stage.centre(group).response_s(rate / group))
            if not isnan(expected):
                passed = twin_order.split(twin.departures_s - twin.arrivals_s - expected)
                found.append(self._blocks(numbers, passed))
        else:
            found.append(self._blocks(numbers, [each - self._plan.expected_s[key] for each in times]))
        if stage.on is not None and stage.off is not None and stage.service is not None:
            centre = stage.centre()
            assert isinstance(centre, Centre)
            away = passage.departures_s - passage.arrivals_s - passage.served_s
            away -= passage.served_s * (centre.off_s / centre.on_s) + centre.residual_off_s
            found.append(self._blocks(numbers, order.split(away)))
        if stage.service is not None and stage.service.law == "exponential" and group == 1:
            given = passage.served_s - stage.service.mean_s * (1 + passage.seen())
            found.append(self._blocks(numbers, order.split(given)))
        return found

    def _poisson_arrivals(self, number: int, key: Key) -> Floats:
        """Those of the flow's source, about as late as its messages come; of groups, as many drawn anew."""
        arrivals = self._draws.arrivals_s[number]
        if self._draws.group > 1:
            assert self._poisson is not None
            gap_s = self._draws.group / self._network.flows[number].rate_per_s
            return np.cumsum(self._poisson.standard_exponential(len(arrivals))) * gap_s
        *before, _ = self._network.flows[number].path(key)
        return arrivals + sum(self._plan.expected_s[each] for each in before)


def _between(values: Floats, edges: Integers) -> Floats:
    sums = np.concatenate(([0.0], np.cumsum(values)))
    return np.diff(sums[edges])

"""Networks of stages that messages of several flows pass: their description, and where messages come in bursts.

Sources are Poisson processes. Where all messages that reach a stage come from Poisson processes, the formulas of
`intermittent.py` are exact. The output of a stage is Poisson if its input is, its service is exponential and its server
is always ON (Burke 1956); the output of any other stage is not, and what such messages reach is called bursty. Pure.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from brokerbed.analysis.models.intermittent import Centre
from brokerbed.analysis.models.permuted import PermutedCentre
from brokerbed.analysis.models.recorded import Cycles, RecordedCentre
from brokerbed.analysis.models.sample_path import Outages, Variable, drawn, repeated

Key = tuple[str, str]  # the kind of a stage, and where it is


@dataclass(frozen=True, slots=True)
class Recorded:
    """ON and OFF periods that were recorded and are repeated, in this order or permuted in every pass."""

    cycles_s: Cycles
    is_shuffled: bool = False

    def centre(self, demand_s: float) -> RecordedCentre:
        return (PermutedCentre if self.is_shuffled else RecordedCentre)(self.cycles_s, demand_s)


@dataclass(frozen=True, slots=True)
class Stage:
    """One queue with one server. Without `service` it serves at once; without periods it is always ON."""

    service: Variable | None = None
    on: Variable | None = None
    off: Variable | None = None
    recorded: Recorded | None = None  # instead of `on` and `off`; the service is then exponential

    @property
    def cycle_s(self) -> float | None:
        """The mean length of an ON and an OFF period together; None for a server that is always ON."""
        if self.recorded is not None:
            return self.recorded.centre(0.0).pass_s / len(self.recorded.cycles_s)
        return self.on.mean_s + self.off.mean_s if self.on and self.off else None

    @property
    def keeps_poisson(self) -> bool:
        return self.cycle_s is None and (self.service is None or self.service.law == "exponential")

    def outages(self, generator: np.random.Generator) -> Outages | None:
        if self.recorded is not None:
            centre = self.recorded.centre(0.0)
            return Outages(repeated(centre.on_s, centre.off_s, self.recorded.is_shuffled, generator))
        return Outages(drawn(self.on, self.off, generator)) if self.on and self.off else None

    def centre(self, group: int = 1) -> Centre | RecordedCentre:
        """The formulas for this stage; with `group` messages that come and are served as one."""
        if self.recorded is not None:
            assert group == 1
            return self.recorded.centre(self.service.mean_s if self.service else 0.0)
        demand_s, variance_s2 = (self.service.mean_s, self.service.variance_s2) if self.service else (0.0, 0.0)
        demand = group * demand_s, (group * demand_s) ** 2 + group * variance_s2
        if self.on is None or self.off is None:
            return Centre(*demand)
        return Centre(*demand, self.on.mean_s, self.off.mean_s, self.off.mean_s**2 + self.off.variance_s2)


@dataclass(frozen=True, slots=True)
class Hop:
    """A stage that a flow passes: directly after `after` (None: after its source) and a constant delay."""

    stage: Key
    after: Key | None = None
    delay_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Flow:
    """A Poisson process of messages, and the tree of stages that each message passes, no stage twice."""

    rate_per_s: float
    hops: tuple[Hop, ...]  # each one behind the hop that it comes after

    def path(self, last: Key) -> tuple[Key, ...]:
        """The stages up to this one."""
        after = {hop.stage: hop.after for hop in self.hops}
        found: list[Key] = []
        at: Key | None = last
        while at is not None:
            found.append(at)
            at = after[at]
        return tuple(reversed(found))

    def delays_s(self, last: Key) -> float:
        """The constant delays up to this stage."""
        delays = {hop.stage: hop.delay_s for hop in self.hops}
        return sum(delays[key] for key in self.path(last))


@dataclass(frozen=True)
class Network:
    stages: tuple[tuple[Key, Stage], ...]
    flows: tuple[Flow, ...]

    @cached_property
    def by_key(self) -> dict[Key, Stage]:
        return dict(self.stages)

    @cached_property
    def inputs(self) -> dict[Key, list[tuple[int, Hop]]]:
        """By stage: the numbers of the flows that pass it, and their hops there."""
        found: dict[Key, list[tuple[int, Hop]]] = {key: [] for key, _ in self.stages}
        for number, flow in enumerate(self.flows):
            for hop in flow.hops:
                found[hop.stage].append((number, hop))
        return found

    def rate_per_s(self, key: Key) -> float:
        return sum(self.flows[number].rate_per_s for number, _ in self.inputs[key])

    @cached_property
    def bursty(self) -> dict[Key, bool]:
        """Whether some of what reaches a stage is not Poisson."""
        found = {key: False for key, _ in self.stages}
        while True:
            changed = False
            for key, inputs in self.inputs.items():
                before = [hop.after for _, hop in inputs if hop.after is not None]
                is_bursty = any(found[each] or not self.by_key[each].keeps_poisson for each in before)
                if is_bursty and not found[key]:
                    found[key] = changed = True
            if not changed:
                return found

    def is_exact(self, key: Key) -> bool:
        """Whether the formula for the mean holds; a server that serves at once delays by its OFF periods only."""
        return not self.bursty[key] or self.by_key[key].service is None

    @cached_property
    def order(self) -> tuple[Key, ...]:
        """The stages, each one behind those that feed it, as far as there is such an order.

        Where flows pass the same stages in opposite directions there is none. Then the first stage that at least one
        flow has reached is taken.
        """
        left = {key: inputs for key, inputs in self.inputs.items() if inputs}
        done: dict[Key, None] = {}
        while left:
            fed = {key: [hop.after is None or hop.after in done for _, hop in left[key]] for key in left}
            ready = next((key for key in left if all(fed[key])), None) or next(key for key in left if any(fed[key]))
            done[ready] = None
            del left[ready]
        return tuple(done)

"""A scenario's queues as a network of stages, for those delays that formulas for single queues do not give.

Owns how the ways of messages become flows (`models/stages.py`). One copy of the peers is simulated, with what classes
send through the same stages as flows that leave again. It must not know how rows are made.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from brokerbed.analysis.models.regression import Estimate
from brokerbed.analysis.models.sample_path import Variable
from brokerbed.analysis.models.sampled import SampledTimes
from brokerbed.analysis.models.stages import Flow, Hop, Key, Network, Stage
from brokerbed.analysis.models.tandem import Delays, Path, estimate
from brokerbed.scenario import Law, Publisher, Subscriber

LEAST_SHARE = 1e-9  # of the rate of a stage; less than that is rounding, and no other traffic


@dataclass(frozen=True, slots=True)
class Route:
    """What the messages of one stream pass on their way to one subscriber, with the delays of the links."""

    stream: Publisher
    subscriber: Subscriber
    steps: tuple["Step", ...]

    def has(self, stage: str, at: str) -> bool:
        return any(step.key == (stage, at) for step in self.steps)


@dataclass(frozen=True, slots=True)
class Step:
    """A stage, or a link without one (no key), with the constant delay before it."""

    key: Key | None
    delay_s: float = 0.0


def variable(law: Law | None) -> Variable | None:
    return None if law is None else Variable(law.law, law.mean_s, 1.0 if law.cv is None else law.cv)


class Recursion:
    """The delays on the routes of a scenario. Nothing is simulated where all formulas are exact."""

    def __init__(
        self, stages: Mapping[Key, Stage], routes: Sequence[Route], climbs: Mapping[str, tuple[Step, ...]],
        rates_per_s: Mapping[Key, float],
    ) -> None:  # fmt: skip
        """`climbs` has, by stream, the stages up to the root; `rates_per_s` everything that passes each stage.

        Overloaded stages are left out, because nothing on a route with such a stage has a prediction.
        """
        stable = {key: stage for key, stage in stages.items() if stage.centre().utilisation(rates_per_s[key]) < 1}
        streams = list(dict.fromkeys(route.stream.id for route in routes))
        self._numbers = {stream: number for number, stream in enumerate(streams)}
        hops: list[dict[Key, Hop]] = [{} for _ in streams]
        for route in routes:
            _add(hops[self._numbers[route.stream.id]], route.steps, stable)
        for stream, steps in climbs.items():
            if stream in self._numbers:
                _add(hops[self._numbers[stream]], steps, stable)
        of_streams = {route.stream.id: route.stream.rate for route in routes}
        flows = [Flow(of_streams[stream], tuple(found.values())) for stream, found in zip(streams, hops, strict=True)]
        network = Network(tuple(stable.items()), tuple(flows))
        others = _others(network, rates_per_s)
        self.network = Network(network.stages, (*network.flows, *others))
        self._paths = tuple(
            dict.fromkeys(
                path for route in routes if (path := self._path(route)) is not None and self._is_sampled(path)
            )
        )
        self._found: Delays | None = None

    def _path(self, route: Route) -> Path | None:
        keys = [step.key for step in route.steps if step.key is not None and step.key in self.network.by_key]
        return Path(self._numbers[route.stream.id], keys[-1]) if keys else None

    def _is_sampled(self, path: Path) -> bool:
        return any(not self.network.is_exact(key) for key in self.network.flows[path.flow].path(path.last))

    @property
    def _delays(self) -> Delays:
        if self._found is None:
            self._found = estimate(self.network, self._paths)
        return self._found

    def of_stage(self, key: Key) -> Estimate | None:
        """None if the formula is exact or messages are too rare, or if the stage is none of the network."""
        if key not in self.network.by_key or self.network.is_exact(key):
            return None
        return self._delays.stages[key]

    def of_route(self, route: Route) -> "tuple[Estimate, SampledTimes] | None":
        """The time in all stages, and the distribution with the delays of all links; None for formulas."""
        path = self._path(route)
        if path is None or not self._is_sampled(path):
            return None
        place = self._paths.index(path)
        mean, times = self._delays.paths[place], self._delays.times[place]
        if mean is None or times is None:
            return None
        behind_s = 0.0
        for step in reversed(route.steps):
            if step.key is not None:
                break
            behind_s += step.delay_s
        return mean, times.later(behind_s)


def _add(hops: dict[Key, Hop], steps: Sequence[Step], stages: Mapping[Key, Stage]) -> None:
    after, delay_s = None, 0.0
    for step in steps:
        delay_s += step.delay_s
        if step.key is not None and step.key in stages:
            hops.setdefault(step.key, Hop(step.key, after, delay_s))
            after, delay_s = step.key, 0.0


def _others(network: Network, rates_per_s: Mapping[Key, float]) -> list[Flow]:
    """What passes a stage beside the flows; from a session it goes on to the subscriber."""
    found = []
    for key, _ in network.stages:
        kind, at = key
        other = rates_per_s[key] - network.rate_per_s(key)
        if (kind == "subscriber" and ("session", at) in network.by_key) or other <= LEAST_SHARE * rates_per_s[key]:
            continue
        hops = [Hop(key)]
        if kind == "session" and ("subscriber", at) in network.by_key:
            hops.append(Hop(("subscriber", at), key))
        found.append(Flow(other, tuple(hops)))
    return found

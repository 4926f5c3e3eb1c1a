"""The routes of a scenario's messages through its queues. It must not know what the recursion does with them."""

from collections.abc import Callable, Iterator
from itertools import pairwise

from brokerbed.analysis.models.contract import Traffic
from brokerbed.analysis.models.stages import Key, Stage
from brokerbed.analysis.recursion import Recursion, Route, Step, variable
from brokerbed.analysis.traced import recorded
from brokerbed.scenario import Law, Publisher, Scenario, Subscriber

NO_STEP = Step(None)


class Routes:
    """One copy of the peers, with the stages that they use."""

    def __init__(
        self, scenario: Scenario, traffic: Traffic, link_delay_s: Callable[[int, int], float],
        is_modelled: Callable[[Publisher | Subscriber], bool],
    ) -> None:  # fmt: skip
        """Of peers that are not modelled, messages come from a Poisson process, and nothing is known of their ends."""
        self._scenario, self._tree, self._traffic = scenario, scenario.tree, traffic
        self._link_delay_s, self._is_modelled = link_delay_s, is_modelled
        self.stages: dict[Key, Stage] = {}
        self.rates_per_s: dict[Key, float] = {}

    def recursion(self, arrivals_per_s: Callable[[Subscriber], float]) -> Recursion:
        pairs = self._scenario.pairs()
        routes = [self.of(stream, subscriber) for stream, subscriber in pairs]
        climbs = {}
        if self._scenario.algorithm.climbs:
            climbs = {stream.id: tuple(self._climb(stream)) for stream, _ in pairs}
        for _, subscriber in pairs:
            for kind in ("session", "subscriber"):
                if (kind, subscriber.id) in self.stages:
                    self.rates_per_s[kind, subscriber.id] = arrivals_per_s(subscriber)
        return Recursion(self.stages, routes, climbs, self.rates_per_s)

    def of(self, stream: Publisher, subscriber: Subscriber) -> Route:
        """A route that ends at the broker, if nothing is known of the subscriber's session."""
        steps = [self._first(stream)]
        for number, here in enumerate(path := self._tree.path(stream.broker, subscriber.broker)):
            steps += self._between(path[number - 1], here) if number else []
            steps.append(self._input(here))
        if self._is_modelled(subscriber):
            steps.append(self._step(("session", subscriber.id), _stage(subscriber, subscriber.session_service)))
            steps.append(self._step(("subscriber", subscriber.id), Stage(variable(subscriber.service))))
        return Route(stream, subscriber, tuple(steps))

    def _climb(self, stream: Publisher) -> Iterator[Step]:
        """Messages climb to the root, and load the stages on this way."""
        path = self._tree.path(stream.broker, self._tree.names[0])
        yield from (self._first(stream), self._input(path[0]))
        for below, above in pairwise(path):
            yield from (*self._between(below, above), self._input(above))

    def _first(self, stream: Publisher) -> Step:
        if not self._is_modelled(stream):
            return NO_STEP
        return self._step(("publisher", stream.id), _stage(stream, stream.service), stream.rate)

    def _input(self, broker: int) -> Step:
        stage = Stage(variable(self._scenario.service.broker_in))
        rate = float(self._traffic.notifications_in[broker])
        return self._step(("broker_in", self._tree.names[broker]), stage, rate)

    def _between(self, here: int, there: int) -> list[Step]:
        """The output to a link, and the link."""
        is_up = int(self._tree.parents[here]) == there
        rate = float(self._traffic.up[here] if is_up else self._traffic.down[there])
        name = f"{self._tree.names[here]}>{self._tree.names[there]}"
        stage = Stage(variable(self._scenario.service.link))
        return [self._step(("link", name), stage, rate), Step(None, self._link_delay_s(here, there))]

    def _step(self, key: Key, stage: Stage, rate: float = 0.0) -> Step:
        if stage == Stage():
            return NO_STEP
        self.stages[key], self.rates_per_s[key] = stage, rate
        return Step(key)


def _stage(peer: Publisher | Subscriber, service: Law | None) -> Stage:
    """The queue that only a peer's own connection serves."""
    periods = None if peer.connectivity is None else recorded(peer.connectivity)
    return Stage(variable(service), variable(peer.on), variable(peer.off), periods)

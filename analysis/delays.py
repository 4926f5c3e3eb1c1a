"""Mean delays of a scenario's peers: Algorithm 1 of Bouloukakis et al. 2017 on the scenario's own tree.

Every queue on the path from a publisher to a subscriber is a centre of analysis/models/intermittent.py, loaded with all
traffic that the routing sends through it. Each copy of the peers has service stages of its own, and so have the classes
if there are copies: the stages at one place form sets that do not load one another. Where messages come in bursts,
these formulas are not exact; unless the scenario asks for Algorithm 1, such delays come from recursion.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isnan

import numpy as np

from brokerbed.analysis.link_load import NarrowDirection, message_bytes
from brokerbed.analysis.models.contract import Traffic
from brokerbed.analysis.peer_queues import PeerQueues
from brokerbed.analysis.queues import NAN, Queue, Way, centre_of, queue_of
from brokerbed.analysis.recursion import Recursion
from brokerbed.analysis.routes import Routes
from brokerbed.scenario import Law, Publisher, Scenario, Subscriber
from brokerbed.scenario.topology import Floats

QUEUE_TAIL = 10  # a limit below this many mean lengths is sometimes reached, as tails are about exponential


@dataclass(frozen=True, slots=True)
class Delays:
    stages: tuple[Queue, ...]
    ways: tuple[Way, ...]
    saturated: tuple[Queue, ...]  # directions of links whose bandwidth does not suffice
    notes: tuple[str, ...]  # reasons why predictions are missing or may be wrong
    is_thinned: bool = False  # whether an unknown share of the messages dies before they have crossed all links

    @property
    def unstable(self) -> list[Queue]:
        return [*(queue for queue in self.stages if queue.utilisation >= 1 and not queue.expires), *self.saturated]

    @property
    def throughput_is_known(self) -> bool:
        """Whether no overloaded queue holds back messages for links; sessions and subscribers feed no link."""
        is_overloaded = any(queue.stage in ("publisher", "broker_in", "link") for queue in self.unstable)
        return not is_overloaded and not self.is_thinned


@dataclass(frozen=True, slots=True)
class _StageSet:
    """The service stages at all brokers and links that carry the same traffic; there are `weight` such sets."""

    weight: int
    traffic: Traffic


def predict_delays(
    scenario: Scenario, of_classes: Traffic, of_one_copy: Traffic, narrow: Mapping[str, NarrowDirection]
) -> Delays:
    """Predicts all delays from the traffic of the classes, the traffic of one copy of the peers, and narrow links."""
    if scenario.copies == 1:
        sets = [_StageSet(1, of_classes + of_one_copy)]
    else:
        sets = [_StageSet(1, of_classes), _StageSet(scenario.copies, of_one_copy)]
    network = _Network(scenario, sets, narrow)
    saturated = [
        Queue("link", it.at, network.rate_per_s(it.at), it.offered, NAN) for it in narrow.values() if it.is_saturated
    ]
    return Delays(tuple(network.stages()), tuple(network.ways()), tuple(saturated), network.notes)


class _Network:
    """The queueing network of one scenario. The last set of stages is the one that the peers use."""

    def __init__(self, scenario: Scenario, sets: list[_StageSet], narrow: Mapping[str, NarrowDirection]) -> None:
        self._scenario = scenario
        self._sets = sets
        self._narrow = narrow
        self._delayed_links = {frozenset(link.between): link for link in scenario.links}
        self._queues = PeerQueues(scenario)
        self._routes = Routes(scenario, self._peers, self._constant_delay_s, self._queues.is_simulated)
        self._recursion: Recursion | None = None
        if self._queues.are_simulated:
            self._recursion = self._routes.recursion(lambda subscriber: self._queues.arrivals[subscriber.id].rate_per_s)

    @property
    def notes(self) -> tuple[str, ...]:
        return tuple(self._queues.notes)

    def stages(self) -> Iterator[Queue]:
        """Every queue with a service time and some traffic, over all flows and pooled over the sets of stages."""
        tree = self._scenario.tree
        if (law := self._scenario.service.broker_in) is not None:
            yield from self._pooled(
                "broker_in", law, [stage_set.traffic.notifications_in for stage_set in self._sets], tree.names
            )
        if (law := self._scenario.service.link) is not None:
            links = [(v, int(tree.parents[v])) for v in range(1, len(tree))]
            up = [stage_set.traffic.up[1:] for stage_set in self._sets]
            down = [stage_set.traffic.down[1:] for stage_set in self._sets]
            yield from self._pooled("link", law, up, [self._link_name(*link) for link in links])
            yield from self._pooled("link", law, down, [self._link_name(*reversed(link)) for link in links])
        for publisher in self._scenario.generators:
            if publisher.service or publisher.is_intermittent:
                yield self._queues.publisher(publisher)  # Poisson arrivals, so its formula is exact
        for subscriber in self._scenario.receivers:
            arrivals = self._queues.arrivals[subscriber.id]
            if subscriber.session_service or subscriber.is_intermittent:
                session = self._simulated(self._queues.session(subscriber, arrivals.rate_per_s))
                self._warn_of_limits(subscriber, session)
                yield session
            if subscriber.service:
                queue = self._simulated(self._queues.subscriber(subscriber, arrivals.rate_per_s))
                # messages that waited while the subscriber was OFF arrive in a burst, so the formula does not hold
                is_bursty = subscriber.is_intermittent and queue.standard_error_s is None
                is_unknown = is_bursty and queue.utilisation < 1
                yield replace(queue, response_s=NAN) if is_unknown else queue

    def ways(self) -> Iterator[Way]:
        for publisher, subscriber in self._scenario.pairs():
            yield self._way(publisher, subscriber)

    def _way(self, publisher: Publisher, subscriber: Subscriber) -> Way:
        """Algorithm 1: the publisher's queue, input and output of each broker on the path, the subscriber's queue."""
        flow, tree = publisher.rate, self._scenario.tree
        path = tree.path(publisher.broker, subscriber.broker)
        queues = [self._queues.publisher(publisher)]
        links_s = 0.0
        for position, here in enumerate(path):
            queues += self._shared("broker_in", tree.names[here], self._peers.notifications_in[here], flow)
            if position + 1 < len(path):
                there = path[position + 1]
                is_up = tree.parents[here] == there
                rate = self._peers.up[here] if is_up else self._peers.down[there]
                queues += self._shared("link", self._link_name(here, there), rate, flow)
                queues += self._transmission(here, there, publisher)
                links_s += self._link_delay_s(here, there)
        queues += [self._queues.session(subscriber, flow), self._queues.subscriber(subscriber, flow)]
        self._warn_of_narrow_links([self._link_name(*link) for link in pairwise(path)])
        end_to_end_s = sum(queue.response_s for queue in queues) + links_s
        error_s, sampled = None, None
        if self._recursion and not isnan(end_to_end_s):
            route = self._routes.of(publisher, subscriber)
            found = self._recursion.of_route(route)
            if found is not None:  # bandwidths, and subscribers that miss messages, have formulas only
                elsewhere_s = sum(
                    queue.response_s
                    for queue in queues
                    if not route.has(queue.stage, queue.at) or queue.is_transmission
                )
                end_to_end_s, error_s = found[0].mean + elsewhere_s + links_s, found[0].standard_error
                sampled = None if elsewhere_s else found[1]
                queues = [self._simulated(queue) for queue in queues]
        ratio = 1.0
        if subscriber.is_intermittent and min(publisher.qos, subscriber.qos) == 0:
            ratio = NAN if subscriber.session_service else self._queues.availability(subscriber)
        if any(queue.utilisation >= 1 for queue in queues):
            ratio = NAN
        return Way(publisher.sender, subscriber.id, tuple(queues), links_s, end_to_end_s, ratio, sampled, error_s)

    # -- queues that flows share ------------------------------------------------------------------------------

    @property
    def _peers(self) -> Traffic:
        return self._sets[-1].traffic

    def _pooled(self, stage: str, law: Law, rates: list[Floats], places: Sequence[str]) -> Iterator[Queue]:
        """One queue per place, whose response time is the mean over the sets, weighted by their traffic."""
        centre = centre_of(law)
        per_set = np.array(rates)
        passing = per_set * np.array([[stage_set.weight] for stage_set in self._sets])
        responses = np.where(per_set > 0, centre.response_s(per_set), 0.0)
        busiest = np.max(centre.utilisation(per_set), axis=0)
        total = passing.sum(axis=0)
        for at in np.flatnonzero(total).tolist():
            simulated = self._recursion and self._recursion.of_stage((stage, places[at]))
            if simulated:  # in the set of the peers; to the other sets only classes send
                responses[-1, at] = simulated.mean
            response = float(passing[:, at] @ responses[:, at] / total[at])
            if self._queues.has_bursts:
                response = self._queues.unknown_burst()
            if self._queues.has_unmodelled_recording:
                response = self._queues.unknown_behind_recorded()
            error_s = simulated.standard_error * float(passing[-1, at] / total[at]) if simulated else None
            yield Queue(stage, places[at], float(total[at]), float(busiest[at]), response, standard_error_s=error_s)

    def _shared(self, stage: str, at: str, rate: float, flow: float) -> list[Queue]:
        law = self._scenario.service.broker_in if stage == "broker_in" else self._scenario.service.link
        if law is None:
            return []
        queue = queue_of(stage, at, (law, None, None), float(rate), flow)
        is_bursty = self._queues.has_bursts and len(self._sets) == 1  # copies have stages that classes do not load
        if self._queues.has_unmodelled_recording:
            return [replace(queue, response_s=self._queues.unknown_behind_recorded(), times=None)]
        return [replace(queue, response_s=self._queues.unknown_burst(), times=None) if is_bursty else queue]

    def _link_name(self, here: int, there: int) -> str:
        return f"{self._scenario.tree.names[here]}>{self._scenario.tree.names[there]}"

    def _link_delay_s(self, here: int, there: int) -> float:
        names = self._scenario.tree.names
        link = self._delayed_links.get(frozenset((names[here], names[there])))
        if link is not None and link.delay is not None and link.delay.law != "deterministic":
            self._queues.note(f"there is no model of a link with a random delay ({names[here]} to {names[there]})")
            return NAN
        return self._constant_delay_s(here, there)

    def _constant_delay_s(self, here: int, there: int) -> float:
        names = self._scenario.tree.names
        link = self._delayed_links.get(frozenset((names[here], names[there])))
        return link.delay.mean_s if link is not None and link.delay is not None else 0.0

    def _transmission(self, here: int, there: int, publisher: Publisher) -> list[Queue]:
        """The queue for the bandwidth of a link, if it has one."""
        at = self._link_name(here, there)
        direction = self._narrow.get(at)
        if direction is None:
            return []
        response_s = direction.response_s(message_bytes(self._scenario, publisher))
        if self._queues.has_bursts:
            response_s = self._queues.unknown_burst()
        if self._queues.has_unmodelled_recording:
            response_s = self._queues.unknown_behind_recorded()
        return [Queue("link", at, self.rate_per_s(at), direction.offered, response_s, is_transmission=True)]

    def _warn_of_narrow_links(self, path: list[str]) -> None:
        narrow = [at for at in path if at in self._narrow]
        if len(narrow) > 1:
            self._queues.note(
                f"messages cross several narrow links one after the other ({narrow[0]}, {narrow[1]}); they wait less at"
                " the later ones than the model of a single queue says"
            )

    def rate_per_s(self, at: str) -> float:
        """All notifications in one direction of a link."""
        tree = self._scenario.tree
        here, there = (tree.index[name] for name in at.split(">"))
        is_up = int(tree.parents[here]) == there
        return sum(
            stage_set.weight * float(stage_set.traffic.up[here] if is_up else stage_set.traffic.down[there])
            for stage_set in self._sets
        )

    # -- what is simulated ------------------------------------------------------------------------------------

    def _simulated(self, queue: Queue) -> Queue:
        """With the mean over all flows that the recursion has found, where the formula is not exact."""
        if self._recursion is None or queue.is_transmission or isnan(queue.response_s):
            return queue
        found = self._recursion.of_stage((queue.stage, queue.at))
        return queue if found is None else queue.simulated(found)

    def _warn_of_limits(self, subscriber: Subscriber, session: Queue) -> None:
        waiting = session.rate_per_s * session.response_s
        if waiting * QUEUE_TAIL > self._scenario.limits.messages:
            self._queues.note(
                f"about {waiting:.0f} messages wait for {subscriber.id} on average; the limit of"
                f" {self._scenario.limits.messages} will be reached, which the model does not take into account"
            )

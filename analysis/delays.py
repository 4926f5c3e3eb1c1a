"""Mean delays of a scenario's peers: Algorithm 1 of Bouloukakis et al. 2017 on the scenario's own tree.

Every queue on the path from a publisher to a subscriber is a centre of analysis/models/intermittent.py, loaded with all
traffic that the routing sends through it. Each copy of the peers has service stages of its own, and so have the classes
if there are copies: the stages at one place form sets that do not load one another.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isnan

import numpy as np

from brokerbed.analysis.models.contract import Traffic
from brokerbed.analysis.models.distribution import Times, times_of
from brokerbed.analysis.models.intermittent import Centre
from brokerbed.scenario import Law, Publisher, Scenario, Subscriber, matches
from brokerbed.scenario.topology import Floats

NAN = float("nan")  # no prediction
Laws = tuple[Law | None, Law | None, Law | None]  # the laws of service times, ON periods and OFF periods
QUEUE_TAIL = 10  # a limit below this many mean lengths is sometimes reached, as tails are about exponential


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue, from the point of view of one flow or of all flows together."""

    stage: str
    at: str
    rate_per_s: float
    utilisation: float
    response_s: float  # nan: no prediction
    effective_demand_s: float = NAN  # only for a single flow
    times: Times | None = None  # only for a single flow; None if the distribution is unknown
    has_outages: bool = False


@dataclass(frozen=True, slots=True)
class Way:
    """The predicted path from one publisher to one subscriber."""

    publisher: str
    subscriber: str
    queues: tuple[Queue, ...]
    links_s: float  # the sum of the constant delays of the links
    end_to_end_s: float
    delivery_ratio: float


@dataclass(frozen=True, slots=True)
class Delays:
    stages: tuple[Queue, ...]
    ways: tuple[Way, ...]
    notes: tuple[str, ...]  # reasons why predictions are missing or may be wrong

    @property
    def unstable(self) -> list[Queue]:
        return [queue for queue in self.stages if queue.utilisation >= 1]

    @property
    def throughput_is_known(self) -> bool:
        """Whether no overloaded queue holds back messages for links; sessions and subscribers feed no link."""
        return not any(queue.stage in ("publisher", "broker_in", "link") for queue in self.unstable)


@dataclass(frozen=True, slots=True)
class _StageSet:
    """The service stages at all brokers and links that carry the same traffic; there are `weight` such sets."""

    weight: int
    traffic: Traffic


def predict_delays(scenario: Scenario, of_classes: Traffic, of_one_copy: Traffic) -> Delays:
    """Predicts all delays from the traffic of the classes and the traffic of one copy of the peers."""
    if scenario.copies == 1:
        sets = [_StageSet(1, of_classes + of_one_copy)]
    else:
        sets = [_StageSet(1, of_classes), _StageSet(scenario.copies, of_one_copy)]
    network = _Network(scenario, sets)
    return Delays(tuple(network.stages()), tuple(network.ways()), tuple(network.notes))


class _Network:
    """The queueing network of one scenario. The last set of stages is the one that the peers use."""

    def __init__(self, scenario: Scenario, sets: list[_StageSet]) -> None:
        self._scenario = scenario
        self._sets = sets
        self._delayed_links = {frozenset(link.between): link for link in scenario.links}
        self.notes: dict[str, None] = {}  # a dict, so that each note appears once and in order

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
        for publisher in self._scenario.publishers:
            if publisher.service or publisher.on:
                yield self._publisher(publisher)
        for subscriber in self._scenario.subscribers:
            arrivals = self._arrivals[subscriber.id]
            if subscriber.session_service or subscriber.on:
                session = self._session(subscriber, arrivals.rate_per_s)
                self._warn_of_limits(subscriber, session)
                yield session
            if subscriber.service:
                queue = self._subscriber(subscriber, arrivals.rate_per_s)
                # messages that waited while the subscriber was OFF arrive in a burst, so the mean is unknown
                yield replace(queue, response_s=NAN) if subscriber.on and queue.utilisation < 1 else queue

    def ways(self) -> Iterator[Way]:
        for publisher, subscriber in self._scenario.pairs():
            yield self._way(publisher, subscriber)

    def _way(self, publisher: Publisher, subscriber: Subscriber) -> Way:
        """Algorithm 1: the publisher's queue, input and output of each broker on the path, the subscriber's queue."""
        flow, tree = publisher.rate, self._scenario.tree
        path = tree.path(publisher.broker, subscriber.broker)
        queues = [self._publisher(publisher)]
        links_s = 0.0
        for position, here in enumerate(path):
            queues += self._shared("broker_in", tree.names[here], self._peers.notifications_in[here], flow)
            if position + 1 < len(path):
                there = path[position + 1]
                is_up = tree.parents[here] == there
                rate = self._peers.up[here] if is_up else self._peers.down[there]
                queues += self._shared("link", self._link_name(here, there), rate, flow)
                links_s += self._link_delay_s(here, there)
        queues += [self._session(subscriber, flow), self._subscriber(subscriber, flow)]
        end_to_end_s = sum(queue.response_s for queue in queues) + links_s
        ratio = 1.0
        if subscriber.on and min(publisher.qos, subscriber.qos) == 0:
            ratio = NAN if subscriber.session_service else self._centre(subscriber).availability
        if any(queue.utilisation >= 1 for queue in queues):
            ratio = NAN
        return Way(publisher.id, subscriber.id, tuple(queues), links_s, end_to_end_s, ratio)

    # -- queues that flows share ------------------------------------------------------------------------------

    @property
    def _peers(self) -> Traffic:
        return self._sets[-1].traffic

    def _pooled(self, stage: str, law: Law, rates: list[Floats], places: Sequence[str]) -> Iterator[Queue]:
        """One queue per place, whose response time is the mean over the sets, weighted by their traffic."""
        centre = _centre(law)
        per_set = np.array(rates)
        passing = per_set * np.array([[stage_set.weight] for stage_set in self._sets])
        responses = np.where(per_set > 0, centre.response_s(per_set), 0.0)
        busiest = np.max(centre.utilisation(per_set), axis=0)
        total = passing.sum(axis=0)
        for at in np.flatnonzero(total).tolist():
            response = float(passing[:, at] @ responses[:, at] / total[at])
            if self._has_bursts:
                response = self._unknown_burst()
            yield Queue(stage, places[at], float(total[at]), float(busiest[at]), response)

    def _shared(self, stage: str, at: str, rate: float, flow: float) -> list[Queue]:
        law = self._scenario.service.broker_in if stage == "broker_in" else self._scenario.service.link
        if law is None:
            return []
        queue = _queue(stage, at, (law, None, None), float(rate), flow)
        is_bursty = self._has_bursts and len(self._sets) == 1  # copies have stages that classes do not load
        return [replace(queue, response_s=self._unknown_burst(), times=None) if is_bursty else queue]

    def _link_name(self, here: int, there: int) -> str:
        return f"{self._scenario.tree.names[here]}>{self._scenario.tree.names[there]}"

    def _link_delay_s(self, here: int, there: int) -> float:
        names = self._scenario.tree.names
        link = self._delayed_links.get(frozenset((names[here], names[there])))
        if link is None:
            return 0.0
        if link.bandwidth is not None or (link.delay is not None and link.delay.law != "deterministic"):
            kind = "limited bandwidth" if link.bandwidth is not None else "a random delay"
            self._note(f"there is no model of a link with {kind} ({names[here]} to {names[there]})")
            return NAN
        assert link.delay is not None
        return link.delay.mean_s

    # -- queues of peers --------------------------------------------------------------------------------------

    def _publisher(self, publisher: Publisher) -> Queue:
        laws = publisher.service, publisher.on, publisher.off
        return _queue("publisher", publisher.id, laws, publisher.rate, publisher.rate, self._has_model(publisher))

    def _centre(self, subscriber: Subscriber) -> Centre:
        return _centre(subscriber.session_service, subscriber.on, subscriber.off)

    def _session(self, subscriber: Subscriber, flow: float) -> Queue:
        arrivals = self._arrivals[subscriber.id]
        is_known = self._has_model(subscriber)
        if arrivals.is_bursty and (subscriber.session_service or subscriber.on):
            self._unknown_burst()
            is_known = False
        laws: Laws = subscriber.session_service, subscriber.on, subscriber.off
        if subscriber.on and arrivals.some_at_qos0:
            if subscriber.session_service is None and not arrivals.some_above_qos0:
                laws = None, None, None  # messages that arrive while it is away are dropped, the others pass at once
            else:
                self._note(f"there is no model of QoS 0 to a peer that disconnects ({subscriber.id}), as some is lost")
                is_known = False
        return _queue("session", subscriber.id, laws, arrivals.rate_per_s, flow, is_known)

    def _subscriber(self, subscriber: Subscriber, flow: float) -> Queue:
        arrivals = self._arrivals[subscriber.id]
        passed = 1.0
        if subscriber.on and arrivals.some_at_qos0 and not arrivals.some_above_qos0:
            passed = self._centre(subscriber).availability
        laws = subscriber.service, None, None
        is_known = not (arrivals.is_bursty and subscriber.service)
        if not is_known:
            self._unknown_burst()
        return _queue("subscriber", subscriber.id, laws, arrivals.rate_per_s * passed, flow * passed, is_known)

    @cached_property
    def _arrivals(self) -> dict[str, "_Arrivals"]:
        return {subscriber.id: self._arrivals_at(subscriber) for subscriber in self._scenario.subscribers}

    def _arrivals_at(self, subscriber: Subscriber) -> "_Arrivals":
        """Every matching message that peers and classes publish reaches the session."""
        scenario, publications = self._scenario, self._scenario.publications
        flows = [(p.rate, int(p.qos)) for p in scenario.publishers if matches(subscriber.topic, p.topic)]
        numbers = scenario.classes_matching(subscriber.topic)
        of_classes_per_s = publications.mean_rate_per_s(numbers)
        flows.append((of_classes_per_s, publications.qos))
        qos = [min(qos, subscriber.qos) for rate, qos in flows if rate > 0]
        is_bursty = self._has_bursts and of_classes_per_s > 0
        return _Arrivals(sum(rate for rate, _ in flows), 0 in qos, 1 in qos or 2 in qos, is_bursty)

    def _has_model(self, peer: Publisher | Subscriber) -> bool:
        if peer.on is not None and peer.on.law != "exponential":
            self._note(f"there is no model of ON periods that are {peer.on.law}, not exponential ({peer.id})")
            return False
        return True

    def _warn_of_limits(self, subscriber: Subscriber, session: Queue) -> None:
        waiting = session.rate_per_s * session.response_s
        if waiting * QUEUE_TAIL > self._scenario.limits.messages:
            self._note(
                f"about {waiting:.0f} messages wait for {subscriber.id} on average; the limit of"
                f" {self._scenario.limits.messages} will be reached, which the model does not take into account"
            )

    @property
    def _has_bursts(self) -> bool:
        """Whether classes are published to in bursts, while their sources are on."""
        return self._scenario.publications.sources is not None

    def _unknown_burst(self) -> float:
        self._note(
            "there is no model of queues with messages from sources that come and go, as these are no Poisson process"
        )
        return NAN

    def _note(self, text: str) -> None:
        self.notes[text] = None


@dataclass(frozen=True, slots=True)
class _Arrivals:
    """The messages that arrive for a session: their rate, and their QoS after the downgrade at the last hop."""

    rate_per_s: float
    some_at_qos0: bool
    some_above_qos0: bool
    is_bursty: bool  # some come from sources that come and go


def _centre(service: Law | None, on: Law | None = None, off: Law | None = None) -> Centre:
    demand = (service.mean_s, service.second_moment_s2) if service else (0.0, 0.0)
    return Centre(*demand, on.mean_s, off.mean_s, off.second_moment_s2) if on and off else Centre(*demand)


def _queue(stage: str, at: str, laws: Laws, rate: float, flow: float, is_known: bool = True) -> Queue:
    centre = _centre(*laws)
    response_s = float(centre.response_s(rate)) if is_known else NAN
    effective_demand_s = float(centre.effective_demand_s(flow, rate - flow))
    service, _, off = laws
    times = None if isnan(response_s) else times_of(centre, rate, _named(service), _named(off))
    utilisation = float(centre.utilisation(rate))
    return Queue(stage, at, rate, utilisation, response_s, effective_demand_s, times, off is not None)


def _named(law: Law | None) -> tuple[str, float] | None:
    return (law.law, law.mean_s) if law else None

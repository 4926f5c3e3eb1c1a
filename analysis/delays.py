"""Mean delays of a scenario's peers: Algorithm 1 of Bouloukakis et al. 2017 on the scenario's own tree.

Every queue on the path from a publisher to a subscriber is a centre of analysis/models/intermittent.py, loaded with all
traffic that the routing sends through it. Each copy of the peers has service stages of its own, and so have the classes
if there are copies: the stages at one place form sets that do not load one another. Where messages come in bursts,
these formulas are not exact; unless the scenario asks for Algorithm 1, such delays come from recursion.py.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from math import isnan

import numpy as np

from brokerbed.analysis.link_load import NarrowDirection, message_bytes
from brokerbed.analysis.models.contract import Traffic
from brokerbed.analysis.queues import NAN, Laws, Queue, Way, centre_of, queue_of
from brokerbed.analysis.recursion import Recursion
from brokerbed.analysis.routes import Routes
from brokerbed.analysis.traced import traced_queue
from brokerbed.scenario import Law, Publisher, Scenario, Subscriber
from brokerbed.scenario.topology import Floats

ALGORITHM_1 = "algorithm1"  # the model of that name uses formulas only
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
    return Delays(tuple(network.stages()), tuple(network.ways()), tuple(saturated), tuple(network.notes))


class _Network:
    """The queueing network of one scenario. The last set of stages is the one that the peers use."""

    def __init__(self, scenario: Scenario, sets: list[_StageSet], narrow: Mapping[str, NarrowDirection]) -> None:
        self._scenario = scenario
        self._sets = sets
        self._narrow = narrow
        self._delayed_links = {frozenset(link.between): link for link in scenario.links}
        self.notes: dict[str, None] = {}  # a dict, so that each note appears once and in order
        self._routes = Routes(scenario, self._peers, self._constant_delay_s, self._is_simulated)
        self._recursion: Recursion | None = None
        if scenario.model != ALGORITHM_1 and not (self._has_bursts and len(sets) == 1):
            self._recursion = self._routes.recursion(lambda subscriber: self._arrivals[subscriber.id].rate_per_s)

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
                yield self._publisher(publisher)  # Poisson arrivals, so its formula is exact
        for subscriber in self._scenario.receivers:
            arrivals = self._arrivals[subscriber.id]
            if subscriber.session_service or subscriber.is_intermittent:
                session = self._simulated(self._session(subscriber, arrivals.rate_per_s))
                self._warn_of_limits(subscriber, session)
                yield session
            if subscriber.service:
                queue = self._simulated(self._subscriber(subscriber, arrivals.rate_per_s))
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
        queues = [self._publisher(publisher)]
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
        queues += [self._session(subscriber, flow), self._subscriber(subscriber, flow)]
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
            ratio = NAN if subscriber.session_service else self._availability(subscriber)
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
            if self._has_bursts:
                response = self._unknown_burst()
            if self._has_recorded_peers:
                response = self._unknown_behind_recorded()
            error_s = simulated.standard_error * float(passing[-1, at] / total[at]) if simulated else None
            yield Queue(stage, places[at], float(total[at]), float(busiest[at]), response, standard_error_s=error_s)

    def _shared(self, stage: str, at: str, rate: float, flow: float) -> list[Queue]:
        law = self._scenario.service.broker_in if stage == "broker_in" else self._scenario.service.link
        if law is None:
            return []
        queue = queue_of(stage, at, (law, None, None), float(rate), flow)
        is_bursty = self._has_bursts and len(self._sets) == 1  # copies have stages that classes do not load
        if self._has_recorded_peers:
            return [replace(queue, response_s=self._unknown_behind_recorded(), times=None)]
        return [replace(queue, response_s=self._unknown_burst(), times=None) if is_bursty else queue]

    def _link_name(self, here: int, there: int) -> str:
        return f"{self._scenario.tree.names[here]}>{self._scenario.tree.names[there]}"

    def _link_delay_s(self, here: int, there: int) -> float:
        names = self._scenario.tree.names
        link = self._delayed_links.get(frozenset((names[here], names[there])))
        if link is not None and link.delay is not None and link.delay.law != "deterministic":
            self._note(f"there is no model of a link with a random delay ({names[here]} to {names[there]})")
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
        if self._has_bursts:
            response_s = self._unknown_burst()
        if self._has_recorded_peers:
            response_s = self._unknown_behind_recorded()
        return [Queue("link", at, self.rate_per_s(at), direction.offered, response_s, is_transmission=True)]

    def _warn_of_narrow_links(self, path: list[str]) -> None:
        narrow = [at for at in path if at in self._narrow]
        if len(narrow) > 1:
            self._note(
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

    def _is_simulated(self, peer: Publisher | Subscriber) -> bool:
        """Whether the recursion can include the queues of this peer: what they do with messages is known."""
        if peer.connectivity is not None or (peer.on is not None and peer.on.law != "exponential"):
            return False
        loses = isinstance(peer, Subscriber) and peer.on is not None and self._arrivals[peer.id].some_at_qos0
        return not loses

    # -- queues of peers --------------------------------------------------------------------------------------

    def _publisher(self, publisher: Publisher) -> Queue:
        if publisher.connectivity is not None:
            return self._traced("publisher", publisher, publisher.service, publisher.rate, publisher.arrivals is None)
        laws = publisher.service, publisher.on, publisher.off
        if publisher.arrivals is not None and publisher.service is not None:
            self._unknown_behind_recorded()
            return queue_of("publisher", publisher.id, laws, publisher.rate, publisher.rate, is_known=False)
        return queue_of("publisher", publisher.id, laws, publisher.rate, publisher.rate, self._has_model(publisher))

    def _traced(
        self, stage: str, peer: Publisher | Subscriber, service: Law | None, rate: float, is_poisson: bool
    ) -> Queue:
        """The queue of a peer with recorded periods; nothing is known of its distribution."""
        assert peer.connectivity is not None
        it = traced_queue(peer.id, peer.connectivity, service, rate, self._note, is_poisson)
        return Queue(stage, peer.id, rate, it.utilisation, it.response_s, has_outages=True)

    def _availability(self, subscriber: Subscriber) -> float:
        if subscriber.connectivity is not None:
            return subscriber.connectivity.share_on
        return centre_of(subscriber.session_service, subscriber.on, subscriber.off).availability

    def _session(self, subscriber: Subscriber, flow: float) -> Queue:
        arrivals = self._arrivals[subscriber.id]
        is_known = self._has_model(subscriber)
        if arrivals.is_bursty and (subscriber.session_service or subscriber.is_intermittent):
            self._unknown_burst()
            is_known = False
        if arrivals.are_recorded and subscriber.session_service:
            self._unknown_behind_recorded()
            is_known = False
        laws: Laws = subscriber.session_service, subscriber.on, subscriber.off
        if subscriber.is_intermittent and arrivals.some_at_qos0:
            if subscriber.session_service is None and not arrivals.some_above_qos0:
                laws = None, None, None  # messages that arrive while it is away are dropped, the others pass at once
            else:
                self._note(f"there is no model of QoS 0 to a peer that disconnects ({subscriber.id}), as some is lost")
                is_known = False
        elif subscriber.connectivity is not None:
            service = subscriber.session_service
            queue = self._traced("session", subscriber, service, arrivals.rate_per_s, not arrivals.from_intermittent)
            return queue if is_known else replace(queue, response_s=NAN)
        return queue_of("session", subscriber.id, laws, arrivals.rate_per_s, flow, is_known)

    def _subscriber(self, subscriber: Subscriber, flow: float) -> Queue:
        arrivals = self._arrivals[subscriber.id]
        passed = 1.0
        if subscriber.is_intermittent and arrivals.some_at_qos0 and not arrivals.some_above_qos0:
            passed = self._availability(subscriber)
        laws = subscriber.service, None, None
        is_known = not (arrivals.is_bursty and subscriber.service)
        if not is_known:
            self._unknown_burst()
        if subscriber.service and (arrivals.are_recorded or subscriber.connectivity is not None):
            self._unknown_behind_recorded()
            is_known = False
        return queue_of("subscriber", subscriber.id, laws, arrivals.rate_per_s * passed, flow * passed, is_known)

    @cached_property
    def _arrivals(self) -> dict[str, "_Arrivals"]:
        streams: dict[str, list[Publisher]] = {}
        for stream, receiver in self._scenario.pairs():
            streams.setdefault(receiver.id, []).append(stream)
        return {peer.id: self._arrivals_at(peer, streams.get(peer.id, [])) for peer in self._scenario.receivers}

    def _arrivals_at(self, subscriber: Subscriber, streams: list[Publisher]) -> "_Arrivals":
        """Every matching message that peers and classes publish reaches the session."""
        scenario, publications = self._scenario, self._scenario.publications
        flows = [(stream.rate, int(stream.qos)) for stream in streams]
        numbers = scenario.classes_matching(subscriber.topic)
        of_classes_per_s = publications.mean_rate_per_s(numbers)
        flows.append((of_classes_per_s, publications.qos))
        qos = [min(qos, subscriber.qos) for rate, qos in flows if rate > 0]
        is_bursty = self._has_bursts and of_classes_per_s > 0
        return _Arrivals(
            sum(rate for rate, _ in flows), 0 in qos, 1 in qos or 2 in qos, is_bursty,
            any(_is_recorded(stream) for stream in streams),
            any(stream.is_intermittent or _is_recorded(stream) for stream in streams),
        )  # fmt: skip

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
        """Whether messages of clients that are no peers come in bursts, or their rates on links change."""
        scenario = self._scenario
        published_per_s = scenario.publications.mean_rate_per_s(range(scenario.classes))
        varies = bool(scenario.profiles) and published_per_s > 0
        return varies or not (scenario.publications_are_poisson and scenario.subscriptions_are_poisson)

    def _unknown_burst(self) -> float:
        self._note(
            "there is no model of queues with messages from sources that come and go, or at rates that vary, as these"
            " are no Poisson process of constant rate"
        )
        return NAN

    @property
    def _has_recorded_peers(self) -> bool:
        """Whether some messages in the network have recorded times, or come from a publisher with recorded periods."""
        return any(_is_recorded(publisher) for publisher in self._scenario.publishers)

    def _unknown_behind_recorded(self) -> float:
        self._note(
            "there is no model of queues that take time for messages with recorded arrivals, or behind a peer whose"
            " connectivity was recorded, as these are no Poisson process"
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
    are_recorded: bool  # some come at recorded times, or from publishers with recorded periods
    from_intermittent: bool  # some come from publishers that come and go, or at recorded times


def _is_recorded(stream: Publisher) -> bool:
    return stream.connectivity is not None or stream.arrivals is not None

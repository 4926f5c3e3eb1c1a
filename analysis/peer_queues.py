"""The queues that the connections of a scenario's peers serve, by formulas, and which of them can be simulated.

Owns what reaches a session, and the reasons why such queues have no model. It must not know of brokers and links.
"""

from dataclasses import dataclass, replace
from functools import cached_property

from brokerbed.analysis.queues import NAN, Laws, Queue, centre_of, queue_of
from brokerbed.analysis.traced import traced_queue
from brokerbed.scenario import Law, Publisher, Scenario, Subscriber

ALGORITHM_1 = "algorithm1"  # the model of that name uses formulas only


class PeerQueues:
    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self.notes: dict[str, None] = {}  # a dict, so that each note appears once and in order

    @cached_property
    def are_simulated(self) -> bool:
        """Whether there is a simulation (recursion.py) of what the formulas do not give."""
        return self._scenario.model != ALGORITHM_1 and not (self.has_bursts and self._scenario.copies == 1)

    def is_simulated(self, peer: Publisher | Subscriber) -> bool:
        """Whether the simulation includes the queues of this peer: what they do with messages is known."""
        if not self.are_simulated or (peer.on is not None and peer.on.law != "exponential"):
            return False
        if isinstance(peer, Subscriber):
            service, loses = peer.session_service, peer.is_intermittent and self.arrivals[peer.id].some_at_qos0
        else:
            service, loses = peer.service, peer.arrivals is not None
        if peer.connectivity is not None:
            is_exponential = service is None or service.law == "exponential"
            return is_exponential and not loses and self._traced_peers == 1
        return not loses

    @cached_property
    def _traced_peers(self) -> int:
        peers = (*self._scenario.publishers, *self._scenario.receivers)
        return sum(it.connectivity is not None for it in peers)

    def publisher(self, publisher: Publisher) -> Queue:
        if publisher.connectivity is not None:
            return self._traced("publisher", publisher, publisher.service, publisher.rate, publisher.arrivals is None)
        laws = publisher.service, publisher.on, publisher.off
        if publisher.arrivals is not None and publisher.service is not None:
            self.unknown_behind_recorded()
            return queue_of("publisher", publisher.id, laws, publisher.rate, publisher.rate, is_known=False)
        return queue_of("publisher", publisher.id, laws, publisher.rate, publisher.rate, self._has_model(publisher))

    def _traced(
        self, stage: str, peer: Publisher | Subscriber, service: Law | None, rate: float, is_poisson: bool
    ) -> Queue:
        """The queue of a peer with recorded periods; nothing is known of its distribution."""
        assert peer.connectivity is not None
        it = traced_queue(peer.id, peer.connectivity, service, rate, self.note, is_poisson)
        return Queue(stage, peer.id, rate, it.utilisation, it.response_s, has_outages=True)

    def availability(self, subscriber: Subscriber) -> float:
        if subscriber.connectivity is not None:
            return subscriber.connectivity.share_on
        return centre_of(subscriber.session_service, subscriber.on, subscriber.off).availability

    def session(self, subscriber: Subscriber, flow: float) -> Queue:
        arrivals = self.arrivals[subscriber.id]
        is_known = self._has_model(subscriber)
        if arrivals.is_bursty and (subscriber.session_service or subscriber.is_intermittent):
            self.unknown_burst()
            is_known = False
        if subscriber.session_service and self._come_unmodelled(arrivals):
            self.unknown_behind_recorded()
            is_known = False
        laws: Laws = subscriber.session_service, subscriber.on, subscriber.off
        if subscriber.is_intermittent and arrivals.some_at_qos0:
            if subscriber.session_service is None and not arrivals.some_above_qos0:
                laws = None, None, None  # messages that arrive while it is away are dropped, the others pass at once
            else:
                self.note(f"there is no model of QoS 0 to a peer that disconnects ({subscriber.id}), as some is lost")
                is_known = False
        elif subscriber.connectivity is not None:
            service = subscriber.session_service
            has_model = self.is_simulated(subscriber) or not arrivals.from_intermittent
            queue = self._traced("session", subscriber, service, arrivals.rate_per_s, has_model)
            return queue if is_known else replace(queue, response_s=NAN)
        return queue_of("session", subscriber.id, laws, arrivals.rate_per_s, flow, is_known)

    def subscriber(self, subscriber: Subscriber, flow: float) -> Queue:
        arrivals = self.arrivals[subscriber.id]
        passed = 1.0
        if subscriber.is_intermittent and arrivals.some_at_qos0 and not arrivals.some_above_qos0:
            passed = self.availability(subscriber)
        laws = subscriber.service, None, None
        is_known = not (arrivals.is_bursty and subscriber.service)
        if not is_known:
            self.unknown_burst()
        is_behind = subscriber.connectivity is not None and not self.is_simulated(subscriber)
        if subscriber.service and (is_behind or self._come_unmodelled(arrivals)):
            self.unknown_behind_recorded()
            is_known = False
        return queue_of("subscriber", subscriber.id, laws, arrivals.rate_per_s * passed, flow * passed, is_known)

    @cached_property
    def arrivals(self) -> dict[str, "Arrivals"]:
        streams: dict[str, list[Publisher]] = {}
        for stream, receiver in self._scenario.pairs():
            streams.setdefault(receiver.id, []).append(stream)
        return {peer.id: self._arrivals_at(peer, streams.get(peer.id, [])) for peer in self._scenario.receivers}

    def _arrivals_at(self, subscriber: Subscriber, streams: list[Publisher]) -> "Arrivals":
        """Every matching message that peers and classes publish reaches the session."""
        scenario, publications = self._scenario, self._scenario.publications
        flows = [(stream.rate, int(stream.qos)) for stream in streams]
        numbers = scenario.classes_matching(subscriber.topic)
        of_classes_per_s = publications.mean_rate_per_s(numbers)
        flows.append((of_classes_per_s, publications.qos))
        qos = [min(qos, subscriber.qos) for rate, qos in flows if rate > 0]
        is_bursty = self.has_bursts and of_classes_per_s > 0
        return Arrivals(
            sum(rate for rate, _ in flows), 0 in qos, 1 in qos or 2 in qos, is_bursty,
            tuple(stream for stream in streams if _is_recorded(stream)),
            any(stream.is_intermittent or _is_recorded(stream) for stream in streams),
        )  # fmt: skip

    def _has_model(self, peer: Publisher | Subscriber) -> bool:
        if peer.on is not None and peer.on.law != "exponential":
            self.note(f"there is no model of ON periods that are {peer.on.law}, not exponential ({peer.id})")
            return False
        return True

    @property
    def has_bursts(self) -> bool:
        """Whether messages of clients that are no peers come in bursts, or their rates on links change."""
        scenario = self._scenario
        published_per_s = scenario.publications.mean_rate_per_s(range(scenario.classes))
        varies = bool(scenario.profiles) and published_per_s > 0
        return varies or not (scenario.publications_are_poisson and scenario.subscriptions_are_poisson)

    def unknown_burst(self) -> float:
        self.note(
            "there is no model of queues with messages from sources that come and go, or at rates that vary, as these"
            " are no Poisson process of constant rate"
        )
        return NAN

    @cached_property
    def has_unmodelled_recording(self) -> bool:
        """Whether messages in the network have recorded times, or come from recorded periods that are not simulated."""
        return any(_is_recorded(it) and not self.is_simulated(it) for it in self._scenario.publishers)

    def _come_unmodelled(self, arrivals: "Arrivals") -> bool:
        return any(not self.is_simulated(stream) for stream in arrivals.recorded)

    def unknown_behind_recorded(self) -> float:
        self.note(
            "there is no model of queues that take time for messages with recorded arrivals, or behind a peer whose"
            " connectivity was recorded, if there are several such peers, if its service is not exponential, or if"
            " other messages come in bursts"
        )
        return NAN

    def note(self, text: str) -> None:
        self.notes[text] = None


@dataclass(frozen=True, slots=True)
class Arrivals:
    """The messages that arrive for a session: their rate, and their QoS after the downgrade at the last hop."""

    rate_per_s: float
    some_at_qos0: bool
    some_above_qos0: bool
    is_bursty: bool  # some come from sources that come and go
    recorded: tuple[Publisher, ...]  # whose messages come at recorded times, or in recorded periods
    from_intermittent: bool  # some come from publishers that come and go, or at recorded times


def _is_recorded(stream: Publisher) -> bool:
    return stream.connectivity is not None or stream.arrivals is not None

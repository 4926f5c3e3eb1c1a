"""Predictions for messages with a lifetime (`expiry`): which of them arrive, and how long those take that do.

The delays of analysis/delays.py are those of messages that wait as long as it takes. Where messages can die, this
module replaces them. One queue on the path has an exact model (exponential_lifetime.py and fixed_lifetime.py in
analysis/models) if its service, ON and OFF times and the lifetimes permit; several queues are sampled
(lifetime_path.py). Elsewhere there is no prediction, and a note says why.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isclose, isnan

from brokerbed.analysis.delays import Delays
from brokerbed.analysis.models.distribution import Known
from brokerbed.analysis.models.exponential_lifetime import exponential_lifetime
from brokerbed.analysis.models.fixed_lifetime import fixed_lifetime
from brokerbed.analysis.models.lifetime_path import Stage, path_sample
from brokerbed.analysis.models.regression import Estimate
from brokerbed.analysis.models.server import Delivered, Server
from brokerbed.analysis.queues import NAN, Laws, Queue, Way
from brokerbed.analysis.recursion import variable
from brokerbed.scenario import Law, Publisher, Scenario, Subscriber

MODELS: Mapping[str, Callable[[Server, float], Delivered | None]] = {
    "exponential": exponential_lifetime, "deterministic": fixed_lifetime,
}  # fmt: skip
CACHED = 64  # queues: those of the copies of a peer, and of its stage and its path, are the same
SHARED = (
    "there is no model of queues that messages with a lifetime share with others, or with messages that waited"
    " elsewhere before"
)
UNSAMPLED = (
    "there is no model of messages with a lifetime on links with a delay or a bandwidth of their own, of peers whose"
    " connectivity was recorded, or at recorded times"
)
THINNED = (
    "messages with a lifetime can die in the queues of brokers and links, so the rates of notifications on links have"
    " no prediction"
)
Key = tuple[str, str]  # stage and place of a queue


@dataclass(frozen=True, slots=True)
class Entering:
    """The messages per second that leave each publisher alive, by its id."""

    scenario: Scenario  # with these rates
    is_known: bool  # otherwise some die in the publishers' own queues, and nobody knows how many


def entering(scenario: Scenario) -> Entering:
    if not _is_concerned(scenario):
        return Entering(scenario, is_known=True)
    publishers, is_known = [], True
    for publisher in scenario.publishers:
        rate = publisher.rate
        laws = publisher.service, publisher.on, publisher.off
        if publisher.expiry and (any(laws) or publisher.connectivity):
            found = None if publisher.connectivity else _at_one_queue(laws, rate, publisher.expiry)
            is_known &= found is not None
            rate *= 1.0 if found is None else found.ratio
        publishers.append(publisher.model_copy(update={"rate": rate}))
    return Entering(replace(scenario, publishers=tuple(publishers)), is_known)


def with_lifetimes(scenario: Scenario, delays: Delays, entered: Entering) -> Delays:
    """The delays with those replaced that lifetimes concern."""
    if not _is_concerned(scenario):
        return delays
    return _Lifetimes(scenario, entered).applied(delays)


def _is_concerned(scenario: Scenario) -> bool:
    return any(publisher.expiry for publisher in scenario.publishers)


class _Lifetimes:
    def __init__(self, scenario: Scenario, entered: Entering) -> None:
        self._scenario, self._entered = scenario, entered
        self._entering_per_s = {publisher.id: publisher.rate for publisher in entered.scenario.streams}
        self._streams: dict[str, list[Publisher]] = {}
        for stream, receiver in scenario.pairs():
            self._streams.setdefault(receiver.id, []).append(stream)
        self._notes: dict[str, None] = {}

    def applied(self, delays: Delays) -> Delays:
        pairs = self._scenario.pairs()
        assert len(pairs) == len(delays.ways)
        ways = [self._way(*pair, way) for pair, way in zip(pairs, delays.ways, strict=True)]
        found = {(queue.stage, queue.at): queue for way in ways for queue in way.queues}
        stages = tuple(self._stage(queue, found) for queue in delays.stages)
        is_thinned = not self._entered.is_known or self._dies_between()
        notes = (*delays.notes, *self._notes, *((THINNED,) if is_thinned else ()))
        return replace(delays, stages=stages, ways=tuple(ways), notes=notes, is_thinned=is_thinned)

    def _dies_between(self) -> bool:
        """Whether messages can die between the first and the last broker."""
        scenario = self._scenario
        takes_time = scenario.service.broker_in or scenario.service.link or scenario.links
        return len(scenario.tree) > 1 and bool(takes_time)

    # -- paths ------------------------------------------------------------------------------------------------

    def _way(self, publisher: Publisher, subscriber: Subscriber, way: Way) -> Way:
        if publisher.expiry is None:
            return self._without_lifetime(publisher, subscriber, way)
        ratio = self._share_sent(publisher, subscriber, way)
        if isnan(ratio):
            return self._unknown(way)
        waiting = [queue for queue in way.queues if _takes_time(queue)]
        if way.links_s != 0 or publisher.arrivals is not None or any(queue.laws is None for queue in waiting):
            return self._unknown(way, UNSAMPLED)
        if not waiting:
            return replace(way, end_to_end_s=0.0, delivery_ratio=ratio)
        if len(waiting) == 1 and self._is_first(waiting[0], publisher, subscriber):
            (queue,) = waiting
            assert queue.laws is not None
            if delivered := _at_one_queue(queue.laws, queue.rate_per_s, publisher.expiry):
                return _with_one_queue(way, queue, delivered, ratio)
        if not all(self._is_alone(queue, publisher) for queue in waiting):
            return self._unknown(way, SHARED)
        return self._sampled(way, waiting, publisher, ratio)

    def _without_lifetime(self, publisher: Publisher, subscriber: Subscriber, way: Way) -> Way:
        """Whatever shares a queue with messages that die cannot be predicted."""
        together = self._streams.get(subscriber.id, [])
        is_shared = {
            "publisher": False,
            "broker_in": True,
            "link": True,
            "session": any(stream.expiry for stream in together),
            "subscriber": any(stream.expiry for stream in together),
        }
        for queue in way.queues:
            if _takes_time(queue) and is_shared[queue.stage] and not self._is_alone(queue, publisher):
                return self._unknown(way, SHARED)
        return way

    def _unknown(self, way: Way, reason: str | None = None) -> Way:
        """Without a reason there is a note already."""
        if reason is not None:
            self._notes[reason] = None
        queues = tuple(
            replace(queue, response_s=NAN, times=None, expired_per_s=NAN) if _takes_time(queue) else queue
            for queue in way.queues
        )
        return replace(way, queues=queues, end_to_end_s=NAN, delivery_ratio=NAN)

    def _share_sent(self, publisher: Publisher, subscriber: Subscriber, way: Way) -> float:
        """At QoS 0 messages for a peer that is away are dropped at once; nan if some of them wait for service."""
        if not subscriber.is_intermittent or min(publisher.qos, subscriber.qos) > 0:
            return 1.0
        session = next(queue for queue in way.queues if queue.stage == "session")
        return NAN if _takes_time(session) else way.delivery_ratio

    def _is_first(self, queue: Queue, publisher: Publisher, subscriber: Subscriber) -> bool:
        """Whether all messages come to this queue as a Poisson process, with the same law of lifetimes, none spent."""
        if queue.stage not in ("session", "subscriber"):
            return self._is_alone(queue, publisher)
        streams = self._streams[subscriber.id]
        are_alike = all(
            stream.expiry == publisher.expiry
            and not (stream.service or stream.is_intermittent or stream.arrivals)
            and stream.qos == publisher.qos
            for stream in streams
        )
        return are_alike and isclose(queue.rate_per_s, sum(stream.rate for stream in streams))

    def _is_alone(self, queue: Queue, publisher: Publisher) -> bool:
        if queue.stage in ("broker_in", "link"):
            return isclose(queue.rate_per_s, self._entering_per_s[publisher.id])
        return isclose(queue.rate_per_s, publisher.rate)

    def _sampled(self, way: Way, waiting: Sequence[Queue], publisher: Publisher, ratio: float) -> Way:
        stages = tuple(_stage(queue) for queue in waiting)
        lifetime = variable(publisher.expiry)
        assert lifetime is not None
        sample = path_sample(publisher.rate, stages, lifetime)
        found = {
            (queue.stage, queue.at): replace(
                queue.simulated(mean), expires=True,
                expired_per_s=Estimate(share.mean * publisher.rate, share.standard_error * publisher.rate),
            )
            for queue, mean, share in zip(waiting, sample.stages_s, sample.dying, strict=True)
        }  # fmt: skip
        queues = tuple(found.get((queue.stage, queue.at), queue) for queue in way.queues)
        return replace(
            way, queues=queues, end_to_end_s=sample.delay_s.mean, standard_error_s=sample.delay_s.standard_error,
            delivery_ratio=ratio * sample.ratio.mean, ratio_error=ratio * sample.ratio.standard_error,
            distribution=sample.distribution,
        )  # fmt: skip

    # -- queues -----------------------------------------------------------------------------------------------

    def _stage(self, queue: Queue, found: Mapping[Key, Queue]) -> Queue:
        """A queue over all flows."""
        streams = self._streams_at(queue)
        if not any(stream.expiry for stream in streams):
            return queue
        expires = all(stream.expiry for stream in streams) and not self._has_classes(queue)
        of_way = found.get((queue.stage, queue.at))
        copies = self._scenario.copies if queue.stage in ("broker_in", "link") else 1
        is_whole = of_way is not None and isclose(queue.rate_per_s, copies * of_way.rate_per_s) and of_way.expires
        if of_way and is_whole:
            return replace(
                queue, response_s=of_way.response_s, standard_error_s=of_way.standard_error_s, expires=expires,
                expired_per_s=of_way.expired_per_s,
            )  # fmt: skip
        return replace(queue, response_s=NAN, expires=expires, expired_per_s=NAN)

    def _streams_at(self, queue: Queue) -> Sequence[Publisher]:
        match queue.stage:
            case "publisher":
                return [stream for stream in self._scenario.publishers if stream.id == queue.at]
            case "session" | "subscriber":
                return self._streams.get(queue.at, [])
        return self._scenario.streams

    def _has_classes(self, queue: Queue) -> bool:
        scenario = self._scenario
        if queue.stage in ("session", "subscriber"):
            receiver = next(it for it in scenario.receivers if it.id == queue.at)
            numbers = scenario.classes_matching(receiver.topic)
        else:
            numbers = range(0 if queue.stage == "publisher" else scenario.classes)
        return scenario.publications.mean_rate_per_s(numbers) > 0


def _takes_time(queue: Queue) -> bool:
    return queue.laws is None or queue.laws[0] is not None or queue.laws[1] is not None


def _with_one_queue(way: Way, queue: Queue, delivered: Delivered, ratio: float) -> Way:
    expired_per_s = queue.rate_per_s * (1 - delivered.ratio)
    found = replace(queue, response_s=delivered.delay_s, times=None, expires=True, expired_per_s=expired_per_s)
    queues = tuple(found if each is queue else each for each in way.queues)
    distribution = Known(delivered.longer, delivered.delay_s)
    return replace(
        way, queues=queues, end_to_end_s=delivered.delay_s, delivery_ratio=ratio * delivered.ratio,
        distribution=distribution,
    )  # fmt: skip


@lru_cache(maxsize=CACHED)
def _at_one_queue(laws: Laws, rate_per_s: float, lifetime: Law) -> Delivered | None:
    """The exact model, if there is one."""
    service, on, off = laws
    model = MODELS.get(lifetime.law)
    if model is None or any(law is not None and law.law != "exponential" for law in laws):
        return None
    periods = (on.mean_s, off.mean_s) if on and off else (1.0, 0.0)
    return model(Server(rate_per_s, service.mean_s if service else 0.0, *periods), lifetime.mean_s)


def _stage(queue: Queue) -> Stage:
    assert queue.laws is not None
    return Stage(*map(variable, queue.laws))

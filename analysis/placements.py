"""Delays where peers roam: the mean over all placements of the peers at their brokers, which are equally likely.

While the peers are where they are, delays are those of the same scenario with peers that stay (delays.py). A session
that moves keeps what waits in it, so that to its messages the move is a part of the OFF period. This holds as long as
the transfer itself takes no time that matters; where it does, there is no prediction.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import combinations, islice, pairwise, product
from math import isnan, prod
from typing import TypeVar

from brokerbed.analysis.delays import Delays
from brokerbed.analysis.queues import NAN, Queue, Way, centre_of
from brokerbed.analysis.roaming import those_who_roam
from brokerbed.scenario import Publisher, Scenario, Subscriber
from brokerbed.scenario.peers import IntermittentPeer

PLACEMENTS_MAX = 256  # each is predicted like a scenario of its own
SHARE_MAX = 0.1  # of the tolerance: what a transfer may take at most, as a share of the OFF period, to be left out
NOTICES = 2  # per link on the way that a client waits for: the claim, and the session
PEER_STAGES = ("publisher", "session", "subscriber")  # the queues that belong to a peer
Peers = Publisher | Subscriber
P = TypeVar("P", bound=IntermittentPeer)


def delays_of_placements(scenario: Scenario, delays_of: Callable[[Scenario], Delays]) -> Delays:
    """The mean of the delays of all placements; `delays_of` has those of a scenario whose peers stay."""
    roaming = _roaming(scenario)
    count = prod(len(peer.places) for peer in roaming)
    if not _ways_take_time(scenario):
        count = 1  # the delays do not depend on the places
    if count > PLACEMENTS_MAX:
        text = f"the {len(roaming)} peers that roam have {count} placements; delays are predicted for {PLACEMENTS_MAX}"
        found = [_unknown(delays_of(next(_placed(scenario))), {peer.id for peer in roaming})]
        return replace(found[0], notes=(*found[0].notes, f"{text} at most"))
    found = [delays_of(placed) for placed in islice(_placed(scenario), count)]
    averaged = found[0] if count == 1 else _mean(found)
    slow = {peer.id: reason for peer in roaming if (reason := _slow_transfer(scenario, peer, averaged.stages))}
    unknown = _unknown(averaged, set(slow)) if slow else averaged
    return replace(unknown, notes=tuple(dict.fromkeys((*unknown.notes, *slow.values()))))


def roams(scenario: Scenario) -> bool:
    return bool(_roaming(scenario))


def _roaming(scenario: Scenario) -> list[Peers]:
    return [*those_who_roam(scenario.publishers), *those_who_roam(scenario.subscribers)]


def _ways_take_time(scenario: Scenario) -> bool:
    return bool(scenario.service.broker_in or scenario.service.link or scenario.links)


def _placed(scenario: Scenario) -> Iterator[Scenario]:
    """The scenario with the peers at each of their brokers, in every combination."""
    for places in product(*(peer.places for peer in _roaming(scenario))):
        at = dict(zip((peer.id for peer in _roaming(scenario)), places, strict=True))
        publishers = tuple(_at(it, at[it.id]) if it.id in at else it for it in scenario.publishers)
        subscribers = tuple(_at(it, at[it.id]) if it.id in at else it for it in scenario.subscribers)
        yield replace(scenario, publishers=publishers, subscribers=subscribers)


def _at(peer: P, broker: str) -> P:
    return peer.model_copy(update={"broker": broker, "brokers": ()})


# -- means over placements ------------------------------------------------------------------------------------


def _mean(found: Sequence[Delays]) -> Delays:
    stages: dict[tuple[str, str], list[Queue]] = {}
    for delays in found:
        for queue in delays.stages:
            stages.setdefault((queue.stage, queue.at), []).append(queue)
    return Delays(
        tuple(_mean_queue(queues, len(found)) for queues in stages.values()),
        tuple(_mean_way(ways) for ways in zip(*(delays.ways for delays in found), strict=True)),
        tuple({queue.at: queue for delays in found for queue in delays.saturated}.values()),
        tuple(dict.fromkeys(note for delays in found for note in delays.notes)),
        any(delays.is_thinned for delays in found),
    )


def _mean_queue(queues: Sequence[Queue], placements: int) -> Queue:
    """The mean over messages: each placement counts with the rate that the queue has in it."""
    total = sum(queue.rate_per_s for queue in queues)
    response_s = sum(queue.rate_per_s * queue.response_s for queue in queues) / total if total else NAN
    errors = [queue.rate_per_s * queue.standard_error_s / total for queue in queues if queue.standard_error_s and total]
    return replace(
        queues[0], rate_per_s=total / placements, utilisation=max(queue.utilisation for queue in queues),
        response_s=response_s, times=None, standard_error_s=sum(errors) or None,
    )  # fmt: skip


def _mean_way(ways: Sequence[Way]) -> Way:
    """With the queues that messages pass in every placement."""
    common = set.intersection(*({(queue.stage, queue.at) for queue in way.queues} for way in ways))
    by_key = [{(queue.stage, queue.at): queue for queue in way.queues} for way in ways]
    queues = [
        _mean_queue([found[queue.stage, queue.at] for found in by_key], len(ways))
        for queue in ways[0].queues
        if (queue.stage, queue.at) in common
    ]
    errors = [way.standard_error_s for way in ways if way.standard_error_s is not None]
    return replace(
        ways[0], queues=tuple(queues), links_s=_average(way.links_s for way in ways),
        end_to_end_s=_average(way.end_to_end_s for way in ways), distribution=None,
        delivery_ratio=_average(way.delivery_ratio for way in ways),
        standard_error_s=sum(errors) / len(ways) if errors else None,
    )  # fmt: skip


def _average(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers)


def _unknown(delays: Delays, peers: set[str]) -> Delays:
    """Without the delays of these peers."""
    stages = tuple(
        replace(queue, response_s=NAN, standard_error_s=None)
        if queue.stage in PEER_STAGES and queue.at in peers
        else queue
        for queue in delays.stages
    )
    ways = tuple(
        replace(
            way, end_to_end_s=NAN, standard_error_s=None, distribution=None, queues=(),
            delivery_ratio=1.0 if way.delivery_ratio == 1 else NAN,
        )
        if peers & {way.publisher, way.subscriber}
        else way
        for way in delays.ways
    )  # fmt: skip
    return replace(delays, stages=stages, ways=ways)


# -- transfers ------------------------------------------------------------------------------------------------


def _slow_transfer(scenario: Scenario, peer: Peers, stages: Sequence[Queue]) -> str | None:
    """Why the time that its session needs to follow a peer matters, if it does."""
    links = _links_between(scenario, peer)
    special = {frozenset(link.between) for link in scenario.links}
    if scenario.service.link is not None or any(frozenset(ends) in special for ends in links):
        what = "service" if scenario.service.link is not None else "delay or a bandwidth"
        return f"there is no model of a session that moves over links with a {what} ({peer.id})"
    if isinstance(peer, Subscriber) and peer.session_service and peer.session_service.law != "exponential":
        return (
            f"there is no model of the session of a peer that roams with service times that are"
            f" {peer.session_service.law} ({peer.id}): a service that a move interrupts begins anew"
        )
    if scenario.service.broker_in is None:
        return None
    waiting_s = _waiting_at_inputs(scenario, peer, stages)
    share = NOTICES * mean_links(scenario, peer) * waiting_s / peer.off_mean_s
    if not share <= SHARE_MAX * scenario.tolerance.of("delay"):
        return (
            f"there is no model of a session that moves through brokers whose input queues are long ({peer.id}):"
            f" a move takes about {share:.1%} of an OFF period"
        )
    return None


def _waiting_at_inputs(scenario: Scenario, peer: Peers, stages: Sequence[Queue]) -> float:
    """How long a notice that needs no service waits at the longest of the inputs on the ways between its brokers.

    Copies of the peers have stages of their own, and a notice waits until what came before has passed all of them.
    """
    brokers = {name for ends in _links_between(scenario, peer) for name in ends}
    demand_s = centre_of(scenario.service.broker_in).demand_s
    inputs = [queue.response_s - demand_s for queue in stages if queue.stage == "broker_in" and queue.at in brokers]
    return NAN if any(map(isnan, inputs)) else scenario.copies * max((0.0, *inputs))


def mean_links(scenario: Scenario, peer: IntermittentPeer) -> float:
    """The mean number of links on the way of a move, over all pairs of brokers of a peer."""
    ways = [len(scenario.tree.path(*pair)) - 1 for pair in combinations(peer.places, 2)]
    return sum(ways) / len(ways)


def _links_between(scenario: Scenario, peer: Peers) -> dict[tuple[str, str], None]:
    names = scenario.tree.names
    paths = [scenario.tree.path(*pair) for pair in combinations(peer.places, 2)]
    return {(names[a], names[b]): None for path in paths for a, b in pairwise(path)}

"""Selects the points of a sweep and the peers that are shown in detail, so that series and reports stay small. Pure.

The analysis keeps time series for this sample, and the report draws them.
"""

from collections.abc import Iterator, Sequence
from itertools import islice, product

from brokerbed.scenario import Publisher, Scenario, Subscriber

POINTS_MAX = 8  # points of a sweep that are drawn with tree, tables and time series
WAYS_MAX = 12  # publishers and subscribers whose delays are drawn
QUEUES_MAX = 14  # queues on the paths between them whose delays are drawn
PEERS_MAX = 16  # peers whose connections are drawn over time


def sampled_points(points: Sequence[Scenario]) -> list[int]:
    """All points if they are few; else the middle point of each tree and routing algorithm, up to the limit."""
    if len(points) <= POINTS_MAX:
        return list(range(len(points)))
    alike: dict[tuple[object, ...], list[int]] = {}
    for number, point in enumerate(points):
        alike.setdefault((point.tree.names, point.tree.parents.tobytes(), point.routing), []).append(number)
    groups = list(alike.values())
    if len(groups) > POINTS_MAX:
        groups = [groups[place * (len(groups) - 1) // (POINTS_MAX - 1)] for place in range(POINTS_MAX)]
    return sorted(group[len(group) // 2] for group in groups)


def sampled_pairs(scenario: Scenario) -> list[tuple[str, str]]:
    """Publishers and those who subscribe to them, in the order of the file."""
    ways = ((stream.sender, receiver.id) for stream, receiver in scenario.pairs())
    return list(islice(dict.fromkeys(ways), WAYS_MAX))


def sampled_queues(scenario: Scenario) -> list[tuple[str, str]]:
    """Stage and place of the queues on these paths, in the order in which messages pass them."""
    wanted = set(sampled_pairs(scenario))
    queues: dict[tuple[str, str], None] = {}
    for stream, receiver in scenario.pairs():
        if (stream.sender, receiver.id) in wanted:
            queues |= dict.fromkeys(_queues_between(scenario, stream, receiver))
    return list(islice(queues, QUEUES_MAX))


def _queues_between(scenario: Scenario, stream: Publisher, receiver: Subscriber) -> Iterator[tuple[str, str]]:
    if stream.service or stream.on:
        yield "publisher", stream.id
    for ends in product(stream.places, receiver.places):
        path = [scenario.tree.names[place] for place in scenario.tree.path(*ends)]
        for place, broker in enumerate(path):
            if scenario.service.broker_in:
                yield "broker_in", broker
            if scenario.service.link and place + 1 < len(path):
                yield "link", f"{broker}>{path[place + 1]}"
    if receiver.session_service or receiver.on:
        yield "session", receiver.id
    if receiver.service:
        yield "subscriber", receiver.id


def sampled_peers(scenario: Scenario) -> list[str]:
    """The peers that come and go, with as many copies of each as the limit allows."""
    publishers = [peer for peer in scenario.publishers if peer.is_intermittent]
    subscribers = [peer for peer in scenario.subscribers if peer.is_intermittent]
    copies = range(min(scenario.copies, max(1, PEERS_MAX // max(1, len(publishers) + len(subscribers)))))
    ids = [scenario.copy_of(peer, copy).id for peer in publishers for copy in copies]
    ids += [scenario.copy_of(other, copy).id for other in subscribers for copy in copies]
    return ids[:PEERS_MAX]

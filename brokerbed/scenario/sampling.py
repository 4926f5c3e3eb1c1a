"""Selects the points of a sweep and the peers that are shown in detail, so that series and reports stay small. Pure.

The analysis keeps time series for this sample, and the report draws them.
"""

from collections.abc import Sequence

from brokerbed.scenario import Scenario

POINTS_MAX = 8  # points of a sweep that are drawn with tree, tables and time series
WAYS_MAX = 12  # publishers and subscribers whose delays are drawn
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
    return [(publisher.id, subscriber.id) for publisher, subscriber in scenario.pairs()[:WAYS_MAX]]


def sampled_peers(scenario: Scenario) -> list[str]:
    """The peers that come and go, with as many copies of each as the limit allows."""
    publishers = [peer for peer in scenario.publishers if peer.on is not None]
    subscribers = [peer for peer in scenario.subscribers if peer.on is not None]
    copies = range(min(scenario.copies, max(1, PEERS_MAX // max(1, len(publishers) + len(subscribers)))))
    ids = [scenario.copy_of(peer, copy).id for peer in publishers for copy in copies]
    ids += [scenario.copy_of(other, copy).id for other in subscribers for copy in copies]
    return ids[:PEERS_MAX]

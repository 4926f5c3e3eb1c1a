"""What of a run directory is looked at closely: not every point of a large sweep, not every peer. Pure.

The analysis keeps series over time for what is chosen here, the report draws them; so both stay small.
"""

from collections.abc import Sequence

from brokerbed.scenario import Scenario

POINTS_MAX = 8  # of a sweep: drawn with tree, tables and time
WAYS_MAX = 12  # publishers and subscribers whose delays are drawn
PEERS_MAX = 16  # rows of the picture that shows who was connected when


def chosen_points(points: Sequence[Scenario]) -> list[int]:
    """All if they are few; else of each tree and routing the point in the middle, of as many as may be."""
    if len(points) <= POINTS_MAX:
        return list(range(len(points)))
    alike: dict[tuple[object, ...], list[int]] = {}
    for number, it in enumerate(points):
        alike.setdefault((it.tree.names, it.tree.parents.tobytes(), it.routing), []).append(number)
    groups = list(alike.values())
    if len(groups) > POINTS_MAX:
        groups = [groups[place * (len(groups) - 1) // (POINTS_MAX - 1)] for place in range(POINTS_MAX)]
    return sorted(its[len(its) // 2] for its in groups)


def chosen_ways(scenario: Scenario) -> list[tuple[str, str]]:
    """Publishers and those who subscribe to them, in the order of the file."""
    return [(publisher.id, subscriber.id) for publisher, subscriber in scenario.pairs()[:WAYS_MAX]]


def chosen_peers(scenario: Scenario) -> list[str]:
    """Of those that come and go, as many copies of each as may be."""
    publishers = [it for it in scenario.publishers if it.on is not None]
    subscribers = [it for it in scenario.subscribers if it.on is not None]
    copies = range(min(scenario.copies, max(1, PEERS_MAX // max(1, len(publishers) + len(subscribers)))))
    found = [scenario.copy_of(it, copy).id for it in publishers for copy in copies]
    found += [scenario.copy_of(other, copy).id for other in subscribers for copy in copies]
    return found[:PEERS_MAX]

"""Peers that roam, as the models of routing take them: where their sessions are, and how often they cross each link.

A session stays where its peer was last while the peer is OFF, and moves when the peer comes back. So a peer that roams
among n brokers, of which d are on one side of a link, has its session there with probability d/n, and the session
crosses the link d (n - d) / (n (n - 1)) times per return in each direction: the next broker is any of the other n - 1.
Sessions move hop by hop, and make their entries at the next broker before those at the last one go. So links beside the
way see nothing, and what a move within one side does not change, it does not announce.
"""

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from brokerbed.scenario import Peer, Scenario, Subscriber
from brokerbed.scenario.demand import SideInterest
from brokerbed.scenario.peers import IntermittentPeer
from brokerbed.scenario.topology import Floats, Tree
from brokerbed.topics import covers_strictly, is_wildcard, matches

P = TypeVar("P", bound=Peer)
Sides = tuple[SideInterest, SideInterest]  # below each link, and above it


def those_who_roam(peers: Sequence[P]) -> list[P]:
    return [peer for peer in peers if isinstance(peer, IntermittentPeer) and peer.roams]


def repeated(sides: Sides | None, times: int) -> Sides | None:
    """Each column this many times."""
    if sides is None:
        return None
    below, above = (
        SideInterest(*(np.repeat(array, times, axis=1) for array in (side.absent, side.appearing_odds, side.crossing)))
        for side in sides
    )
    return below, above


def together(first: Sides | None, second: Sides | None) -> Sides | None:
    """The interest of both, which are independent of one another."""
    if first is None or second is None:
        return first or second
    below, above = (one.joined_by(other) for one, other in zip(first, second, strict=True))
    return below, above


class RoamingColumns:
    """What the peers that roam contribute to the columns with these filters."""

    def __init__(self, scenario: Scenario, filters: Sequence[str]) -> None:
        self._tree, self._filters = scenario.tree, filters
        self._subscribers: list[Subscriber] = those_who_roam(scenario.subscribers)
        self._publishers = those_who_roam(scenario.publishers)

    @property
    def subscribing(self) -> Sides | None:
        """To exactly these filters."""
        return self._sides([[it for it in self._subscribers if it.topic == filter_] for filter_ in self._filters])

    @property
    def covering(self) -> Sides | None:
        """To filters that strictly cover them."""
        wild = [subscriber for subscriber in self._subscribers if is_wildcard(subscriber.topic)]
        return self._sides([[it for it in wild if covers_strictly(it.topic, filter_)] for filter_ in self._filters])

    @property
    def advertising(self) -> Sides | None:
        """Topics that these filters match."""
        return self._sides([[it for it in self._publishers if matches(filter_, it.topic)] for filter_ in self._filters])

    def _sides(self, columns: Sequence[Sequence[IntermittentPeer]]) -> Sides | None:
        if not any(columns):
            return None
        nobody = np.zeros((len(self._tree), len(columns)))
        below, above = (SideInterest(nobody + 1, nobody + 0, nobody + 0) for _ in range(2))
        for place, peers in enumerate(columns):
            for peer in peers:
                for side, found in zip((below, above), sides_of(self._tree, peer), strict=True):
                    side.absent[:, place] *= found.absent
                    side.appearing_odds[:, place] += found.appearing_odds
                    side.crossing[:, place] += found.crossing
        return below, above


def sides_of(tree: Tree, peer: IntermittentPeer) -> Sides:
    """The session of one peer, for every link."""
    everywhere = len(peer.places)
    there = np.zeros((len(tree), 1))
    there[[tree.index[name] for name in peer.places]] = 1.0

    def on_side(brokers: Floats) -> SideInterest:
        absent = 1.0 - brokers / everywhere
        crossing = peer.returns_per_s * brokers * (everywhere - brokers) / (everywhere * (everywhere - 1))
        odds = np.divide(crossing, absent, out=np.zeros_like(absent), where=absent > 0)
        return SideInterest(absent, odds, crossing)

    below, above = (on_side(side[:, 0]) for side in tree.sums_inside_and_outside(there))
    return below, above

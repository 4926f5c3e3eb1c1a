"""Bytes per second on links, and how long they take where a link has a bandwidth.

Every notification and every (un)subscription is one packet, and most have answers that cross the link in the opposite
direction: acknowledgements at QoS 1 and 2, and of (un)subscriptions. Their sizes come from the broker's own encoder.
All rates of a model are linear in the publication rates and in the number of filters of each column, so a model that is
given rates times sizes yields bytes per second; with squares of sizes it yields what the waiting time depends on.

A direction with a bandwidth is an M/G/1 queue (Pollaczek and Khinchine): packets are taken to arrive as a Poisson
process. A filter is announced and withdrawn equally often, so the size of a control packet is the mean of both.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from math import ceil, floor, log10

import numpy as np

from brokerbed.analysis.models.contract import Classes, Traffic, Wire
from brokerbed.broker.core.packet_size import Exchange, announcement, notification
from brokerbed.scenario import Publisher, Scenario
from brokerbed.scenario.topology import Floats, Tree
from brokerbed.scenario.units import NS_PER_S

BITS = 8  # in a byte
IDENTITY_BYTES = 12  # beside the publisher's name: what a payload needs to identify a message
NAN = float("nan")
ModelTraffic = Callable[[Classes], Traffic]
SizesOf = Callable[[int], Exchange]  # by the length of a filter


@dataclass(frozen=True)
class LinkLoad:
    """Sums over all packets per second on the link of each broker, towards the root (`up`) and away from it."""

    up_bytes: Floats
    down_bytes: Floats
    up_squares: Floats  # of their sizes
    down_squares: Floats

    def __add__(self, other: "LinkLoad") -> "LinkLoad":
        return LinkLoad(*(getattr(self, field.name) + getattr(other, field.name) for field in fields(self)))

    def times(self, factor: float) -> "LinkLoad":
        return LinkLoad(*(getattr(self, field.name) * factor for field in fields(self)))


def no_load(tree: Tree) -> LinkLoad:
    return LinkLoad(*(np.zeros(len(tree)) for _ in fields(LinkLoad)))


def link_load(scenario: Scenario, classes: Classes, traffic: ModelTraffic) -> LinkLoad:
    """The load of these columns, if any link has a bandwidth; otherwise nobody asks for it."""
    if all(link.bandwidth is None for link in scenario.links):
        return no_load(scenario.tree)
    assert classes.wire is not None
    up, down = [], []
    for power in (1, 2):
        notified = _notified(scenario, classes, classes.wire, traffic, power)
        announced = _announced(scenario, classes, classes.wire, traffic, power)
        up.append(notified[0] + announced[0])
        down.append(notified[1] + announced[1])
    return LinkLoad(up[0], down[0], up[1], down[1])


def _notified(
    scenario: Scenario, classes: Classes, wire: Wire, traffic: ModelTraffic, power: int
) -> tuple[Floats, Floats]:
    """Notifications and their acknowledgements: up and down."""
    up, down = np.zeros((2, len(scenario.tree)))
    for qos, rates in enumerate(wire.publication_rates):
        if not rates.any():
            continue
        forth, back = np.zeros((2, *rates.shape))
        for broker, column in np.argwhere(rates > 0).tolist():
            name = scenario.tree.names[broker]
            sizes = partial(notification, name, scenario.payload_bytes, qos)
            forth[broker, column], back[broker, column] = _moments(sizes, wire.filter_bytes[column], power)
        carried = traffic(replace(classes, publication_rate=rates * forth))
        up, down = up + carried.up, down + carried.down
        if back.any():
            answered = traffic(replace(classes, publication_rate=rates * back))
            up, down = up + answered.down, down + answered.up
    return up, down


def _announced(
    scenario: Scenario, classes: Classes, wire: Wire, traffic: ModelTraffic, power: int
) -> tuple[Floats, Floats]:
    """Control packets and their answers: up and down."""
    identity_bytes = _identity_bytes(scenario, classes)
    sums = np.zeros((2, len(scenario.tree)))  # up, down
    for here, is_to_parent in ((0, True), (1, False)):
        moments = np.mean(
            [
                [
                    _moments(partial(announcement, identity_bytes, is_added, is_to_parent), length, power)
                    for length in wire.filter_bytes
                ]
                for is_added in (True, False)
            ],
            axis=0,
        )
        for there, sizes_of_columns in ((here, moments[:, 0]), (1 - here, moments[:, 1])):
            sent = traffic(replace(classes, multiplicity=classes.multiplicity * sizes_of_columns))
            sums[there] += sent.control_up if is_to_parent else sent.control_down
    return sums[0], sums[1]


def _moments(sizes: SizesOf, length: float, power: int) -> tuple[float, float]:
    """Sums of powers of the sizes, forth and back, for a filter of this mean length."""
    low, high = sizes(floor(length)), sizes(ceil(length))
    part = length - floor(length)
    forth, back = (
        [(1 - part) * a + part * b for a, b in zip(ways[0], ways[1], strict=True)]
        for ways in ((low.forth, high.forth), (low.back, high.back))
    )
    return sum(size**power for size in forth), sum(size**power for size in back)


def _identity_bytes(scenario: Scenario, classes: Classes) -> int:
    """The length of a subscription's identity, if each travels by itself: broker, start, and number in mid-run."""
    if not scenario.algorithm.sends_each_subscription:
        return 0
    names = sum(map(len, scenario.tree.names)) / len(scenario.tree)
    middle_s = (scenario.clock.warmup + scenario.clock.measure / 2) / NS_PER_S
    number = float((classes.own.arrivals @ classes.multiplicity).mean()) * middle_s
    return round(names) + len(".1.") + floor(log10(max(1.0, number))) + 1


@dataclass(frozen=True, slots=True)
class NarrowDirection:
    """One direction of a link with a bandwidth."""

    at: str  # child>parent or parent>child
    bandwidth_bit_per_s: float
    offered: float  # the share of the bandwidth that is needed; 1 or more: it is saturated
    waiting_s: float  # the mean time that a packet waits for others; nan if it is unknown
    is_known: bool  # False: a saturated direction feeds it, or there is no model of what crosses it

    @property
    def is_saturated(self) -> bool:
        return self.is_known and self.offered >= 1

    @property
    def utilisation(self) -> float:
        """nan: no prediction."""
        return self.offered if self.is_known and not self.is_saturated else NAN

    def response_s(self, size_bytes: float) -> float:
        """The mean time until a packet of this size has crossed."""
        return self.waiting_s + size_bytes * BITS / self.bandwidth_bit_per_s


def message_bytes(scenario: Scenario, publisher: Publisher) -> int:
    topic = scenario.copy_of(publisher, 0).topic
    return notification(publisher.broker, scenario.payload_bytes, int(publisher.qos), len(topic.encode())).forth[0]


def unknown_bytes(scenario: Scenario) -> str | None:
    """Why the bytes on links are unknown, if they are."""
    algorithm, publications = scenario.algorithm, scenario.publications
    if algorithm.advertises and (publications.sources is not None or scenario.refresh_ns is not None):
        return "there is no model of the bytes of advertisements that come and go or are repeated"
    if scenario.requesters:
        return "there is no model of the bytes of requests and responses"
    if any(peer.roams for peer in (*scenario.publishers, *scenario.subscribers)):
        return "there is no model of the bytes of sessions that follow their peers over narrow links"
    if any(publisher.expiry for publisher in scenario.publishers):
        return "there is no model of the bytes of messages with a lifetime, of which some never cross a link"
    names = [publisher.id for publisher in scenario.publishers]
    names += scenario.tree.names if scenario.has_acknowledged_publications else ()
    if names and scenario.payload_bytes < max(map(len, names)) + IDENTITY_BYTES:
        return (
            f"a payload of {scenario.payload_bytes} bytes is too short to identify messages, so that clients send more"
        )
    return None


def narrow_directions(scenario: Scenario, load: LinkLoad, is_known: bool) -> dict[str, NarrowDirection]:
    """By name, all directions of links with a bandwidth."""
    tree = scenario.tree
    bandwidths = {frozenset(link.between): link.bandwidth for link in scenario.links if link.bandwidth is not None}
    found: dict[str, NarrowDirection] = {}
    for child in range(1, len(tree)) if bandwidths else ():
        ends = tree.names[child], tree.names[int(tree.parents[child])]
        bandwidth = bandwidths.get(frozenset(ends))
        if bandwidth is None:
            continue
        for at, carried, squares in (
            (">".join(ends), load.up_bytes[child], load.up_squares[child]),
            (">".join(ends[::-1]), load.down_bytes[child], load.down_squares[child]),
        ):
            offered = float(carried) * BITS / bandwidth
            waiting_s = float(squares) * (BITS / bandwidth) ** 2 / 2 / (1 - offered) if offered < 1 else NAN
            found[at] = NarrowDirection(at, bandwidth, offered, waiting_s if is_known else NAN, is_known)
    if not any(direction.is_saturated for direction in found.values()):
        return found
    unknown = _behind_saturated(scenario, found)
    return {
        at: replace(direction, waiting_s=NAN, is_known=False) if at in unknown else direction
        for at, direction in found.items()
    }


def _behind_saturated(scenario: Scenario, narrow: Mapping[str, NarrowDirection]) -> set[str]:
    """The directions that get fewer messages or acknowledgements than expected, because others are saturated."""
    tree, parents = scenario.tree, scenario.tree.parents.tolist()
    saturated = {at for at, direction in narrow.items() if direction.is_saturated}
    ups = ["", *(f"{child}>{parent}" for child, parent in tree.links)]
    downs = ["", *(f"{parent}>{child}" for child, parent in tree.links)]
    behind: set[str] = set()
    short: dict[int, list[int]] = {}  # by broker: children from which fewer messages come
    for child in range(len(tree) - 1, 0, -1):
        if child in short:
            behind.add(ups[child])
        if child in short or ups[child] in saturated:
            short.setdefault(parents[child], []).append(child)
    for child in range(1, len(tree)):
        above = downs[parents[child]]
        if above in saturated or above in behind or any(other != child for other in short.get(parents[child], ())):
            behind.add(downs[child])
    if scenario.has_acknowledged_publications or any(publisher.qos for publisher in scenario.publishers):
        answers = dict(zip((*ups, *downs), (*downs, *ups), strict=True))
        behind |= {answers[at] for at in behind | saturated}
    return behind

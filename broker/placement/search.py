"""The tree of a neighbourhood that routes its traffic at the lowest cost: a tabu search (Migliavacca and Cugola 2007).

A traffic class is a set of brokers that exchange messages, with their rate, its demand. A message of a class pays for
every link and every broker of the smallest subtree that contains the class. Brokers have numbers, and sets of brokers
are bits of a number.

A link divides the brokers into two sides, and a class uses the link unless it lies on one side. A broker is spared the
classes that lie behind one of its links. So the cost of a tree is a sum over its links, in which only the demand within
each side matters; a side is looked up if it was met before, and most are.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from brokerbed.broker.placement.config import Draw

PATIENCE = 5  # iterations without a new lowest cost, after which the search begins at another tree
Brokers = int  # a set of brokers: bit k stands for number k
Link = tuple[int, int]  # the lower number first


@dataclass(frozen=True, slots=True)
class Costs:
    """What one message pays, with alpha and beta already multiplied in."""

    links: Mapping[Link, float]  # of any two brokers
    brokers: Sequence[float]


class Traffic:
    """What trees of some brokers cost, for the traffic classes among them."""

    def __init__(self, costs: Costs, demands: Mapping[Brokers, float]) -> None:
        self.size = len(costs.brokers)
        self._costs = costs
        self._demands = list(demands.items())
        self._total = sum(demands.values())
        self._everywhere = self._total * sum(costs.brokers)
        self._all = (1 << self.size) - 1
        self._known: dict[Brokers, float] = {}

    def cost(self, links: Iterable[Link]) -> float:
        """Of a tree that joins all brokers."""
        return self._everywhere + sum(self._of_link(link, side) for link, side in _sides(list(links), self.size))

    def _of_link(self, link: Link, side: Brokers) -> float:
        """What the link adds, with what it spares the brokers at its ends; `side` is that of its first end."""
        one, other = link
        on_link = self._costs.links[link]
        near, far = self._within(side), self._within(self._all & ~side)
        brokers = self._costs.brokers
        return on_link * (self._total - near - far) - brokers[other] * near - brokers[one] * far

    def _within(self, side: Brokers) -> float:
        """The demand of the classes that lie within a set of brokers."""
        known = self._known.get(side)
        if known is None:
            known = self._known[side] = sum(demand for brokers, demand in self._demands if not brokers & ~side)
        return known


def link(one: int, other: int) -> Link:
    return (one, other) if one < other else (other, one)


def star(size: int) -> frozenset[Link]:
    """The neighbourhood as it is: everybody is linked with broker 0, which searches."""
    return frozenset((0, other) for other in range(1, size))


def search(
    traffic: Traffic, begin: frozenset[Link], moves: int, iterations: int, tenure: int, draw: Draw
) -> Iterator[frozenset[Link]]:
    """The best tree so far, at the beginning and after each iteration, so that a caller can pause in between.

    An iteration tries up to `moves` links that could be added, each in place of the best link of the circle that it
    closes, and makes the best of these moves, even if it is a step back. A link that was added or removed stays so for
    `tenure` iterations; the paper never forgets such links, and runs out of moves. Where nothing has become better for
    some iterations, the search goes on at a tree drawn at random, without which it misses the best tree of six brokers
    in one of twenty cases.
    """
    tree = best = begin
    best_cost = lowest = traffic.cost(best)
    added, removed = deque[Link](maxlen=tenure), deque[Link](maxlen=tenure)
    links = [(one, other) for other in range(traffic.size) for one in range(other)]
    waited = 0
    yield best
    for _ in range(iterations if links != sorted(begin) else 0):  # of one broker, or two, there is one tree
        choice = [each for each in links if each not in tree and each not in removed]
        found: list[tuple[float, Link, Link]] = []
        for new in draw.sample(choice, min(moves, len(choice))):
            candidates = [old for old in _path(tree, *new) if old not in added]
            found += [(traffic.cost((*(tree - {old}), new)), new, old) for old in candidates]
        waited += 1
        if found and waited <= PATIENCE:
            cost, new, old = min(found)
            tree = tree - {old} | {new}
            added.append(new)
            removed.append(old)
        else:
            tree = _drawn(traffic.size, draw)
            cost = lowest = traffic.cost(tree)
            added.clear()
            removed.clear()
            waited = 0
        if cost < lowest:
            lowest, waited = cost, 0
        if cost < best_cost:
            best, best_cost = tree, cost
        yield best


def _drawn(size: int, draw: Draw) -> frozenset[Link]:
    """One of all trees, each as likely as the others: that of a random Prüfer sequence."""
    sequence = [draw.randrange(size) for _ in range(size - 2)]
    degrees = [1 + sequence.count(broker) for broker in range(size)]
    links = []
    for broker in sequence:
        leaf = degrees.index(1)
        links.append(link(leaf, broker))
        degrees[leaf] = 0
        degrees[broker] -= 1
    one, other = (broker for broker in range(size) if degrees[broker] == 1)
    return frozenset((*links, (one, other)))


def _sides(links: Sequence[Link], size: int) -> Iterator[tuple[Link, Brokers]]:
    """Each link with the brokers on the side of its first end."""
    neighbours: list[list[int]] = [[] for _ in range(size)]
    for one, other in links:
        neighbours[one].append(other)
        neighbours[other].append(one)
    above, order = [-1] * size, [0]
    for broker in order:
        for other in neighbours[broker]:
            if other != above[broker]:
                above[other] = broker
                order.append(other)
    below = [1 << broker for broker in range(size)]
    everybody = (1 << size) - 1
    for broker in reversed(order[1:]):
        parent = above[broker]
        below[parent] |= below[broker]
        if broker < parent:
            yield (broker, parent), below[broker]
        else:
            yield (parent, broker), everybody & ~below[broker]


def _path(tree: Iterable[Link], begin: int, end: int) -> list[Link]:
    """The links between two brokers."""
    neighbours: dict[int, list[int]] = {}
    for one, other in tree:
        neighbours.setdefault(one, []).append(other)
        neighbours.setdefault(other, []).append(one)
    before, queue = {begin: begin}, deque((begin,))
    while end not in before:
        here = queue.popleft()
        for there in neighbours[here]:
            if there not in before:
                before[there] = here
                queue.append(there)
    found = []
    while end != begin:
        found.append(link(before[end], end))
        end = before[end]
    return found

"""How good the trees of adaptive placement are: `python -m tests.virtual.placement_campaign`, `make placement-campaign`.

Exit code 1 if a network became more expensive, or if 100 brokers with equal costs end more than 10% above the best tree
that a long search finds.

- Networks of five brokers, whose best tree is known by trying all: how many of them reach it. Brokers that look no
  further than their neighbours stop in some networks at a tree that is the best for every neighbourhood only.
- 100 brokers and 20 pairs that exchange messages, beside simulated annealing, which sees and changes everything.
"""

import argparse
import math
import sys
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from random import Random

from brokerbed.broker.placement.search import Link, link
from tests.unit.broker.test_placement import trees
from tests.virtual.test_placement import PERIOD_S, Flow, World, drawn_flows

CASES, CASE_S = 60, 400
BROKERS, PAIRS, PERIODS = 100, 20, 60
ATTEMPTS, HOT, COLD = 60_000, 60.0, 0.3  # of the annealing: steps, and the costs that are accepted at its begin and end
WITHIN = 1.1


def drawn_parents(random: Random, size: int) -> list[int]:
    return [-1, *(random.randrange(child) for child in range(1, size))]


def small(has_drawn_costs: bool) -> tuple[int, int]:
    """How many networks of five brokers reach the best tree, and how many become more expensive."""
    reached = worse = 0
    for seed in range(CASES):
        random = Random(f"small/{seed}")
        world = World(drawn_parents(random, 5), drawn_flows(random, 5), random if has_drawn_costs else None)
        before = world.cost(world.tree)
        world.run(CASE_S)
        cost = world.cost(world.tree)
        reached += cost <= min(map(world.cost, trees(5))) * (1 + 1e-9)
        worse += cost > before * (1 + 1e-9)
    return reached, worse


def large(seed: int, has_drawn_costs: bool) -> tuple[list[float], float]:
    """The cost at the beginning and after each period, and that of the best tree that the annealing finds."""
    random = Random(f"large/{seed}")
    flows: list[Flow] = []
    for _ in range(PAIRS):
        one, other = random.sample(range(BROKERS), 2)
        flows.append((one, (other,), random.randint(2, 10)))
    world = World(drawn_parents(random, BROKERS), flows, random if has_drawn_costs else None)
    begin = world.tree
    costs = [world.cost(begin)]
    for period in range(1, PERIODS + 1):
        world.run(period * PERIOD_S)
        costs.append(world.cost(world.tree))
    return costs, Annealing(world, begin, Random(seed)).best()


class Annealing:
    """A search over all trees for pairs of brokers that exchange messages."""

    def __init__(self, world: World, tree: Iterable[Link], random: Random) -> None:
        self._world, self._random = world, random
        self._near: Mapping[int, set[int]] = {broker: set() for broker in range(BROKERS)}
        for one, other in tree:
            self._join(one, other)
        self._pairs = [(publisher, subscribers[0], rate) for publisher, subscribers, rate in world.flows]
        self._ends = [broker for pair in self._pairs for broker in pair[:2]]

    def best(self) -> float:
        cost = best = self._cost()
        for attempt, (one, other) in enumerate(self._candidates()):
            if other in self._near[one]:
                continue
            way = self._path(one, other)
            place = self._random.randrange(len(way) - 1)
            self._leave(way[place], way[place + 1])
            self._join(one, other)
            new = self._cost()
            degree = HOT * (COLD / HOT) ** (attempt / ATTEMPTS)
            if new <= cost or self._random.random() < math.exp((cost - new) / degree):
                cost, best = new, min(best, new)
            else:
                self._leave(one, other)
                self._join(way[place], way[place + 1])
        return best

    def _candidates(self) -> Iterator[Link]:
        random = self._random
        for _ in range(ATTEMPTS):
            one, other = (
                random.choice(self._ends),
                random.choice((random.randrange(BROKERS), random.choice(self._ends))),
            )
            if one != other:
                yield one, other

    def _cost(self) -> float:
        world, total = self._world, 0.0
        for one, other, rate in self._pairs:
            way = self._path(one, other)
            on_links = sum(world.link_costs[link(*ends)] for ends in pairwise(way))
            total += rate * (on_links + sum(world.broker_costs[broker] for broker in way))
        return total

    def _path(self, begin: int, end: int) -> list[int]:
        before, left = {begin: begin}, [begin]
        while end not in before:
            here = left.pop()
            for there in self._near[here]:
                if there not in before:
                    before[there] = here
                    left.append(there)
        way = [end]
        while way[-1] != begin:
            way.append(before[way[-1]])
        return way

    def _join(self, one: int, other: int) -> None:
        self._near[one].add(other)
        self._near[other].add(one)

    def _leave(self, one: int, other: int) -> None:
        self._near[one].discard(other)
        self._near[other].discard(one)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.virtual.placement_campaign", description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="networks of 100 brokers with each kind of costs (3)")
    chosen = parser.parse_args()
    wrong = 0
    for has_drawn_costs, kind in ((False, "equal costs"), (True, "drawn costs")):
        reached, worse = small(has_drawn_costs)
        wrong += worse
        print(f"5 brokers, {kind}: {reached} of {CASES} reach the best tree, {worse} become worse", flush=True)
        for seed in range(chosen.seeds):
            costs, best = large(seed, has_drawn_costs)
            wrong += not has_drawn_costs and costs[-1] > WITHIN * best
            steps = " ".join(f"{cost:.0f}" for cost in costs[:: PERIODS // 10])
            print(f"{BROKERS} brokers, {kind}, {seed}: {steps}; long search {best:.0f}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())

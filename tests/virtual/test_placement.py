"""Adaptive placement on simulated networks: brokers measure their traffic and move links to where it is.

The cost of a tree is computed here from the publications and subscriptions, and all trees of a neighbourhood are tried.
"""

from collections.abc import Callable, Iterable
from itertools import combinations
from random import Random

import pytest

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.core.placement import Placement, Plan
from brokerbed.broker.placement.config import PlacementConfig
from brokerbed.broker.placement.search import Link, link
from brokerbed.broker.placement.view import View
from brokerbed.broker.values import NS_PER_S
from brokerbed.orchestrator.simulator.clients import Client
from brokerbed.orchestrator.simulator.loop import Loop
from brokerbed.orchestrator.simulator.network import Host, Uplink
from brokerbed.orchestrator.simulator.wire import NO_DELAY
from tests.unit.broker.test_placement import beyond, smallest_subtree, trees

PERIOD_S = 10
EVENTS_MAX = 50_000_000
Flow = tuple[int, tuple[int, ...], int]  # publisher, subscribers, messages per second


class World:
    """Brokers with clients that publish and subscribe, each flow on a topic of its own."""

    def __init__(self, parents: Iterable[int], flows: list[Flow], costs: Random | None = None, gain: float = 0) -> None:
        """All costs are 1 if they are not drawn."""
        self.loop, self.flows, self.parents = Loop(), flows, tuple(parents)
        size = len(self.parents)
        pairs = list(combinations(range(size), 2))
        self.link_costs = {pair: costs.uniform(0.1, 5) if costs else 1.0 for pair in pairs}
        self.broker_costs = [costs.uniform(0, 2) if costs else 1.0 for _ in range(size)]
        self.hosts = [
            Host(self.loop, f"b{number}", self._config(number, gain), f"b{parent}" if parent >= 0 else None, False)
            for number, parent in enumerate(self.parents)
        ]
        by_name = {host.name: host for host in self.hosts}
        self.links = {
            child: Uplink(self.hosts[child], self.hosts[parent], by_name, lambda *_: (NO_DELAY, NO_DELAY))
            for child, parent in enumerate(self.parents)
            if parent >= 0
        }
        self._clients = [Client(self.loop, host, f"c{number}") for number, host in enumerate(self.hosts)]
        self._is_begun = False

    def _config(self, number: int, gain: float) -> Callable[[int], BrokerConfig]:
        placement = PlacementConfig(
            Random(f"search/{number}"), PERIOD_S * NS_PER_S, gain=gain, moves=30, iterations=30,
            link_costs={frozenset((f"b{one}", f"b{other}")): it for (one, other), it in self.link_costs.items()},
            broker_costs={f"b{broker}": it for broker, it in enumerate(self.broker_costs)},
        )  # fmt: skip
        return lambda life: BrokerConfig(
            name=f"b{number}", incarnation=str(life), id_token=f"{number}/{life}", routing="peer", keep_alive_max_s=0,
            placement=placement,
        )  # fmt: skip

    def run(self, until_s: int) -> None:
        if not self._is_begun:
            self._begin()
        self.loop.run(until_s * NS_PER_S, EVENTS_MAX)

    def _begin(self) -> None:
        self._is_begun = True
        for host in self.hosts:
            host.start()
        for client in self._clients:
            client.connect()
        for number, (_, subscribers, _) in enumerate(self.flows):
            for broker in subscribers:
                self._clients[broker].subscribe(f"flow/{number}", 1)
            self.loop.at(2 * NS_PER_S, self._publish, number)

    def _publish(self, number: int) -> None:
        publisher, _, rate = self.flows[number]
        self._clients[publisher].publish(f"flow/{number}", b"x", 0)
        self.loop.at(self.loop.now_ns + NS_PER_S // rate, self._publish, number)

    @property
    def tree(self) -> frozenset[Link]:
        return frozenset(link(child, int(uplink.parent.name[1:])) for child, uplink in self.links.items())

    def cost(self, tree: frozenset[Link]) -> float:
        total = 0.0
        for publisher, subscribers, rate in self.flows:
            there = smallest_subtree(tree, frozenset((publisher, *subscribers)))
            on_links = sum(self.link_costs[each] for each in tree if {*each} <= there)
            total += rate * (on_links + sum(self.broker_costs[broker] for broker in there))
        return total

    def neighbourhood_trees(self, master: int) -> Iterable[frozenset[Link]]:
        """All trees that differ from the present one in links between a broker and its neighbours only."""
        tree = self.tree
        near = [master, *sorted(broker for each in tree if master in each for broker in each if broker != master)]
        others = frozenset(each for each in tree if master not in each)
        for inner in trees(len(near)) if len(near) > 2 else ():
            yield others | {link(near[one], near[other]) for one, other in inner}


def drawn_flows(random: Random, size: int) -> list[Flow]:
    flows = []
    for _ in range(random.randint(3, 6)):
        publisher, *subscribers = random.sample(range(size), random.randint(2, 4))
        flows.append((publisher, tuple(subscribers), random.randint(1, 10)))
    return flows


@pytest.mark.parametrize("seed", range(20))
def test_no_neighbourhood_has_a_cheaper_tree_in_the_end(seed: int) -> None:
    random = Random(f"world/{seed}")
    size = random.randint(4, 6)
    world = World((-1, *(random.randrange(child) for child in range(1, size))), drawn_flows(random, size), random)
    begin = world.tree
    world.run(400)
    cost = world.cost(world.tree)
    assert cost <= world.cost(begin)
    for master in range(size):
        assert all(world.cost(tree) >= cost - 1e-9 for tree in world.neighbourhood_trees(master))


def test_brokers_measure_the_traffic_that_passes_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class is the set of neighbours behind which somebody takes part, and the broker itself if it has such clients."""
    random = Random("measured")
    size = 12
    world = World((-1, *(random.randrange(child) for child in range(1, size))), drawn_flows(random, size), gain=1)
    measured: dict[int, dict[frozenset[int], float]] = {}
    original = Placement._measured

    def noted(self: Placement, now_ns: int) -> View:
        view = original(self, now_ns)
        numbers = [int(name[1:]) for name in view.names]
        measured[numbers[0]] = {
            frozenset(number for place, number in enumerate(numbers) if brokers >> place & 1): rate
            for brokers, rate in view.demands.items()
        }
        return view

    monkeypatch.setattr(Placement, "_measured", noted)
    world.run(60)
    assert len(measured) == size
    for master, rates in measured.items():
        near = [broker for each in world.tree if master in each for broker in each if broker != master]
        side = {broker: neighbour for neighbour in near for broker in beyond(world.tree, master, neighbour)}
        expected: dict[frozenset[int], float] = {}
        for publisher, subscribers, rate in world.flows:
            members = frozenset(side.get(broker, master) for broker in (publisher, *subscribers))
            if len(members) > 1:
                expected[members] = expected.get(members, 0) + rate
        assert rates == pytest.approx(expected, rel=0.1)


def test_hot_pairs_get_direct_links() -> None:
    """With equal costs nothing is cheaper than a direct link between each pair, and that is possible here."""
    random = Random("pairs")
    size = 40
    brokers = random.sample(range(size), 16)
    flows: list[Flow] = [
        (one, (other,), random.randint(2, 10)) for one, other in zip(brokers[::2], brokers[1::2], strict=True)
    ]
    world = World((-1, *(random.randrange(child) for child in range(1, size))), flows)
    before = world.cost(world.tree)
    world.run(500)
    least = sum(3 * rate for _, _, rate in flows)  # two brokers and a link
    assert before > 2 * least
    assert world.cost(world.tree) == least


def test_the_overlay_follows_a_pair_that_moves() -> None:
    world = World((-1, 0, 1, 2, 3), [(0, (4,), 10)])
    world.run(300)
    assert link(0, 4) in world.tree
    world.flows.append((1, (3,), 10))
    world._clients[3].subscribe("flow/1", 1)
    world.flows[0] = (0, (4,), 1)
    world._publish(1)
    world.run(800)
    assert link(1, 3) in world.tree


def test_nothing_moves_for_less_than_the_gain() -> None:
    """A message from one end of a line of three brokers to the other costs 5, and over a direct link 3: two fifths less."""
    for gain, is_moved in ((0.35, True), (0.45, False)):
        world = World((-1, 0, 1), [(0, (2,), 10)], gain=gain)
        world.run(100)
        assert (link(0, 2) in world.tree) is is_moved


def test_locked_neighbourhoods_do_not_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random("locks")
    size = 30
    flows: list[Flow] = [(one, (other,), 5) for one, other in (random.sample(range(size), 2) for _ in range(25))]
    world = World((-1, *(random.randrange(child) for child in range(1, size))), flows, random)
    most = 0
    original = Placement._step

    def step(self: Placement, made: Plan, now_ns: int) -> None:
        nonlocal most
        original(self, made, now_ns)
        plans = [it._plan for host in world.hosts if (it := host.broker.placement) is not None]
        locked = [plan for plan in plans if plan is not None and plan.is_locked]
        most = max(most, len(locked))
        for one, other in combinations(locked, 2):
            assert not set(one.names) & set(other.names)

    monkeypatch.setattr(Placement, "_step", step)
    world.run(200)
    assert most >= 1

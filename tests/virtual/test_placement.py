"""Adaptive placement on simulated networks: brokers measure their traffic and move links to where it is.

The cost of a tree is computed here from the publications and subscriptions, and all trees of a neighbourhood are tried.
"""

from collections.abc import Callable, Iterable
from itertools import combinations
from random import Random
from typing import Any

import pytest

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.core import placement
from brokerbed.broker.core.placement import Placement, Plan, Search
from brokerbed.broker.placement.config import PlacementConfig
from brokerbed.broker.placement.search import Link, link
from brokerbed.broker.placement.view import Report, View, joint_view, own_view
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
        settings = PlacementConfig(
            Random(f"search/{number}"), PERIOD_S * NS_PER_S, gain=gain, moves=30, iterations=30,
            link_costs={frozenset((f"b{one}", f"b{other}")): it for (one, other), it in self.link_costs.items()},
            broker_costs={f"b{broker}": it for broker, it in enumerate(self.broker_costs)},
        )  # fmt: skip
        return lambda life: BrokerConfig(
            name=f"b{number}", incarnation=str(life), id_token=f"{number}/{life}", routing="peer", keep_alive_max_s=0,
            placement=settings,
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
        return sum(self.cost_of_flow(tree, flow) for flow in self.flows)

    def cost_of_flow(self, tree: frozenset[Link], flow: Flow) -> float:
        publisher, subscribers, rate = flow
        there = smallest_subtree(tree, frozenset((publisher, *subscribers)))
        on_links = sum(self.link_costs[each] for each in tree if {*each} <= there)
        return rate * (on_links + sum(self.broker_costs[broker] for broker in there))

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
    """A message from one end of a line of three brokers to the other costs 5, and over a direct link 3: two fifths less.

    The gain is the least that is enough.
    """
    for gain, is_moved in ((0.35, True), (0.4, True), (0.45, False)):
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


@pytest.mark.parametrize("seed", range(3))
def test_every_change_saves_in_the_whole_network_what_its_broker_has_computed(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Demands are those that the broker has measured; the whole network is what the simulation says there is then."""
    random = Random(f"gains/{seed}")
    size = 20
    flows = [flow for _ in range(4) for flow in drawn_flows(random, size)]
    world = World((-1, *(random.randrange(child) for child in range(1, size))), flows, random)
    rates_of: dict[int, dict[str, float]] = {}  # by topic, as a broker has measured, by the id of its view
    views: list[View] = []  # keeps the ids
    changes = 0

    def noted(view: View, *reports: Report) -> View:
        views.append(view)
        measured = [(flow.topic, rate) for report in reversed(reports) for flow, (_, rate) in report.flows.items()]
        rates_of[id(view)] = dict(measured)
        return view

    def cost(tree: frozenset[Link], rates: dict[str, float]) -> float:
        one_message = [world.cost_of_flow(tree, flow) / flow[2] for flow in world.flows]
        return sum(
            each * rates.get(f"flow/{number}", float(world.flows[number][2])) for number, each in enumerate(one_message)
        )

    original = Placement.give_up

    def given_up(self: Placement, made: Plan, now_ns: int) -> None:
        nonlocal changes
        if made.is_locked and not made.left:
            changes += 1
            view, numbers = made.view, [int(name[1:]) for name in made.names]
            now, before = (
                frozenset(
                    link(numbers[child], numbers[parent]) for child, parent in parents.items() if parent is not None
                )
                for parents in (made.parents, view.parents)
            )
            assert now <= world.tree
            search = Search(view, self._config)
            inner = frozenset(link(child, parent) for child, parent in made.parents.items() if parent is not None)
            computed = search._traffic.cost(view.tree) - search._traffic.cost(inner)
            rates = rates_of[id(view)]
            assert computed > 0
            saved = cost(world.tree - now | before, rates) - cost(world.tree, rates)
            assert computed == pytest.approx(saved, rel=0, abs=1e-9)
        original(self, made, now_ns)

    monkeypatch.setattr(Placement, "give_up", given_up)
    monkeypatch.setattr(placement, "own_view", lambda report, classes: noted(own_view(report, classes), report))
    monkeypatch.setattr(placement, "joint_view", lambda *reports: noted(joint_view(*reports), *reports))
    world.run(300)
    assert changes >= 10


def test_locks_of_a_broker_that_was_killed_end_when_it_has_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first broker that has its locks is killed, and starts again 3 s later. Otherwise locks last for 300 s."""
    world = World((-1, 0, 1, 2), [(0, (3,), 10)])
    killed: list[tuple[str, int]] = []

    def step(self: Placement, made: Plan, now_ns: int) -> None:
        del self
        if not killed:
            killed.append((made.names[0], now_ns))
            host = next(host for host in world.hosts if host.name == made.names[0])
            world.loop.at(now_ns, lambda _: host.crash(), None)
            world.loop.at(now_ns + 3 * NS_PER_S, lambda _: host.start(), None)

    def is_locked() -> bool:
        placements = [host.broker.placement for host in world.hosts if host.is_up]
        locks = [it._locked_by for it in placements if it is not None and it._locked_by is not None]
        return any(name == killed[0][0] for name, _ in locks)

    monkeypatch.setattr(Placement, "_step", step)
    world.run(15)
    killed_s = killed[0][1] // NS_PER_S
    assert killed_s < 15
    later = []
    for after_s in (4, 12, 15):
        world.loop.run((killed_s + after_s) * NS_PER_S, EVENTS_MAX)
        later.append(is_locked())
    assert later == [True, True, False]


def test_a_plan_makes_no_step_that_may_end_after_its_locks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Locks end after 300 s, and a step may take 60 s."""
    sent: list[str] = []
    given_up: list[float] = []
    original_step, original_send = Placement._step, Placement._send

    def step(self: Placement, made: Plan, now_ns: int) -> None:
        if given_up:
            return
        for after_s in (239, 241):
            original_step(self, made, now_ns + after_s * NS_PER_S)
            given_up.append(self._plan is None)

    def send(self: Placement, path: list[str], now_ns: int, **content: Any) -> None:
        sent.append(content["do"])
        if content["do"] != "move":
            original_send(self, path, now_ns, **content)

    monkeypatch.setattr(Placement, "_step", step)
    monkeypatch.setattr(Placement, "_send", send)
    world = World((-1, 0, 1), [(0, (2,), 10)])
    world.run(100)
    assert given_up == [False, True]
    assert sent.count("move") == 1

"""`predict` of scenarios whose peers roam, against a count by definition over all places and all moves, hop by hop."""

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise, product

import pytest

from brokerbed.analysis.predict import predict
from brokerbed.scenario import ALGORITHMS
from tests.conftest import FromText
from tests.unit.analysis.brute_force import BruteForce, Counts, Network, Source, State
from tests.unit.analysis.test_predict_brute_force import expected_rows

SCENARIOS = 25
FILTERS = ("g0/a", "g0/b", "g0/c", "g0/+", "g1/a", "g1/+", "t", "g0/#", "#")
TOPICS = ("g0/a", "g0/b", "g1/a", "t")


@dataclass(frozen=True)
class Roaming:
    """A peer that subscribes or publishes, and comes back at another one of its brokers."""

    places: tuple[int, ...]
    topic: str
    on_s: float
    off_s: float
    rate: float | None = None  # None: it subscribes

    @property
    def moves_per_s(self) -> float:
        return 1 / (self.on_s + self.off_s)


@dataclass
class Drawn:
    network: Network
    roaming: list[Roaming] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)


def draw_scenario(seed: int) -> Drawn:
    draw = random.Random(seed)
    size = draw.randint(2, 7)
    parents = [-1, *(draw.randrange(broker) for broker in range(1, size))]
    drawn = Drawn(Network(parents))
    drawn.lines = ["topology:", "  tree: explicit", "  parents:", "    b0: null"]
    drawn.lines += [f"    b{broker}: b{parent}" for broker, parent in enumerate(parents) if parent >= 0]
    subscribers, publishers = [], []
    for number in range(draw.randint(1, 3)):
        peer = Roaming(draw_places(draw, size), draw.choice(FILTERS), draw.uniform(1, 9), draw.uniform(1, 9))
        drawn.roaming.append(peer)
        subscribers.append(f"{{id: s{number}, {text_of(peer)}}}")
    if draw.random() < 0.6:
        broker, topic = draw.randrange(size), draw.choice(FILTERS[:6])
        drawn.network.permanent.append((broker, topic))
        subscribers.append(f"{{id: still, broker: b{broker}, topic: '{topic}'}}")
    if draw.random() < 0.7:
        peer = Roaming(draw_places(draw, size), draw.choice(TOPICS), draw.uniform(1, 9), draw.uniform(1, 9), 3.0)
        drawn.roaming.append(peer)
        publishers.append(f"{{id: p, {text_of(peer)}, rate: 3/s}}")
    for number in range(draw.randint(0, 2)):
        broker, topic = draw.randrange(size), draw.choice(TOPICS)
        drawn.network.sources.append(Source(broker, topic, 2.0))
        publishers.append(f"{{id: q{number}, broker: b{broker}, topic: {topic}, rate: 2/s}}")
    drawn.lines += [f"subscribers: [{', '.join(subscribers)}]", f"publishers: [{', '.join(publishers)}]"]
    return drawn


def draw_places(draw: random.Random, size: int) -> tuple[int, ...]:
    return tuple(draw.sample(range(size), draw.randint(2, size)))


def text_of(peer: Roaming) -> str:
    brokers = ", ".join(f"b{place}" for place in peer.places)
    return f"brokers: [{brokers}], topic: '{peer.topic}', on: {{mean: {peer.on_s}s}}, off: {{mean: {peer.off_s}s}}"


def way(network: Network, start: int, end: int) -> list[int]:
    up, down = [start], [end]
    while up[-1] != 0:
        up.append(network.parents[up[-1]])
    while down[-1] not in up:
        down.append(network.parents[down[-1]])
    return up[: up.index(down[-1]) + 1] + down[-2::-1]


class Count:
    """Sums over all places of all peers that roam, and over all their moves."""

    def __init__(self, drawn: Drawn, routing: str, threshold: int) -> None:
        self.drawn, self.network = drawn, drawn.network
        self.force = BruteForce(drawn.network, routing, threshold)
        self.sums = Counts(*(dict.fromkeys(drawn.network.links, 0.0) for _ in Counts.__dataclass_fields__))

    def counts(self) -> Counts:
        peers = self.drawn.roaming
        probability = 1 / math.prod(len(peer.places) for peer in peers)
        for places in product(*(peer.places for peer in peers)):
            state = self.state([(place,) for place in places])
            self.force.add_sizes(self.sums, state, probability)
            self.add_notifications(state, places, probability)
            for number, peer in enumerate(peers):
                for other in set(peer.places) - {places[number]}:
                    rate = probability * peer.moves_per_s / (len(peer.places) - 1)
                    for before, after in self.steps(places, number, other):
                        self.force.add_control(self.sums, self.force.messages(before, after), rate)
        return self.sums

    def steps(self, places: tuple[int, ...], number: int, other: int) -> Iterator[tuple[State, State]]:
        """Changes of the state: at the next broker of the way the session comes before it leaves the last one."""
        at: list[tuple[int, ...]] = [(place,) for place in places]
        for here, there in pairwise(way(self.network, places[number], other)):
            states = []
            for present in ((here,), (here, there), (there,)):
                at[number] = present
                states.append(self.state(at))
            yield from pairwise(states)

    def state(self, present: list[tuple[int, ...]]) -> State:
        brokers = range(len(self.network.parents))
        wanted: list[set[str]] = [set() for _ in brokers]
        advertised: list[set[str]] = [set() for _ in brokers]
        for broker, pattern in self.network.permanent:
            wanted[broker].add(pattern)
        for source in self.network.sources:
            advertised[source.broker].add(source.topic)
        for peer, places in zip(self.drawn.roaming, present, strict=True):
            for place in places:
                (wanted if peer.rate is None else advertised)[place].add(peer.topic)
        return State(tuple(map(frozenset, wanted)), tuple(map(frozenset, advertised)))

    def add_notifications(self, state: State, places: tuple[int, ...], probability: float) -> None:
        there = zip(self.drawn.roaming, places, strict=True)
        moving = [Source(place, peer.topic, peer.rate) for peer, place in there if peer.rate is not None]
        still, self.network.sources = self.network.sources, [*self.network.sources, *moving]
        self.force.add_notifications(self.sums, state, (), probability)
        self.network.sources = still


@pytest.mark.parametrize("routing", [name for name in ALGORITHMS.built_in if name != "simple"])
def test_predictions_equal_the_count_by_definition(routing: str, from_text: FromText) -> None:
    unknown = 0
    for seed in range(SCENARIOS):
        drawn = draw_scenario(seed)
        threshold = 2 + seed % 2
        form = f"{{algorithm: {routing}, threshold: {threshold}}}" if routing == "merging" else routing
        head = f"scenario: 1\nname: x\nclock: {{measure: 1s}}\nrouting: {form}\n"
        (scenario,) = from_text(head + "\n".join(drawn.lines) + "\n").points
        found = {row.metric: row.predicted for row in predict(scenario).rows if not row.labels}
        found.pop("rate.moved", None)
        if found["rate.notifications"] is None:
            assert routing == "merging"
            unknown += 1
            continue
        expected = expected_rows(Count(drawn, routing, threshold).counts(), drawn.network, routing)
        expected["table.local_entries"] = len(drawn.network.permanent) + sum(it.rate is None for it in drawn.roaming)
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12), seed
    assert unknown < SCENARIOS / 2


def test_rates_of_each_link(from_text: FromText) -> None:
    """Totals could hide that two links have each other's rates."""
    for seed in range(SCENARIOS):
        drawn = draw_scenario(seed)
        head = "scenario: 1\nname: x\nclock: {measure: 1s}\nrouting: peer-advertisement\n"
        (scenario,) = from_text(head + "\n".join(drawn.lines) + "\n").points
        found = {
            (row.metric, row.labels["link"]): row.predicted for row in predict(scenario).rows if "link" in row.labels
        }
        counts = Count(drawn, "peer-advertisement", 2).counts()
        for child in drawn.network.links:
            parent = drawn.network.parents[child]
            for metric, up, down in (
                ("rate.notifications", counts.up, counts.down), ("rate.control", counts.control_up, counts.control_down),
            ):  # fmt: skip
                assert found[metric, f"b{child}>b{parent}"] == pytest.approx(up[child], rel=1e-9, abs=1e-12)
                assert found[metric, f"b{parent}>b{child}"] == pytest.approx(down[child], rel=1e-9, abs=1e-12)


def test_simple_routing_tells_of_each_subscription_on_the_links_of_its_way(from_text: FromText) -> None:
    for seed in range(SCENARIOS):
        drawn = draw_scenario(seed)
        network, head = drawn.network, "scenario: 1\nname: x\nclock: {measure: 1s}\nrouting: simple\n"
        (scenario,) = from_text(head + "\n".join(drawn.lines) + "\n").points
        found = {row.metric: row.predicted for row in predict(scenario).rows if not row.labels}
        control = 0.0
        entries = float(sum(len(way(network, broker, 0)) - 1 for broker, _ in network.permanent))
        for peer in drawn.roaming:
            if peer.rate is None:
                entries += sum(len(way(network, place, 0)) - 1 for place in peer.places) / len(peer.places)
                pairs = [(a, b) for a in peer.places for b in peer.places if a != b]
                mean_links = sum(len(way(network, *pair)) - 1 for pair in pairs) / len(pairs)
                control += peer.moves_per_s * mean_links
        assert found["table.remote_entries"] == pytest.approx(entries), seed
        assert found["rate.control"] == pytest.approx(control), seed

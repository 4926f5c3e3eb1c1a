"""The overlay on random trees under random operations, against the definitions; with and without faults.

After everything has arrived: a broker has an entry for a child and a filter if and only if somebody subscribes to the
filter in the child's subtree (simple: one per subscription; peer: for every neighbour, with its side of the link); every publication reached exactly the subscribers it should,
once; and every link carried what an independent count by definition says.
"""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerbed.broker.core import handle_subscribe
from brokerbed.broker.core.announcements import Announced
from brokerbed.broker.core.broker import Broker
from brokerbed.broker.core.subscriptions import Subscription
from brokerbed.broker.values import Entry
from tests.core_client import FOREVER_S, NS_PER_S, Client
from tests.core_network import Network
from tests.peer_routing import PEER

pytestmark = pytest.mark.usefixtures("peer_routing")

TOPICS = ("a", "a/b", "c/d")
FILTERS = ("a", "a/b", "c/d", "a/#", "+/b", "#")
REFRESH_S = 30.0
ROUTINGS = ("identity", "simple", "flooding", PEER.name)
MATCHES = {
    "a": {"a", "a/#", "#"}, "a/b": {"a/b", "a/#", "+/b", "#"}, "c/d": {"c/d", "#"},
}  # fmt: skip


@st.composite
def shapes(draw: st.DrawFn) -> dict[str, str | None]:
    size = draw(st.integers(1, 7))
    return {f"n{i}": f"n{draw(st.integers(0, i - 1))}" if i else None for i in range(size)}


def subtree(parents: dict[str, str | None], root: str) -> set[str]:
    found = {root}
    while True:
        more = {name for name, parent in parents.items() if parent in found} - found
        if not more:
            return found
        found |= more


class Story:
    """Two clients per broker, and a ledger of what must have happened."""

    def __init__(self, parents: dict[str, str | None], routing: str, refresh_s: float = 0.0) -> None:
        self.parents = parents
        self.routing = routing
        self.network = Network(parents, routing=routing, refresh_s=refresh_s, keep_alive_max_s=0)
        self.clients: dict[str, Client] = {}
        self.at = {f"{node}-{number}": node for node in parents for number in (0, 1)}
        self.filters: dict[str, set[str]] = {name: set() for name in self.at}
        self.expected: dict[str, Counter[bytes]] = {name: Counter() for name in self.at}
        self.got: dict[str, Counter[bytes]] = {name: Counter() for name in self.at}
        self.notifications: Counter[str] = Counter()
        self.published = 0
        for name, node in self.at.items():
            self.clients[name] = self.network.client(node, name)
            self.clients[name].connect(expiry_s=FOREVER_S)

    def subscribers(self, nodes: set[str], topic_filter: str) -> int:
        return sum(topic_filter in self.filters[name] for name, node in self.at.items() if node in nodes)

    def wants(self, nodes: set[str], topic: str) -> bool:
        return any(self.filters[name] & MATCHES[topic] for name, node in self.at.items() if node in nodes)

    def toggle(self, name: str, topic_filter: str) -> None:
        self.collect()
        client = self.clients[name]
        if topic_filter in self.filters[name]:
            client.send_unsubscribe(topic_filter)
            self.filters[name].remove(topic_filter)
        else:
            client.subscribe(topic_filter)
            self.filters[name].add(topic_filter)

    def publish(self, name: str, topic: str, qos: int) -> None:
        self.published += 1
        payload = b"%d" % self.published
        self.clients[name].publish(topic, payload, qos=qos)
        for other in self.at:
            if self.filters[other] & MATCHES[topic]:
                self.expected[other][payload] += 1
        self.count(self.at[name], topic)

    def count(self, origin: str, topic: str) -> None:
        """By definition: up every link to the root, down every link below which somebody wants it, never back.

        Peer: over every link on whose other side somebody wants it.
        """
        for child, parent in self.parents.items():
            below = subtree(self.parents, child)
            if parent is None:
                continue
            if self.routing == PEER.name:
                ends, other_side = (child, parent), self.parents.keys() - below
                if origin not in below:
                    ends, other_side = (parent, child), below
                self.notifications[">".join(ends)] += self.wants(other_side, topic)
            elif origin in below:
                self.notifications[f"{child}>{parent}"] += 1
            elif self.routing == "flooding" or self.wants(below, topic):
                self.notifications[f"{parent}>{child}"] += 1

    def collect(self) -> None:
        for name, client in self.clients.items():
            if not client.is_closed:
                self.got[name].update(client.payloads())

    def check_tables(self) -> None:
        expected: dict[str, dict[str, list[str]]] = {node: {} for node in self.parents}
        for child, parent in self.parents.items():
            if parent is not None and self.routing != "flooding":
                below = subtree(self.parents, child)
                expected[parent][child] = self.entries_for(below)
                if self.routing == PEER.name:
                    expected[child][parent] = self.entries_for(self.parents.keys() - below)
        for node, entries in expected.items():
            assert self.network.entries(node) == {peer: them for peer, them in entries.items() if them}, node

    def entries_for(self, side: set[str]) -> list[str]:
        counts = {f: self.subscribers(side, f) for f in FILTERS}
        if self.routing != "simple":
            counts = {f: min(count, 1) for f, count in counts.items()}
        return sorted(f for f, count in counts.items() for _ in range(count))


NAMES = st.integers(0, 100)


@settings(max_examples=120)
@given(st.data(), shapes(), st.sampled_from(ROUTINGS))
def test_tables_deliveries_and_counts_are_as_defined(
    data: st.DataObject, parents: dict[str, str | None], routing: str
) -> None:
    story = Story(parents, routing)
    names = sorted(story.at)
    for _ in range(data.draw(st.integers(0, 25))):
        name = data.draw(st.sampled_from(names))
        if data.draw(st.booleans()):
            story.toggle(name, data.draw(st.sampled_from(FILTERS)))
        else:
            story.publish(name, data.draw(st.sampled_from(TOPICS)), data.draw(st.integers(0, 2)))
    story.collect()
    story.check_tables()
    assert story.got == story.expected
    assert story.network.sent("notification") == dict(+story.notifications)
    assert story.network.sent("resync") == {}


class Faults:
    """Links that are held, released, cut with what was under way on them, and joined again."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._held: set[str] = set()
        self.children = [name for name, parent in network.parents.items() if parent is not None]

    @property
    def all_is_well(self) -> bool:
        return not self._held and len(self._network.links) == len(self.children)

    def strike(self, action: str, child: str) -> None:
        is_up = child in self._network.links
        if action == "hold" and is_up and child not in self._held:
            self._network.hold(child)
            self._held.add(child)
        elif action == "release" and child in self._held:
            self._network.release(child)
            self._held.remove(child)
        elif action == "cut" and is_up:
            self._network.cut(child)
            self._held.discard(child)
        elif action == "join" and not is_up:
            self._network.join(child)

    def heal(self) -> None:
        for child in self.children:
            self.strike("release", child)
            self.strike("join", child)


ACTIONS = st.sampled_from(("toggle", "publish", "publish", "hold", "release", "cut", "join"))


@settings(max_examples=150)
@given(st.data(), shapes(), st.sampled_from(ROUTINGS), st.sampled_from((1, 2)))
def test_after_healing_everything_arrived_exactly_once(
    data: st.DataObject, parents: dict[str, str | None], routing: str, qos: int
) -> None:
    """Interest changes only while all is well, so that everybody knows it; what is cut, and when, makes no difference."""
    story = Story(parents, routing)
    faults = Faults(story.network)
    for _ in range(data.draw(st.integers(5, 30))):
        action = data.draw(ACTIONS)
        name = data.draw(st.sampled_from(sorted(story.at)))
        if action == "toggle":
            if faults.all_is_well:
                story.toggle(name, data.draw(st.sampled_from(FILTERS)))
        elif action == "publish":
            story.publish(name, data.draw(st.sampled_from(TOPICS)), qos)
        elif faults.children:
            faults.strike(action, data.draw(st.sampled_from(faults.children)))
    faults.heal()
    story.collect()
    story.check_tables()
    assert story.got == story.expected
    assert story.network.sent("notification") == dict(+story.notifications)


@settings(max_examples=200)
@given(st.data(), shapes(), st.sampled_from(ROUTINGS))
def test_after_healing_tables_are_right_though_interest_changed_meanwhile(
    data: st.DataObject, parents: dict[str, str | None], routing: str
) -> None:
    """(Un)subscriptions get lost with the links they are on, at any moment."""
    story = Story(parents, routing)
    faults = Faults(story.network)
    for _ in range(data.draw(st.integers(10, 40))):
        action = data.draw(ACTIONS)
        if action in ("toggle", "publish"):
            name = data.draw(st.sampled_from(sorted(story.at)))
            story.toggle(name, data.draw(st.sampled_from(FILTERS)))
        elif faults.children:
            faults.strike(action, data.draw(st.sampled_from(faults.children)))
    faults.heal()
    story.check_tables()


@settings(max_examples=80)
@given(st.data(), shapes(), st.sampled_from(ROUTINGS))
def test_after_restarts_interest_is_complete_at_every_level(
    data: st.DataObject, parents: dict[str, str | None], routing: str
) -> None:
    """Brokers restart empty, in any order, and their clients subscribe again; links come back in any order."""
    story = Story(parents, routing)
    network = story.network
    for _ in range(data.draw(st.integers(1, 10))):
        story.toggle(data.draw(st.sampled_from(sorted(story.at))), data.draw(st.sampled_from(FILTERS)))
    for node in data.draw(st.lists(st.sampled_from(sorted(parents)), max_size=4)):
        network.restart(node)
        for name in [name for name, at in story.at.items() if at == node]:
            client = story.clients[name] = network.client(node, name)
            client.connect(expiry_s=FOREVER_S)
            for topic_filter in sorted(story.filters[name]):
                client.subscribe(topic_filter)
        down = [child for child, parent in parents.items() if parent is not None and child not in network.links]
        for child in data.draw(st.permutations(down)):
            network.join(child)
    story.collect()
    story.check_tables()
    for topic in TOPICS:
        story.publish(min(story.at), topic, 1)
    story.collect()
    assert story.got == story.expected


def corrupt(data: st.DataObject, broker: Broker, now_ns: int) -> None:
    """Something in the tables becomes wrong: entries of children, what is counted, what the parent is thought to know."""
    links = list(broker.links.values())
    action = data.draw(st.sampled_from(("add", "remove", "forget", "count", "ignorant", "knowing")))
    entry = Entry(data.draw(st.sampled_from(FILTERS)), data.draw(st.sampled_from(("", "n1.1", "ghost.1"))))
    overlay = broker.overlay
    neighbours = overlay.links()
    connections = [session.connection for session in neighbours]
    for session in neighbours:
        session.connection = None  # a change of the table that nobody hears of
    if links and action in ("add", "remove"):
        session = data.draw(st.sampled_from(links))
        assert session.link is not None
        if action == "add":
            properties = [("overlay-identity", entry.identity)] if entry.identity else []
            age_ns = data.draw(st.integers(-100, 0)) * NS_PER_S
            handle_subscribe._add(broker, Subscription(session, entry.filter, 2, True, True, 0), properties, now_ns)
            session.link.entries[Entry(entry.filter, entry.identity)] += age_ns
        else:
            for known in list(session.link.entries):
                handle_subscribe._remove(
                    broker,
                    session,
                    known.filter,
                    [("overlay-identity", known.identity)] if known.identity else [],
                    now_ns,
                )
    elif action == "forget":
        overlay.strategy = type(overlay.strategy)()
    elif action == "count":
        overlay.strategy.heard(None, entry, True)
    elif action == "ignorant" and overlay.parent is not None and overlay.parent.link is not None:
        overlay.parent.link.announced.entries.clear()
    elif action == "knowing" and overlay.parent is not None and overlay.parent.link is not None:
        overlay.parent.link.announced.entries[entry] = Announced()
    for session, connection in zip(neighbours, connections, strict=True):
        session.connection = connection


@settings(max_examples=200)
@given(st.data(), shapes(), st.sampled_from(ROUTINGS))
def test_corrupted_tables_are_right_again_after_three_refreshes(
    data: st.DataObject, parents: dict[str, str | None], routing: str
) -> None:
    story = Story(parents, routing, refresh_s=REFRESH_S)
    for _ in range(data.draw(st.integers(0, 12))):
        story.toggle(data.draw(st.sampled_from(sorted(story.at))), data.draw(st.sampled_from(FILTERS)))
    story.network.wait(data.draw(st.floats(0, 3 * REFRESH_S)))
    for node in data.draw(st.lists(st.sampled_from(sorted(parents)), min_size=1, max_size=6)):
        corrupt(data, story.network.nodes[node].broker, story.network.now_ns)
    story.network.wait(3 * REFRESH_S)
    story.check_tables()
    for topic in TOPICS:
        story.publish(min(story.at), topic, 1)
    story.collect()
    assert story.got == story.expected

"""The overlay on random trees under random operations, against the definitions; with and without faults.

After everything has arrived: every broker knows of its neighbours exactly what the definition of the routing algorithm
says (tests/routing_oracle.py); every publication reached exactly the subscribers it should, once; and every link carried
what an independent count by definition says.
"""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from brokerbed.broker.core import advertisements, handle_subscribe
from brokerbed.broker.core.announcements import Announced
from brokerbed.broker.core.broker import Broker
from brokerbed.broker.core.overlay import Overlay
from brokerbed.broker.core.session import Session
from brokerbed.broker.core.subscriptions import Subscription
from brokerbed.broker.values import Entry, advertisement, answer
from brokerbed.topics import ADVERTISE, matches
from tests import routing_oracle as oracle
from tests.core_client import FOREVER_S, NS_PER_S, Client
from tests.core_network import Network

TOPICS = ("a", "a/b", "c/d")
FILTERS = ("a", "a/b", "a/c", "a/d", "c/d", "a/+", "a/#", "+/b", "#")
REFRESH_S = 30.0
ROUTINGS = oracle.ALL
MATCHES = {topic: {it for it in FILTERS if matches(it, topic)} for topic in TOPICS}


@st.composite
def shapes(draw: st.DrawFn) -> dict[str, str | None]:
    size = draw(st.integers(1, 7))
    return {f"n{i}": f"n{draw(st.integers(0, i - 1))}" if i else None for i in range(size)}


class Story:
    """Two clients per broker, and a ledger of what must have happened."""

    def __init__(self, parents: dict[str, str | None], routing: str, refresh_s: float = 0.0) -> None:
        self.parents = parents
        self.routing = routing
        self.network = Network(parents, routing=routing, refresh_s=refresh_s, keep_alive_max_s=0)
        self.clients: dict[str, Client] = {}
        self.at = {f"{node}-{number}": node for node in parents for number in (0, 1)}
        self.filters: dict[str, set[str]] = {name: set() for name in self.at}
        self.advertised: dict[str, set[str]] = {name: set() for name in self.at}
        self.expected: dict[str, Counter[bytes]] = {name: Counter() for name in self.at}
        self.got: dict[str, Counter[bytes]] = {name: Counter() for name in self.at}
        self.notifications: Counter[str] = Counter()
        self.unadvertised: Counter[str] = Counter()
        self.published = 0
        for name, node in self.at.items():
            self.clients[name] = self.network.client(node, name)
            self.clients[name].connect(expiry_s=FOREVER_S)

    def toggle(self, name: str, topic_filter: str) -> None:
        self.collect()
        client = self.clients[name]
        if topic_filter in self.filters[name]:
            client.send_unsubscribe(topic_filter)
            self.filters[name].remove(topic_filter)
        else:
            client.subscribe(topic_filter)
            self.filters[name].add(topic_filter)

    def toggle_advertisement(self, name: str, topic_filter: str) -> None:
        self.collect()
        if topic_filter in self.advertised[name]:
            self.clients[name].send_unsubscribe(ADVERTISE + topic_filter)
        else:
            self.clients[name].subscribe(ADVERTISE + topic_filter)
        self.advertised[name] ^= {topic_filter}

    def publish(self, name: str, topic: str, qos: int) -> None:
        self.published += 1
        payload = b"%d" % self.published
        self.clients[name].publish(topic, payload, qos=qos)
        for other in self.at:
            if self.filters[other] & MATCHES[topic]:
                self.expected[other][payload] += 1
        is_advertised = any(matches(topic_filter, topic) for topic_filter in self.advertised[name])
        entries = self.tables().entries
        crossed = oracle.crossings(self.routing, self.parents, entries, self.at[name], topic, is_advertised)
        is_marked = self.routing in oracle.ADVERTISING and not is_advertised
        (self.unadvertised if is_marked else self.notifications).update(crossed)

    def tables(self) -> oracle.Tables:
        def of_nodes(filters: dict[str, set[str]]) -> dict[str, list[str]]:
            found: dict[str, list[str]] = {node: [] for node in self.parents}
            for name, node in self.at.items():
                found[node] += sorted(filters[name])
            return found

        return oracle.tables(self.routing, self.parents, of_nodes(self.filters), of_nodes(self.advertised))

    def collect(self) -> None:
        for name, client in self.clients.items():
            if not client.is_closed:
                self.got[name].update(client.payloads())

    def check_tables(self) -> None:
        expected = self.tables()
        for node in self.parents:
            known = {peer: entries for (holder, peer), entries in expected.entries.items() if holder == node}
            assert self.network.entries(node) == {peer: them for peer, them in known.items() if them}, node
            known = {peer: filters for (holder, peer), filters in expected.advertised.items() if holder == node}
            assert self.network.advertised(node) == {peer: them for peer, them in known.items() if them}, node

    def check_deliveries(self) -> None:
        """All that was published arrived where it should, and crossed the links that it should."""
        assert self.got == self.expected
        assert self.network.sent("notification") == dict(+self.notifications)
        assert self.network.sent("unadvertised") == dict(+self.unadvertised)


@settings(max_examples=120)
@given(st.data(), shapes(), st.sampled_from(ROUTINGS))
def test_tables_deliveries_and_counts_are_as_defined(
    data: st.DataObject, parents: dict[str, str | None], routing: str
) -> None:
    story = Story(parents, routing)
    names = sorted(story.at)
    for _ in range(data.draw(st.integers(0, 25))):
        name = data.draw(st.sampled_from(names))
        action = data.draw(st.sampled_from(("toggle", "advertise", "publish")))
        if action == "toggle":
            story.toggle(name, data.draw(st.sampled_from(FILTERS)))
        elif action == "advertise":
            story.toggle_advertisement(name, data.draw(st.sampled_from(FILTERS)))
        else:
            story.publish(name, data.draw(st.sampled_from(TOPICS)), data.draw(st.integers(0, 2)))
    story.collect()
    story.check_tables()
    story.check_deliveries()
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


ACTIONS = st.sampled_from(("toggle", "advertise", "publish", "publish", "hold", "release", "cut", "join"))


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
        if action in ("toggle", "advertise"):
            if faults.all_is_well:
                toggle = story.toggle if action == "toggle" else story.toggle_advertisement
                toggle(name, data.draw(st.sampled_from(FILTERS)))
        elif action == "publish":
            story.publish(name, data.draw(st.sampled_from(TOPICS)), qos)
        elif faults.children:
            faults.strike(action, data.draw(st.sampled_from(faults.children)))
    faults.heal()
    story.collect()
    story.check_tables()
    story.check_deliveries()


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
        elif action == "advertise":
            name = data.draw(st.sampled_from(sorted(story.at)))
            story.toggle_advertisement(name, data.draw(st.sampled_from(FILTERS)))
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
        toggle = data.draw(st.sampled_from((story.toggle, story.toggle_advertisement)))
        toggle(data.draw(st.sampled_from(sorted(story.at))), data.draw(st.sampled_from(FILTERS)))
    for node in data.draw(st.lists(st.sampled_from(sorted(parents)), max_size=4)):
        network.restart(node)
        for name in [name for name, at in story.at.items() if at == node]:
            client = story.clients[name] = network.client(node, name)
            client.connect(expiry_s=FOREVER_S)
            for topic_filter in sorted(story.filters[name]):
                client.subscribe(topic_filter)
            for topic_filter in sorted(story.advertised[name]):
                client.subscribe(ADVERTISE + topic_filter)
        down = [child for child, parent in parents.items() if parent is not None and child not in network.links]
        for child in data.draw(st.permutations(down)):
            network.join(child)
    story.collect()
    story.check_tables()
    for topic in TOPICS:
        story.publish(min(story.at), topic, 1)
    story.collect()
    assert story.got == story.expected


def forget(overlay: Overlay) -> None:
    """The strategy loses all that it has heard."""
    overlay.strategy = overlay.algorithm.make(**overlay.algorithm.checked({}))
    for session in overlay.links():
        assert session.link is not None
        overlay.strategy.joined(session.link)


def forget_entries(broker: Broker, session: Session, now_ns: int) -> None:
    assert session.link is not None
    for known in list(session.link.entries):
        handle_subscribe.remove_entry(broker, session, known, False, now_ns)


def toggle_known_advertisement(broker: Broker, session: Session, topic_filter: str, now_ns: int) -> None:
    """The broker forgets what a neighbour advertises and has answered, or imagines it."""
    for entry in (advertisement(topic_filter), answer(topic_filter)):
        if not advertisements.remove(broker, session, entry, False, now_ns):
            advertisements.add(broker, session, entry, False, now_ns)


def corrupt(data: st.DataObject, broker: Broker, now_ns: int) -> None:
    """Something in the tables becomes wrong: entries of children, what is counted, what the parent is thought to know."""
    links = list(broker.links.values())
    action = data.draw(st.sampled_from(("add", "remove", "advertise", "forget", "count", "ignorant", "knowing")))
    entry = Entry(data.draw(st.sampled_from(FILTERS)), data.draw(st.sampled_from(("", "n1.1", "ghost.1"))))
    overlay = broker.overlay
    neighbours = overlay.links()
    connections = [session.connection for session in neighbours]
    for session in neighbours:
        session.connection = None  # a change of the table that nobody hears of
    if links and action == "add":
        session = data.draw(st.sampled_from(links))
        assert session.link is not None
        properties = [("overlay-identity", entry.identity)] if entry.identity else []
        age_ns = data.draw(st.integers(-100, 0)) * NS_PER_S
        handle_subscribe.add(broker, Subscription(session, entry.filter, 2, True, True, 0), properties, now_ns)
        session.link.entries[Entry(entry.filter, entry.identity)] += age_ns
    elif links and action == "remove":
        forget_entries(broker, data.draw(st.sampled_from(links)), now_ns)
    elif action == "advertise" and neighbours and overlay.algorithm.advertises:
        toggle_known_advertisement(broker, data.draw(st.sampled_from(neighbours)), entry.filter, now_ns)
    elif action == "forget":
        forget(overlay)
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
        toggle = data.draw(st.sampled_from((story.toggle, story.toggle_advertisement)))
        toggle(data.draw(st.sampled_from(sorted(story.at))), data.draw(st.sampled_from(FILTERS)))
    story.network.wait(data.draw(st.floats(0, 3 * REFRESH_S)))
    for node in data.draw(st.lists(st.sampled_from(sorted(parents)), min_size=1, max_size=6)):
        corrupt(data, story.network.nodes[node].broker, story.network.now_ns)
    story.network.wait(3 * REFRESH_S)
    story.check_tables()
    for topic in TOPICS:
        story.publish(min(story.at), topic, 1)
    story.collect()
    assert story.got == story.expected

"""Whatever changes while a neighbour is slow, silent or away, it ends up with exactly the entries that it should have,
and those who subscribed have got what is retained above them.

The number of changes that may be under way is made as small as 1, so that most of them wait.
"""

from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st

from brokerbed.topics import ADVERTISE, matches
from tests import routing_oracle as oracle
from tests.core_client import FOREVER_S, Client
from tests.core_network import Network

TOPICS = ("a", "b", "c", "c/1", "c/2")  # each has a retained message, which is the topic
FILTERS = ("a", "b", "c/1", "c/2", "c/d", "c/+", "c/#", "#")
LIMIT = "brokerbed.broker.core.announcements.UNACKNOWLEDGED_MAX"
REFRESH_S = 5.0
HELD_REFRESHES_MAX = 2  # after three the parent drops what was not repeated
NAMES = ("c0", "c1")
ROUTINGS = [routing for routing in oracle.ALL if routing != "flooding"]
BOTH_WAYS = ("peer", "advertisement", "peer-advertisement")
TOGGLES = st.tuples(st.sampled_from(NAMES), st.sampled_from([*FILTERS, *(ADVERTISE + it for it in FILTERS)]))
STEPS = TOGGLES | st.sampled_from(("hold", "release", "cut", "refresh"))


def retained_for(topic_filter: str) -> set[bytes]:
    return {topic.encode() for topic in TOPICS if matches(topic_filter, topic)}


class Story:
    """Two clients at a leaf, what they want, and what they have not got yet; if both ends of the link announce to each
    other, one of the clients is at the root."""

    def __init__(self, routing: str, is_durable: bool) -> None:
        self.routing = routing
        self.at = {"c0": "leaf", "c1": "root" if routing in BOTH_WAYS else "leaf"}
        self.network = Network(
            {"root": None, "leaf": "root"}, is_durable, routing=routing, refresh_s=REFRESH_S, keep_alive_max_s=0
        )
        self.held_refreshes: int | None = None  # while the link is held
        self.wanted: dict[str, set[str]] = {name: set() for name in NAMES}
        self.missing: dict[str, set[bytes]] = {name: set() for name in NAMES}
        self.clients: dict[str, Client] = {name: self.network.client(node, name) for name, node in self.at.items()}
        self.come("root")
        self.come("leaf")
        publisher = self.network.client("root", "p")
        publisher.connect(keep_alive=0)
        for topic in TOPICS:
            publisher.publish(topic, topic.encode(), retain=True)

    def come(self, node: str) -> None:
        for name, client in self.clients.items():
            if self.at[name] == node:
                client.connect(clean=False, expiry_s=FOREVER_S, keep_alive=0)

    def step(self, step: str | tuple[str, str]) -> None:
        self.collect()
        if isinstance(step, tuple):
            self.toggle(*step)
        elif step == "hold" and self.held_refreshes is None:
            self.network.hold("leaf")
            self.held_refreshes = 0
        elif step == "release":
            self.release()
        elif step == "cut":
            self.network.cut("leaf")
            self.network.join("leaf")
            self.held_refreshes = None
        elif step in ("restart leaf", "restart root"):
            node = step.removeprefix("restart ")
            self.network.restart(node)
            self.come(node)
            self.network.join("leaf")
            self.held_refreshes = None
        elif step == "refresh" and (self.held_refreshes or 0) < HELD_REFRESHES_MAX:
            self.network.wait(REFRESH_S)
            if self.held_refreshes is not None:
                self.held_refreshes += 1

    def toggle(self, name: str, topic_filter: str) -> None:
        if topic_filter in self.wanted[name]:
            self.clients[name].send_unsubscribe(topic_filter)
        else:
            self.clients[name].subscribe(topic_filter)
            self.missing[name] |= retained_for(topic_filter)
        self.wanted[name] ^= {topic_filter}
        self.missing[name] &= set().union(*map(retained_for, self.wanted[name]))

    def release(self) -> None:
        if self.held_refreshes is not None:
            self.network.release("leaf")
            self.held_refreshes = None

    def collect(self) -> None:
        for name, client in self.clients.items():
            self.missing[name] -= set(client.payloads())

    def check(self) -> None:
        self.release()
        self.collect()
        interest: dict[str, list[str]] = {"root": [], "leaf": []}
        advertised: dict[str, list[str]] = {"root": [], "leaf": []}
        for name, filters in self.wanted.items():
            for topic_filter in filters:
                table = advertised if topic_filter.startswith(ADVERTISE) else interest
                table[self.at[name]].append(topic_filter.removeprefix(ADVERTISE))
        right = oracle.tables(self.routing, self.network.parents, interest, advertised)
        for node, neighbour in (("root", "leaf"), ("leaf", "root")):
            assert self.network.entries(node).get(neighbour, []) == right.entries[node, neighbour]
            assert self.network.advertised(node).get(neighbour, []) == right.advertised[node, neighbour]
            (session,) = self.network.nodes[node].broker.overlay.links()
            assert session.link is not None
            assert session.link.announced.open == 0
            assert not session.parked
        if self.routing != "simple":
            assert self.missing == {name: set() for name in NAMES}


@settings(max_examples=400)
@given(st.lists(STEPS, max_size=40), st.integers(1, 4), st.sampled_from(ROUTINGS))
@example(["hold", ("c0", "a"), ("c0", "b"), "refresh"], 1, "identity")  # a question that waits is repeated meanwhile
def test_neighbours_end_up_with_what_is_wanted(
    steps: list[str | tuple[str, str]], under_way_max: int, routing: str
) -> None:
    with patch(LIMIT, under_way_max):
        story = Story(routing, is_durable=False)
        for step in steps:
            story.step(step)
        story.check()


@settings(max_examples=400)
@given(
    st.lists(STEPS | st.sampled_from(("restart leaf", "restart root")), max_size=40),
    st.integers(1, 4),
    st.sampled_from(ROUTINGS),
)
@example(
    [("c0", "a"), "hold", ("c0", "b"), ("c0", "a"), ("c0", "a"), "restart leaf"], 1, "identity"
)  # asked again, and killed
def test_neighbours_end_up_with_what_is_wanted_when_brokers_are_killed(
    steps: list[str | tuple[str, str]], under_way_max: int, routing: str
) -> None:
    with patch(LIMIT, under_way_max):
        story = Story(routing, is_durable=True)
        for step in steps:
            story.step(step)
        story.check()

"""Whatever changes while the parent is slow, silent or away, it ends up knowing exactly what is wanted below it, and
those who subscribed have got what is retained there.

The number of changes that may be under way is made as small as 1, so that most of them wait.
"""

from collections import Counter
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.core_client import FOREVER_S, Client
from tests.core_network import Network

RETAINED = {"a": b"a", "b": b"b", "c/#": b"c"}  # by filter: what is retained for it
LIMIT = "brokerbed.broker.core.entries_at_parent.UNACKNOWLEDGED_MAX"
REFRESH_S = 5.0
HELD_REFRESHES_MAX = 2  # after three the parent drops what was not repeated
NAMES = ("c0", "c1")
TOGGLES = st.tuples(st.sampled_from(NAMES), st.sampled_from(sorted(RETAINED)))
STEPS = TOGGLES | st.sampled_from(("hold", "release", "cut", "refresh"))


class Story:
    """Two clients at a leaf, what they want, and what they have not got yet."""

    def __init__(self, routing: str, is_durable: bool) -> None:
        self.routing = routing
        self.network = Network(
            {"root": None, "leaf": "root"}, is_durable, routing=routing, refresh_s=REFRESH_S, keep_alive_max_s=0
        )
        self.held_refreshes: int | None = None  # while the link is held
        self.wanted: dict[str, set[str]] = {name: set() for name in NAMES}
        self.missing: dict[str, set[bytes]] = {name: set() for name in NAMES}
        self.clients: dict[str, Client] = {name: self.network.client("leaf", name) for name in NAMES}
        self.come()
        publisher = self.network.client("root", "p")
        publisher.connect(keep_alive=0)
        for topic in ("a", "b", "c"):
            publisher.publish(topic, topic.encode(), retain=True)

    def come(self) -> None:
        for client in self.clients.values():
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
        elif step == "restart":
            self.network.restart("leaf")
            self.come()
            self.network.join("leaf")
            self.held_refreshes = None
        elif step == "refresh" and (self.held_refreshes or 0) < HELD_REFRESHES_MAX:
            self.network.wait(REFRESH_S)
            if self.held_refreshes is not None:
                self.held_refreshes += 1

    def toggle(self, name: str, topic_filter: str) -> None:
        if topic_filter in self.wanted[name]:
            self.clients[name].send_unsubscribe(topic_filter)
            self.missing[name] -= {RETAINED[topic_filter]}
        else:
            self.clients[name].subscribe(topic_filter)
            self.missing[name] |= {RETAINED[topic_filter]}
        self.wanted[name] ^= {topic_filter}

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
        counts = Counter(it for wanted in self.wanted.values() for it in wanted)
        if self.routing == "identity":
            counts = Counter(set(counts))
        assert Counter(self.network.entries("root").get("leaf", [])) == counts
        overlay = self.network.nodes["leaf"].broker.overlay
        assert overlay.at_parent.open == 0
        assert overlay.parent is not None
        assert not overlay.parent.parked
        if self.routing == "identity":
            assert self.missing == {name: set() for name in NAMES}


@settings(max_examples=400)
@given(st.lists(STEPS, max_size=40), st.integers(1, 4), st.sampled_from(("identity", "simple")))
@example(["hold", ("c0", "a"), ("c0", "b"), "refresh"], 1, "identity")  # a question that waits is repeated meanwhile
def test_the_parent_ends_up_with_what_is_wanted(
    steps: list[str | tuple[str, str]], under_way_max: int, routing: str
) -> None:
    with patch(LIMIT, under_way_max):
        story = Story(routing, is_durable=False)
        for step in steps:
            story.step(step)
        story.check()


@settings(max_examples=400)
@given(
    st.lists(STEPS | st.just("restart"), max_size=40), st.integers(1, 4), st.sampled_from(("identity", "simple"))
)  # fmt: skip
@example(
    [("c0", "a"), "hold", ("c0", "b"), ("c0", "a"), ("c0", "a"), "restart"], 1, "identity"
)  # asked again, and killed
def test_the_parent_ends_up_with_what_is_wanted_when_the_child_is_killed(
    steps: list[str | tuple[str, str]], under_way_max: int, routing: str
) -> None:
    with patch(LIMIT, under_way_max):
        story = Story(routing, is_durable=True)
        for step in steps:
            story.step(step)
        story.check()

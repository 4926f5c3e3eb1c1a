"""Retained messages on random trees: a new subscriber, wherever it is, gets the last one of each topic, and nobody else does.

What crosses the links for that is counted by definition: the answer comes from the first broker on the way to the root
that knows the filter already, one copy of each message on each link of that way. Where notifications do not climb,
retained messages do so nevertheless, and count as such on links above which nobody wants them.
"""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from brokerbed.topics import ADVERTISE, matches
from tests.core_client import Client
from tests.core_network import Network
from tests.property.test_overlay import shapes
from tests.routing_oracle import ALL, is_covered, subtree

TOPICS = ("a", "a/b", "a/c", "c/d")
FILTERS = ("a", "a/b", "a/c", "a/d", "c/d", "a/+", "a/#", "+/b", "#")
MATCHES = {topic: {it for it in FILTERS if matches(it, topic)} for topic in TOPICS}
COUNTED = ("flooding", "simple", "identity", "covering", "peer")  # for which the definition below counts what crosses


class Story:
    def __init__(self, parents: dict[str, str | None], routing: str) -> None:
        self.parents = parents
        self.routing = routing
        self.network = Network(parents, routing=routing)
        self.clients: dict[str, Client] = {}
        self.filters: dict[str, set[str]] = {node: set() for node in parents}
        self.advertised: dict[str, set[str]] = {node: set() for node in parents}
        self.expected: dict[str, Counter[bytes]] = {node: Counter() for node in parents}
        self.got: dict[str, Counter[bytes]] = {node: Counter() for node in parents}
        self.retained: dict[str, bytes] = {}
        self.replays: Counter[str] = Counter()
        self.published = 0
        for node in parents:
            self.clients[node] = self.network.client(node, f"at-{node}")
            self.clients[node].connect()

    def publish(self, node: str, topic: str, qos: int, is_cleared: bool) -> None:
        self.published += 1
        payload = b"" if is_cleared else b"%d" % self.published
        self.clients[node].publish(topic, payload, qos=qos, retain=True)
        self.retained[topic] = payload
        below = node
        while self.routing == "peer" and (parent := self.parents[below]) is not None:
            above = self.parents.keys() - subtree(self.parents, below)
            self.replays[f"{below}>{parent}"] += not any(self.filters[it] & MATCHES[topic] for it in above)
            below = parent
        for other, filters in self.filters.items():
            if filters & MATCHES[topic]:
                self.expected[other][payload] += 1

    def toggle_advertisement(self, node: str, topic_filter: str) -> None:
        self.collect()
        if topic_filter in self.advertised[node]:
            self.clients[node].send_unsubscribe(ADVERTISE + topic_filter)
        else:
            self.clients[node].subscribe(ADVERTISE + topic_filter)
        self.advertised[node] ^= {topic_filter}

    def unsubscribe(self, node: str, topic_filter: str) -> None:
        self.collect()
        self.clients[node].send_unsubscribe(topic_filter)
        self.filters[node].remove(topic_filter)

    def subscribe(self, node: str, topic_filter: str) -> None:
        self.collect()
        answer = [
            self.retained[topic] for topic in TOPICS if self.retained.get(topic) and topic_filter in MATCHES[topic]
        ]
        self.expected[node].update(answer)
        for child, parent in self.way_of_the_question(node, topic_filter):
            self.replays[f"{parent}>{child}"] += len(answer)
        self.clients[node].subscribe(topic_filter)
        self.filters[node].add(topic_filter)

    def way_of_the_question(self, node: str, topic_filter: str) -> list[tuple[str, str]]:
        way = []
        while (parent := self.parents[node]) is not None and self.routing != "flooding":
            known = set().union(*(self.filters[it] for it in subtree(self.parents, node)))
            is_known = topic_filter in known or (self.routing == "covering" and is_covered(topic_filter, known))
            if is_known and self.routing != "simple":
                break
            way.append((node, parent))
            node = parent
        return way

    def collect(self) -> None:
        for node, client in self.clients.items():
            self.got[node].update(client.payloads())


@settings(max_examples=300)
@given(st.data(), shapes(), st.sampled_from(ALL))
def test_new_subscribers_get_the_last_message_of_each_topic(
    data: st.DataObject, parents: dict[str, str | None], routing: str
) -> None:
    story = Story(parents, routing)
    for _ in range(data.draw(st.integers(0, 30))):
        node = data.draw(st.sampled_from(sorted(parents)))
        action = data.draw(st.sampled_from(("publish", "publish", "toggle", "toggle", "advertise")))
        if action == "advertise":
            story.toggle_advertisement(node, data.draw(st.sampled_from(FILTERS)))
            continue
        if action == "publish":
            is_cleared = data.draw(st.sampled_from((False, False, False, True)))
            story.publish(node, data.draw(st.sampled_from(TOPICS)), data.draw(st.integers(0, 2)), is_cleared)
            continue
        topic_filter = data.draw(st.sampled_from(FILTERS))
        if topic_filter in story.filters[node]:
            story.unsubscribe(node, topic_filter)
        else:
            story.subscribe(node, topic_filter)
    story.collect()
    assert story.got == story.expected
    if routing in COUNTED:
        assert story.network.sent("retained") == dict(+story.replays)

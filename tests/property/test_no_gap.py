"""Nothing is missed and nothing comes twice while covers come and go, filters merge and unmerge, and advertisements are
withdrawn and return.

On random trees the packets on links arrive one by one, in any order that links allow, so a publication can come between
any two announcements. The reference is a broker that keeps one global table: a subscriber whose subscription has spread
gets everything that is published from then on, once.
"""

from collections import Counter
from random import Random

import pytest

from brokerbed.topics import ADVERTISE, matches
from tests import routing_oracle as oracle
from tests.core_client import Client
from tests.slow_network import SlowNetwork, SlowSchedule

TOPICS = ("a/b", "a/c")
FILTERS = ("a/b", "a/c", "a/d", "a/+", "#")
TREES: list[dict[str, str | None]] = [  # few brokers and filters, so that changes often concern the same ones
    {"n0": None, "n1": "n0"}, {"n0": None, "n1": "n0", "n2": "n1"}, {"n0": None, "n1": "n0", "n2": "n0"},
]  # fmt: skip
SCHEDULES, STEPS = 120, 60


class Story(SlowSchedule):
    """At every broker there is also a subscriber that stays, and a client whose subscriptions come and go."""

    actions = ("toggle", "advertise", "publish", "publish", *["deliver"] * 6, "all")

    def __init__(self, random: Random, parents: dict[str, str | None], routing: str) -> None:
        super().__init__(random, parents, routing)
        self.stays = {node: self.slow.client(node, f"stays {node}") for node in parents}
        self.others = {node: self.slow.client(node, f"other {node}") for node in parents}
        self.filters = {node: random.choice(FILTERS[:2]) for node in parents}
        for node, client in self.stays.items():
            client.subscribe(self.filters[node], qos=1)
        self.slow.deliver_all()
        self.toggled = Counter[tuple[str, str]]()
        self.published: list[tuple[str, bytes]] = []

    def act(self, action: str, node: str) -> None:
        if action == "publish":
            self.published.append((self.random.choice(TOPICS), b"%d" % len(self.published)))
            self.writers[node].publish(*self.published[-1], qos=1)
        elif action == "toggle":
            self.toggle(self.others[node], self.random.choice(FILTERS))
        else:
            self.toggle(self.writers[node], ADVERTISE + self.random.choice(FILTERS))

    def toggle(self, client: Client, topic_filter: str) -> None:
        if self.toggled[client.client_id, topic_filter] % 2:
            client.send_unsubscribe(topic_filter)
        else:
            client.send_subscribe(topic_filter)
        self.toggled[client.client_id, topic_filter] += 1

    def check(self) -> None:
        self.slow.deliver_all()
        for node, client in self.stays.items():
            expected = [payload for topic, payload in self.published if matches(self.filters[node], topic)]
            assert Counter(client.payloads()) == Counter(expected), node
        for client in self.others.values():
            assert max(Counter(client.payloads()).values(), default=1) == 1


@pytest.mark.parametrize("routing", oracle.ALL[2:])
def test_subscribers_that_stay_get_everything_once(routing: str) -> None:
    for seed in range(SCHEDULES):
        random = Random(f"{routing}/{seed}")
        story = Story(random, random.choice(TREES), routing)
        story.play(STEPS)
        story.check()


@pytest.mark.parametrize("routing", oracle.ADVERTISING)
@pytest.mark.parametrize("is_quick", [False, True])
def test_advertisement_that_returns_waits_for_a_new_answer(routing: str, is_quick: bool) -> None:
    """The old answer, and what the neighbour announced because of the old advertisement, do not count any more."""
    slow = SlowNetwork({"n0": None, "n1": "n0"}, routing)
    reader, writer = slow.client("n0", "reader"), slow.client("n1", "writer")
    reader.subscribe("a", qos=1)
    writer.send_subscribe(ADVERTISE + "a")
    up, down = slow.ends
    if not is_quick:
        slow.deliver_all()
    slow.deliver(up)  # if quick: the answer is still under way when the advertisement is withdrawn
    writer.send_unsubscribe(ADVERTISE + "a")
    writer.send_subscribe(ADVERTISE + "a")
    for payload in (b"1", b"2", b"3", b"4", b"5", b"6"):
        writer.publish("a", payload, qos=1)
        slow.deliver(up)
        slow.deliver(down)
    slow.deliver_all()
    assert reader.payloads() == [b"1", b"2", b"3", b"4", b"5", b"6"]

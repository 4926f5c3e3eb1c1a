"""Covering, merging, peer and the advertisement algorithms on a small tree: examples worked out by hand.

The tree is R - B1 - (B2, B3, B4). Each step says which messages cross which links, by kind, each once.
"""

from collections import Counter
from typing import Any
from unittest.mock import patch

import mqtt5
import pytest

from brokerbed.broker.core.link import KINDS
from brokerbed.log.record import Kind
from tests.core_client import Client, World
from tests.core_network import Network
from tests.overlay_examples import MUEHL, difference
from tests.unit.broker.test_overlay_messages import ForeignParent, client, published

UP, DOWN = "B2>B1 B1>R", "R>B1 B1>B2"


class Watch:
    """A network, and what has crossed its links since it was last asked."""

    def __init__(self, routing: str, **config: Any) -> None:
        self.network = Network(MUEHL, routing=routing, **config)
        self._before: Counter[tuple[str, str]] = Counter()

    def client(self, node: str, name: str) -> Client:
        return client(self.network, node, name)

    def crossed(self) -> dict[str, str]:
        """By kind: the links, in the order of their names."""
        sent = {(kind, link): count for kind in KINDS for link, count in self.network.sent(kind).items()}
        new, self._before = difference(Counter(sent), self._before), Counter(sent)
        found: dict[str, list[str]] = {}
        for (kind, link), count in sorted(new.items()):
            found.setdefault(kind, []).extend([link] * count)
        return {kind: " ".join(links) for kind, links in found.items()}

    def changes(self, node: str, neighbour: str) -> list[str]:
        """What the broker logged about its entries for a neighbour: + or - and the filter."""
        signs = {Kind.SUBSCRIBED: "+", Kind.UNSUBSCRIBED: "-", Kind.ADVERTISED: "!", Kind.UNADVERTISED: "?"}
        events = self.network.events(node, *signs)
        return [signs[it["kind"]] + it["topic"] for it in events if it["subject"] == f"{node}>{neighbour}"]


def test_cover_takes_the_place_of_what_it_covers_and_gives_it_back() -> None:
    watch = Watch("covering")
    narrow, wide = watch.client("B2", "narrow"), watch.client("B2", "wide")
    narrow.subscribe("a/1", "a/2", "b")
    assert watch.crossed() == {"subscribe": "B1>R B1>R B1>R B2>B1 B2>B1 B2>B1"}
    wide.subscribe("a/+")
    assert watch.crossed() == {"subscribe": "B1>R B2>B1"}  # the parents drop a/1 and a/2 by themselves
    assert watch.network.entries("B1") == {"B2": ["a/+", "b"]}
    assert watch.network.entries("R") == {"B1": ["a/+", "b"]}
    narrow.subscribe("a/3")
    narrow.send_unsubscribe("a/2")
    assert watch.crossed() == {}
    wide.send_unsubscribe("a/+")
    assert watch.crossed() == {"subscribe": "B1>R B1>R B2>B1 B2>B1", "unsubscribe": "B1>R B2>B1"}
    assert watch.network.entries("R") == {"B1": ["a/1", "a/3", "b"]}
    # What disappears without a message is in the log; and there is an entry for a/1 or its cover at any time.
    assert watch.changes("R", "B1") == ["+a/1", "+a/2", "+b", "+a/+", "-a/1", "-a/2", "+a/1", "+a/3", "-a/+"]


def test_covers_of_other_children_do_not_travel_further() -> None:
    watch = Watch("covering")
    watch.client("B2", "one").subscribe("a/#")
    watch.crossed()
    other = watch.client("B3", "other")
    other.subscribe("a/1")
    assert watch.crossed() == {"subscribe": "B3>B1"}
    other.publish("a/2", b"x")
    assert watch.crossed() == {"notification": "B1>B2 B1>R B3>B1"}
    watch.client("R", "root").publish("a/1", b"x")
    assert watch.crossed() == {"notification": "B1>B2 B1>B3 R>B1"}


def test_shared_groups_are_covered_by_their_plain_filter() -> None:
    watch = Watch("covering")
    watch.client("B2", "one").subscribe("$share/g/a/#")
    assert watch.crossed() == {"subscribe": "B1>R B2>B1"}
    watch.client("B2", "two").subscribe("a/1")
    watch.client("B2", "three").subscribe("$share/g/a/2")
    assert watch.crossed() == {}


def test_merging_begins_and_ends_at_its_threshold() -> None:
    watch = Watch("merging")
    one = watch.client("B2", "one")
    one.subscribe("g/1", "g/2")
    assert watch.crossed() == {"subscribe": "B1>R B1>R B2>B1 B2>B1"}
    one.subscribe("g/3")
    assert watch.crossed() == {"subscribe": "B1>R B2>B1"}
    assert watch.network.entries("R") == {"B1": ["g/+"]}
    one.subscribe("g/4")
    one.send_unsubscribe("g/1")
    assert watch.crossed() == {}
    watch.client("R", "root").publish("g/9", b"nobody wants it")
    assert watch.crossed() == {"notification": "B1>B2 R>B1"}
    one.send_unsubscribe("g/2")
    assert watch.crossed() == {"subscribe": "B1>R B1>R B2>B1 B2>B1", "unsubscribe": "B1>R B2>B1"}
    assert watch.network.entries("R") == {"B1": ["g/3", "g/4"]}


def test_threshold_of_merging_can_be_set() -> None:
    watch = Watch("merging", routing_parameters={"threshold": 2})
    watch.client("B2", "one").subscribe("g/1", "g/2")
    assert watch.network.entries("R") == {"B1": ["g/+"]}


def test_filters_of_several_children_are_merged_above_them() -> None:
    watch = Watch("merging")
    for number, node in enumerate(("B2", "B3", "B4")):
        watch.client(node, f"at {node}").subscribe(f"g/{number}")
    assert watch.network.entries("B1") == {"B2": ["g/0"], "B3": ["g/1"], "B4": ["g/2"]}
    assert watch.network.entries("R") == {"B1": ["g/+"]}


def test_peer_announces_in_all_directions_and_sends_only_where_wanted() -> None:
    watch = Watch("peer")
    one, two = watch.client("B2", "one"), watch.client("B3", "two")
    one.subscribe("f")
    assert watch.crossed() == {"subscribe": "B1>B3 B1>B4 B1>R B2>B1"}
    two.publish("f", b"x")
    assert watch.crossed() == {"notification": "B1>B2 B3>B1"}
    two.subscribe("f")
    assert watch.crossed() == {"subscribe": "B1>B2 B3>B1"}
    one.publish("f", b"x")
    assert watch.crossed() == {"notification": "B1>B3 B2>B1"}
    one.send_unsubscribe("f")
    assert watch.crossed() == {"unsubscribe": "B1>B3 B2>B1"}
    one.publish("g", b"nobody wants it")
    assert watch.crossed() == {}


def test_jedi_tells_publishers_of_interest_above_and_aside() -> None:
    watch = Watch("advertisement")
    source, reader = watch.client("B2", "source"), watch.client("B3", "reader")
    reader.subscribe("f")
    assert watch.crossed() == {"subscribe": "B1>R B3>B1"}
    assert source.subscribe("$advertise/f") == [2]
    assert watch.crossed() == {"advertise": "B1>R B2>B1", "subscribe": "B1>B2"}
    source.publish("f", b"x")
    assert watch.crossed() == {"notification": "B1>B3 B2>B1"}
    root = watch.client("R", "root")
    root.subscribe("f")
    assert watch.crossed() == {"subscribe": "R>B1"}
    source.publish("f", b"y")
    assert watch.crossed() == {"notification": "B1>B3 B1>R B2>B1"}
    reader.send_unsubscribe("f")
    assert watch.crossed() == {"unsubscribe": "B1>R B3>B1"}
    source.send_unsubscribe("$advertise/f")
    assert watch.crossed() == {"unadvertise": "B1>R B2>B1"}  # takes the entries from above with it
    assert (watch.network.entries("B2"), watch.network.entries("B1"), watch.network.advertised("R")) == ({}, {}, {})
    assert watch.changes("B2", "B1") == ["+f", "-f"]
    assert watch.changes("R", "B1") == ["+f", "!f", "-f", "?f"]
    source.publish("f", b"z")
    assert watch.crossed() == {"unadvertised": "B1>R B2>B1"}
    assert (published(reader)[-1].payload, [it.payload for it in published(root)]) == (b"y", [b"y", b"z"])


def test_peer_advertisement_sends_subscriptions_towards_publishers_only() -> None:
    watch = Watch("peer-advertisement")
    source, reader = watch.client("B2", "source"), watch.client("B3", "reader")
    reader.subscribe("f/+")
    assert watch.crossed() == {"retained": "B1>R B3>B1"}  # asks for retained messages, and leaves no entries
    source.subscribe("$advertise/f/#")
    assert watch.crossed() == {
        "advertise": "B1>B3 B1>B4 B1>R B2>B1", "subscribe": "B1>B2 B3>B1", "retained": "B1>R",
    }  # fmt: skip
    source.publish("f/1", b"x")
    assert watch.crossed() == {"notification": "B1>B3 B2>B1"}
    source.publish("g", b"not advertised")
    assert watch.crossed() == {"unadvertised": "B1>B3 B1>B4 B1>R B2>B1"}
    source.drop()  # the session ends, and its advertisement with it
    assert watch.crossed() == {"unadvertise": "B1>B3 B1>B4 B1>R B2>B1"}
    assert [watch.network.entries(node) for node in MUEHL] == [{}] * 5
    assert [it.payload for it in published(reader)] == [b"x"]


def test_publication_is_not_advertised_until_all_links_have_answered() -> None:
    watch = Watch("advertisement")
    source, reader = watch.client("B2", "source"), watch.client("R", "reader")
    reader.subscribe("f")
    watch.network.hold("B1")  # R does not answer yet
    source.subscribe("$advertise/f")
    source.publish("f", b"1", qos=1)
    watch.network.release("B1")
    assert watch.crossed() == {
        "advertise": "B1>R B2>B1", "subscribe": "B1>B2 R>B1", "unadvertised": "B1>R B2>B1",
    }  # fmt: skip
    source.publish("f", b"2", qos=1)
    assert watch.crossed() == {"notification": "B1>R B2>B1"}
    assert [it.payload for it in published(reader)] == [b"1", b"2"]


# -- a foreign parent --------------------------------------------------------------------------------------------------


def below_foreign(routing: str) -> tuple[World, ForeignParent, Client]:
    world = World(name="leaf", routing=routing)
    parent = ForeignParent(world)
    parent.accept()
    subscriber = Client(world, "subscriber")
    subscriber.connect()
    return world, parent, subscriber


def told(parent: ForeignParent) -> list[str]:
    """+ or -, the filter, and the retain handling of what the parent was told; it acknowledges."""
    found = []
    for packet in parent.read_all():
        if isinstance(packet, mqtt5.SubscribePacket):
            found += [f"+{it.pattern} {int(it.retain_handling)}" for it in packet.topic_filters]
            parent.send(mqtt5.SubAckPacket(packet.packet_id, [mqtt5.SubAckReasonCode.GRANTED_QOS_EXACTLY_ONCE]))
        elif isinstance(packet, mqtt5.UnsubscribePacket):
            found += [f"-{pattern}" for pattern in packet.patterns]
            parent.send(mqtt5.UnsubAckPacket(packet.packet_id, [mqtt5.UnsubAckReasonCode.SUCCESS]))
    return found


def test_foreign_parent_is_told_to_drop_what_is_covered() -> None:
    world, parent, subscriber = below_foreign("covering")
    subscriber.subscribe("a/1", "a/2")
    assert told(parent) == ["+a/1 0", "+a/2 0"]
    subscriber.subscribe("a/#")
    assert told(parent) == ["+a/# 0", "-a/1", "-a/2"]
    subscriber.send_unsubscribe("a/#")
    assert told(parent) == ["+a/1 2", "+a/2 2", "-a/#"]
    assert world.broker.overlay.parent is not None
    assert world.broker.overlay.parent.link is not None
    sent = world.broker.overlay.parent.link.sent
    assert (sent["subscribe"], sent["unsubscribe"], sent["resync"]) == (5, 1, 2)


def test_withdrawals_for_a_foreign_parent_wait_like_all_others() -> None:
    world, parent, subscriber = below_foreign("covering")
    with patch("brokerbed.broker.core.announcements.UNACKNOWLEDGED_MAX", 2):
        filters = [f"a/{number}" for number in range(6)]
        subscriber.subscribe(*filters)
        subscriber.subscribe("a/#")
        found = told(parent)
        assert len(found) == 2  # only these are under way
        while more := told(parent):
            found += more
    at_parent: dict[str, None] = {}
    for change in found:
        topic_filter = change[1:].split()[0]
        at_parent.pop(topic_filter, None)
        if change[0] == "+":
            at_parent[topic_filter] = None
        assert "a/#" in at_parent or change[0] == "+"
    assert list(at_parent) == ["a/#"]
    assert world.broker.overlay.parent is not None
    assert not world.broker.overlay.parent.parked


@pytest.mark.parametrize("routing", ["simple", "peer", "advertisement", "peer-advertisement"])
def test_algorithms_that_need_a_brokerbed_parent_refuse_another_kind(routing: str) -> None:
    world = World(name="leaf", routing=routing)
    parent = ForeignParent(world)
    parent.accept()
    assert parent.is_closed
    refused = f"the parent at parent:1883 is another kind of broker, and {routing} routing needs a brokerbed one"
    assert world.broker.overlay.introduction.refusal == refused


# -- retained messages -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("routing", ["covering", "merging"])
def test_retained_messages_under_covers_go_once_to_each_new_subscriber(routing: str) -> None:
    watch = Watch(routing)
    writer = watch.client("R", "writer")
    for number in range(4):
        writer.publish(f"g/{number}", b"%d" % number, retain=True)
    one, two = watch.client("B2", "one"), watch.client("B2", "two")
    one.subscribe("g/0", "g/1")
    assert sorted(one.payloads()) == [b"0", b"1"]
    one.subscribe("g/2")  # under merging, g/+ is asked for in its place
    assert one.payloads() == [b"2"]
    two.subscribe("g/+")
    assert (sorted(two.payloads()), one.payloads()) == ([b"0", b"1", b"2", b"3"], [])
    two.subscribe("g/3")
    two.send_unsubscribe("g/+")
    assert (two.payloads(), one.payloads()) == ([b"3"], [])


def test_subscriber_below_a_cover_that_is_not_answered_yet_gets_what_is_retained() -> None:
    watch = Watch("covering")
    watch.client("R", "writer").publish("a/1", b"kept", retain=True)
    watch.network.hold("B1")
    wide, narrow = watch.client("B2", "wide"), watch.client("B2", "narrow")
    wide.subscribe("a/#")
    narrow.subscribe("a/1")
    watch.network.release("B1")
    assert (wide.payloads(), narrow.payloads()) == ([b"kept"], [b"kept"])


@pytest.mark.parametrize("routing", ["peer", "advertisement", "peer-advertisement"])
def test_later_subscriber_finds_what_is_retained_though_its_publisher_is_gone(routing: str) -> None:
    watch = Watch(routing)
    writer = watch.client("B2", "writer")
    writer.subscribe("$advertise/f")
    writer.publish("f", b"kept", qos=1, retain=True)
    writer.drop()
    first = watch.client("B3", "first")
    first.subscribe("+")
    assert first.payloads() == [b"kept"]
    watch.network.cut("B4")
    second = watch.client("B4", "second")
    second.subscribe("f")
    watch.network.join("B4")
    assert (second.payloads(), first.payloads()) == ([b"kept"], [])
    third = watch.client("R", "third")
    third.subscribe("#")
    assert (third.payloads(), second.payloads(), first.payloads()) == ([b"kept"], [], [])

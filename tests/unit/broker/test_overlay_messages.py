"""What a message carries over links: one identity, seen by no client; retained messages; a foreign parent's copies."""

from typing import Any

import mqtt5
import pytest

from brokerbed.log.record import Kind
from tests.core_client import FOREVER_S, NS_PER_S, QOS, Client, World
from tests.core_network import Network

CHAIN = {"a": None, "b": "a", "c": "b"}


def client(network: Network, node: str, name: str, *filters: str, **options: Any) -> Client:
    made = network.client(node, name)
    made.connect()
    if filters:
        made.subscribe(*filters, **options)
    return made


def published(client: Client) -> list[mqtt5.PublishPacket]:
    found = [packet for packet in client.read_all() if isinstance(packet, mqtt5.PublishPacket)]
    for packet in found:
        client.acknowledge(packet)
    return found


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_one_identity_on_the_whole_way_and_no_client_sees_it(qos: int) -> None:
    network = Network({**CHAIN, "d": "a"})
    reader = client(network, "d", "reader", "t")
    writer = client(network, "c", "writer")
    mine = [("color", "red"), ("color", "blue")]
    writer.publish("other", b"")
    writer.publish("t", b"1", qos=qos)
    writer.publish("t", b"2", qos=qos, user_properties=mine, content_type="text")
    got = published(reader)
    assert [(it.payload, it.user_properties, it.content_type) for it in got] == [(b"1", [], None), (b"2", mine, "text")]
    for node in network.nodes:
        events = network.events(node, Kind.ROUTED, Kind.RECEIVED)
        ids = [(it["origin"], it["sequence"]) for it in events if it["topic"] == "t"]
        assert ids == [("c.1", 2), ("c.1", 3)], node


def test_run_of_notifications_keeps_its_numbers_over_links() -> None:
    network = Network({**CHAIN, "d": "a"})
    reader = client(network, "d", "reader", "t")
    writer = client(network, "c", "writer")
    run = [mqtt5.PublishPacket("t", b"%03d" % number) for number in range(50)]
    gap = mqtt5.PublishPacket("u", b"000")
    writer.send(*run[:20], gap, *run[20:])
    assert [it.payload for it in published(reader)] == [it.payload for it in run]
    events = [it for it in network.events("d", Kind.ROUTED) if it["topic"] == "t"]
    assert [(it["origin"], it["sequence"], it["count"]) for it in events] == [("c.1", 1, 20), ("c.1", 22, 30)]


def test_what_only_links_may_say_is_refused_from_clients() -> None:
    world = World()
    one = Client(world, "one")
    assert int(one.connect(user_properties=[("overlay-name", "x")]).reason_code) == 0x87
    assert int(one.connect(will=mqtt5.Will("t", user_properties=[("overlay-message", "x")])).reason_code) == 0x87
    one.connect()
    one.publish("t", b"", qos=1, user_properties=[("overlay-message", "x.1.0000000000000001")])
    assert [int(it.reason_code) for it in one.read_all() if isinstance(it, mqtt5.PubAckPacket)] == [0x87]
    one.send(mqtt5.SubscribePacket(9, [mqtt5.TopicFilter("t")], user_properties=[("overlay-identity", "x")]))
    answer = one.read()
    assert isinstance(answer, mqtt5.SubAckPacket)
    assert [int(code) for code in answer.reason_codes] == [0x87]


class ForeignParent(Client):
    """A parent that is a plain MQTT 5 broker, played by the test."""

    def accept(self) -> None:
        self.open()
        assert self.connection is not None
        self.connection.peer = "parent:1883"
        self.world.broker.overlay.dialled(self.connection)
        self.world.settle()
        assert isinstance(self.read(), mqtt5.ConnectPacket)
        self.send(mqtt5.ConnAckPacket())


@pytest.fixture
def below_foreign() -> tuple[World, ForeignParent]:
    world = World(name="leaf")
    parent = ForeignParent(world)
    parent.accept()
    return world, parent


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_copies_of_a_foreign_parent_are_dropped(below_foreign: tuple[World, ForeignParent], qos: int) -> None:
    world, parent = below_foreign
    reader = Client(world, "reader")
    reader.connect()
    reader.subscribe("t/#", "t/1")
    tag = [("overlay-message", "b7.3.0000000000000042")]
    for packet_id in (1, 2):
        packet = mqtt5.PublishPacket(
            "t/1", b"x", qos=QOS[qos], packet_id=packet_id if qos else None, user_properties=tag
        )
        parent.send(packet)
    parent.publish("t/1", b"of a client of the parent")
    assert reader.payloads() == [b"x", b"of a client of the parent"]
    answers = [it for it in parent.read_all() if isinstance(it, mqtt5.PubAckPacket | mqtt5.PubRecPacket)]
    assert len(answers) == (2 if qos else 0)
    assert world.broker.overlay.parent is not None
    assert world.broker.overlay.parent.link is not None
    assert world.broker.overlay.parent.link.received == {"notification": 2, "retained": 0}


def test_answers_of_a_foreign_parent_are_told_apart_from_live_messages(
    below_foreign: tuple[World, ForeignParent],
) -> None:
    world, parent = below_foreign
    old, new = Client(world, "old"), Client(world, "new")
    old.connect()
    new.connect()
    old.subscribe("#")
    assert [type(it) for it in parent.read_all()] == [mqtt5.SubscribePacket, mqtt5.PingReqPacket]
    parent.send(mqtt5.PublishPacket("t", b"kept", retain=True), mqtt5.PingRespPacket())
    assert old.payloads() == [b"kept"]
    new.subscribe("t")
    parent.send(mqtt5.PublishPacket("t", b"kept", retain=True))
    parent.send(mqtt5.PublishPacket("t", b"live", retain=True), mqtt5.PingRespPacket())
    parent.send(mqtt5.PublishPacket("t", b"later", retain=True))
    assert (old.payloads(), new.payloads()) == ([b"live", b"later"], [b"kept", b"live", b"later"])
    third = Client(world, "third")
    third.connect()
    third.subscribe("t")
    assert third.payloads() == [b"later"]


def test_subscription_made_while_the_link_is_cut_gets_both_sides() -> None:
    """At once what its own side has; after the cut what the others have, but nothing twice."""
    network = Network(CHAIN)
    top, bottom = client(network, "a", "top"), client(network, "c", "bottom")
    top.publish("t/above", b"1", retain=True)
    bottom.publish("t/below", b"2", retain=True)
    network.cut("c")
    late = client(network, "c", "late", "t/#")
    assert late.payloads() == [b"2"]
    network.join("c")
    assert late.payloads() == [b"1"]
    assert network.sent("resync") == {"c>b": 1, "b>a": 1}


def test_second_subscriber_is_answered_by_its_own_broker() -> None:
    network = Network(CHAIN)
    top = client(network, "a", "top")
    top.publish("t", b"1", retain=True)
    first = client(network, "c", "first", "t")
    second = client(network, "c", "second", "t")
    assert (first.payloads(), second.payloads()) == ([b"1"], [b"1"])
    assert network.sent("retained") == {"a>b": 1, "b>c": 1}


def test_answer_that_comes_after_the_interest_is_gone_is_discarded() -> None:
    network = Network(CHAIN)
    client(network, "a", "top").publish("t", b"1", retain=True)
    network.hold("c")
    reader = client(network, "c", "reader", "t")
    reader.send_unsubscribe("t")
    network.release("c")
    assert reader.payloads() == []
    assert "t" not in network.nodes["c"].broker.retained


def test_refresh_and_resynchronisation_bring_no_retained_messages_again() -> None:
    network = Network(CHAIN, refresh_s=1.0)
    client(network, "a", "top").publish("t", b"1", retain=True)
    reader = client(network, "c", "reader", "t")
    network.wait(5)
    network.cut("c")
    network.join("c")
    network.restart("b")
    network.join("b")
    network.join("c")
    assert reader.payloads() == [b"1"]
    again = client(network, "b", "again", "t")
    assert again.payloads() == [b"1"]


@pytest.mark.parametrize(
    ("routing", "filters"), [("simple", ("t", "t")), ("identity", ("t", "#")), ("identity", ("+", "t"))]
)
def test_all_who_subscribed_during_a_cut_get_what_is_retained_above(routing: str, filters: tuple[str, str]) -> None:
    """The parent answers for each entry; what the first answer brought is no reason to keep it from the second one."""
    network = Network({"a": None, "b": "a"}, routing=routing)
    client(network, "a", "writer").publish("t", b"kept", qos=1, retain=True)
    network.cut("b")
    readers = [client(network, "b", f"reader{index}", topic_filter) for index, topic_filter in enumerate(filters)]
    assert [reader.payloads() for reader in readers] == [[], []]
    network.join("b")
    assert [reader.payloads() for reader in readers] == [[b"kept"], [b"kept"]]
    network.cut("b")
    network.join("b")
    assert [reader.payloads() for reader in readers] == [[], []]


def test_answer_of_the_parent_is_still_one_after_a_restart_in_the_emulated_input() -> None:
    """A retained message on its way to one new subscriber is no news for the others, though the broker dies meanwhile."""
    network = Network({"a": None, "b": "a"}, is_durable=True, configs={"b": {"service_in": lambda: 5 * NS_PER_S}})
    old = network.client("b", "old")
    old.connect(expiry_s=FOREVER_S)
    client(network, "a", "writer").publish("t", b"kept", qos=1, retain=True)
    old.subscribe("+/+", qos=1)
    new = network.client("b", "new")
    new.connect(expiry_s=FOREVER_S)
    new.subscribe("t", qos=1)
    old.subscribe("+", qos=1, retain_handling=mqtt5.RetainHandling.SEND_NEVER)
    old.payloads()
    network.restart("b")
    network.join("b")
    network.wait(6)
    old.connect(clean=False, expiry_s=FOREVER_S)
    new.connect(clean=False, expiry_s=FOREVER_S)
    assert new.payloads() == [b"kept"]
    assert old.payloads() == []

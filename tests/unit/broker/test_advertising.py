"""How clients advertise: with a SUBSCRIBE to `$advertise/` and a filter, in both versions of MQTT, under every algorithm."""

import mqtt5
import pytest

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.core.access import parse_access
from brokerbed.broker.core.broker import Broker
from brokerbed.broker.core.link import KINDS
from brokerbed.broker.runtime.metrics import BrokerCollector
from brokerbed.log.record import UNADVERTISED_FLAG, Kind, Log
from tests.core_client import FOREVER_S, Client, World
from tests.core_network import Network
from tests.routing_oracle import ADVERTISING, ALL
from tests.unit.broker.test_overlay_messages import client

PAIR = {"root": None, "leaf": "root"}
NOT_AUTHORIZED, QUOTA_EXCEEDED, INVALID = 0x87, 0x97, 0x8F


def connected(world: World, name: str = "c", **options: object) -> Client:
    made = Client(world, name)
    made.connect(**options)  # type: ignore[arg-type]
    return made


@pytest.mark.parametrize("routing", ALL)
def test_advertisement_is_granted_and_nothing_is_delivered_for_it(routing: str) -> None:
    world = World(routing=routing)
    advertiser, other = connected(world), connected(world, "other")
    assert advertiser.subscribe("$advertise/a/+", "$advertise/#", "b", qos=1) == [1, 1, 1]
    for topic in ("a/1", "$advertise/a/1", "b"):
        other.publish(topic, topic.encode(), retain=True)
    assert advertiser.payloads() == [b"b"]
    advertiser.send(mqtt5.UnsubscribePacket(9, ["$advertise/a/+", "$advertise/a/+"]))
    (answer,) = [it for it in advertiser.read_all() if isinstance(it, mqtt5.UnsubAckPacket)]
    assert [int(code) for code in answer.reason_codes] == [0, 0x11]


def subscribe_bytes(pattern: str) -> bytes:
    """A SUBSCRIBE of MQTT 5, also for a filter that the codec of the client would refuse."""
    body = b"\0\1" + b"\0" + len(pattern).to_bytes(2, "big") + pattern.encode() + b"\1"
    return b"\x82" + bytes((len(body),)) + body


@pytest.mark.parametrize("malformed", ["$advertise/", "$advertise/a#", "$advertise/a/#/b", "$advertise/+b"])
def test_malformed_filter_is_answered_as_in_a_subscription(malformed: str) -> None:
    codes = []
    for pattern in (malformed, malformed.removeprefix("$advertise/")):
        made = connected(World())
        made.send_bytes(subscribe_bytes(pattern))
        (answer,) = made.read_all()
        assert isinstance(answer, mqtt5.DisconnectPacket)
        codes.append(answer.reason_code)
    assert codes[0] == codes[1]


def test_whoever_may_publish_may_advertise() -> None:
    access = parse_access("topic write out/+\ntopic read in/+\n")
    world = World(access=access)
    advertiser = connected(world)
    wanted = ("$advertise/out/1", "$advertise/out/+", "$advertise/in/1", "$advertise/#", "$advertise/$SYS/x", "in/1")
    refused = NOT_AUTHORIZED
    assert advertiser.subscribe(*wanted, qos=0) == [0, 0, refused, refused, refused, 0]
    assert advertiser.subscribe("$share/g/$advertise/out/1") == [INVALID]


def test_advertisements_count_against_the_limit_of_subscriptions() -> None:
    advertiser = connected(World(subscriptions_max=2))
    assert advertiser.subscribe("$advertise/a", "b", "$advertise/c", "d", "$advertise/a", qos=0) == [
        0, 0, QUOTA_EXCEEDED, QUOTA_EXCEEDED, 0,
    ]  # fmt: skip


def test_client_of_3_1_1_advertises() -> None:
    network = Network(PAIR, routing="advertisement")
    leaf = network.nodes["leaf"].broker
    old = network.client("leaf", "old")
    old.open()
    old.send_bytes(bytes.fromhex("10 0f 0004 4d515454 04 02 0000 0003 6f6c64"))  # CONNECT of 3.1.1, id "old"
    pattern = b"$advertise/a"
    old.send_bytes(b"\x82" + bytes((5 + len(pattern), 0, 1, 0, len(pattern))) + pattern + b"\x01")
    assert old.inbox == bytes.fromhex("20 02 0000") + bytes.fromhex("90 03 0001 01")
    assert network.advertised("root") == {"leaf": ["a"]}
    old.send_bytes(b"\xa2" + bytes((4 + len(pattern), 0, 2, 0, len(pattern))) + pattern)
    assert network.advertised("root") == {}
    assert leaf.counters.protocol_errors == 0


def test_log_has_advertisements_and_the_hint_once_per_session() -> None:
    network = Network(PAIR, routing="advertisement")
    one, two = client(network, "leaf", "one"), client(network, "leaf", "two")
    one.subscribe("$advertise/a/+", "$advertise/a/+")
    for publisher, topic in ((one, "a/1"), (one, "b"), (one, "c"), (two, "d"), (two, "d")):
        publisher.publish(topic, b"x", qos=1)
    one.drop()
    events = network.events("leaf", Kind.ADVERTISED, Kind.UNADVERTISED, Kind.NOT_ADVERTISED)
    assert [(Kind(it["kind"]), it["subject"], it["topic"]) for it in events] == [
        (Kind.ADVERTISED, "one", "a/+"),
        (Kind.NOT_ADVERTISED, "one", "b"),
        (Kind.NOT_ADVERTISED, "two", "d"),
        (Kind.UNADVERTISED, "one", "a/+"),
    ]
    sent = network.events("leaf", Kind.LINK_ADVERTISE, Kind.LINK_UNADVERTISE)
    assert [(Kind(it["kind"]), it["subject"], it["topic"]) for it in sent] == [
        (Kind.LINK_ADVERTISE, "leaf>root", "a/+"), (Kind.LINK_UNADVERTISE, "leaf>root", "a/+"),
    ]  # fmt: skip
    known = network.events("root", Kind.ADVERTISED, Kind.UNADVERTISED)
    assert [(it["subject"], it["topic"]) for it in known] == [("root>leaf", "a/+")] * 2
    climbed = [it for it in network.events("leaf", Kind.SENT) if it["subject"] == "leaf>root"]
    assert [(it["topic"], it["flags"] & UNADVERTISED_FLAG) for it in climbed] == [
        ("b", UNADVERTISED_FLAG), ("c", UNADVERTISED_FLAG), ("d", UNADVERTISED_FLAG), ("d", UNADVERTISED_FLAG),
    ]  # fmt: skip


@pytest.mark.parametrize("routing", ADVERTISING)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_mark_of_unadvertised_messages_is_for_links_only(routing: str, qos: int) -> None:
    network = Network({**PAIR, "top": None, "root": "top"}, routing=routing)
    reader, writer = client(network, "top", "reader", "t"), client(network, "leaf", "writer")
    writer.publish("t", b"x", qos=qos, user_properties=[("color", "red")])
    (packet,) = [it for it in reader.read_all() if isinstance(it, mqtt5.PublishPacket)]
    assert (packet.payload, packet.user_properties) == (b"x", [("color", "red")])
    assert network.sent("unadvertised") == {"leaf>root": 1, "root>top": 1}


@pytest.mark.parametrize("routing", ADVERTISING)
def test_unadvertised_messages_that_wait_for_a_link_survive_a_restart(routing: str) -> None:
    """They are still marked, so the next broker sends them on to where nobody has announced interest."""
    network = Network({"top": None, "root": "top", "leaf": "root"}, is_durable=True, routing=routing)
    reader, writer = network.client("top", "reader"), network.client("leaf", "writer")
    for made in (reader, writer):
        made.connect(expiry_s=FOREVER_S)
    reader.subscribe("t")
    network.cut("leaf")
    writer.publish("t", b"x", qos=1)
    network.restart("leaf")
    network.join("leaf")
    assert reader.payloads() == [b"x"]


@pytest.mark.parametrize("routing", ADVERTISING)
def test_advertisements_and_answers_survive_a_restart(routing: str) -> None:
    network = Network(PAIR, is_durable=True, routing=routing)
    reader, writer = network.client("root", "reader"), network.client("leaf", "writer")
    for made in (reader, writer):
        made.connect(expiry_s=FOREVER_S)
    writer.subscribe("$advertise/t/+")
    reader.subscribe("t/1")
    for node in ("leaf", "root"):
        network.restart(node)
        network.join("leaf")
        assert network.sent("resync") == {}
    writer.connect(clean=False, expiry_s=FOREVER_S)
    reader.connect(clean=False, expiry_s=FOREVER_S)
    writer.publish("t/1", b"x", qos=1)
    writer.publish("t/2", b"y", qos=1)
    assert reader.payloads() == [b"x"]
    assert (network.sent("notification"), network.sent("unadvertised")) == ({"leaf>root": 1}, {})


def test_metrics_have_advertisements() -> None:
    network = Network(PAIR, routing="advertisement")
    client(network, "leaf", "one", "$advertise/a", "$advertise/b", "c")
    network.cut("leaf")  # what is known of the neighbour stays
    collected = {it.name: it for it in BrokerCollector(network.nodes["root"].broker).collect()}
    entries = {it.labels["scope"]: it.value for it in collected["brokerbed_routing_entries"].samples}
    assert entries == {"local": 0, "remote": 1, "advertisement": 2}
    kinds = {it.labels["kind"] for it in collected["brokerbed_link_messages"].samples}
    assert kinds == set(KINDS) >= {"advertise", "unadvertise", "unadvertised"}


def test_log_of_a_start_has_what_was_restored() -> None:
    network = Network(PAIR, is_durable=True, routing="advertisement")
    writer = network.client("leaf", "writer")
    writer.connect(expiry_s=FOREVER_S)
    writer.subscribe("$advertise/t", "u")
    network.restart("root")
    network.nodes["root"].broker.started(network.now_ns)
    events = network.events("root", Kind.SUBSCRIBED, Kind.ADVERTISED)
    assert [(Kind(it["kind"]), it["subject"], it["topic"]) for it in events] == [
        (Kind.SUBSCRIBED, "root>leaf", "u"), (Kind.ADVERTISED, "root>leaf", "t"),
    ]  # fmt: skip


def test_threshold_must_be_one_that_the_algorithm_has() -> None:
    with pytest.raises(ValueError, match="threshold must be a whole number of at least 2, not 1"):
        Broker(BrokerConfig(routing="merging", routing_parameters={"threshold": 1}), Log())
    with pytest.raises(ValueError, match="identity routing has no parameter threshold; it has none"):
        Broker(BrokerConfig(routing="identity", routing_parameters={"threshold": 3}), Log())

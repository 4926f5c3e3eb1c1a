"""Sessions that follow their clients from broker to broker: examples worked out by hand, on cores joined in memory."""

from collections import Counter

import mqtt5
import pytest

from brokerbed.broker.core.session_moves import MOVED_WINDOW
from brokerbed.log.record import WAITED, Kind
from brokerbed.topics import ADVERTISE
from tests import routing_oracle as oracle
from tests.core_client import NS_PER_S, QOS
from tests.core_network import Network
from tests.core_roaming import LINE, SEVEN, is_at_rest, keeps, leaves, open_claim, publisher_at
from tests.slow_network import SlowNetwork

CONTROL = ("subscribe", "unsubscribe", "advertise", "unadvertise")


def sent(network: Network) -> Counter[str]:
    return Counter({f"{kind} {link}": n for kind in CONTROL for link, n in network.sent(kind).items()})


def crossed(network: Network, before: Counter[str]) -> dict[str, int]:
    after = sent(network)
    return {key: after[key] - before[key] for key in after if after[key] != before[key]}


@pytest.mark.parametrize("routing", oracle.ALL)
@pytest.mark.parametrize(("old", "new"), [("a", "c"), ("c", "a"), ("x1", "y2")])
def test_client_finds_at_the_new_broker_all_that_waited_at_the_old_one(routing: str, old: str, new: str) -> None:
    network = Network(SEVEN if old == "x1" else LINE, is_durable=True, routing=routing)
    first, _ = keeps(network, old)
    first.subscribe("t/1", "t/+", qos=2)
    publishers = [network.client(node, f"p{node}") for node in network.nodes]
    for publisher in publishers:
        publisher.connect()
    first.drop()
    for number, publisher in enumerate(publishers):
        publisher.publish("t/1", b"%d" % number, qos=1 + number % 2)
    second, answer = keeps(network, new)
    assert answer.session_present
    for number, publisher in enumerate(publishers, len(publishers)):
        publisher.publish("t/2", b"%d" % number, qos=number % 3)
    assert second.payloads() == [b"%d" % number for number in range(2 * len(publishers))]
    assert is_at_rest(network)
    assert [node.name for node in network.nodes.values() if "s" in node.broker.sessions] == [new]


@pytest.mark.parametrize("routing", oracle.ALL)
def test_tables_follow_and_only_links_on_the_way_see_a_change(routing: str) -> None:
    network = Network(SEVEN, is_durable=True, routing=routing)
    for node in network.nodes:
        publisher = network.client(node, f"p{node}")
        publisher.connect()
        publisher.subscribe(ADVERTISE + "t/+")
    client, _ = keeps(network, "x1")
    client.subscribe("t/1")
    client.subscribe(ADVERTISE + "t/1")
    client.drop()
    before = sent(network)
    keeps(network, "y2")
    up, down = {"x>r", "x1>x"}, {"y>r", "y2>y"}
    changed = crossed(network, before)
    right = oracle.tables(
        routing, SEVEN, {"y2": ["t/1"]}, {"y2": ["t/1", "t/+"], **{node: ["t/+"] for node in SEVEN if node != "y2"}}
    )
    for node, neighbour in right.entries:
        entries = network.entries(node).get(neighbour, [])
        assert entries == right.entries[node, neighbour], (node, neighbour)
    if routing == "flooding":
        assert changed == {}
        return
    expected = {f"unsubscribe {link}": 1 for link in up} | {f"subscribe {link}": 1 for link in down}
    if routing in oracle.WITHOUT_ROOT or routing == "advertisement":
        towards = {"r>x", "x>x1"}
        expected |= {f"subscribe {link}": 1 for link in towards}
        expected |= {f"unsubscribe {link}": 1 for link in ("r>y", "y>y2")}
    subscriptions = {key: n for key, n in changed.items() if "advertise" not in key}
    assert subscriptions == expected


def test_what_is_in_flight_keeps_its_packet_ids_and_its_state() -> None:
    network = Network(LINE, is_durable=True)
    old, _ = keeps(network, "a")
    old.subscribe("t", qos=2)
    publisher = publisher_at(network, "b")
    for payload, qos in ((b"1", 1), (b"2", 2), (b"3", 2), (b"4", 1)):
        publisher.publish("t", payload, qos=qos)
    sent = [packet for packet in old.read_all() if isinstance(packet, mqtt5.PublishPacket)]
    old.send(mqtt5.PubRecPacket(sent[1].packet_id or 0))  # 2 is received and released, the others are not acknowledged
    old.publish("x", b"mine", qos=2)  # not released by its publisher
    old.drop()
    new, answer = keeps(network, "c")
    assert answer.session_present
    again = new.read_all()
    assert [(type(it), it.packet_id) for it in again] == [  # type: ignore[union-attr]
        (mqtt5.PublishPacket, sent[0].packet_id),
        (mqtt5.PubRelPacket, sent[1].packet_id),
        (mqtt5.PublishPacket, sent[2].packet_id),
        (mqtt5.PublishPacket, sent[3].packet_id),
    ]
    assert all(it.duplicate for it in again if isinstance(it, mqtt5.PublishPacket))
    assert list(network.nodes["c"].broker.sessions["s"].received) == [old.next_id]
    reader = network.client("a", "r")
    reader.connect()
    reader.subscribe("x")
    new.send(mqtt5.PublishPacket("x", b"mine", qos=QOS[2], packet_id=old.next_id, duplicate=True))
    assert reader.payloads() == []  # it was received before


def test_long_queue_moves_in_order_and_never_fills_a_link() -> None:
    network = Network(LINE, is_durable=True, inflight_max=10)
    leaves(network, "a", "t")
    publisher = publisher_at(network, "a")
    for number in range(1000):
        publisher.publish("t", b"%d" % number, qos=1)
    network.links["b"][1].driver.is_held = True  # what a sends does not arrive
    new = open_claim(network, "c")
    above = network.nodes["a"].broker.overlay.links()[0]
    assert above.link is not None
    assert above.link.moved_open == 200
    publisher.publish("t", b"1000", qos=1)
    network.release("b")
    assert isinstance(new.read(), mqtt5.ConnAckPacket)
    publisher.publish("t", b"1001", qos=1)
    assert new.payloads() == [b"%d" % number for number in range(1002)]
    assert network.sent("moved") == {"a>b": 1001, "b>c": 1001}
    assert is_at_rest(network)


OVER_LINKS = 8  # three notices and the messages in flight over each of two links, behind a window of messages each time


def test_client_does_not_wait_behind_the_queues_of_others() -> None:
    """What is in flight in a session comes before them; it has as many messages as each of them."""
    sessions, messages = 100, 40
    slow = SlowNetwork(LINE, "identity")
    network = slow.network
    names = [f"long {number}" for number in range(sessions)]
    old = {}
    for name in [*names, "s"]:
        old[name] = open_claim(network, "a", name)
        slow.deliver_all()
        assert isinstance(old[name].read(), mqtt5.ConnAckPacket)
        old[name].subscribe("t", qos=1)
    for name in names:
        old[name].drop()
    publisher = publisher_at(network, "a")
    for number in range(messages):
        publisher.publish("t", b"%d" % number, qos=1)
    old["s"].drop()
    others = [open_claim(network, "c", name) for name in names]
    for _ in range(3 * sessions):  # all of them have begun
        slow.deliver_one_each()
    new = open_claim(network, "c")
    before = network.sent("moved")["a>b"]
    while (answer := new.read()) is None:
        slow.deliver_one_each()
    assert isinstance(answer, mqtt5.ConnAckPacket)
    assert answer.session_present
    assert network.sent("moved")["a>b"] - before <= OVER_LINKS * MOVED_WINDOW
    slow.deliver_all()
    assert network.sent("moved")["a>b"] == (sessions + 1) * messages
    for client in (new, *others):
        assert client.payloads() == [b"%d" % number for number in range(messages)]


def test_subscriptions_keep_their_options() -> None:
    network = Network(LINE, is_durable=True)
    leaves(network, "a", "t/+", identifier=7, no_local=True, retain_as_published=True)
    new, _ = keeps(network, "c")
    publisher = publisher_at(network, "b")
    publisher.publish("t/1", b"1", qos=2, retain=True)
    got = new.read()
    assert isinstance(got, mqtt5.PublishPacket)
    assert (got.payload, int(got.qos), got.retain, got.subscription_ids) == (b"1", 1, True, [7])
    new.publish("t/1", b"2")
    assert new.payloads() == []


@pytest.mark.parametrize("routing", oracle.ALL)
def test_retained_messages_do_not_come_again(routing: str) -> None:
    network = Network(SEVEN, is_durable=True, routing=routing)
    publisher = publisher_at(network, "y1")
    publisher.publish("t/1", b"kept", qos=1, retain=True)
    old, _ = keeps(network, "x1")
    old.subscribe("t/+", qos=1)
    assert old.payloads() == [b"kept"]
    old.drop()
    new, _ = keeps(network, "y2")
    assert new.payloads() == []
    late = network.client("y2", "late")
    late.connect()
    late.subscribe("t/+")
    assert late.payloads() == [b"kept"]
    assert new.payloads() == []


def test_shared_subscription_moves_without_a_loss_to_its_group() -> None:
    network = Network(LINE, is_durable=True)
    stays = network.client("c", "stays")
    stays.connect()
    stays.subscribe("$share/g/t", qos=1)
    leaves(network, "a", "$share/g/t")
    publisher = publisher_at(network, "b")
    publisher.publish("t", b"1", qos=1)
    new, _ = keeps(network, "c")
    assert (new.payloads(), stays.payloads()) == ([b"1"], [b"1"])  # each broker serves its group
    for payload in (b"2", b"3"):
        publisher.publish("t", payload, qos=1)
    assert sorted(new.payloads() + stays.payloads()) == [b"2", b"3"]


def test_will_is_forgotten_if_the_client_comes_in_time() -> None:
    network = Network(LINE)
    reader = network.client("b", "r")
    reader.connect()
    reader.subscribe("w")
    will = mqtt5.Will(topic="w", payload=b"gone", will_delay_interval=60)
    old, _ = keeps(network, "a", will=will)
    old.drop()
    keeps(network, "c")
    network.wait(100)
    assert reader.payloads() == []


def test_remaining_lifetimes_go_along() -> None:
    """A session that expires after 100 s is claimed after 40 s by a client that goes away at once; so 60 s are left."""
    network = Network(LINE, is_durable=True)
    old = network.client("a", "s")
    old.connect(clean=False, expiry_s=100, keep_alive=0)
    old.subscribe("t", qos=1)
    old.drop()
    publisher = publisher_at(network, "a", keep_alive=0)
    publisher.publish("t", b"dies", qos=1, message_expiry_interval=30)
    publisher.publish("t", b"lives", qos=1, message_expiry_interval=90)
    network.wait(40)
    network.cut("c")
    open_claim(network, "c").drop()
    network.join("c")
    session = network.nodes["c"].broker.sessions["s"]
    assert session.expires_at_ns == network.now_ns + 60 * NS_PER_S
    assert [it.message.payload for it in session.queue] == [b"lives"]
    assert session.queue[0].message.expires_at_ns == network.now_ns + 50 * NS_PER_S
    network.wait(61)
    assert "s" not in network.nodes["c"].broker.sessions


def test_log_tells_the_whole_move() -> None:
    network = Network(LINE, is_durable=True)
    leaves(network, "a", "t")
    publisher = publisher_at(network, "a")
    publisher.publish("t", b"1", qos=1)
    keeps(network, "c")
    kinds = (
        Kind.CONNECTING, Kind.CONNECTED, Kind.SESSION_CAME, Kind.SESSION_LEFT, Kind.SESSION_HERE, Kind.MOVED,
        Kind.SUBSCRIBED, Kind.UNSUBSCRIBED, Kind.QUEUED,
    )  # fmt: skip

    def told(node: str) -> list[tuple[str, str, str | None]]:
        events = [it for it in network.events(node, *kinds) if it["subject"] == "s" or it["kind"] == Kind.MOVED]
        return [(Kind(it["kind"]).name, it["subject"], it["topic"]) for it in events]

    assert told("a")[-4:] == [
        ("QUEUED", "s", "t"), ("MOVED", "a>b", "t"), ("UNSUBSCRIBED", "s", "t"), ("SESSION_LEFT", "s", "b"),
    ]  # fmt: skip
    assert told("b") == [
        ("SESSION_CAME", "s", "a"), ("SUBSCRIBED", "s", "t"), ("QUEUED", "s", "t"), ("MOVED", "b>c", "t"),
        ("UNSUBSCRIBED", "s", "t"), ("SESSION_LEFT", "s", "c"),
    ]  # fmt: skip
    assert told("c") == [
        ("CONNECTING", "s", None), ("SESSION_CAME", "s", "b"), ("SUBSCRIBED", "s", "t"), ("QUEUED", "s", "t"),
        ("CONNECTED", "s", None), ("SESSION_HERE", "s", None),
    ]  # fmt: skip
    (queued,) = (it for it in network.events("c", Kind.QUEUED) if it["subject"] == "s")
    assert queued["flags"] & WAITED
    (moved,) = network.events("a", Kind.MOVED)
    assert dict(network.nodes["a"].log.names)[moved["route"]] == "s"
    assert network.sent("moved") == {"a>b": 1, "b>c": 1}


def test_advertisements_move_along_and_publications_are_not_lost_meanwhile() -> None:
    for routing in oracle.ADVERTISING:
        network = Network(SEVEN, is_durable=True, routing=routing)
        reader = network.client("x2", "r")
        reader.connect()
        reader.subscribe("t/1", qos=1)
        old, _ = keeps(network, "x1")
        old.subscribe(ADVERTISE + "t/+")
        old.publish("t/1", b"1", qos=1)
        new, _ = keeps(network, "y2")
        new.publish("t/1", b"2", qos=1)
        assert reader.payloads() == [b"1", b"2"]
        assert network.advertised("y")["y2"] == ["t/+"]
        assert "x1" not in network.advertised("x")

"""Sessions that follow their clients from broker to broker: examples worked out by hand, on cores joined in memory."""

from collections import Counter

import mqtt5
import pytest

from brokerbed.broker.core.access import parse_access
from brokerbed.log.record import WAITED, Kind
from brokerbed.topics import ADVERTISE
from tests import routing_oracle as oracle
from tests.core_client import FOREVER_S, NS_PER_S, QOS, Client
from tests.core_network import Network

LINE = {"a": None, "b": "a", "c": "b"}
SEVEN = {"r": None, "x": "r", "y": "r", "x1": "x", "x2": "x", "y1": "y", "y2": "y"}
CONTROL = ("subscribe", "unsubscribe", "advertise", "unadvertise")


def keeps(network: Network, node: str, client_id: str = "s", **options: object) -> tuple[Client, mqtt5.ConnAckPacket]:
    """A client that keeps its session connects."""
    client = network.client(node, client_id)
    return client, client.connect(clean=False, expiry_s=FOREVER_S, **options)


def sent(network: Network) -> Counter[str]:
    return Counter({f"{kind} {link}": n for kind in CONTROL for link, n in network.sent(kind).items()})


def crossed(network: Network, before: Counter[str]) -> dict[str, int]:
    after = sent(network)
    return {key: after[key] - before[key] for key in after if after[key] != before[key]}


def is_at_rest(network: Network) -> bool:
    return not any(
        node.broker.session_moves.is_busy or any("\0" in key for key in node.broker.sessions)
        for node in network.nodes.values()
    )


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


def test_live_connection_is_taken_over_and_nothing_is_lost_at_qos0() -> None:
    network = Network(LINE)
    old, _ = keeps(network, "a")
    old.subscribe("t", qos=0)
    publisher = network.client("b", "p")
    publisher.connect()
    publisher.publish("t", b"1")
    new, answer = keeps(network, "c")
    publisher.publish("t", b"2")
    packets = old.read_all()
    assert [type(packet) for packet in packets] == [mqtt5.PublishPacket, mqtt5.DisconnectPacket]
    assert packets[1].reason_code == 0x8E  # type: ignore[union-attr]
    assert old.is_closed
    assert answer.session_present
    assert new.payloads() == [b"2"]


def test_claim_of_an_unknown_client_is_answered_by_nobody() -> None:
    network = Network(SEVEN)
    before = sum(network.sent("resync").values())
    _, answer = keeps(network, "x1")
    assert not answer.session_present
    assert sum(network.sent("resync").values()) - before == 2 * (len(SEVEN) - 1)  # a claim and an answer on each link
    _, answer = keeps(network, "x1")
    assert answer.session_present


def test_clean_start_asks_nobody() -> None:
    network = Network(LINE)
    old, _ = keeps(network, "a")
    old.drop()
    before = network.sent("resync")
    new = network.client("c", "s")
    assert not new.connect(clean=True, expiry_s=FOREVER_S).session_present
    assert not network.client("b", "s").connect(clean=False, expiry_s=0).session_present
    assert network.sent("resync") == before
    assert "s" in network.nodes["a"].broker.sessions


@pytest.mark.parametrize("node", ["a", "c"])
def test_roaming_can_be_turned_off_at_either_broker(node: str) -> None:
    network = Network(LINE, configs={node: {"roaming": False}})
    old, _ = keeps(network, "a")
    old.drop()
    _, answer = keeps(network, "c")
    assert not answer.session_present
    assert "s" in network.nodes["a"].broker.sessions


def test_session_passes_through_a_broker_that_does_not_roam_itself() -> None:
    network = Network(LINE, configs={"b": {"roaming": False}})
    old, _ = keeps(network, "a")
    old.drop()
    assert keeps(network, "c")[1].session_present


def test_another_user_cannot_take_a_session_away() -> None:
    network = Network(LINE, access=parse_access("pattern readwrite #"))
    old, _ = keeps(network, "a", username="ann")
    old.drop()
    assert not keeps(network, "c", username="bob")[1].session_present
    assert network.nodes["a"].broker.sessions["s"].user == "ann"
    other, answer = keeps(network, "b", username="ann")
    assert answer.session_present
    assert (network.nodes["b"].broker.sessions["s"].user, network.nodes["c"].broker.sessions["s"].user) == (
        "ann",
        "bob",
    )
    other.drop()


def open_claim(network: Network, node: str, client_id: str = "s") -> Client:
    """A client connects, and its CONNACK is not awaited."""
    client = network.client(node, client_id)
    client.open()
    client.send(mqtt5.ConnectPacket(client_id, clean_start=False, session_expiry_interval=FOREVER_S))
    return client


@pytest.mark.parametrize(("timeout_s", "waits_s"), [(5.0, 5.0), (0.0, 0.0), (2.0, 2.0)])
def test_client_waits_for_a_broker_that_is_cut_off_up_to_a_limit(timeout_s: float, waits_s: float) -> None:
    """Then it gets a new session; what the old broker has comes when the link is back, and is forgotten there."""
    network = Network(LINE, is_durable=True, move_timeout_s=timeout_s)
    old, _ = keeps(network, "a")
    old.subscribe("t", "u", qos=1)
    old.drop()
    publisher = network.client("a", "p")
    publisher.connect()
    publisher.publish("t", b"1", qos=1)
    network.cut("b")
    new = open_claim(network, "c")
    if waits_s:
        network.wait(waits_s - 0.1)
        assert new.read() is None
        network.wait(0.2)
    answer = new.read()
    assert isinstance(answer, mqtt5.ConnAckPacket)
    assert not answer.session_present
    assert new.payloads() == []
    network.join("b")
    assert new.payloads() == [b"1"]
    publisher.publish("u", b"2", qos=1)  # the new session has no subscriptions
    assert new.payloads() == []
    assert list(network.nodes["a"].broker.sessions) == ["p"]
    assert list(network.nodes["c"].broker.sessions) == ["s"]
    assert network.entries("a") == {}


def test_client_that_waits_gets_its_session_when_the_link_is_back_in_time() -> None:
    network = Network(LINE, is_durable=True)
    old, _ = keeps(network, "a")
    old.subscribe("t", qos=1)
    old.drop()
    network.cut("b")
    new = open_claim(network, "c")
    new.send(mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("u", max_qos=QOS[1])]))  # without waiting for CONNACK
    network.wait(3)
    assert new.read() is None
    network.join("b")
    answer, acknowledgement = new.read_all()
    assert isinstance(answer, mqtt5.ConnAckPacket)
    assert answer.session_present
    assert isinstance(acknowledgement, mqtt5.SubAckPacket)
    assert sorted(network.nodes["c"].broker.sessions["s"].subscriptions) == ["t", "u"]


def test_client_that_goes_away_while_it_waits_is_no_problem() -> None:
    network = Network(LINE, is_durable=True)
    old, _ = keeps(network, "a")
    old.drop()
    network.cut("b")
    open_claim(network, "c").drop()
    network.join("b")
    network.wait(10)
    assert [node.name for node in network.nodes.values() if "s" in node.broker.sessions] == ["c"]
    assert network.nodes["c"].broker.sessions["s"].connection is None
    assert keeps(network, "c")[1].session_present


def test_what_is_in_flight_keeps_its_packet_ids_and_its_state() -> None:
    network = Network(LINE, is_durable=True)
    old, _ = keeps(network, "a")
    old.subscribe("t", qos=2)
    publisher = network.client("b", "p")
    publisher.connect()
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
    old, _ = keeps(network, "a")
    old.subscribe("t", qos=1)
    old.drop()
    publisher = network.client("a", "p")
    publisher.connect()
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


def test_subscriptions_keep_their_options() -> None:
    network = Network(LINE, is_durable=True)
    old, _ = keeps(network, "a")
    old.subscribe("t/+", qos=1, identifier=7, no_local=True, retain_as_published=True)
    old.drop()
    new, _ = keeps(network, "c")
    publisher = network.client("b", "p")
    publisher.connect()
    publisher.publish("t/1", b"1", qos=2, retain=True)
    got = new.read()
    assert isinstance(got, mqtt5.PublishPacket)
    assert (got.payload, int(got.qos), got.retain, got.subscription_ids) == (b"1", 1, True, [7])
    new.publish("t/1", b"2")
    assert new.payloads() == []


@pytest.mark.parametrize("routing", oracle.ALL)
def test_retained_messages_do_not_come_again(routing: str) -> None:
    network = Network(SEVEN, is_durable=True, routing=routing)
    publisher = network.client("y1", "p")
    publisher.connect()
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
    old, _ = keeps(network, "a")
    old.subscribe("$share/g/t", qos=1)
    old.drop()
    publisher = network.client("b", "p")
    publisher.connect()
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
    publisher = network.client("a", "p")
    publisher.connect(keep_alive=0)
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


def test_later_claim_wins_and_the_client_that_waits_for_the_earlier_one_is_disconnected() -> None:
    network = Network(SEVEN, is_durable=True)
    old, _ = keeps(network, "r")
    old.drop()
    network.cut("x")
    early = open_claim(network, "x1")
    network.wait(1.5)
    late, answer = keeps(network, "y1")
    assert answer.session_present
    network.join("x")
    assert early.is_closed
    assert "s" in network.nodes["y1"].broker.sessions
    assert not late.is_closed


def test_log_tells_the_whole_move() -> None:
    network = Network(LINE, is_durable=True)
    old, _ = keeps(network, "a")
    old.subscribe("t", qos=1)
    old.drop()
    publisher = network.client("a", "p")
    publisher.connect()
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


def test_broker_in_between_that_forgets_everything_does_not_keep_the_session() -> None:
    """Brokers without a store: what had not left the old broker is still there, and is claimed again."""
    network = Network(LINE)
    old, _ = keeps(network, "a")
    old.subscribe("t", qos=1)
    publisher = network.client("a", "p")
    publisher.connect()
    old.drop()
    publisher.publish("t", b"1", qos=1)
    network.links["b"][1].driver.is_held = True  # what a sends does not arrive
    new = open_claim(network, "c")
    publisher.publish("t", b"2", qos=1)
    network.restart("b")
    network.join("b")
    network.join("c")
    network.wait(2)
    answer = new.read()
    assert isinstance(answer, mqtt5.ConnAckPacket)
    assert answer.session_present
    publisher.publish("t", b"3", qos=1)
    assert new.payloads()[-1] == b"3"
    assert is_at_rest(network)
    assert [node.name for node in network.nodes.values() if "s" in node.broker.sessions] == ["c"]


def test_session_that_comes_where_its_client_made_a_clean_start_is_dropped() -> None:
    network = Network(LINE, is_durable=True)
    old, _ = keeps(network, "a")
    old.subscribe("t", qos=1)
    old.drop()
    publisher = network.client("a", "p")
    publisher.connect()
    publisher.publish("t", b"1", qos=1)
    network.cut("b")
    open_claim(network, "c").drop()
    new = network.client("c", "s")
    new.connect(clean=True, expiry_s=FOREVER_S)
    network.join("b")
    assert new.payloads() == []
    assert is_at_rest(network)
    assert list(network.nodes["a"].broker.sessions) == ["p"]


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

"""Examples worked out by hand from the papers: which messages cross which links, for each routing algorithm."""

import mqtt5
import pytest

from broker.core.handle_subscribe import _enter
from broker.core.subscriptions import Subscription
from tests.core_client import FOREVER_S, NS_PER_S
from tests.core_network import Network

MUEHL = {"R": None, "B1": "R", "B2": "B1", "B3": "B1", "B4": "B1"}
BINARY = {f"n{i}": f"n{(i - 1) // 2}" if i else None for i in range(15)}  # four levels; leaves n7 ... n14


def test_illustration_of_muehl_identity() -> None:
    """C1 at B2 subscribes: entries at B1 and R. C2 at B3 subscribes to the same: it ends at B1. C3 publishes at B4."""
    network = Network(MUEHL)
    c1, c2, c3 = network.client("B2", "C1"), network.client("B3", "C2"), network.client("B4", "C3")
    for client in (c1, c2, c3):
        client.connect()
    c1.subscribe("f")
    assert network.sent("subscribe") == {"B2>B1": 1, "B1>R": 1}
    assert network.entries("R") == {"B1": ["f"]}
    c2.subscribe("f")
    assert network.sent("subscribe") == {"B2>B1": 1, "B3>B1": 1, "B1>R": 1}
    assert network.entries("B1") == {"B2": ["f"], "B3": ["f"]}
    c3.publish("f", b"n")
    assert network.sent("notification") == {"B4>B1": 1, "B1>R": 1, "B1>B2": 1, "B1>B3": 1}
    assert (c1.payloads(), c2.payloads(), c3.payloads()) == ([b"n"], [b"n"], [])


def test_illustration_of_muehl_simple_and_flooding() -> None:
    for routing, control, notifications in (
        ("simple", {"B2>B1": 1, "B3>B1": 1, "B1>R": 2}, {"B4>B1": 1, "B1>R": 1, "B1>B2": 1, "B1>B3": 1}),
        ("flooding", {}, {"B4>B1": 1, "B1>R": 1, "B1>B2": 1, "B1>B3": 1}),
    ):
        network = Network(MUEHL, routing=routing)
        c1, c2, c3 = network.client("B2", "C1"), network.client("B3", "C2"), network.client("B4", "C3")
        for client in (c1, c2, c3):
            client.connect()
        c1.subscribe("f")
        c2.subscribe("f")
        assert network.sent("subscribe") == control
        c3.publish("f", b"n", qos=1)
        assert network.sent("notification") == notifications
        assert (c1.payloads(), c2.payloads()) == ([b"n"], [b"n"])


@pytest.mark.parametrize(
    ("leaves", "subscriptions", "notifications"),
    [(["n7"], 3, 3), (["n7", "n8", "n11"], 7, 7), (["n7", "n8", "n9"], 6, 6)],
)
def test_static_example_of_van_vliet(leaves: list[str], subscriptions: int, notifications: int) -> None:
    network = Network(BINARY)
    subscribers = [network.client(leaf, f"c{leaf}") for leaf in leaves]
    for subscriber in subscribers:
        subscriber.connect()
        subscriber.subscribe("t")
    publisher = network.client("n0", "p")
    publisher.connect()
    publisher.publish("t", b"x")
    assert sum(network.sent("subscribe").values()) == subscriptions
    assert sum(network.sent("notification").values()) == notifications
    assert [subscriber.payloads() for subscriber in subscribers] == [[b"x"]] * len(leaves)


def test_static_example_of_van_vliet_flooding_sends_14() -> None:
    network = Network(BINARY, routing="flooding")
    publisher = network.client("n0", "p")
    publisher.connect()
    publisher.publish("t", b"x")
    assert sum(network.sent("notification").values()) == 14
    assert network.sent("subscribe") == {}


def test_unsubscription_travels_when_the_last_is_gone() -> None:
    network = Network({"r": None, "a": "r"})
    one, two = network.client("a", "one"), network.client("a", "two")
    for client in (one, two):
        client.connect()
        client.subscribe("x/#")
    two.drop()
    assert network.sent("unsubscribe") == {}
    assert network.entries("r") == {"a": ["x/#"]}
    one.drop()
    assert network.sent("unsubscribe") == {"a>r": 1}
    assert network.entries("r") == {}


def test_dollar_topics_stay_and_a_shared_group_travels_as_its_filter() -> None:
    network = Network({"r": None, "a": "r"})
    client = network.client("a", "c")
    client.connect()
    client.subscribe("$local/x", "$share/g/jobs")
    assert network.entries("r") == {"a": ["jobs"]}
    client.publish("$local/x", b"here")
    assert client.payloads() == [b"here"]
    assert network.sent("notification") == {}


def test_cut_link_queues_both_ways_and_resynchronises_the_difference() -> None:
    network = Network({"r": None, "a": "r"})
    above, below = network.client("r", "above"), network.client("a", "below")
    for client in (above, below):
        client.connect(expiry_s=FOREVER_S)
        client.subscribe("both", client.client_id)
    network.cut("a")
    above.publish("both", b"down", qos=1)
    below.publish("both", b"up", qos=1)
    below.read_all()
    below.subscribe("new")
    below.send_unsubscribe("below")
    network.join("a")
    assert (above.payloads(), below.payloads()) == ([b"down", b"up"], [b"down"])
    assert network.entries("r") == {"a": ["both", "new"]}
    assert network.sent("resync") == {"a>r": 2}
    assert network.sent("subscribe") == {"a>r": 2}


def test_restart_in_the_middle_of_a_chain_restores_interest_at_every_level() -> None:
    network = Network({"a": None, "b": "a", "c": "b"})
    client = network.client("c", "s")
    client.connect(expiry_s=FOREVER_S)
    client.subscribe("t")
    network.restart("b")
    network.join("b")
    network.join("c")
    assert network.entries("a") == {"b": ["t"]}
    assert network.entries("b") == {"c": ["t"]}
    publisher = network.client("a", "p")
    publisher.connect()
    publisher.publish("t", b"x", qos=1)
    assert client.payloads() == [b"x"]


def test_restarted_child_leaves_no_stale_entries() -> None:
    network = Network({"a": None, "b": "a"})
    client = network.client("b", "s")
    client.connect(expiry_s=FOREVER_S)
    client.subscribe("t")
    network.restart("b")
    network.join("b")
    assert network.entries("a") == {}


def test_second_child_of_the_same_name_is_refused_and_clients_cannot_pose_as_links() -> None:
    network = Network({"a": None, "b": "a"})
    again = Network({"b": None}).nodes["b"]
    again.start()  # another process, so another instance
    connection = again.broker.opened(0)
    again.broker.overlay.dialled(connection)
    client = network.client("a", "")
    client.open()
    client.send_bytes(b"".join(connection.output))
    code = client.read()
    assert int(code.reason_code) == 0x85  # type: ignore[union-attr]
    assert network.client("a", "$link/x").connect().reason_code == 0x85
    assert network.entries("a") == {}


def test_service_at_link_outputs_takes_its_time_in_both_directions() -> None:
    """2 s at each link's output: up from b to a, then down from a to c."""
    network = Network({"a": None, "b": "a", "c": "a"}, service_link=lambda: 2 * NS_PER_S)
    publisher, subscriber = network.client("b", "p"), network.client("c", "s")
    publisher.connect()
    subscriber.connect()
    subscriber.subscribe("t")
    publisher.publish("t", b"0")
    publisher.publish("t", b"1", qos=1)
    network.wait(3.9)
    assert subscriber.payloads() == []
    network.wait(0.2)
    assert subscriber.payloads() == [b"0"]
    network.wait(2)
    assert subscriber.payloads() == [b"1"]


def test_refresh_repeats_all_interest_and_counts() -> None:
    network = Network({"a": None, "b": "a", "c": "b"}, refresh_s=10.0)
    client = network.client("c", "s")
    client.connect()
    client.subscribe("x", "y")
    network.wait(35)
    assert network.sent("refresh") == {"c>b": 6, "b>a": 6}
    assert network.sent("subscribe") == {"c>b": 2, "b>a": 2}
    assert network.entries("a") == {"b": ["x", "y"]}


@pytest.mark.parametrize("routing", ["identity", "simple"])
def test_refresh_mends_corrupted_tables_within_three_periods(routing: str) -> None:
    """An entry is lost at a, another is invented at b and travels on: both are mended, with nobody's help."""
    network = Network({"a": None, "b": "a", "c": "b"}, refresh_s=10.0, routing=routing)
    client = network.client("c", "s")
    client.connect()
    client.subscribe("true")
    top = network.nodes["a"].broker
    link = top.sessions["$link/b"].link
    assert link is not None
    entry = next(iter(link.entries))
    del link.entries[entry]
    top.subscriptions.remove(top.sessions["$link/b"], "true")
    del top.sessions["$link/b"].subscriptions["true"]
    middle = network.nodes["b"].broker
    forged = Subscription(middle.sessions["$link/c"], "false", 1, True, True, 0)
    _enter(middle, forged, [], network.now_ns)
    network.settle()
    assert network.entries("a") == {"b": ["false"]}
    network.wait(11)
    assert network.entries("a") == {"b": ["false", "true"]}
    network.wait(40)
    assert network.entries("a") == {"b": ["true"]}
    assert network.entries("b") == {"c": ["true"]}
    publisher = network.client("a", "p")
    publisher.connect()
    publisher.publish("true", b"x", qos=1)
    assert client.payloads() == [b"x"]
    client.send_unsubscribe("true")
    assert network.entries("a") == {}


def test_service_at_a_link_resumes_where_a_cut_interrupted_it() -> None:
    """4 s of service; cut after 3 s, joined after 10 more: the message arrives 1 s later."""
    network = Network({"a": None, "b": "a"}, service_link=lambda: 4 * NS_PER_S)
    publisher, subscriber = network.client("b", "p"), network.client("a", "s")
    publisher.connect()
    subscriber.connect()
    subscriber.subscribe("t")
    publisher.publish("t", b"x", qos=1)
    network.wait(3)
    network.cut("b")
    network.wait(10)
    network.join("b")
    network.wait(0.9)
    assert subscriber.payloads() == []
    network.wait(0.2)
    assert subscriber.payloads() == [b"x"]


@pytest.mark.parametrize(("origin", "target"), [("a", "b"), ("b", "a")])
def test_window_of_a_link_is_its_own_in_both_directions(origin: str, target: str) -> None:
    """A client may have 20 messages at QoS 2 open with us; a link was told 1000, and keeps to that."""
    network = Network({"a": None, "b": "a"})
    publisher, subscriber = network.client(origin, "p"), network.client(target, "s")
    publisher.connect()
    subscriber.connect()
    subscriber.subscribe("t")
    network.hold("b")
    for number in range(60):
        publisher.publish("t", b"%d" % number, qos=2)
        publisher.payloads()
        publisher.send(mqtt5.PubRelPacket(publisher.next_id))
    network.release("b")
    assert subscriber.payloads() == [b"%d" % number for number in range(60)]
    assert "b" in network.links
    assert network.nodes["a"].broker.counters.protocol_errors == 0
    assert network.nodes["b"].broker.counters.protocol_errors == 0

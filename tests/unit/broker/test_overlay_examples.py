"""Trees of broker cores in memory: the examples from the papers, cut links, restarts, service and refresh."""

from collections import Counter
from collections.abc import Mapping

import mqtt5
import pytest

from brokerbed.broker.core import handle_subscribe
from brokerbed.broker.core.link import KINDS
from brokerbed.broker.core.subscriptions import Subscription
from tests.core_client import FOREVER_S, NS_PER_S
from tests.core_network import Network
from tests.overlay_examples import (
    BINARY,
    FLOOD,
    ILLUSTRATION,
    MUEHL,
    MUEHL_CLIENTS,
    STATIC,
    TOPIC,
    Counts,
    Crossing,
    Step,
    play,
)
from tests.routing_oracle import ALL


class Cores:
    """The clients of an example on a network in memory."""

    def __init__(self, network: Network, clients: Mapping[str, str]) -> None:
        self._network = network
        self._clients = {client: network.client(node, client) for client, node in clients.items()}
        for client in self._clients.values():
            client.connect()

    def do(self, step: Step, payload: bytes, qos: int) -> None:
        client = self._clients[step.client]
        if step.verb == "subscribe":
            client.subscribe(TOPIC)
        elif step.verb == "unsubscribe":
            client.send_unsubscribe(TOPIC)
        else:
            client.publish(TOPIC, payload, qos)

    def counts(self) -> Counts:
        network = self._network
        sent = {Crossing(kind, link): count for kind in KINDS for link, count in network.sent(kind).items()}
        entries = {node: sum(map(len, network.entries(node).values())) for node in network.nodes}
        return Counts(Counter(sent), +Counter(entries))

    def received(self) -> dict[str, list[bytes]]:
        return {name: client.payloads() for name, client in self._clients.items()}


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("routing", ILLUSTRATION)
def test_illustration_of_muehl(routing: str, qos: int) -> None:
    """C1 at B2 subscribes: entries at B1 and R. C2 at B3 subscribes to the same: it ends at B1. C3 publishes at B4."""
    play(Cores(Network(MUEHL, routing=routing), MUEHL_CLIENTS), ILLUSTRATION[routing], qos)


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("situation", STATIC)
def test_static_example_of_van_vliet(situation: str, qos: int) -> None:
    example = STATIC[situation]
    example.play(Cores(Network(BINARY), example.clients), qos)


def test_static_example_of_van_vliet_flooding_sends_14() -> None:
    FLOOD.play(Cores(Network(BINARY, routing="flooding"), FLOOD.clients), 0)


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
    link = top.links["$link/b"].link
    assert link is not None
    entry = next(iter(link.entries))
    del link.entries[entry]
    top.subscriptions.remove(top.links["$link/b"], "true")
    del top.links["$link/b"].subscriptions["true"]
    middle = network.nodes["b"].broker
    forged = Subscription(middle.links["$link/c"], "false", 1, True, True, 0)
    handle_subscribe.add(middle, forged, [], network.now_ns)
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


def test_service_at_a_link_goes_on_while_it_is_cut() -> None:
    """4 s of service for each of two messages; cut after 3 s, joined after 4 more: the first has been served and waited."""
    network = Network({"a": None, "b": "a"}, service_link=lambda: 4 * NS_PER_S)
    publisher, subscriber = network.client("b", "p"), network.client("a", "s")
    publisher.connect()
    subscriber.connect()
    subscriber.subscribe("t")
    publisher.publish("t", b"x", qos=1)
    publisher.publish("t", b"y", qos=1)
    network.wait(3)
    network.cut("b")
    network.wait(4)
    network.join("b")
    assert subscriber.payloads() == [b"x"]
    network.wait(0.9)
    assert subscriber.payloads() == []
    network.wait(0.2)
    assert subscriber.payloads() == [b"y"]


def test_copies_have_service_stages_of_their_own() -> None:
    """1 s at the input and 1 s at the link for each message; only those of one copy wait for one another."""
    second = lambda: NS_PER_S  # noqa: E731
    network = Network({"a": None, "b": "a"}, service_in=second, service_link=second, service_per_copy=True)
    publisher, subscriber = network.client("b", "p"), network.client("a", "s")
    publisher.connect()
    subscriber.connect()
    subscriber.subscribe("#")
    for topic in ("copy0/t", "copy0/t", "copy1/t", "class/0000"):
        publisher.publish(topic, topic.encode(), qos=1)
    network.wait(3.1)  # b's input, its link, a's input
    assert sorted(subscriber.payloads()) == [b"class/0000", b"copy0/t", b"copy1/t"]
    network.wait(1)
    assert subscriber.payloads() == [b"copy0/t"]


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


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("down_s", [15.0, 25.0, 60.0])
@pytest.mark.parametrize("routing", ALL[1:])
def test_refreshed_entries_are_right_as_soon_as_a_link_is_back(routing: str, down_s: float, is_restarted: bool) -> None:
    """Entries become stale after 30 s. Those of a link that is back are not dropped before the neighbour could repeat
    them, and those that were dropped while it was down are announced again at once."""
    network = Network({"a": None, "b": "a"}, is_durable=True, refresh_s=10.0, routing=routing, keep_alive_max_s=0)
    clients = [network.client(node, f"{kind} {node}") for kind in ("reader", "writer") for node in "ab"]
    readers, writers = clients[:2], clients[2:]

    def tables() -> list[dict[str, list[str]]]:
        return [found(node) for node in "ab" for found in (network.entries, network.advertised)]

    for client in clients:
        client.connect(expiry_s=FOREVER_S, keep_alive=0)
    for reader, writer in zip(readers, writers, strict=True):
        reader.subscribe("t")
        writer.subscribe("$advertise/t")
    network.wait(5)
    right = tables()
    network.cut("b")
    network.wait(down_s)
    if is_restarted:
        network.restart("b")
        for client in clients[1::2]:
            client.connect(clean=False, expiry_s=FOREVER_S, keep_alive=0)
    network.join("b")
    for number in range(15):
        assert tables() == right, number
        for writer in writers:
            writer.publish("t", b"%d" % number, qos=1)
        network.wait(1)
    assert [len(reader.payloads()) for reader in readers] == [30, 30]

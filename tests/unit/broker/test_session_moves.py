"""Sessions that follow their clients from broker to broker: examples worked out by hand, on cores joined in memory."""

from collections import Counter

import mqtt5
import pytest

from brokerbed.topics import ADVERTISE
from tests import routing_oracle as oracle
from tests.core_client import FOREVER_S, Client
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

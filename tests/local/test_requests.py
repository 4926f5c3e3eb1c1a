"""Request and response on real sockets: an independent client sees the properties, asks and is answered across the tree."""

import asyncio
import queue
import time
from collections.abc import Iterator
from contextlib import contextmanager

import paho.mqtt.client as paho
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from brokerbed.clients.process import Clients
from brokerbed.orchestrator.grounds.testing import BrokerNetwork
from brokerbed.scenario import Scenario
from tests.conftest import FromText

TREE = {"root": None, "a": "root", "b": "root"}
SCENARIO = """
scenario: 1
name: asking
clock: {{measure: 600s}}
topology: {{tree: explicit, parents: {{root: null, a: root, b: root}}}}
requesters: [{{id: {q}, broker: a, topic: ask/{q}, rate: 20/s, qos: {qos}}}]
responders: [{{id: r-{q}, broker: b, topic: ask/{q}, service: {{mean: 1ms}}, qos: {qos}}}]
peers: {peers}
"""
WAIT_S = 30  # far longer than it takes
MESSAGES = 60


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerNetwork]:
    with BrokerNetwork(TREE, folder=tmp_path_factory.mktemp("network")) as running:
        yield running


@contextmanager
def listening(
    network: BrokerNetwork, broker: str, *filters: str
) -> Iterator[tuple[paho.Client, "queue.Queue[paho.MQTTMessage]"]]:
    client, got = paho.Client(CallbackAPIVersion.VERSION2, protocol=paho.MQTTv5), queue.Queue[paho.MQTTMessage]()
    subscribed: queue.Queue[int] = queue.Queue()
    client.on_message = lambda _, __, message: got.put(message)
    client.on_subscribe = lambda *arguments: subscribed.put(arguments[2])
    client.connect(*network.address(broker))
    client.loop_start()
    client.subscribe([(topic_filter, 1) for topic_filter in filters])
    subscribed.get(timeout=WAIT_S)
    try:
        yield client, got
    finally:
        client.disconnect()
        client.loop_stop()


def watched(
    network: BrokerNetwork, scenario: Scenario, work: "queue.Queue[paho.MQTTMessage]", client: paho.Client
) -> list[paho.MQTTMessage]:
    """What the listener got while requester and responder were at work, and it asked, too."""

    async def play() -> list[paho.MQTTMessage]:
        clients = Clients(scenario, 0, 1)
        await clients.connect({name: list(network.address(name)) for name in TREE})
        await asyncio.to_thread(network.wait_until_calm)
        await clients.begin(time.time_ns(), False)
        properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        properties.ResponseTopic, properties.CorrelationData = "answers/to/paho", b"\x00\xff own"
        client.publish(scenario.requesters[0].topic, b"what is the time?", 1, properties=properties)
        got = [await asyncio.to_thread(work.get, timeout=WAIT_S) for _ in range(MESSAGES)]
        for peer in clients.crowd.clients:
            peer.disconnect()
        return got

    return asyncio.run(play())


@pytest.mark.parametrize(("peers", "qos"), [("stock", 1), ("light", 1), ("light", 0)])
def test_properties_cross_the_tree_in_both_directions(
    peers: str, qos: int, network: BrokerNetwork, from_text: FromText
) -> None:
    q = f"q-{peers}-{qos}"  # its session stays in the network
    scenario = from_text(SCENARIO.format(peers=peers, qos=qos, q=q)).points[0]
    with listening(network, "root", f"ask/{q}", "reply/+", "answers/#") as (client, got):
        found = watched(network, scenario, got, client)
    asked, answered, own = (
        [it for it in found if it.topic == topic] for topic in (f"ask/{q}", f"reply/{q}", "answers/to/paho")
    )
    requests = [it for it in asked if it.payload.startswith(q.encode())]
    assert min(len(requests), len(answered)) > 10
    assert {response_topic(it) for it in requests} == {f"reply/{q}"}
    assert list(map(correlation_data, requests)) == [f"{q} {number}".encode() for number in range(1, len(requests) + 1)]
    assert {response_topic(it) for it in answered} == {None}
    assert list(map(correlation_data, answered)) == [f"{q} {number}".encode() for number in range(1, len(answered) + 1)]
    assert list(map(correlation_data, own)) == [b"\x00\xff own"]


def response_topic(message: paho.MQTTMessage) -> object:
    return getattr(message.properties, "ResponseTopic", None)


def correlation_data(message: paho.MQTTMessage) -> object:
    return getattr(message.properties, "CorrelationData", None)

"""paho-mqtt against the server: both versions, its network thread, QoS 2, wills, properties and topic aliases."""

import queue
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from tests.mqtt.dial import unique
from tests.mqtt.paho_properties import of_connect, of_publish
from tests.mqtt.raw import WAIT_S
from tests.mqtt.servers import HOST, Server

V311, V5 = MQTTProtocolVersion.MQTTv311, MQTTProtocolVersion.MQTTv5
EACH_VERSION = pytest.mark.parametrize("version", [V311, V5], ids=["3.1.1", "5"])


class Peer:
    """A paho client with its thread running, that keeps what it receives."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.messages: queue.Queue[MQTTMessage] = queue.Queue()
        self.session_present = False
        self._connected, self._subscribed = threading.Event(), threading.Event()
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_message = lambda _client, _data, message: self.messages.put(message)

    def _on_connect(self, _client: Client, _data: Any, flags: Any, reason: Any, _properties: Any) -> None:
        assert not reason.is_failure
        self.session_present = flags.session_present
        self._connected.set()

    def _on_subscribe(self, _client: Client, _data: Any, _mid: int, reasons: Any, _properties: Any) -> None:
        assert not any(reason.is_failure for reason in reasons)
        self._subscribed.set()

    def connected(self) -> None:
        assert self._connected.wait(WAIT_S), "no CONNACK"

    def subscribe(self, topic: str, qos: int = 2) -> None:
        self.client.subscribe(topic, qos)
        assert self._subscribed.wait(WAIT_S), "no SUBACK"
        self._subscribed.clear()

    def publish(self, topic: str, payload: bytes, qos: int = 2, **options: Any) -> None:
        info = self.client.publish(topic, payload, qos, **options)
        info.wait_for_publish(WAIT_S)
        assert info.is_published()

    def take(self) -> MQTTMessage:
        return self.messages.get(timeout=WAIT_S)

    def close(self) -> None:
        """DISCONNECT, and the end of the thread."""
        self.client.disconnect()
        self.client.loop_stop()


Meet = Callable[..., Peer]


@pytest.fixture
def meet(broker: Server) -> Iterator[Meet]:
    """Connects paho clients, and ends them after the test."""
    peers: list[Peer] = []

    def connect(
        version: MQTTProtocolVersion, prepare: Callable[[Client], object] | None = None, **options: Any
    ) -> Peer:
        settings = {"client_id": unique(), "reconnect_on_failure": False} | options.pop("settings", {})
        peer = Peer(Client(CallbackAPIVersion.VERSION2, protocol=version, **settings))
        if prepare:
            prepare(peer.client)
        peer.client.connect(HOST, broker.port, **options)
        peer.client.loop_start()
        peers.append(peer)
        peer.connected()
        return peer

    yield connect
    for peer in peers:
        peer.close()


@EACH_VERSION
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_message_passes(meet: Meet, topic: str, version: MQTTProtocolVersion, qos: int) -> None:
    subscriber, publisher = meet(version), meet(version)
    subscriber.subscribe(topic, qos)
    publisher.publish(topic, b"hello", qos)
    message = subscriber.take()
    assert (message.topic, message.payload, message.qos, message.retain) == (topic, b"hello", qos, False)


@EACH_VERSION
@pytest.mark.parametrize("qos", [1, 2])
def test_burst_passes_in_order(meet: Meet, topic: str, version: MQTTProtocolVersion, qos: int) -> None:
    subscriber, publisher = meet(version), meet(version)
    subscriber.subscribe(topic)
    infos = [publisher.client.publish(topic, b"%d" % number, qos) for number in range(300)]
    for info in infos:
        info.wait_for_publish(WAIT_S)
    assert [int(subscriber.take().payload) for _ in infos] == list(range(300))


@EACH_VERSION
def test_retained_message_is_kept(meet: Meet, topic: str, version: MQTTProtocolVersion) -> None:
    meet(version).publish(topic, b"kept", 1, retain=True)
    late = meet(version)
    late.subscribe(topic)
    message = late.take()
    assert (message.payload, message.retain) == (b"kept", True)


@EACH_VERSION
def test_last_will_is_published(meet: Meet, topic: str, version: MQTTProtocolVersion) -> None:
    watching = meet(version)
    watching.subscribe(topic)
    dying = meet(version, lambda client: client.will_set(topic, b"gone", qos=2, retain=True))
    network: Any = dying.client.socket()
    network.shutdown(socket.SHUT_RDWR)
    message = watching.take()
    assert (message.payload, message.qos) == (b"gone", 2)


def test_session_goes_on_3_1_1(meet: Meet, topic: str) -> None:
    settings = {"client_id": unique(), "clean_session": False}
    first = meet(V311, settings=settings)
    assert first.session_present is False
    first.subscribe(topic)
    first.close()
    meet(V311).publish(topic, b"waited")
    second = meet(V311, settings=settings)
    assert second.session_present is True
    assert second.take().payload == b"waited"


def test_session_goes_on_5(meet: Meet, topic: str) -> None:
    settings = {"client_id": unique()}
    properties = of_connect(SessionExpiryInterval=60)
    first = meet(V5, settings=settings, clean_start=True, properties=properties)
    first.subscribe(topic)
    first.close()
    meet(V5).publish(topic, b"waited")
    second = meet(V5, settings=settings, clean_start=False, properties=properties)
    assert second.session_present is True
    assert second.take().payload == b"waited"


def test_properties_pass(meet: Meet, topic: str) -> None:
    subscriber, publisher = meet(V5), meet(V5)
    subscriber.subscribe(topic)
    pairs = [("z", "1"), ("a", "2"), ("z", "1")]
    properties = of_publish(
        UserProperty=pairs, ContentType="text/plain", ResponseTopic="answer/here", CorrelationData=b"\x00\xff"
    )
    publisher.publish(topic, b"x", properties=properties)
    received: Any = subscriber.take().properties
    assert received.UserProperty == pairs
    assert (received.ContentType, received.ResponseTopic) == ("text/plain", "answer/here")
    assert received.CorrelationData == b"\x00\xff"


def test_topic_alias_works(meet: Meet, topic: str) -> None:
    subscriber, publisher = meet(V5), meet(V5)
    subscriber.subscribe(topic)
    properties = of_publish(TopicAlias=1)
    publisher.publish(topic, b"1", 1, properties=properties)
    publisher.publish("", b"2", 1, properties=properties)
    assert [(message.topic, message.payload) for message in (subscriber.take(), subscriber.take())] == [
        (topic, b"1"), (topic, b"2"),
    ]  # fmt: skip


def test_large_payload_arrives_intact(meet: Meet, topic: str) -> None:
    payload = bytes(range(256)) * 4096
    subscriber, publisher = meet(V5), meet(V311)
    subscriber.subscribe(topic)
    publisher.publish(topic, payload)
    assert subscriber.take().payload == payload

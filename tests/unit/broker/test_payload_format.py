"""A Payload Format Indicator of 0 is not the same bytes as none: it is forwarded unaltered [MQTT-3.3.2-4]."""

import mqtt5
import pytest

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.core import persist
from brokerbed.broker.core.broker import Broker
from brokerbed.broker.core.restore import restore
from brokerbed.broker.core.store import MemoryStore
from tests.core_client import FOREVER_S, Client, World
from tests.core_network import Network

FORMATS = {"none": b"", "0": b"\x01\x00", "1": b"\x01\x01"}  # as properties
EXPIRY = b"\x02\x00\x00\x00\x3c"  # 60 s


def publish(properties: bytes, qos: int = 0, retain: bool = False, payload: bytes = b"\x01\x00") -> bytes:
    packet_id = b"\x00\x07" if qos else b""
    body = b"\x00\x01t" + packet_id + bytes((len(properties),)) + properties + payload
    return bytes((0x30 | qos << 1 | retain, len(body))) + body


def properties_of(frame: bytes, qos: int = 0) -> bytes:
    at = 7 if qos else 5
    return frame[at + 1 : at + 1 + frame[at]]


def joined(world: World, qos: int) -> tuple[Client, Client]:
    publisher, subscriber = Client(world, "p"), Client(world, "s")
    publisher.connect()
    subscriber.connect(expiry_s=FOREVER_S)
    subscriber.subscribe("t", qos=qos)
    return publisher, subscriber


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("more", [b"", EXPIRY])
def test_it_is_forwarded_as_it_came(name: str, qos: int, more: bytes) -> None:
    publisher, subscriber = joined(World(), qos)
    publisher.send_bytes(publish(FORMATS[name] + more, qos))
    assert properties_of(subscriber.inbox, qos) == FORMATS[name] + more


def test_it_is_found_behind_other_properties_and_not_in_them() -> None:
    publisher, subscriber = joined(World(), 0)
    correlation_data = b"\x09\x00\x02\x01\x00"
    publisher.send_bytes(publish(correlation_data))
    assert properties_of(subscriber.inbox) == correlation_data
    subscriber.inbox = b""
    publisher.send_bytes(publish(correlation_data + b"\x01\x00"))
    assert properties_of(subscriber.inbox) == b"\x01\x00" + correlation_data


@pytest.mark.parametrize("value", [2, 255])
def test_other_values_are_refused(value: int) -> None:
    publisher, _ = joined(World(), 0)
    publisher.send_bytes(publish(bytes((1, value))))
    assert publisher.is_closed


@pytest.mark.parametrize("name", FORMATS)
def test_retained_messages_keep_it(name: str) -> None:
    world = World()
    publisher = Client(world, "p")
    publisher.connect()
    publisher.send_bytes(publish(FORMATS[name], retain=True))
    late = Client(world, "s")
    late.connect()
    late.send(mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("t")]))
    assert isinstance(late.read(), mqtt5.SubAckPacket)
    assert properties_of(late.inbox) == FORMATS[name]


@pytest.mark.parametrize("name", FORMATS)
def test_wills_keep_it(name: str) -> None:
    world = World()
    _, subscriber = joined(world, 0)
    dying = Client(world)
    dying.open()
    will = bytes((len(FORMATS[name]),)) + FORMATS[name] + b"\x00\x01t\x00\x01x"
    body = b"\x00\x04MQTT\x05\x06\x00\x00\x00\x00\x01d" + will
    dying.send_bytes(b"\x10" + bytes((len(body),)) + body)
    assert isinstance(dying.read(), mqtt5.ConnAckPacket)
    dying.drop()
    assert properties_of(subscriber.inbox) == FORMATS[name]


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("qos", [0, 1])
def test_it_crosses_links(name: str, qos: int) -> None:
    network = Network({"root": None, "left": "root", "right": "root"})
    publisher, subscriber = network.client("left", "p"), network.client("right", "s")
    publisher.connect()
    subscriber.connect()
    subscriber.subscribe("t", qos=qos)
    publisher.send_bytes(publish(FORMATS[name], qos))
    assert properties_of(subscriber.inbox, qos) == FORMATS[name]


@pytest.mark.parametrize("name", FORMATS)
def test_it_survives_a_restart(name: str) -> None:
    network = Network({"root": None}, is_durable=True)
    subscriber, publisher = network.client("root", "s"), network.client("root", "p")
    subscriber.connect(expiry_s=FOREVER_S)
    subscriber.subscribe("t", qos=1)
    subscriber.drop()
    publisher.connect()
    publisher.send_bytes(publish(FORMATS[name], 1))
    network.restart("root")
    subscriber.connect(clean=False, expiry_s=FOREVER_S)
    assert properties_of(subscriber.inbox, 1) == FORMATS[name]


def test_messages_of_stores_that_did_not_know_the_difference_are_delivered() -> None:
    """They hold 0 for none; the standard says that 0 means the same as none (section 3.3.2.3.2)."""
    store = MemoryStore()
    old = Broker(BrokerConfig(), is_durable=True)
    row = ("t", b"x", 0, True, "broker.1", 1, None, (0, "text", None, None, ()))
    store.commit([(persist.MESSAGE | 1, row), (persist.RETAINED | 2, (1,))])
    restore(old, store.load(), 0)
    world = World()
    world.broker = old
    late = Client(world, "s")
    late.connect()
    late.send(mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("t")]))
    assert isinstance(late.read(), mqtt5.SubAckPacket)
    message = late.read()
    assert isinstance(message, mqtt5.PublishPacket)
    assert (message.payload, message.content_type, message.payload_format_indicator) == (b"x", "text", 0)

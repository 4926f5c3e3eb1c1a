"""ON/OFF session queues on the core alone: order, limits, windows and emulated service, with time in the test's hands."""

from typing import Any

import mqtt5
import pytest

from brokerbed.log.record import Reason
from tests.core_client import FOREVER_S, NS_PER_S, Client, World


def joined(world: World, **options: Any) -> tuple[Client, Client]:
    """A publisher and a subscriber to everything, with a session that is kept."""
    publisher, subscriber = Client(world, "p"), Client(world, "s")
    publisher.connect()
    subscriber.connect(expiry_s=FOREVER_S, **options)
    subscriber.subscribe("#")
    return publisher, subscriber


def test_queue_is_delivered_in_order_before_anything_newer() -> None:
    world = World()
    publisher, subscriber = joined(world)
    subscriber.drop()
    for number in range(5):
        publisher.publish("t", b"%d" % number, qos=1)
    publisher.publish("t", b"lost", qos=0)
    assert subscriber.connect(clean=False, expiry_s=FOREVER_S).session_present
    publisher.publish("t", b"new", qos=1)
    assert subscriber.payloads() == [b"0", b"1", b"2", b"3", b"4", b"new"]
    assert world.broker.counters.dropped[Reason.OFFLINE] == 1


def test_window_is_the_clients_receive_maximum() -> None:
    world = World()
    publisher, subscriber = joined(world, receive_max=2)
    for number in range(4):
        publisher.publish("t", b"%d" % number, qos=1)
    first = subscriber.read_all()
    assert [packet.payload for packet in first if isinstance(packet, mqtt5.PublishPacket)] == [b"0", b"1"]
    assert isinstance(first[0], mqtt5.PublishPacket)
    subscriber.acknowledge(first[0])
    (third,) = subscriber.read_all()
    assert isinstance(third, mqtt5.PublishPacket)
    assert third.payload == b"2"


def test_redelivery_after_a_broken_connection_has_dup_and_keeps_order() -> None:
    world = World()
    publisher, subscriber = joined(world)
    for number in range(3):
        publisher.publish("t", b"%d" % number, qos=1)
    subscriber.drop()  # nothing of it was read
    publisher.publish("t", b"3", qos=1)
    subscriber.connect(clean=False, expiry_s=FOREVER_S)
    packets = [packet for packet in subscriber.read_all() if isinstance(packet, mqtt5.PublishPacket)]
    assert [(packet.payload, packet.duplicate) for packet in packets] == [
        (b"0", True), (b"1", True), (b"2", True), (b"3", False),
    ]  # fmt: skip


def test_limit_in_messages_drops_the_oldest_and_counts() -> None:
    world = World(queue_messages_max=2)
    publisher, subscriber = joined(world)
    subscriber.drop()
    for number in range(5):
        publisher.publish("t", b"%d" % number, qos=1)
    subscriber.connect(clean=False, expiry_s=FOREVER_S)
    assert subscriber.payloads() == [b"3", b"4"]
    assert world.broker.counters.dropped[Reason.QUEUE_FULL] == 3


def test_limit_in_bytes_drops_as_many_as_needed() -> None:
    world = World(queue_bytes_max=100)
    publisher, subscriber = joined(world)
    subscriber.drop()
    for payload in (b"a" * 30, b"b" * 30, b"c" * 80):
        publisher.publish("t", payload, qos=1)
    publisher.publish("t", b"d" * 200, qos=1)  # can never fit
    subscriber.connect(clean=False, expiry_s=FOREVER_S)
    assert subscriber.payloads() == []
    assert world.broker.counters.dropped[Reason.QUEUE_FULL] == 4


@pytest.mark.parametrize("qos", [1, 2])
def test_policy_reject_tells_the_publisher_0x97(qos: int) -> None:
    world = World(queue_messages_max=1, queue_policy="reject")
    publisher, subscriber = joined(world)
    subscriber.drop()
    publisher.publish("t", b"kept", qos=qos)
    publisher.publish("t", b"refused", qos=qos)
    codes = [int(packet.reason_code) for packet in publisher.read_all()]  # type: ignore[union-attr]
    assert codes == [0, 0x97]
    subscriber.connect(clean=False, expiry_s=FOREVER_S)
    assert subscriber.payloads() == [b"kept"]
    assert world.broker.counters.rejected == 1


def test_slow_consumer_loses_qos0_and_keeps_qos1() -> None:
    world = World()
    publisher, subscriber = joined(world)
    assert subscriber.connection is not None
    world.broker.writable(subscriber.connection, False, world.now_ns)
    publisher.publish("t", b"zero", qos=0)
    publisher.publish("t", b"one", qos=1)
    assert subscriber.inbox == b""
    world.broker.writable(subscriber.connection, True, world.now_ns)
    world.settle()
    assert subscriber.payloads() == [b"one"]
    assert world.broker.counters.dropped[Reason.SLOW] == 1


def test_service_at_the_input_is_first_come_first_served() -> None:
    """Demands 3, 1, 1 s; arrivals at 0, 1 and 10 s: done at 3, 4 and 11 s."""
    demands = iter([3 * NS_PER_S, NS_PER_S, NS_PER_S])
    world = World(service_in=lambda: next(demands))
    publisher, subscriber = joined(world)
    seen: list[tuple[float, bytes]] = []

    def watch(until_s: int, since_ns: int) -> None:
        while world.now_ns < since_ns + until_s * NS_PER_S:
            world.wait(0.5)
            seen.extend(((world.now_ns - since_ns) / NS_PER_S, payload) for payload in subscriber.payloads())

    start_ns = world.now_ns
    publisher.publish("t", b"a")
    watch(1, start_ns)
    publisher.publish("t", b"b", qos=1)
    watch(10, start_ns)
    publisher.publish("t", b"c")
    watch(12, start_ns)
    assert seen == [(3.0, b"a"), (4.0, b"b"), (11.0, b"c")]


def test_service_of_a_session_is_interrupted_and_resumed_where_it_stopped() -> None:
    """Demand 4 s each. a is served 3 s, the peer is away for 10 s, 1 s is left; then b takes its whole 4 s."""
    world = World(session_service={"s": lambda: 4 * NS_PER_S})
    publisher, subscriber = joined(world)
    publisher.publish("t", b"a", qos=1)
    publisher.publish("t", b"b", qos=1)
    world.wait(3)
    assert subscriber.payloads() == []
    subscriber.drop()
    world.wait(10)
    subscriber.connect(clean=False, expiry_s=FOREVER_S)
    world.wait(0.9)
    assert subscriber.payloads() == []
    world.wait(0.2)
    assert subscriber.payloads() == [b"a"]
    world.wait(3.8)
    assert subscriber.payloads() == []
    world.wait(0.2)
    assert subscriber.payloads() == [b"b"]


def test_service_due_times_do_not_drift_with_late_timers() -> None:
    """The driver's timer fires 0.3 s late every time; the third message is still due at 3 s, not at 3.9 s."""
    world = World(session_service={"s": lambda: NS_PER_S})
    publisher, subscriber = joined(world)
    start_ns = world.now_ns
    for number in range(3):
        publisher.publish("t", b"%d" % number, qos=1)
    for late_s in (1.3, 2.3, 3.3):
        world.now_ns = start_ns + round(late_s * NS_PER_S)
        world.broker.due(world.now_ns)
        world.settle()
    assert subscriber.payloads() == [b"0", b"1", b"2"]


def test_session_that_ends_drops_its_queue_and_says_so() -> None:
    world = World()
    publisher, subscriber = joined(world)
    subscriber.drop()
    publisher.publish("t", b"x", qos=1)
    assert not Client(world, "s").connect(clean=True).session_present
    assert world.broker.counters.dropped[Reason.SESSION_ENDED] == 1
    publisher.publish("t", b"y", qos=1)
    assert int(publisher.read_all()[-1].reason_code) == 0x10  # type: ignore[union-attr]


def test_keep_alive_ends_a_silent_client_after_one_and_a_half_periods() -> None:
    world = World()
    client = Client(world, "c")
    client.connect(keep_alive=10)
    world.wait(14)
    client.send(mqtt5.PingReqPacket())
    world.wait(14)
    assert not client.is_closed
    world.wait(1.1)
    assert client.is_closed
    assert int(client.read_all()[-1].reason_code) == 0x8D


def test_connect_must_come_in_time() -> None:
    world = World(connect_timeout_s=5)
    client = Client(world, "c")
    client.open()
    world.wait(4.9)
    assert not client.is_closed
    world.wait(0.2)
    assert client.is_closed
    assert not world.broker.connections


def test_topic_aliases_towards_a_client_that_allows_them() -> None:
    """One alias allowed: the first topic gets it, the second never; a packet too large for the client sets none."""
    world = World()
    publisher, subscriber = joined(world, topic_alias_max=1, max_packet_size=60)
    publisher.publish("too/large", b"x" * 100)
    for topic in ("first", "first", "second", "first"):
        publisher.publish(topic, b"x", qos=1)
    publisher.publish("first", b"y")
    packets = [packet for packet in subscriber.read_all() if isinstance(packet, mqtt5.PublishPacket)]
    assert [(packet.topic, packet.topic_alias) for packet in packets] == [
        ("first", 1), ("", 1), ("second", None), ("", 1), ("", 1),
    ]  # fmt: skip


def test_keep_alive_of_version_5_is_capped_and_told() -> None:
    world = World()
    assert Client(world, "a").connect(keep_alive=120).server_keep_alive == 60
    assert Client(world, "b").connect(keep_alive=0).server_keep_alive == 60
    assert Client(world, "c").connect(keep_alive=30).server_keep_alive is None


def test_message_under_way_that_is_too_large_for_a_new_connection_is_dropped() -> None:
    """[MQTT-3.1.2-24]: the client has lowered its maximum packet size between two connections."""
    world = World()
    reader, writer = Client(world, "r"), Client(world, "w")
    reader.connect(expiry_s=FOREVER_S)
    reader.subscribe("t", qos=2)
    writer.connect()
    writer.publish("t", bytes(1000), qos=2)
    writer.publish("t", b"small", qos=1)
    reader.drop()
    reader.connect(clean=False, expiry_s=FOREVER_S, max_packet_size=500)
    assert reader.payloads() == [b"small"]
    assert world.broker.counters.dropped[Reason.TOO_LARGE] == 1

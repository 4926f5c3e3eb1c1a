"""What a broker core makes of its rows after a restart: each delivery once, nothing forgotten, nothing kept for ever."""

import gc
from collections.abc import Callable

import mqtt5
import pytest

from brokerbed.broker.core import persist
from brokerbed.broker.values import Message
from tests.core_client import FOREVER_S, NS_PER_S, Client, World
from tests.durable_world import DurableWorld

LARGE = b"x" * (persist.INLINE_BYTES_MAX + 1)


def subscribed(world: World, *names: str, topic: str = "t") -> list[Client]:
    """Clients with lasting sessions and a subscription, which are offline."""
    clients = [Client(world, name) for name in names]
    for client in clients:
        client.connect(expiry_s=FOREVER_S)
        client.subscribe(topic)
        client.drop()
    return clients


def publisher(world: World) -> Client:
    client = Client(world, "publisher")
    client.connect()
    return client


def resume(client: Client, **options: int) -> None:
    assert client.connect(clean=False, expiry_s=FOREVER_S, **options).session_present


def end_by_clean_start(client: Client) -> None:
    client.connect(clean=True)


def end_by_disconnect(client: Client) -> None:
    resume(client)
    client.send(mqtt5.DisconnectPacket(session_expiry_interval=0))


def end_by_resuming_without_expiry(client: Client) -> None:
    assert client.connect(clean=False, expiry_s=0).session_present
    client.drop()


@pytest.mark.parametrize("end", [end_by_clean_start, end_by_disconnect, end_by_resuming_without_expiry])
@pytest.mark.parametrize("payload", [b"small", LARGE], ids=["small", "large"])
def test_message_outlives_one_of_two_restored_sessions_that_share_it(
    end: Callable[[Client], None], payload: bytes
) -> None:
    world = DurableWorld()
    one, other = subscribed(world, "one", "other")
    for _ in range(3):
        publisher(world).publish("t", payload, qos=1)
    world.restart()
    end(one)
    world.restart()
    resume(other)
    assert other.payloads() == [payload] * 3
    assert world.rows(persist.MESSAGE) == {}


def test_session_that_expires_after_a_restart_leaves_shared_messages_to_others() -> None:
    world = DurableWorld()
    one, other = subscribed(world, "one", "other")
    one.connect(clean=False, expiry_s=10)
    one.drop()
    publisher(world).publish("t", b"shared", qos=1)
    world.restart()
    world.wait(11)
    world.restart()
    resume(other)
    assert other.payloads() == [b"shared"]


def test_session_expires_though_the_broker_restarts_more_often_than_its_interval() -> None:
    world = DurableWorld()
    client = Client(world, "client")
    client.connect(expiry_s=10)
    for _ in range(4):
        world.restart()
        world.wait(4)
    assert not client.connect(clean=False).session_present


def test_restored_messages_are_freed_when_nobody_needs_them() -> None:
    world = DurableWorld()
    one, other = subscribed(world, "one", "other", topic="freed/#")
    sender = publisher(world)
    for number in range(10):
        sender.publish(f"freed/{number % 2}", LARGE if number % 3 else b"small", qos=1 + number % 2)
    world.restart()
    resume(one)
    assert len(one.payloads()) == 10
    assert restored_messages() > 0
    end_by_clean_start(other)
    assert restored_messages() == 0


def restored_messages() -> int:
    gc.collect()
    return sum(isinstance(it, Message) and it.topic.startswith("freed/") for it in gc.get_objects())


def test_unsent_and_sent_messages_keep_their_order_and_ids_when_the_window_shrinks() -> None:
    world = DurableWorld(inflight_max=4)
    (client,) = subscribed(world, "client")
    resume(client)
    sender = publisher(world)
    for number in range(8):
        sender.publish("t", b"%d" % number, qos=2)
    first = [packet for packet in client.read_all() if isinstance(packet, mqtt5.PublishPacket)]
    assert [packet.payload for packet in first] == [b"0", b"1", b"2", b"3"]
    for window in (2, 1):
        world.restart()
        resume(client, receive_max=window)
        again = [packet for packet in client.read_all() if isinstance(packet, mqtt5.PublishPacket)]
        assert [packet.payload for packet in again] == [b"%d" % number for number in range(window)]
    client.drop()
    resume(client, receive_max=3)
    received = []
    while (packet := client.read()) is not None:
        if isinstance(packet, mqtt5.PublishPacket):
            received.append(packet)
            client.acknowledge(packet)
        elif isinstance(packet, mqtt5.PubRelPacket):
            client.send(mqtt5.PubCompPacket(packet.packet_id))
    assert [packet.payload for packet in received] == [b"%d" % number for number in range(8)]
    assert [packet.packet_id for packet in received[:4]] == [packet.packet_id for packet in first]
    assert [packet.duplicate for packet in received] == [True] * 4 + [False] * 4


def test_message_at_qos0_that_left_the_emulated_service_does_not_come_again_after_a_restart() -> None:
    world = DurableWorld(session_service={"slow": lambda: NS_PER_S})
    (slow,) = subscribed(world, "slow")
    resume(slow)
    publisher(world).publish("t", b"once", qos=0)
    world.wait(2)
    assert slow.payloads() == [b"once"]
    world.restart()
    resume(slow)
    world.wait(2)
    assert slow.payloads() == []
    assert world.rows(persist.DELIVERY) == {}


def test_row_numbers_grow_by_the_rows_made_however_often_the_broker_restarts() -> None:
    """Publishers leave messages at QoS 2 unreleased; each restart restores them."""
    world = DurableWorld()
    for life in range(5):
        client = Client(world, f"publisher{life}")
        client.connect(expiry_s=FOREVER_S)
        client.publish("t", b"unreleased", qos=2)
        world.restart()
    assert len(world.rows(persist.RECEIVED)) == 5
    assert world.broker.last_row_number < 100
    resume(client)
    client.send(mqtt5.PubRelPacket(client.next_id))
    (answer,) = client.read_all()
    assert isinstance(answer, mqtt5.PubCompPacket)
    assert int(answer.reason_code) == 0
    assert len(world.rows(persist.RECEIVED)) == 4


def test_message_in_the_emulated_service_at_the_input_survives_restarts_and_leaves_no_row() -> None:
    world = DurableWorld(service_in=lambda: NS_PER_S)
    (client,) = subscribed(world, "client")
    sender = publisher(world)
    sender.publish("t", b"kept", qos=1, retain=True)
    sender.publish("t", b"later", qos=2)
    for _ in range(2):
        world.wait(0.5)
        world.restart()
    world.wait(3)
    resume(client)
    assert client.payloads() == [b"kept", b"later"]
    assert [row[1] for row in world.rows(persist.MESSAGE).values()] == [b"kept"]


def test_retained_message_and_its_deliveries_are_independent_after_a_restart() -> None:
    world = DurableWorld()
    (client,) = subscribed(world, "client")
    sender = publisher(world)
    sender.publish("t", b"old", qos=1, retain=True)
    world.restart()
    sender = publisher(world)
    sender.publish("t", b"new", qos=1, retain=True)
    world.restart()
    resume(client)
    assert client.payloads() == [b"old", b"new"]
    assert [row[1] for row in world.rows(persist.MESSAGE).values()] == [b"new"]
    publisher(world).publish("t", b"", retain=True)
    assert world.rows(persist.MESSAGE) == {}


def test_message_that_was_sent_at_qos2_does_not_expire_before_its_handshake_ends_mqtt_4_3_3_7() -> None:
    world = World(inflight_max=2)
    client, sender = Client(world, "client"), Client(world, "publisher")
    client.connect(expiry_s=FOREVER_S)
    client.subscribe("t")
    sender.connect()
    for number in range(2):
        sender.publish("t", b"%d" % number, qos=2, message_expiry_interval=5)
    assert len(client.read_all()) == 2
    client.drop()
    world.wait(10)
    resume(client, receive_max=1)  # so the second message waits in the queue again
    assert client.payloads() == [b"0", b"1"]


def test_full_queue_does_not_give_away_a_packet_id_that_the_client_still_holds() -> None:
    world = DurableWorld(inflight_max=2, queue_messages_max=2)
    (client,) = subscribed(world, "client")
    resume(client)
    sender = publisher(world)
    for number in range(2):
        sender.publish("t", b"%d" % number, qos=2)
    held = {packet.packet_id: packet.payload for packet in client.read_all() if isinstance(packet, mqtt5.PublishPacket)}
    world.restart()
    resume(client, receive_max=1)  # one of the two waits in the queue again
    sender = publisher(world)
    for number in range(2, 6):
        sender.publish("t", b"%d" % number, qos=2)
    client.drop()
    resume(client)
    received = []
    while (packet := client.read()) is not None:
        if isinstance(packet, mqtt5.PublishPacket):
            received.append(packet.payload)
            assert held.get(packet.packet_id, packet.payload) == packet.payload
            client.acknowledge(packet)
        elif isinstance(packet, mqtt5.PubRelPacket):
            held.pop(packet.packet_id, None)
            client.send(mqtt5.PubCompPacket(packet.packet_id))
    assert received == [b"0", b"1", b"5"]  # the oldest of those that had not been sent were dropped

"""Limits of the core on what many peers could make grow together: each is kept, counted, and lifted by itself."""

from collections.abc import Callable
from typing import Any

import mqtt5
import pytest

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.core.broker import Broker
from brokerbed.broker.core.connection import Connection
from brokerbed.broker.values import NS_PER_S

KEPT_S = 3600


class Clients:
    """A broker without sockets, and clients of it."""

    def __init__(self, **limits: Any) -> None:
        self.broker = Broker(BrokerConfig(keep_alive_max_s=0, **limits))
        self.now_ns = 1

    def opened(self) -> Connection:
        return self.broker.opened(self.now_ns)

    def connected(self, client_id: str, clean_start: bool = True) -> Connection:
        connection = self.opened()
        packet = mqtt5.ConnectPacket(client_id, keep_alive=0, clean_start=clean_start, session_expiry_interval=KEPT_S)
        assert self.answers(connection, packet)[0].reason_code == 0
        return connection

    def answers(self, connection: Connection, packet: mqtt5.Packet) -> list[Any]:
        self.broker.received(connection, packet.write(), self.now_ns)
        output, connection.output = b"".join(connection.output), []
        packets: list[Any] = []
        while output:
            answer, size = mqtt5.read(memoryview(output))
            packets.append(answer)
            output = output[size:]
        return packets

    def subscribe(self, connection: Connection, *filters: str) -> list[int]:
        packet = mqtt5.SubscribePacket(1, [mqtt5.TopicFilter(it, max_qos=mqtt5.QoS(1)) for it in filters])
        return [int(code) for code in self.answers(connection, packet)[0].reason_codes]

    def publish(self, connection: Connection, topic: str, payload: bytes = b"x", retain: bool = False) -> int:
        packet = mqtt5.PublishPacket(topic, payload, qos=mqtt5.QoS(1), packet_id=1, retain=retain)
        return int(self.answers(connection, packet)[0].reason_code)

    def shed(self) -> dict[str, int]:
        return {reason: count for reason, count in self.broker.counters.shed.items() if count}


def test_of_half_open_connections_the_oldest_ends() -> None:
    clients = Clients(connecting_max=3)
    honest = clients.connected("honest")
    half_open = [clients.opened() for _ in range(5)]
    assert [it.is_closing for it in half_open] == [True, True, False, False, False]
    assert not honest.is_closing
    assert clients.shed() == {"connecting": 2}
    clients.connected("another")  # it takes the place of the next oldest
    assert [it.is_closing for it in half_open] == [True, True, True, False, False]


def test_half_open_connections_end_after_their_time() -> None:
    clients = Clients(connect_timeout_s=1)
    half_open, honest = clients.opened(), clients.connected("honest")
    clients.broker.due(2 * NS_PER_S)
    assert half_open.is_closing
    assert not honest.is_closing
    assert clients.shed() == {"connect_timeout": 1}


def test_of_unfinished_connects_the_largest_ends() -> None:
    clients = Clients(connecting_bytes_max=10_000)
    head = bytes.fromhex("10ffff03")  # of a CONNECT of 65 535 bytes
    small, large = clients.opened(), clients.opened()
    clients.broker.received(small, head + bytes(1000), 1)
    for _ in range(9):
        clients.broker.received(large, head + bytes(1000) if not large.parts else bytes(1000), 1)
    assert large.is_closing
    assert not small.is_closing
    assert clients.broker.partial_bytes == 1004
    assert clients.shed() == {"connecting_bytes": 1}


def test_bytes_of_those_that_connected_count_no_more() -> None:
    clients = Clients(connecting_bytes_max=400)
    for number in range(10):
        data = mqtt5.ConnectPacket(f"client{number}" + "x" * 100).write()
        connection = clients.opened()
        clients.broker.received(connection, data[:100], 1)
        clients.broker.received(connection, data[100:], 1)
        assert connection.session is not None
    assert clients.shed() == {}


def test_connections_beyond_the_maximum_are_counted() -> None:
    clients = Clients(connections_max=2)
    assert [clients.opened().is_closing for _ in range(3)] == [False, False, True]
    assert clients.shed() == {"connections": 1}


def test_subscriptions_of_all_clients_are_limited_together() -> None:
    clients = Clients(all_subscriptions_max=3)
    one, other = clients.connected("one"), clients.connected("other")
    assert clients.subscribe(one, "a", "b/+") == [1, 1]
    assert clients.subscribe(other, "a", "c") == [1, 0x97]
    assert clients.subscribe(other, "a") == [1]  # one that is there can be renewed
    assert clients.shed() == {"subscriptions": 1}
    clients.answers(one, mqtt5.DisconnectPacket(session_expiry_interval=0))
    clients.broker.lost(one, 2)
    assert clients.subscribe(other, "c", "d", "e") == [1, 1, 0x97]


@pytest.mark.parametrize("act", [
    lambda it, client: it.publish(client, "t/3", b"", retain=True),
    lambda it, client: it.publish(client, "t/0", bytes(10), retain=True),
])  # fmt: skip
def test_retained_messages_are_limited_by_their_size(act: Callable[[Clients, Connection], int]) -> None:
    """A topic counts with the two bytes of its length. What makes no message larger is always taken."""
    clients = Clients(retained_bytes_max=3 * (2 + 3 + 95))
    client = clients.connected("publisher")
    codes = [clients.publish(client, f"t/{number}", bytes(95), retain=True) & 0x80 for number in range(4)]
    assert codes == [0, 0, 0, 0x80]
    assert clients.broker.retained_bytes == 300
    assert clients.shed() == {"retained": 1}
    assert clients.publish(client, "t/4") < 0x80  # what is not retained is not limited
    assert act(clients, client) < 0x80
    clients.publish(client, "t/1", b"", retain=True)
    assert clients.publish(client, "t/4", bytes(95), retain=True) < 0x80


@pytest.mark.parametrize("wanted", ["a/b/c", "a/+/#"])
def test_levels_are_limited(wanted: str) -> None:
    clients = Clients(levels_max=2)
    client = clients.connected("client")
    assert clients.subscribe(client, wanted, "a/b") == [0x8F, 1]
    assert clients.publish(client, "a/b") == 0
    clients.publish(client, "a/b/c")
    assert client.is_closing


def test_messages_for_all_clients_are_limited_at_the_cost_of_the_fullest_queue() -> None:
    """Ten messages of 100 bytes have room. Those that wait for `greedy` give way to those for `modest`."""
    clients = Clients(queues_bytes_max=1000)
    for name in ("greedy", "modest"):
        subscriber = clients.connected(name)
        clients.subscribe(subscriber, name)
        clients.answers(subscriber, mqtt5.DisconnectPacket())
        clients.broker.lost(subscriber, 2)
    greedy, modest = (clients.broker.sessions[name] for name in ("greedy", "modest"))
    publisher = clients.connected("publisher")
    for topic, count in (("greedy", 12), ("modest", 3)):
        for number in range(count):
            assert clients.publish(publisher, topic, b"%d" % number + bytes(98 - len(topic) - len(str(number)))) == 0
    assert (len(greedy.queue), len(modest.queue)) == (7, 3)
    assert greedy.queue_bytes + modest.queue_bytes == 1000
    assert bytes(greedy.queue[0].message.payload)[:2] == b"5\0"  # five of twelve are gone, the oldest first
    assert clients.shed() == {"queues_bytes": 5}


def test_a_policy_of_rejecting_holds_for_all_queues_and_ends_when_there_is_room() -> None:
    clients = Clients(queues_bytes_max=1000, queue_policy="reject")
    subscriber = clients.connected("subscriber")
    clients.subscribe(subscriber, "t")
    clients.answers(subscriber, mqtt5.DisconnectPacket())
    clients.broker.lost(subscriber, 2)
    publisher = clients.connected("publisher")
    codes = [clients.publish(publisher, "t", bytes(97)) for _ in range(12)]
    assert codes == [0] * 10 + [0x97] * 2
    clients.connected("subscriber", clean_start=True)
    clients.now_ns += NS_PER_S
    clients.subscribe(clients.connected("another"), "t")
    assert clients.publish(publisher, "t", bytes(97)) == 0

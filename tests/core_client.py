"""A client joined to a broker core by a fake link: bytes out, packets in, and the time in the test's own hands.

It speaks MQTT 5 with the `mqtt5` codec directly, so that it shares no code with the broker but that codec.
"""

from typing import Any

import mqtt5

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.core.broker import Broker
from brokerbed.broker.core.connection import Connection
from brokerbed.broker.core.timers import SetTimer
from brokerbed.log.record import Log

NS_PER_S = 1_000_000_000
FOREVER_S = 0xFFFF_FFFF
QOS = (mqtt5.QoS(0), mqtt5.QoS(1), mqtt5.QoS(2))


class World:
    """One broker core and the time."""

    def __init__(self, log: Log | None = None, at: SetTimer | None = None, **config: Any) -> None:
        self.broker = Broker(BrokerConfig(**config), log, at=at)
        self.now_ns = NS_PER_S

    def wait(self, seconds: float) -> None:
        """Let time pass, doing what becomes due on the way."""
        end_ns = self.now_ns + round(seconds * NS_PER_S)
        while (deadline := self.broker.deadline_ns) is not None and deadline <= end_ns:
            self.now_ns = max(self.now_ns, deadline)
            self.broker.due(self.now_ns)
            self.settle()
        self.now_ns = end_ns

    def settle(self) -> None:
        """Do as a driver does: take the output, close what is to be closed."""
        for connection in self.broker.dirty:
            connection.is_dirty = False
            connection.driver.inbox += b"".join(connection.output)
            connection.output.clear()
        self.broker.dirty.clear()
        ending, self.broker.ending = self.broker.ending, []
        for connection in ending:
            connection.driver.is_closed = True
            self.broker.lost(connection, self.now_ns)
        if ending:
            self.settle()


class Client:
    """`inbox` holds what the broker sent and the client has not read; `drop` loses it, as a broken connection does."""

    def __init__(self, world: World, client_id: str = "") -> None:
        self.world = world
        self.client_id = client_id
        self.connection: Connection | None = None
        self.inbox = b""
        self.is_closed = True
        self.next_id = 0

    def connect(self, clean: bool = True, expiry_s: int = 0, **options: Any) -> mqtt5.ConnAckPacket:
        self.open()
        connect = mqtt5.ConnectPacket(self.client_id, clean_start=clean, session_expiry_interval=expiry_s, **options)
        self.send(connect)
        packet = self.read()
        assert isinstance(packet, mqtt5.ConnAckPacket), packet
        return packet

    def open(self) -> None:
        self.connection = self.world.broker.opened(self.world.now_ns)
        self.connection.driver = self
        self.inbox = b""
        self.is_closed = False

    def send(self, *packets: mqtt5.Packet) -> None:
        self.send_bytes(b"".join(packet.write() for packet in packets))

    def send_bytes(self, data: bytes) -> None:
        assert self.connection is not None
        self.world.broker.received(self.connection, data, self.world.now_ns)
        self.world.settle()

    def read(self) -> mqtt5.Packet | None:
        """The next packet from the broker, None if there is none."""
        if not self.inbox:
            return None
        packet, size = mqtt5.read(memoryview(self.inbox))
        self.inbox = self.inbox[size:]
        return packet

    def read_all(self) -> list[mqtt5.Packet]:
        return list(iter(self.read, None))

    def payloads(self) -> list[bytes]:
        """What was published to us; acknowledgements are sent for it, and answers to our own packets are passed over."""
        found = []
        while (packet := self.read()) is not None:
            if isinstance(packet, mqtt5.PublishPacket):
                found.append(packet.payload)
                self.acknowledge(packet)
            elif isinstance(packet, mqtt5.PubRelPacket):
                self.send(mqtt5.PubCompPacket(packet.packet_id))
        return found

    def acknowledge(self, packet: mqtt5.PublishPacket) -> None:
        if packet.packet_id is not None:
            kind = mqtt5.PubAckPacket if int(packet.qos) == 1 else mqtt5.PubRecPacket
            self.send(kind(packet.packet_id))

    def subscribe(self, *filters: str, qos: int = 2, identifier: int | None = None, **options: Any) -> list[int]:
        wanted = [mqtt5.TopicFilter(pattern, max_qos=QOS[qos], **options) for pattern in filters]
        self.send(mqtt5.SubscribePacket(self.take_id(), wanted, subscription_id=identifier))
        packet = self.read()
        assert isinstance(packet, mqtt5.SubAckPacket), packet
        return [int(code) for code in packet.reason_codes]

    def send_subscribe(self, *filters: str) -> None:
        wanted = [mqtt5.TopicFilter(pattern, max_qos=QOS[1]) for pattern in filters]
        self.send(mqtt5.SubscribePacket(self.take_id(), wanted))

    def send_unsubscribe(self, *filters: str) -> None:
        self.send(mqtt5.UnsubscribePacket(self.take_id(), list(filters)))

    def publish(self, topic: str, payload: bytes = b"", qos: int = 0, **options: Any) -> None:
        packet_id = self.take_id() if qos else None
        self.send(mqtt5.PublishPacket(topic, payload, qos=QOS[qos], packet_id=packet_id, **options))

    def take_id(self) -> int:
        self.next_id = self.next_id % 65_535 + 1
        return self.next_id

    def drop(self) -> None:
        """The connection breaks: what was under way is lost."""
        assert self.connection is not None
        self.inbox = b""
        self.is_closed = True
        self.world.broker.lost(self.connection, self.world.now_ns)
        self.world.settle()

"""An MQTT 5 client that keeps its session when its connection is lost. It is pure: a driver carries the packets.

After a lost connection the client reconnects with a backoff and sends unacknowledged publications again, in order, as
MQTT requires. The same client runs on simulated networks and on sockets.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import mqtt5

from brokerbed.broker.core.run import Run, notification
from brokerbed.broker.values import NO_PROPERTIES, Message, Properties, Published

Packet = mqtt5.Packet | Run | Published
FOREVER_S = 0xFFFF_FFFF
QOS = (mqtt5.QoS(0), mqtt5.QoS(1), mqtt5.QoS(2))
REFUSED = 0x80  # reason codes from here on are errors
WINDOW = 20  # the number of unacknowledged messages at QoS 1 and 2 that brokers allow by default


class Clock(Protocol):
    """Model time, and a schedule of actions."""

    @property
    def now_ns(self) -> int: ...
    def at(self, due_ns: int, action: Callable[[Any], None], argument: Any) -> None: ...


class SharedClock(Clock, Protocol):
    """A clock that can be compared with that of the brokers, which on real grounds is the wall clock."""

    def of_brokers_ns(self, time_ns: int) -> int:
        """A model time as a time of the brokers' clock."""

    def model_ns(self, of_brokers_ns: int) -> int:
        """A time of the brokers' clock as model time."""


class PacketSink(Protocol):
    """Carries packets to the broker."""

    @property
    def send(self) -> Callable[[Packet], None]: ...


class Connection(Protocol):
    """One connection, or an attempt at one. It calls the client's `arrived` for each packet, and `lost` at its end."""

    @property
    def out(self) -> PacketSink: ...
    @property
    def unsent_bytes(self) -> int:
        """How many bytes the other side has not accepted yet."""

    def close(self) -> None:
        """Closes the connection without a DISCONNECT; the client is not notified."""


Dial = Callable[["Client"], Connection | None]  # returns None if no attempt can be made now
Moved = Callable[["Client", str], None]  # from a broker, of which the client is no longer
Retry = Callable[[Callable[[int], None], int], None]  # calls the function with the number after a backoff


class Client:
    """The light client: brokerbed's own implementation."""

    def __init__(
        self, dial: Dial, client_id: str, is_clean: bool, retry: Retry, broker: str = "", moved: Moved | None = None
    ) -> None:
        """`broker` is for the driver, which connects to the broker of this name, and hears in `moved` of another."""
        self.client_id = client_id
        self.broker = broker
        self._moved = moved
        self.filters: dict[str, int] = {}  # the filters that it should be subscribed to, with the QoS
        self.confirmed: set[str] = set()  # the filters that the broker has acknowledged
        self.received: Callable[[str, bytes, int, Properties], None] | None = None
        self.acknowledged: Callable[[Message], None] | None = None  # the broker has acknowledged a publication
        self.is_too_late: Callable[[Message], bool] | None = None  # whether the time of a message is over
        self.is_accepted_changed: Callable[[bool], None] | None = None  # CONNACK has arrived, or the connection is lost
        self._is_clean = is_clean
        self._open_connection = dial
        self._retry = retry
        self._is_wanted = False  # whether it should be connected
        self._connection: Connection | None = None
        self._out: PacketSink | None = None  # of the connection
        self._is_accepted = False  # CONNACK has arrived
        self._packet_id = 0
        self._requests: dict[int, tuple[str, bool]] = {}  # by packet id: the filter, and whether to subscribe
        self._unacknowledged: dict[int, Published] = {}  # sent at QoS 1 and 2, by packet id
        self._released: set[int] = set()  # packet ids of those at QoS 2 for which PUBREL was sent
        self._waiting: deque[Message] = deque()  # to be published when the window allows
        self._unreleased: set[int] = set()  # packet ids received at QoS 2 for which PUBREL has not arrived
        self._attempts = 0

    @property
    def is_connected(self) -> bool:
        return self._is_accepted

    @property
    def is_settled(self) -> bool:
        """It is in its intended state: not connected, or connected with every subscription confirmed."""
        if not self._is_wanted:
            return self._out is None
        return self._is_accepted and self.confirmed == self.filters.keys()

    @property
    def under_way(self) -> int:
        """Publications at QoS 1 and 2 that the broker has not acknowledged."""
        return len(self._unacknowledged) + len(self._waiting)

    @property
    def held(self) -> int:
        """Publications at QoS 1 and 2 that wait although there is a connection: the broker acknowledges too slowly."""
        return len(self._waiting) if self._is_accepted else 0

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._connection is None else self._connection.unsent_bytes

    # -- connection -----------------------------------------------------------------------------------------

    def connect(self) -> None:
        self._is_wanted = True
        self._attempts += 1
        self._dial(self._attempts)

    def _dial(self, number: int) -> None:
        if number != self._attempts or not self._is_wanted or self._out is not None:
            return
        connection = self._open_connection(self)
        if connection is None:
            self._retry(self._dial, number)
            return
        self._connection, self._out = connection, connection.out
        expiry_s = 0 if self._is_clean else FOREVER_S
        self._out.send(
            mqtt5.ConnectPacket(self.client_id, clean_start=self._is_clean, session_expiry_interval=expiry_s)
        )

    def disconnect(self) -> None:
        """Closes the connection without a DISCONNECT, and does not reconnect."""
        self._is_wanted = False
        self.break_()

    def move_to(self, broker: str) -> None:
        """Its session is to follow it to this broker, to which it connects next."""
        assert not self._is_wanted, "it must leave one broker before it comes to another one"
        before, self.broker = self.broker, broker
        if self._moved is not None:
            self._moved(self, before)

    def break_(self) -> None:
        """Breaks the connection; the client reconnects if it should be connected."""
        if self._connection is not None:
            self._connection.close()
            self._lost()

    def lost(self, connection: Connection) -> None:
        if connection is self._connection:
            self._lost()

    def _lost(self) -> None:
        was_accepted, self._is_accepted = self._is_accepted, False
        self._connection = self._out = None
        if was_accepted and self.is_accepted_changed is not None:
            self.is_accepted_changed(False)
        if self._is_wanted:
            self._attempts += 1
            self._retry(self._dial, self._attempts)

    # -- requests ---------------------------------------------------------------------------------------------

    def subscribe(self, topic_filter: str, qos: int) -> None:
        self.filters[topic_filter] = qos
        if self._is_accepted:
            self._request(topic_filter, True)

    def unsubscribe(self, topic_filter: str) -> None:
        del self.filters[topic_filter]
        if self._is_accepted:
            self._request(topic_filter, False)

    def notify(self, topic: str, payload: bytes) -> None:
        """Publishes at QoS 0; without a connection the message is lost."""
        if self._is_accepted and self._out is not None:
            self._out.send(notification(topic, payload))

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        properties: Properties = NO_PROPERTIES,
        expires_at_ns: int | None = None,
    ) -> None:
        """`expires_at_ns` is a time of the brokers' clock."""
        if qos == 0 and properties == NO_PROPERTIES and expires_at_ns is None:
            self.notify(topic, payload)
            return
        message = Message(topic, payload, qos, False, None, properties, expires_at_ns)
        if qos == 0:
            if self._is_accepted:
                self._send(Published(message, 0, False, 0, False))
        elif self._waiting or not self._is_accepted or len(self._unacknowledged) >= WINDOW:
            self._waiting.append(message)
        else:
            self._publish(message)

    def _pump(self) -> None:
        while self._waiting and self._is_accepted and len(self._unacknowledged) < WINDOW:
            message = self._waiting.popleft()
            if message.expires_at_ns is None or self.is_too_late is None or not self.is_too_late(message):
                self._publish(message)

    def _publish(self, message: Message) -> None:
        packet_id = self._take_id()
        published = Published(message, message.qos, False, packet_id, False)
        self._unacknowledged[packet_id] = published
        if self._out is not None:
            self._out.send(published)

    def _send(self, packet: Packet) -> None:
        if self._out is not None:
            self._out.send(packet)

    def _request(self, topic_filter: str, is_wanted: bool) -> None:
        packet_id = self._take_id()
        self._requests[packet_id] = topic_filter, is_wanted
        if is_wanted:
            subscription = mqtt5.TopicFilter(topic_filter, max_qos=QOS[self.filters[topic_filter]])
            self._send(mqtt5.SubscribePacket(packet_id, [subscription]))
        else:
            self._send(mqtt5.UnsubscribePacket(packet_id, [topic_filter]))

    def _take_id(self) -> int:
        while True:
            packet_id = self._packet_id = self._packet_id % 65_535 + 1
            if packet_id not in self._unacknowledged and packet_id not in self._requests:
                return packet_id

    # -- incoming packets -------------------------------------------------------------------------------------

    def arrived(self, connection: Connection, packet: Packet) -> None:
        if connection is self._connection:  # packets of an older connection are ignored
            handler = _HANDLERS.get(type(packet))
            if handler is not None:
                handler(self, packet)

    def _receive_qos0(self, run: Run) -> None:
        if self.received is not None:
            self.received(run.topic, run.data, 0, NO_PROPERTIES)

    def _receive(self, packet: Published) -> None:
        if packet.qos == 2:
            is_new = packet.packet_id not in self._unreleased
            self._unreleased.add(packet.packet_id)
            self._send(mqtt5.PubRecPacket(packet.packet_id))
        else:
            is_new = True
            if packet.qos and self._out is not None:
                self._out.send(mqtt5.PubAckPacket(packet.packet_id))
        if is_new and self.received is not None:
            message = packet.message
            self.received(message.topic, message.payload, packet.qos, message.properties)

    def _connection_acknowledged(self, packet: mqtt5.ConnAckPacket) -> None:
        if int(packet.reason_code) >= REFUSED:
            self.break_()
            return
        self._is_accepted = True
        if not packet.session_present:
            self._begin_session()
        for packet_id, published in list(self._unacknowledged.items()):
            is_released = packet_id in self._released
            is_duplicate = packet.session_present
            self._send(mqtt5.PubRelPacket(packet_id) if is_released else published._replace(is_duplicate=is_duplicate))
        unconfirmed = [topic_filter for topic_filter, _ in self._requests.values()]
        self._requests.clear()
        self.confirmed.difference_update(unconfirmed)
        for topic_filter in dict.fromkeys(unconfirmed):
            if topic_filter not in self.filters:
                self._request(topic_filter, False)
        for topic_filter in sorted(self.confirmed - set(self.filters)):  # unsubscribed while it was disconnected
            self._request(topic_filter, False)
        for topic_filter in self.filters:
            if topic_filter not in self.confirmed:
                self._request(topic_filter, True)
        self._pump()
        if self.is_accepted_changed is not None:
            self.is_accepted_changed(True)

    def _begin_session(self) -> None:
        """The broker has no session of this client, so what the client knows of an earlier one is void.

        Messages at QoS 1 that were not acknowledged are published anew. At QoS 2 they are given up: the earlier session
        may have taken them, and they must not arrive twice [MQTT-3.2.2-5].
        """
        self.confirmed.clear()
        self._unreleased.clear()
        self._released.clear()
        self._unacknowledged = {key: it for key, it in self._unacknowledged.items() if it.qos == 1}

    def _subscription_acknowledged(self, packet: mqtt5.SubAckPacket | mqtt5.UnsubAckPacket) -> None:
        topic_filter, is_wanted = self._requests.pop(packet.packet_id, ("", False))
        if is_wanted:
            self.confirmed.add(topic_filter)
        else:
            self.confirmed.discard(topic_filter)

    def _publication_acknowledged(self, packet: mqtt5.PubAckPacket | mqtt5.PubCompPacket) -> None:
        published = self._unacknowledged.pop(packet.packet_id, None)
        if published is not None:
            if published.qos != 1:
                self._released.discard(packet.packet_id)
            elif self.acknowledged is not None and int(packet.reason_code) < REFUSED:
                self.acknowledged(published.message)
        if self._waiting:
            self._pump()

    def _publication_received(self, packet: mqtt5.PubRecPacket) -> None:
        published = self._unacknowledged.get(packet.packet_id)
        if published is not None and packet.packet_id not in self._released:
            self._released.add(packet.packet_id)
            if self.acknowledged is not None and int(packet.reason_code) < REFUSED:
                self.acknowledged(published.message)
        self._send(mqtt5.PubRelPacket(packet.packet_id))

    def _publication_released(self, packet: mqtt5.PubRelPacket) -> None:
        self._unreleased.discard(packet.packet_id)
        self._send(mqtt5.PubCompPacket(packet.packet_id))


_HANDLERS: dict[type, Callable[..., None]] = {
    Run: Client._receive_qos0,
    Published: Client._receive,
    mqtt5.ConnAckPacket: Client._connection_acknowledged,
    mqtt5.SubAckPacket: Client._subscription_acknowledged,
    mqtt5.UnsubAckPacket: Client._subscription_acknowledged,
    mqtt5.PubAckPacket: Client._publication_acknowledged,
    mqtt5.PubCompPacket: Client._publication_acknowledged,
    mqtt5.PubRecPacket: Client._publication_received,
    mqtt5.PubRelPacket: Client._publication_released,
}

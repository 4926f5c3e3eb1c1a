"""A client of MQTT 5 that keeps its session: it loses its connection and comes again. Pure: a driver carries packets.

A client sends what it has not got acknowledged again, in order, as MQTT demands; one that is to be connected dials
again with a backoff when its connection breaks. The same clients run on simulated networks and on sockets.
"""

from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import mqtt5

from brokerbed.broker.core.run import Run, notification
from brokerbed.broker.values import Message, Published

Packet = mqtt5.Packet | Run | Published
FOREVER_S = 0xFFFF_FFFF
QOS = (mqtt5.QoS(0), mqtt5.QoS(1), mqtt5.QoS(2))
REFUSED = 0x80  # reason codes from here on are errors
WINDOW = 20  # messages at QoS 1 and 2 under way, as brokers allow by default


class Clock(Protocol):
    """Model time, and what is to be done at some of it."""

    @property
    def now_ns(self) -> int: ...
    def at(self, due_ns: int, action: Callable[[Any], None], argument: Any) -> None: ...


class Out(Protocol):
    """Takes packets to the broker."""

    @property
    def send(self) -> Callable[[Packet], None]: ...


class Line(Protocol):
    """One connection, or an attempt at one. It tells the client what arrives, and when it is broken."""

    @property
    def out(self) -> Out: ...
    @property
    def unsent_bytes(self) -> int:
        """What the other side has not taken yet."""

    def close(self) -> None:
        """Without a word; the client is not told."""


Dial = Callable[["Client"], Line | None]  # None: it is no use to try now
Retry = Callable[[Callable[[int], None], int], None]  # does this with that a little later


class Client:
    def __init__(self, dial: Dial, client_id: str, is_clean: bool, retry: Retry) -> None:
        self.client_id = client_id
        self.filters: dict[str, int] = {}  # what it wants, with the QoS
        self.confirmed: set[str] = set()  # what the broker has acknowledged
        self.received: Callable[[str, bytes, int], None] | None = None
        self.taken: Callable[[Message], None] | None = None  # the broker has acknowledged a publication
        self.is_accepted_changed: Callable[[bool], None] | None = None  # by the broker; no longer if it is lost
        self._is_clean = is_clean
        self._open_line = dial
        self._retry = retry
        self._is_wanted = False  # it is to be connected
        self._line: Line | None = None
        self._out: Out | None = None  # that of the line
        self._greeted = False
        self._packet_id = 0
        self._asked: dict[int, tuple[str, bool]] = {}
        self._open: dict[int, Published] = {}  # at QoS 1 and 2: sent and not acknowledged
        self._released: set[int] = set()
        self._waiting: deque[tuple[str, bytes, int]] = deque()  # to be published when the window allows
        self._unreleased: set[int] = set()  # received at QoS 2
        self._dials = 0

    @property
    def is_connected(self) -> bool:
        return self._greeted

    @property
    def is_settled(self) -> bool:
        """It is as it is to be: not connected, or connected with every subscription confirmed."""
        if not self._is_wanted:
            return self._out is None
        return self._greeted and self.confirmed == self.filters.keys()

    @property
    def under_way(self) -> int:
        """Publications at QoS 1 and 2 that the broker has not acknowledged."""
        return len(self._open) + len(self._waiting)

    @property
    def held(self) -> int:
        """Publications at QoS 1 and 2 that wait although there is a connection: the broker acknowledges too slowly."""
        return len(self._waiting) if self._greeted else 0

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._line is None else self._line.unsent_bytes

    # -- being connected --------------------------------------------------------------------------------------

    def connect(self) -> None:
        self._is_wanted = True
        self._dials += 1
        self._dial(self._dials)

    def _dial(self, number: int) -> None:
        if number != self._dials or not self._is_wanted or self._out is not None:
            return
        line = self._open_line(self)
        if line is None:
            self._retry(self._dial, number)
            return
        self._line, self._out = line, line.out
        expiry_s = 0 if self._is_clean else FOREVER_S
        self._out.send(
            mqtt5.ConnectPacket(self.client_id, clean_start=self._is_clean, session_expiry_interval=expiry_s)
        )

    def disconnect(self) -> None:
        """Off, without a word."""
        self._is_wanted = False
        self.break_()

    def break_(self) -> None:
        """The connection breaks."""
        if self._line is not None:
            self._line.close()
            self._lost()

    def lost(self, line: Line) -> None:
        if line is self._line:
            self._lost()

    def _lost(self) -> None:
        was_accepted, self._greeted = self._greeted, False
        self._line = self._out = None
        if was_accepted and self.is_accepted_changed is not None:
            self.is_accepted_changed(False)
        if self._is_wanted:
            self._dials += 1
            self._retry(self._dial, self._dials)

    # -- what it does -----------------------------------------------------------------------------------------

    def subscribe(self, topic_filter: str, qos: int) -> None:
        self.filters[topic_filter] = qos
        if self._greeted:
            self._ask(topic_filter, True)

    def unsubscribe(self, topic_filter: str) -> None:
        del self.filters[topic_filter]
        if self._greeted:
            self._ask(topic_filter, False)

    def notify(self, topic: str, payload: bytes) -> None:
        """Publish at QoS 0; without a connection it is gone."""
        if self._greeted and self._out is not None:
            self._out.send(notification(topic, payload))

    def publish(self, topic: str, payload: bytes, qos: int) -> None:
        if qos == 0:
            self.notify(topic, payload)
        elif self._waiting or not self._greeted or len(self._open) >= WINDOW:
            self._waiting.append((topic, payload, qos))
        else:
            self._publish(topic, payload, qos)

    def _pump(self) -> None:
        while self._waiting and self._greeted and len(self._open) < WINDOW:
            self._publish(*self._waiting.popleft())

    def _publish(self, topic: str, payload: bytes, qos: int) -> None:
        packet_id = self._take_id()
        published = Published(Message(topic, payload, qos, False, None), qos, False, packet_id, False)
        self._open[packet_id] = published
        if self._out is not None:
            self._out.send(published)

    def _send(self, packet: Packet) -> None:
        if self._out is not None:
            self._out.send(packet)

    def _ask(self, topic_filter: str, is_wanted: bool) -> None:
        packet_id = self._take_id()
        self._asked[packet_id] = topic_filter, is_wanted
        if is_wanted:
            wanted = mqtt5.TopicFilter(topic_filter, max_qos=QOS[self.filters[topic_filter]])
            self._send(mqtt5.SubscribePacket(packet_id, [wanted]))
        else:
            self._send(mqtt5.UnsubscribePacket(packet_id, [topic_filter]))

    def _take_id(self) -> int:
        while True:
            packet_id = self._packet_id = self._packet_id % 65_535 + 1
            if packet_id not in self._open and packet_id not in self._asked:
                return packet_id

    # -- what comes -------------------------------------------------------------------------------------------

    def arrived(self, line: Line, packet: Packet) -> None:
        if line is self._line:  # of an old one nothing matters any more
            handler = _HANDLERS.get(type(packet))
            if handler is not None:
                handler(self, packet)

    def _hear(self, run: Run) -> None:
        if self.received is not None:
            self.received(run.topic, run.data, 0)

    def _take(self, it: Published) -> None:
        if it.qos == 2:
            is_new = it.packet_id not in self._unreleased
            self._unreleased.add(it.packet_id)
            self._send(mqtt5.PubRecPacket(it.packet_id))
        else:
            is_new = True
            if it.qos and self._out is not None:
                self._out.send(mqtt5.PubAckPacket(it.packet_id))
        if is_new and self.received is not None:
            self.received(it.message.topic, it.message.payload, it.qos)

    def _welcome(self, packet: mqtt5.ConnAckPacket) -> None:
        if int(packet.reason_code) >= REFUSED:
            self.break_()
            return
        self._greeted = True
        if not packet.session_present:
            self.confirmed.clear()
            self._unreleased.clear()
        for packet_id, published in list(self._open.items()):
            is_released = packet_id in self._released
            self._send(mqtt5.PubRelPacket(packet_id) if is_released else published._replace(is_duplicate=True))
        unsure = [topic_filter for topic_filter, _ in self._asked.values()]
        self._asked.clear()
        self.confirmed.difference_update(unsure)
        for topic_filter in dict.fromkeys(unsure):
            if topic_filter not in self.filters:
                self._ask(topic_filter, False)
        for topic_filter in sorted(self.confirmed - set(self.filters)):  # given up while it was away
            self._ask(topic_filter, False)
        for topic_filter in self.filters:
            if topic_filter not in self.confirmed:
                self._ask(topic_filter, True)
        self._pump()
        if self.is_accepted_changed is not None:
            self.is_accepted_changed(True)

    def _told(self, packet: mqtt5.SubAckPacket | mqtt5.UnsubAckPacket) -> None:
        topic_filter, is_wanted = self._asked.pop(packet.packet_id, ("", False))
        if is_wanted:
            self.confirmed.add(topic_filter)
        else:
            self.confirmed.discard(topic_filter)

    def _acknowledged(self, packet: mqtt5.PubAckPacket | mqtt5.PubCompPacket) -> None:
        published = self._open.pop(packet.packet_id, None)
        if published is not None:
            if published.qos != 1:
                self._released.discard(packet.packet_id)
            elif self.taken is not None and int(packet.reason_code) < REFUSED:
                self.taken(published.message)
        if self._waiting:
            self._pump()

    def _recorded(self, packet: mqtt5.PubRecPacket) -> None:
        published = self._open.get(packet.packet_id)
        if published is not None and packet.packet_id not in self._released:
            self._released.add(packet.packet_id)
            if self.taken is not None and int(packet.reason_code) < REFUSED:
                self.taken(published.message)
        self._send(mqtt5.PubRelPacket(packet.packet_id))

    def _release(self, packet: mqtt5.PubRelPacket) -> None:
        self._unreleased.discard(packet.packet_id)
        self._send(mqtt5.PubCompPacket(packet.packet_id))


_HANDLERS: dict[type, Callable[..., None]] = {
    Run: Client._hear,
    Published: Client._take,
    mqtt5.ConnAckPacket: Client._welcome,
    mqtt5.SubAckPacket: Client._told,
    mqtt5.UnsubAckPacket: Client._told,
    mqtt5.PubAckPacket: Client._acknowledged,
    mqtt5.PubCompPacket: Client._acknowledged,
    mqtt5.PubRecPacket: Client._recorded,
    mqtt5.PubRelPacket: Client._release,
}

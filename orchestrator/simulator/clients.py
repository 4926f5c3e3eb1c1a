"""Clients on the simulated network: they keep their sessions, lose their connections, and come again.

A client sends what it has not got acknowledged again, in order, as MQTT demands; one that is to be connected dials
again with a backoff when its connection breaks. It can have queues of its own, for messages that it makes while it is
off and for messages that it works on after receipt.
"""

from collections import deque
from collections.abc import Callable

import mqtt5

from broker.config import Demand
from broker.core.run import Run, notification
from broker.log_record import RECORD, Log
from broker.values import Message, Published
from orchestrator.simulator.loop import Loop
from orchestrator.simulator.network import Host, Socket
from orchestrator.simulator.wire import NO_DELAY, Packet, Wire

FOREVER_S = 0xFFFF_FFFF
BACKOFF_NS = 100_000_000
QOS = (mqtt5.QoS(0), mqtt5.QoS(1), mqtt5.QoS(2))
CLASS = b"class"  # stands for the publisher where there is no identity
PACK = RECORD.pack
WINDOW = 20  # messages at QoS 1 and 2 under way, as brokers allow by default


class Client:
    def __init__(self, loop: Loop, host: Host, client_id: str, is_clean: bool = False) -> None:
        self.loop = loop
        self.host = host
        self.client_id = client_id
        self.filters: dict[str, int] = {}  # what it wants, with the QoS
        self.confirmed: set[str] = set()  # what the broker has acknowledged
        self.received: Callable[[str, bytes, int], None] | None = None
        self.taken: Callable[[Message], None] | None = None  # the broker has acknowledged a publication
        self._is_clean = is_clean
        self._is_wanted = False  # it is to be connected
        self._socket: Socket | None = None
        self._out: Wire | None = None
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

    # -- being connected --------------------------------------------------------------------------------------

    def connect(self) -> None:
        self._is_wanted = True
        self._dials += 1
        self._dial(self._dials)

    def _dial(self, number: int) -> None:
        if number != self._dials or not self._is_wanted or self._out is not None:
            return
        host = self.host
        if not host.is_up or host.is_paused:
            self.loop.at(self.loop.now_ns + BACKOFF_NS, self._dial, number)
            return
        socket = self._socket = Socket(host)
        wire = Wire if self.received is not None else _Deaf
        socket.out = wire(self.loop, _ClientEnd(self, socket), NO_DELAY)
        self._out = Wire(self.loop, socket, NO_DELAY)
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
        if self._out is not None and self._socket is not None:
            self._out.close()
            self._socket.out.is_open = False
            self._lost()

    def lost(self, socket: Socket) -> None:
        if socket is self._socket:
            self._lost()

    def _lost(self) -> None:
        self._out = self._socket = None
        self._greeted = False
        if self._is_wanted:
            self._dials += 1
            self.loop.at(self.loop.now_ns + BACKOFF_NS, self._dial, self._dials)

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
            elif self.taken is not None and int(packet.reason_code) < 0x80:
                self.taken(published.message)
        if self._waiting:
            self._pump()

    def _recorded(self, packet: mqtt5.PubRecPacket) -> None:
        published = self._open.get(packet.packet_id)
        if published is not None and packet.packet_id not in self._released:
            self._released.add(packet.packet_id)
            if self.taken is not None and int(packet.reason_code) < 0x80:
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


class _Deaf(Wire):
    """To a client that does nothing with notifications: they need not arrive."""

    __slots__ = ()

    def _choose(self) -> None:
        self.send = self._without_notifications
        if self.direct is not None:
            self.direct.append = self.send  # type: ignore[method-assign]

    def _without_notifications(self, packet: Packet) -> None:
        if type(packet) is not Run:
            self._loop.soon(self._to.arrived, packet)


class _ClientEnd:
    """A client's end of one connection; of an old one nothing matters any more."""

    __slots__ = ("_client", "_socket")

    def __init__(self, client: Client, socket: Socket) -> None:
        self._client = client
        self._socket = socket

    def arrived(self, packet: Packet) -> None:
        client = self._client
        if client._socket is self._socket:
            handler = _HANDLERS.get(type(packet))
            if handler is not None:
                handler(client, packet)

    def broken(self) -> None:
        self._client.lost(self._socket)


class Stage:
    """A queue with one server: first come first served, only while it is on, interrupted service resumes."""

    def __init__(self, loop: Loop, demand: Demand | None, done: Callable[[object], None]) -> None:
        self._loop = loop
        self._demand = demand
        self._done = done
        self._queue: deque[object] = deque()
        self._due_ns: int | None = None
        self._left_ns: int | None = None
        self._is_on = False

    def put(self, item: object) -> None:
        if self._demand is None and self._is_on and not self._queue:
            self._done(item)
            return
        self._queue.append(item)
        if self._due_ns is None:
            self._serve()

    def switch(self, is_on: bool) -> None:
        self._is_on = is_on
        if is_on:
            self._serve()
        elif self._due_ns is not None:
            self._left_ns = self._due_ns - self._loop.now_ns
            self._due_ns = None

    def _serve(self) -> None:
        while self._is_on and self._queue and self._due_ns is None:
            if self._demand is None:
                self._done(self._queue.popleft())
                continue
            left_ns = self._demand() if self._left_ns is None else self._left_ns
            self._left_ns = None
            self._due_ns = self._loop.now_ns + left_ns
            self._loop.at(self._due_ns, self._served, self._due_ns)

    def _served(self, due_ns: int) -> None:
        if due_ns == self._due_ns and self._is_on:
            self._due_ns = None
            self._done(self._queue.popleft())
            self._serve()


class Notes:
    """What one of the testbed's clients notes of one publisher's messages to one topic.

    A message's identity, publisher and number, is in its payload. Names are looked up once.
    """

    __slots__ = ("_client_id", "_log", "_loop", "_names", "_publisher", "_qos", "_topic")

    def __init__(self, loop: Loop, log: Log | None, client_id: str, topic: str, publisher: str, qos: int) -> None:
        self._loop = loop
        self._log = log
        self._client_id = client_id
        self._topic = topic
        self._publisher = publisher
        self._qos = qos
        self._names: tuple[int, int, int] | None = None

    def add(self, kind: int, number: int, size: int) -> None:
        log = self._log
        if log is None:
            return
        if self._names is None:
            self._names = log.number(self._client_id), log.number(self._topic), log.number(self._publisher)
        subject, topic, origin = self._names
        log.records += PACK(
            self._loop.now_ns, number, origin, subject, topic, -1, size, 1, kind, self._qos, 0, 0
        )  # fmt: skip


def payload_of(publisher: str, number: int, size: int) -> bytes:
    return f"{publisher} {number} ".encode().ljust(size, b".")


def identity(payload: bytes) -> tuple[bytes, int] | None:
    """Publisher and number; what a class's publisher sends at QoS 0 has none."""
    parts = payload.split(b" ", 2)
    return (parts[0], int(parts[1])) if len(parts) == 3 and parts[0] != CLASS else None

"""The broker: its state, its entry points for a driver, and the loop over what a client sent.

A driver calls `opened`, `received` (bytes) or `received_packet` (objects, on a simulated network), `writable`, `lost`
and `due`, always with the time; afterwards it stores what is `unsaved`, then writes the output of the connections in
`dirty`, closes those in `ending`, and sees to it that `due` is called at `deadline_ns`, unless it keeps the timers
itself. The core waits for nothing, reads no clock and draws no random number.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import mqtt5

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.core import deliver, handle_connect, handle_publish, handle_subscribe, notify, overlay
from brokerbed.broker.core.connection import Connection
from brokerbed.broker.core.run import V5, V311, Run
from brokerbed.broker.core.session import Session
from brokerbed.broker.core.subscriptions import Subscriptions
from brokerbed.broker.core.timers import SetTimer, Timers
from brokerbed.broker.errors import MalformedPacketError, MqttError, ProtocolError
from brokerbed.broker.mqtt import frames, v5, v311
from brokerbed.broker.routing import registry
from brokerbed.broker.values import NS_PER_S, Message, Published
from brokerbed.log.record import NUMBER_MAX, RECORD, Kind, Log, Reason

PUBACK_OK, PUBLISH_QOS0 = 0x40, 0x30
PACK = RECORD.pack
NUMBER_DIGITS_MAX = len(str(NUMBER_MAX))
SHORT = 0x80  # a remaining length below this is one byte; such a packet is never too large


@dataclass
class Counters:
    """Plain integers; a Prometheus collector reads them when it is scraped."""

    messages_received: int = 0
    messages_delivered: int = 0
    bytes_received: int = 0
    connections_total: int = 0
    protocol_errors: int = 0
    dropped: dict[Reason, int] = field(default_factory=lambda: dict.fromkeys(Reason, 0))
    rejected: int = 0
    store_problems: int = 0  # how often the store began to refuse what is to survive
    store_blocked: int = 0  # 1 while it does


class Broker:
    def __init__(
        self, config: BrokerConfig, log: Log | None = None, is_durable: bool = False, at: SetTimer | None = None
    ) -> None:
        """`is_durable`: the driver has a store, and writes what is in `unsaved` before any output.

        `at`: the driver has a clock of its own; it keeps the timers, and calls their actions when they are due.
        """
        self.config = config
        self.unsaved: dict[int, Any] | None = {} if is_durable else None  # see persist.py
        self.last_number = 0  # of a row in the store
        self.log = log
        self.counters = Counters()
        self.sessions: dict[str, Session] = {}  # of clients, by client id
        self.links: dict[str, Session] = {}  # of children, by the client id of the link
        self.subscriptions = Subscriptions(not registry.algorithm(config.routing).stores_entries)
        self.routes = self.subscriptions.routes
        self.overlay = overlay.Overlay(self)
        self.retained: dict[str, Message] = {}
        self.connections: dict[Connection, None] = {}
        self.dirty: list[Connection] = []
        self.ending: list[Connection] = []
        self.partial_bytes = 0  # of packets whose end has not come yet
        self.origin = f"{config.name}.{config.incarnation}"  # of messages that enter here
        self.sequence = 0  # of the last of them
        self.topics: dict[bytes, str] = {}  # valid topic names, by their bytes
        self.assigned = 0  # client ids given so far
        self.nonces = 0  # made so far, see link_proof.py
        self.input_free_ns: dict[str, int] = {}  # the emulated service at the input is busy until then, by copy
        self.entering = self.entering_bytes = 0  # messages in that service
        self.timers = Timers(self, at)
        self.at = self.timers.at  # for timers that are never cancelled

    # -- what a driver calls ----------------------------------------------------------------------------------

    def opened(self, now_ns: int, is_wire: bool = True, peer: str = "", is_local: bool = True) -> Connection:
        connection = Connection(now_ns, is_wire, peer, is_local)
        self.connections[connection] = None
        self.counters.connections_total += 1
        due_ns = now_ns + int(self.config.connect_timeout_s * NS_PER_S)
        connection.timer = self.timers.later(due_ns, _connect_due, connection)
        if len(self.connections) > self.config.connections_max:
            self.end(connection)
        return connection

    def received(self, connection: Connection, data: bytes, now_ns: int) -> None:
        """Bytes from the client, cut anywhere."""
        if connection.is_closing:
            return
        connection.last_ns = now_ns
        self.counters.bytes_received += len(data)
        if connection.parts:
            if connection.parts_bytes + len(data) < connection.wanted_bytes:
                self._keep(connection, data, now_ns)
                return
            data = b"".join((*connection.parts, data))
            self._forget_parts(connection)
        try:
            at = self._consume(connection, data, now_ns)
        except MqttError as error:
            self.fail(connection, error, now_ns)
        else:
            if at < len(data) and not connection.is_closing:
                self._keep(connection, data[at:], now_ns)

    def received_packet(self, connection: Connection, packet: mqtt5.Packet | Run | Published, now_ns: int) -> None:
        """A packet from a client on a simulated network; publications are objects of our own."""
        if connection.is_closing:
            return
        connection.last_ns = now_ns
        try:
            if isinstance(packet, Published):
                handle_publish.published(self, connection, packet, now_ns)
            elif isinstance(packet, Run):
                if self.config.service_in is None:
                    notify.notify(self, connection, packet, now_ns)
                else:
                    notify.notify_later(self, connection, packet, now_ns)
            else:
                connection.version = 5
                self._handle(connection, packet, now_ns)
        except MqttError as error:
            self.fail(connection, error, now_ns)

    def writable(self, connection: Connection, is_writable: bool, now_ns: int) -> None:
        """The client reads too slowly, or reads again."""
        connection.is_blocked = not is_writable
        connection.look()
        if is_writable and connection.session is not None:
            deliver.pump(self, connection.session, now_ns)

    def lost(self, connection: Connection, now_ns: int) -> None:
        """The connection is gone, whoever ended it."""
        connection.is_closing = True
        self._forget_parts(connection)
        self.timers.cancel(connection.timer)
        if self.connections.pop(connection, 0) is None:
            handle_connect.connection_ended(self, connection, now_ns)

    def shut_down(self) -> None:
        """Say goodbye to everybody."""
        for connection in self.connections:
            if connection.session is not None and connection.version == 5:
                code = mqtt5.DisconnectReasonCode.SERVER_SHUTTING_DOWN
                self.send(connection, mqtt5.DisconnectPacket(reason_code=code))
            self.end(connection)

    @property
    def deadline_ns(self) -> int | None:
        return self.timers.deadline_ns

    def due(self, now_ns: int) -> None:
        """Do what is due by now."""
        self.timers.due(now_ns)

    # -- what handlers call -----------------------------------------------------------------------------------

    def send(self, connection: Connection, packet: mqtt5.Packet) -> None:
        self.write(connection, connection.encode(packet) if connection.encode else packet)

    def write(self, connection: Connection, output: Any) -> None:
        connection.output.append(output)
        if not connection.is_dirty:
            connection.is_dirty = True
            self.dirty.append(connection)

    def take_number(self) -> int:
        self.last_number += 1
        return self.last_number

    def identify(self, message: Message, session: Session | None = None, now_ns: int = 0) -> None:
        """It enters the tree here, from a client's session unless the broker itself made it."""
        self.sequence += 1
        message.origin, message.sequence = self.origin, self.sequence
        if self.config.is_testbed and session is not None:
            self.log_identity(now_ns, session, message.payload, message.sequence)

    def started(self, now_ns: int) -> None:
        """A life begins; the log tells what is in the table already."""
        if self.log is None:
            return
        self.log.add(now_ns, Kind.STARTED, -1)
        for session in (*self.sessions.values(), *self.links.values()):
            entries = session.subscriptions if session.link is None else [it.filter for it in session.link.entries]
            for topic_filter in entries:
                self.log.add(now_ns, Kind.SUBSCRIBED, session.log_number, self.log.number(topic_filter))

    def log_identity(self, now_ns: int, session: Session, payload: bytes, sequence: int) -> None:
        """Of a message that enters here, if the payload begins with the publisher's id and its number.

        Any client can send such a payload. A number that no publisher of an experiment writes is not logged.
        """
        start = session.client_id.encode() + b" "
        if self.log is not None and payload.startswith(start):
            number = payload[len(start) : len(start) + NUMBER_DIGITS_MAX + 1].split(b" ", 1)[0]
            if number.isdigit() and b"%d" % int(number) == number and int(number) <= NUMBER_MAX:
                self.log.add(
                    now_ns, Kind.IDENTIFIED, session.log_number, sequence=sequence,
                    origin=self.log.origin(self.origin), route=int(number),
                )  # fmt: skip

    def log_message(
        self, now_ns: int, kind: int, subject: int, message: Message, qos: int, reason: int = 0, flags: int = 0
    ) -> None:
        """An event of one message, and of a session by its number, in the log if there is one."""
        log = self.log
        if log is None:
            return
        origin, topic = log.origins.get(message.origin), log.numbers.get(message.topic)
        if origin is None or topic is None:
            origin = log.origin(message.origin) if message.origin else -1
            topic = log.number(message.topic)
        log.records += PACK(
            now_ns, message.sequence if message.origin else -1, origin, subject, topic, -1, len(message.payload), 1,
            kind, qos, reason, flags,
        )  # fmt: skip

    def end(self, connection: Connection) -> None:
        """Close it once its output is written."""
        if not connection.is_closing:
            connection.is_closing = True
            self.ending.append(connection)

    def fail(self, connection: Connection, error: MqttError, now_ns: int) -> None:
        """The client broke the protocol: tell it, as far as its version can be told, and close."""
        self.counters.protocol_errors += 1
        if self.log is not None:
            subject = connection.session.log_number if connection.session else -1
            self.log.add(now_ns, Kind.PROTOCOL_ERROR, subject, reason=error.reason_code)
        if connection.session is None and not connection.is_uplink:
            handle_connect.refuse(self, connection, error)
        elif connection.version == 5 and connection.session is not None:
            code = mqtt5.DisconnectReasonCode(error.reason_code)
            self.send(connection, mqtt5.DisconnectPacket(reason_code=code))
        self.end(connection)

    # -- inside -----------------------------------------------------------------------------------------------

    def _keep(self, connection: Connection, data: bytes, now_ns: int) -> None:
        """The beginning of a packet; parts are joined once there can be a whole one."""
        if not connection.parts:
            connection.wanted_bytes = frames.whole_size(data)
        connection.parts.append(data)
        connection.parts_bytes += len(data)
        self.partial_bytes += len(data)
        while self.partial_bytes > self.config.partial_bytes_max:
            largest = max(self.connections, key=lambda it: it.parts_bytes)  # not who happens to come last
            self._forget_parts(largest)
            self.fail(largest, MqttError("too many unfinished packets at this broker", 0x97), now_ns)

    def _forget_parts(self, connection: Connection) -> None:
        self.partial_bytes -= connection.parts_bytes
        connection.parts, connection.parts_bytes = [], 0

    def _consume(self, connection: Connection, data: bytes, now_ns: int) -> int:
        """Handle every whole packet; returns where the first incomplete one begins."""
        at, end = 0, len(data)
        size_max = self.config.packet_bytes_max
        if connection.session is None and not connection.is_uplink:
            size_max = min(size_max, self.config.connect_bytes_max)
        has_fast_path = self.config.service_in is None
        while at < end and not connection.is_closing:
            first = data[at]
            if at + 1 < end and data[at + 1] < SHORT:  # most packets have one byte of length
                body = at + 2
                stop = body + data[at + 1]
                if stop > end:
                    break
            else:
                found = frames.bounds(data, at, size_max)
                if found is None:
                    break
                body, stop = found
            if connection.session is None:
                self._first(connection, data[at:stop], now_ns)
                size_max = self.config.packet_bytes_max
            elif first == PUBLISH_QOS0 and has_fast_path:
                stop = notify.run_at_qos0(self, connection, data, at, body, stop, now_ns)
            elif first >> 4 == frames.PUBLISH:
                handle_publish.frame(self, connection, data, at, body, stop, now_ns)
            elif first == PUBACK_OK and stop - body == 2:
                deliver.acknowledged(self, connection.session, data[body] << 8 | data[body + 1], now_ns)
            else:
                assert connection.decode is not None
                handler = _handler(connection, first >> 4, first & 0x0F)
                handler(self, connection, connection.decode(data[at:stop]), now_ns)
            at = stop
        return at

    def _first(self, connection: Connection, frame: bytes, now_ns: int) -> None:
        if connection.is_uplink or connection.challenge is not None:
            self._handle(connection, v5.decode(frame), now_ns)
        else:
            handle_connect.first_packet(self, connection, frame, now_ns)

    def _handle(self, connection: Connection, packet: mqtt5.Packet, now_ns: int) -> None:
        if connection.session is None:
            if connection.is_uplink:
                self.overlay.answered(connection, packet, now_ns)
                return
            if connection.challenge is not None:
                handle_connect.authenticated(self, connection, packet, now_ns)
                return
            if not isinstance(packet, mqtt5.ConnectPacket):
                raise ProtocolError("the first packet must be CONNECT")
            handle_connect.connect(self, connection, packet, now_ns)
            return
        _handler(connection, v5.TYPES[type(packet)])(self, connection, packet, now_ns)

    def choose_codec(self, connection: Connection, version: int) -> None:
        connection.version = version
        if connection.is_wire:
            connection.form = V5 if version == 5 else V311
            codecs = {3: (v311.decode_31, v311.encode), 4: (v311.decode, v311.encode), 5: (v5.decode, v5.encode)}
            connection.decode, connection.encode = codecs[version]


def _connect_due(broker: Broker, connection: Connection, due_ns: int) -> None:
    del due_ns
    broker.end(connection)


def _ping(broker: Broker, connection: Connection, packet: mqtt5.PingReqPacket, now_ns: int) -> None:
    del packet, now_ns
    broker.send(connection, mqtt5.PingRespPacket())


def _second_connect(*_: object) -> None:
    raise ProtocolError("a second CONNECT")  # [MQTT-3.1.0-2]


Handler = Callable[[Broker, Connection, Any, int], None]
Handlers = dict[int, Handler]  # by packet type; packets of other types are not even decoded

_FROM_BOTH: Handlers = {
    frames.PUBLISH: handle_publish.packet,
    frames.PUBACK: deliver.acknowledged_by_client,
    frames.PUBREC: deliver.received_by_client,
    frames.PUBREL: deliver.released_by_client,
    frames.PUBCOMP: deliver.completed_by_client,
}
_FROM_CLIENTS: Handlers = {
    **_FROM_BOTH,
    frames.CONNECT: _second_connect,
    frames.SUBSCRIBE: handle_subscribe.subscribe,
    frames.UNSUBSCRIBE: handle_subscribe.unsubscribe,
    frames.PINGREQ: _ping,
    frames.DISCONNECT: handle_connect.disconnect,
}


def _told(
    broker: Broker, connection: Connection, packet: mqtt5.SubAckPacket | mqtt5.UnsubAckPacket, now_ns: int
) -> None:
    del connection
    broker.overlay.acknowledged(packet.packet_id, now_ns)


def _pinged(broker: Broker, *_: object) -> None:
    broker.overlay.pinged()


def _dismissed(broker: Broker, connection: Connection, packet: mqtt5.DisconnectPacket, now_ns: int) -> None:
    del packet, now_ns
    broker.end(connection)


_FROM_PARENT: Handlers = {
    **_FROM_BOTH,
    frames.SUBACK: _told,
    frames.UNSUBACK: _told,
    frames.PINGRESP: _pinged,
    frames.DISCONNECT: _dismissed,
}


def _handler(connection: Connection, packet_type: int, flags: int = 0) -> Handler:
    handler = (_FROM_PARENT if connection.is_uplink else _FROM_CLIENTS).get(packet_type)
    if handler is None:
        if packet_type == 0 or flags:
            raise MalformedPacketError("a fixed header with reserved bits")
        raise ProtocolError(f"packet type {packet_type} is not for us")
    return handler

"""The broker: its state, its entry points for a driver, and the loop over the packets that a client sent.

A driver calls `opened`, `received` (bytes) or `received_packet` (objects, on a simulated network), `writable`, `lost`
and `due`, always with the current time. Afterwards it stores what is in `unsaved`, then writes the output of the
connections in `dirty`, closes those in `ending`, and makes sure that `due` is called at `deadline_ns`, unless it keeps
the timers itself. The core waits for nothing, reads no clock and draws no random number.
"""

from typing import Any

import mqtt5

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.core import (
    deliver,
    dispatch,
    handle_connect,
    handle_publish,
    lifetime,
    notify,
    overlay,
    session_end,
)
from brokerbed.broker.core.advertisements import advertisements_of
from brokerbed.broker.core.all_queues import AllQueues
from brokerbed.broker.core.connection import Connection
from brokerbed.broker.core.counters import Counters
from brokerbed.broker.core.link import MOVE_TOPIC
from brokerbed.broker.core.login import CheckPassword
from brokerbed.broker.core.placement import Placement
from brokerbed.broker.core.retained_scan import RetainedScans
from brokerbed.broker.core.run import V5, V311, Run
from brokerbed.broker.core.session import Session
from brokerbed.broker.core.session_claims import SessionClaims
from brokerbed.broker.core.session_moves import SessionMoves
from brokerbed.broker.core.subscriptions import Subscriptions
from brokerbed.broker.core.timers import SetTimer, Timers
from brokerbed.broker.errors import MqttError, ProtocolError
from brokerbed.broker.mqtt import frames, v5, v311
from brokerbed.broker.routing.registry import ALGORITHMS
from brokerbed.broker.values import LONG_AGO_NS, NS_PER_S, Message, Published
from brokerbed.log.record import NUMBER_MAX, RECORD, Kind, Log

PACK = RECORD.pack
NUMBER_DIGITS_MAX = len(str(NUMBER_MAX))
STREAM_CHARS_MAX = 100  # added to a client id in the identity of a message: the id of another peer
ONE_BYTE_LENGTHS = 0x80  # a remaining length below this takes one byte, and the packet is never too large


class Broker:
    def __init__(
        self, config: BrokerConfig, log: Log | None = None, is_durable: bool = False, at: SetTimer | None = None
    ) -> None:
        """`is_durable`: the driver has a store, and writes what is in `unsaved` to it before any output.

        `at`: set if the driver has its own clock. It then keeps the timers and calls their actions when they are due.
        """
        self.config = config
        self.unsaved: dict[int, Any] | None = {} if is_durable else None  # changes to be stored, see persist.py
        self.last_row_number = 0  # the highest row number used in the store
        self.log = log
        self.counters = Counters()
        self.sessions: dict[str, Session] = {}  # sessions of clients, by client id
        self.links: dict[str, Session] = {}  # sessions of children's links, by the client id of the link
        algorithm = ALGORITHMS[config.routing]
        self.subscriptions = Subscriptions(has_additional=algorithm.stores_entries and algorithm.climbs)
        self.routes = self.subscriptions.routes
        self.overlay = overlay.Overlay(self, algorithm)
        self.session_moves = SessionMoves(self)
        self.session_claims = SessionClaims(self)
        placement = config.placement if algorithm.lets_links_move else None
        self.placement = None if placement is None else Placement(self, placement)  # None: links stay where they are
        self.advertising = self.overlay.advertising  # None: under this algorithm publishers need not advertise
        self.retained: dict[str, Message] = {}  # by topic, in the order in which they were retained
        self.retained_scans = RetainedScans(self)
        self.all_queues = AllQueues(self)
        self.connections: dict[Connection, None] = {}
        self.dirty: list[Connection] = []  # connections with output for the driver to write
        self.ending: list[Connection] = []  # connections for the driver to close once their output is written
        self.connecting: dict[Connection, None] = {}  # those without a complete CONNECT, oldest first
        self.connecting_bytes = 0  # at least what these have buffered; see _keep_unconnected
        self.subscriptions_held = self.retained_bytes = 0  # subscriptions of clients; size of what is retained
        self.partial_bytes = 0  # buffered bytes of incomplete packets, over all connections
        self.origin = f"{config.name}.{config.incarnation}"  # origin of the messages that enter the tree here
        self.sequence = 0  # number of the last message that entered the tree here
        self.topics: dict[bytes, str] = {}  # cache of valid topic names, by their bytes
        self.client_ids_assigned = 0  # how many so far
        self.nonces_made = 0  # how many so far, see link_proof.py
        self.check_password: CheckPassword | None = None  # set by a driver that checks passwords beside its event loop
        self.input_free_ns: dict[str, int] = {}  # copy -> when the emulated service at the input has no more work
        self.input_floor_ns = LONG_AGO_NS  # nothing leaves that service earlier, because it would overtake a notice
        self.entering = self.entering_bytes = 0  # messages in the emulated service at the input, and their size
        self.timers = Timers(self, at)
        self.at = self.timers.at  # sets a timer that is never cancelled

    # -- what a driver calls ----------------------------------------------------------------------------------

    def opened(self, now_ns: int, is_wire: bool = True, peer: str = "", is_local: bool = True) -> Connection:
        connection = Connection(now_ns, is_wire, peer, is_local)
        self.connections[connection] = None
        self.counters.connections_total += 1
        due_ns = now_ns + int(self.config.connect_timeout_s * NS_PER_S)
        connection.timer = self.timers.later(due_ns, _connect_due, connection)
        if len(self.connections) > self.config.connections_max:
            self.counters.shed["connections"] += 1
            self.end(connection)
            return connection
        self.connecting[connection] = None
        if len(self.connecting) > self.config.connecting_max:
            self.counters.shed["connecting"] += 1
            self.end(next(iter(self.connecting)))  # whoever means to connect has had the most time to
        return connection

    def received(self, connection: Connection, data: bytes, now_ns: int) -> None:
        """Handle bytes from the peer. They may end anywhere within a packet."""
        if connection.is_closing:
            return
        connection.last_ns = now_ns
        self.counters.bytes_received += len(data)
        if connection.parts:
            if connection.is_waiting or connection.parts_bytes + len(data) < connection.needed_bytes:
                self._keep_partial(connection, data, now_ns)
                return
            data = b"".join((*connection.parts, data))
            self._forget_parts(connection)
        try:
            at = self._consume(connection, data, now_ns)
        except MqttError as error:
            self.fail(connection, error, now_ns)
        else:
            if at < len(data) and not connection.is_closing:
                self._keep_partial(connection, data[at:], now_ns)

    def received_packet(self, connection: Connection, packet: mqtt5.Packet | Run | Published, now_ns: int) -> None:
        """Handle a packet on a simulated network. A publication is a Run or a Published."""
        if connection.is_closing:
            return
        connection.last_ns = now_ns
        if connection.is_waiting:
            self.session_claims.keep(connection, packet)
            return
        try:
            if isinstance(packet, Published):
                handle_publish.handle_published(self, connection, packet, now_ns)
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
        """The driver's write buffer is full because the peer reads too slowly, or it can be written again."""
        connection.is_blocked = not is_writable
        connection.update_is_simple()
        if is_writable and connection.session is not None:
            deliver.pump(self, connection.session, now_ns)

    def lost(self, connection: Connection, now_ns: int) -> None:
        """The connection has ended, on whichever side."""
        if self.gone(connection):
            session_end.connection_ended(self, connection, now_ns)

    def gone(self, connection: Connection) -> bool:
        """The connection has ended and counts towards no limit any more; returns whether it did until now.

        If so, the driver has what it leaves behind cleared up with `session_end.connection_ended`, now or soon.
        """
        connection.is_closing = True
        self.connecting.pop(connection, None)
        self._forget_parts(connection)
        self.timers.cancel(connection.timer)
        return self.connections.pop(connection, 0) is None

    def shut_down(self) -> None:
        """Disconnect all clients, telling those that use MQTT 5 why."""
        for connection in self.connections:
            if connection.session is not None and connection.version == 5:
                code = mqtt5.DisconnectReasonCode.SERVER_SHUTTING_DOWN
                self.send(connection, mqtt5.DisconnectPacket(reason_code=code))
            self.end(connection)

    @property
    def deadline_ns(self) -> int | None:
        return self.timers.deadline_ns

    def due(self, now_ns: int) -> None:
        """Run the timers that are due by now."""
        self.timers.due(now_ns)

    # -- what handlers call -----------------------------------------------------------------------------------

    def send(self, connection: Connection, packet: mqtt5.Packet) -> None:
        self.write(connection, connection.encode(packet) if connection.encode else packet)

    def write(self, connection: Connection, output: Any) -> None:
        connection.output.append(output)
        if not connection.is_dirty:
            connection.is_dirty = True
            self.dirty.append(connection)

    def take_row_number(self) -> int:
        self.last_row_number += 1
        return self.last_row_number

    def identify(self, message: Message, session: Session | None = None, now_ns: int = 0) -> None:
        """Give an identity to a message that enters the tree here. `session` is None if the broker itself sends it."""
        self.sequence += 1
        message.origin, message.sequence = self.origin, self.sequence
        if self.config.is_testbed and session is not None:
            if message.expires_at_ns is not None and message.payload.startswith(session.client_id.encode()):
                message.expires_at_ns = lifetime.in_payload(message.payload) or message.expires_at_ns
            self.log_identity(now_ns, session, message.payload, message.sequence)

    def started(self, now_ns: int) -> None:
        """The broker has started. The log gets a record of every subscription that is already in the table."""
        if self.placement is not None:
            self.placement.start(now_ns)
        if self.log is None:
            return
        self.log.add(now_ns, Kind.STARTED, -1)
        for session in (*self.sessions.values(), *self.overlay.links()):
            entries = (
                session.subscriptions if session.link is None else [entry.filter for entry in session.link.entries]
            )
            for topic_filter in entries:
                self.log.add(now_ns, Kind.SUBSCRIBED, session.log_number, self.log.number(topic_filter))
            for entry in advertisements_of(session):
                if entry.is_advertisement:
                    self.log.add(now_ns, Kind.ADVERTISED, session.log_number, self.log.number(entry.topics))

    def log_identity(self, now_ns: int, session: Session, payload: bytes, sequence: int) -> None:
        """Log the identity of a message that enters here if its payload begins with the publisher's id and a number.

        A client with several streams of messages adds a slash and a name to its id. Any client can send such a payload,
        so numbers and names that no publisher of an experiment would write are not logged.
        """
        client_id = session.client_id.encode()
        if self.log is None or not payload.startswith(client_id):
            return
        chars_max = len(client_id) + STREAM_CHARS_MAX + NUMBER_DIGITS_MAX + 2
        stream, _, rest = payload[:chars_max].partition(b" ")
        is_other = stream != client_id
        if is_other and not (stream.startswith(client_id + b"/") and stream.isascii()):
            return
        number = rest[: NUMBER_DIGITS_MAX + 1].split(b" ", 1)[0]
        if number.isdigit() and b"%d" % int(number) == number and int(number) <= NUMBER_MAX:
            self.log.add(
                now_ns, Kind.IDENTIFIED, self.log.number(stream.decode()) if is_other else session.log_number,
                sequence=sequence, origin=self.log.origin(self.origin), route=int(number),
            )  # fmt: skip

    def log_message(
        self, now_ns: int, kind: int, subject: int, message: Message, qos: int, reason: int = 0, flags: int = 0
    ) -> None:
        """Log an event of one message, if there is a log. `subject` is the log's number of the session."""
        log = self.log
        if log is None:
            return
        origin, topic = log.origins.get(message.origin), log.numbers.get(message.topic)
        if origin is None or topic is None:
            if message.topic == MOVE_TOPIC:
                return
            origin = log.origin(message.origin) if message.origin else -1
            topic = log.number(message.topic)
        log.records += PACK(
            now_ns, message.sequence if message.origin else -1, origin, subject, topic, -1, len(message.payload), 1,
            kind, qos, reason, flags,
        )  # fmt: skip

    def log_run(
        self, now_ns: int, kind: int, subject: int, run: Run, qos: int, first: int, count: int, reason: int = 0
    ) -> None:
        """Log an event of `count` messages of a run, from message `first` on, in one record."""
        log = self.log
        if log is None:
            return
        origin, topic = log.origins.get(run.origin), log.numbers.get(run.topic)
        if origin is None or topic is None:
            origin, topic = log.origin(run.origin), log.number(run.topic)
        log.records += PACK(
            now_ns, run.sequence + first, origin, subject, topic, -1, run.size - run.payload_at, count, kind, qos,
            reason, 0,
        )  # fmt: skip

    def end(self, connection: Connection) -> None:
        """Have the driver close the connection once its output is written."""
        if not connection.is_closing:
            connection.is_closing = True
            self.connecting.pop(connection, None)
            self.ending.append(connection)

    def fail(self, connection: Connection, error: MqttError, now_ns: int) -> None:
        """The peer broke the protocol: tell it so, if its MQTT version allows that, and close the connection."""
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

    # -- private ----------------------------------------------------------------------------------------------

    def _keep_partial(self, connection: Connection, data: bytes, now_ns: int) -> None:
        """Keep the bytes of an incomplete packet. They are joined once the packet may be complete."""
        if not connection.parts:
            connection.needed_bytes = frames.whole_size(data)
        connection.parts.append(data)
        connection.parts_bytes += len(data)
        self.partial_bytes += len(data)
        if connection.is_waiting and connection.parts_bytes > self.config.connect_bytes_max:
            self._forget_parts(connection)
            self.fail(connection, MqttError("too many packets before CONNACK", 0x97), now_ns)
        if connection in self.connecting:
            self._keep_unconnected(len(data), now_ns)
        while self.partial_bytes > self.config.partial_bytes_max:
            # End the connection with the most buffered bytes, not the one that happened to exceed the limit.
            largest = max(self.connections, key=lambda candidate: candidate.parts_bytes)
            self._forget_parts(largest)
            self.counters.shed["partial_bytes"] += 1
            self.fail(largest, MqttError("too many unfinished packets at this broker", 0x97), now_ns)

    def _keep_unconnected(self, size: int, now_ns: int) -> None:
        """Have what unfinished CONNECTs have sent counted anew if it may be too much, and the largest of them ended."""
        self.connecting_bytes += size
        if self.connecting_bytes <= self.config.connecting_bytes_max:
            return
        self.connecting_bytes = sum(it.parts_bytes for it in self.connecting)
        while self.connecting_bytes > self.config.connecting_bytes_max:
            largest = max(self.connecting, key=lambda candidate: candidate.parts_bytes)
            self.connecting_bytes -= largest.parts_bytes
            self._forget_parts(largest)
            self.counters.shed["connecting_bytes"] += 1
            self.fail(largest, MqttError("too many unfinished CONNECTs at this broker", 0x97), now_ns)

    def _forget_parts(self, connection: Connection) -> None:
        self.partial_bytes -= connection.parts_bytes
        connection.parts, connection.parts_bytes = [], 0

    def _consume(self, connection: Connection, data: bytes, now_ns: int) -> int:
        """Handle every complete packet; returns where the first incomplete one begins."""
        at, end = 0, len(data)
        size_max = self.config.packet_bytes_max
        if connection.session is None and not connection.is_uplink:
            size_max = min(size_max, self.config.connect_bytes_max)
        handlers = dispatch.IN_RUNS if self.config.service_in is None else dispatch.WITH_SERVICE
        while at < end and not connection.is_closing:
            first = data[at]
            if at + 1 < end and data[at + 1] < ONE_BYTE_LENGTHS:  # true for most packets
                body = at + 2
                stop = body + data[at + 1]
                if stop > end:
                    break
            else:
                bounds = frames.bounds(data, at, size_max)
                if bounds is None:
                    break
                body, stop = bounds
            if connection.session is None:
                if connection.is_waiting:  # what follows is handled once the client has its session
                    break
                self._handle_first(connection, data[at:stop], now_ns)
                size_max = self.config.packet_bytes_max
            else:
                handle = handlers.get(first, dispatch.decoded)
                stop = handle(self, connection, data, at, body, stop, now_ns)
            at = stop
        return at

    def _handle_first(self, connection: Connection, frame: bytes, now_ns: int) -> None:
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
        dispatch.handler_of(connection, v5.TYPES[type(packet)])(self, connection, packet, now_ns)

    def choose_codec(self, connection: Connection, version: int) -> None:
        connection.version = version
        if connection.is_wire:
            connection.form = V5 if version == 5 else V311
            codecs = {3: (v311.decode_31, v311.encode), 4: (v311.decode, v311.encode), 5: (v5.decode, v5.encode)}
            connection.decode, connection.encode = codecs[version]


def _connect_due(broker: Broker, connection: Connection, due_ns: int) -> None:
    del due_ns
    broker.counters.shed["connect_timeout"] += 1
    broker.end(connection)

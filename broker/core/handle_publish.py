"""PUBLISH from clients: accepted or refused, acknowledged, kept if retained, and given to every receiver.

The hot path is `run_at_qos0`: consecutive packets to one topic at QoS 0 are passed on as the bytes they came in.
"""

from typing import TYPE_CHECKING

import mqtt5

from broker.core.access import WRITE
from broker.core.deliver import deliver, is_full
from broker.core.link import NOTIFICATION, PATH_TOPIC
from broker.core.session import Delivery, Session
from broker.core.subscriptions import Route
from broker.errors import MqttError, ProtocolError
from broker.log_record import ADDITIONAL, DUPLICATE, RECORD, RETAIN, Kind, Log
from broker.mqtt import frames
from broker.routing.filters import topic_problem
from broker.values import NS_PER_S, Message, properties_of

if TYPE_CHECKING:
    from broker.core.broker import Broker
    from broker.core.connection import Connection

NO_MATCHING_SUBSCRIBERS = 0x10
PACK, ROUTED = RECORD.pack, int(Kind.ROUTED)
TOPICS_MAX = 100_000  # topic names remembered as valid
RESERVED_TOPICS = ("$SYS/", "$share/", "$overlay/")  # not for clients to publish to


def run_at_qos0(
    broker: "Broker", connection: "Connection", data: bytes, at: int, body: int, stop: int, now_ns: int
) -> int:
    """All packets from `at` on that are like the first but for the payload's bytes; returns where they end."""
    raw, _, payload_at = frames.publish_parts(data, body, stop, 0)
    if connection.version == 5:
        if payload_at >= stop or data[payload_at] or not raw:
            frame(broker, connection, data, at, body, stop, now_ns)  # properties, or an alias for the topic
            return stop
        payload_at += 1
    topic = broker.topics.get(raw) or _valid_topic(broker, raw)
    if connection.is_uplink and topic == PATH_TOPIC:
        broker.overlay.path_changed(connection, data[payload_at:stop].decode("utf-8", "replace"))
        return stop
    if (topic[0] == "$" or broker.config.access is not None) and not _may_publish(broker, connection, topic):
        return stop
    prefix, size = data[at:payload_at], stop - at
    end, count = stop, 1
    while data.startswith(prefix, end) and end + size <= len(data):
        end += size
        count += 1
    route = broker.subscriptions.route(topic)
    first = broker.sequence + 1
    broker.sequence += count
    broker.counters.messages_received += count
    session = connection.session
    assert session is not None
    skipped = _pass_on(broker, connection, route, data[at:end], size, count, now_ns)
    log = broker.log
    if log is not None:
        number = -1 if skipped else route.log_all
        if number < 0:
            number = _log_route(log, topic, route, skipped)
        size, flags = stop - payload_at, ADDITIONAL * route.is_additional
        log.records += PACK(
            now_ns, first, session.log_number, route.log_topic, number, size, count, ROUTED, 0, 0, flags
        )
    if route.special or route.groups:
        for number in range(count):
            start = at + number * (stop - at)
            message = Message(topic, data[start + payload_at - at : start + stop - at], 0, False, session)
            message.sequence = first + number
            _to_special(broker, route, message, now_ns)
    return end


def _log_route(log: Log, topic: str, route: Route, skipped: list[Session]) -> int:
    """The log's number for those receivers of a route that got the run."""
    if route.log_topic < 0:
        route.log_topic = log.number(topic)
    number = log.route(tuple(session.log_number for session in route.plain if session not in skipped))
    if not skipped:
        route.log_all = number
    return number


def _pass_on(
    broker: "Broker", connection: "Connection", route: Route, run: bytes, size: int, count: int, now_ns: int
) -> list[Session]:
    """The same bytes to every receiver that speaks the version they came in; returns who did not get them."""
    translated = None
    skipped: list[Session] = []
    delivered = 0
    dirty = broker.dirty
    is_v5 = connection.version == 5
    sender = connection.session if route.silent else None
    for session in route.plain:
        if session is sender and session in route.silent:
            skipped.append(session)
            continue
        to = session.connection
        if to is None or to.is_blocked or size > to.packet_bytes_max or session.demand is not None or to.aliases_max:
            skipped.append(session)
            _not_passed_on(broker, session, run, size, count, is_v5, now_ns)
            continue
        if (to.version == 5) is is_v5:
            to.output.append(run)
        else:
            translated = translated or _translated(run, size, count, is_v5)
            to.output.append(translated)
        delivered += count
        if session.link is not None:
            session.link.sent[NOTIFICATION] += count
        if not to.is_dirty:
            to.is_dirty = True
            dirty.append(to)
    broker.counters.messages_delivered += delivered
    return skipped


def _not_passed_on(
    broker: "Broker", session: Session, run: bytes, size: int, count: int, is_v5: bool, now_ns: int
) -> None:
    """The rare cases, message by message, in the ordinary way."""
    first = broker.sequence - count + 1
    for number in range(count):
        message = _message_of_frame(run[number * size : (number + 1) * size], is_v5)
        message.sequence = first + number
        deliver(broker, session, Delivery(message, 0, False, ()), now_ns)


def _message_of_frame(one: bytes, is_v5: bool) -> Message:
    """A frame without properties at QoS 0 whose parts were checked before."""
    found = frames.bounds(one, 0, len(one))
    assert found is not None
    raw, _, at = frames.publish_parts(one, *found, 0)
    return Message(raw.decode(), one[at + is_v5 :], 0, False, None)


def _translated(run: bytes, size: int, count: int, is_v5: bool) -> bytes:
    """The run in the other version: version 5 has an (empty) list of properties before the payload."""
    out = []
    for number in range(count):
        message = _message_of_frame(run[number * size : (number + 1) * size], is_v5)
        parts = (message.head, message.payload) if is_v5 else (message.head, b"\0", message.payload)
        out += [b"\x30", frames.encoded_length(sum(map(len, parts))), *parts]
    return b"".join(out)


def frame(broker: "Broker", connection: "Connection", data: bytes, at: int, body: int, stop: int, now_ns: int) -> None:
    """One PUBLISH of any kind."""
    first = data[at]
    qos = first >> 1 & 3
    if qos == 3 or (qos == 0 and first & 8):
        raise MqttError("a PUBLISH with flags that are not allowed", 0x81)
    raw, packet_id, payload_at = frames.publish_parts(data, body, stop, qos)
    if connection.version == 5:
        if payload_at >= stop:
            raise MqttError("a PUBLISH without properties", 0x81)
        if data[payload_at] or not raw:
            assert connection.decode is not None
            decoded = connection.decode(data[at:stop])
            assert isinstance(decoded, mqtt5.PublishPacket)
            packet(broker, connection, decoded, now_ns)
            return
        payload_at += 1
    topic = broker.topics.get(raw) or _valid_topic(broker, raw)
    message = Message(topic, data[payload_at:stop], qos, bool(first & 1), connection.session)
    _accept(broker, connection, message, packet_id, bool(first & 8), now_ns)


def packet(broker: "Broker", connection: "Connection", published: mqtt5.PublishPacket, now_ns: int) -> None:
    """One PUBLISH with properties, or on a simulated network."""
    if published.subscription_ids:
        raise ProtocolError("a subscription identifier from a client")  # [MQTT-3.3.4-6]
    topic = published.topic
    alias = published.topic_alias
    if alias is not None:
        if not 0 < alias <= broker.config.topic_alias_maximum:
            raise MqttError("a topic alias above the maximum", 0x94)
        if topic:
            connection.aliases[alias] = topic
        topic = connection.aliases.get(alias, "")
    if not topic:
        raise ProtocolError("neither a topic nor a topic alias that is known")
    if problem := topic_problem(topic):
        raise MqttError(problem, 0x90)
    if published.response_topic is not None and topic_problem(published.response_topic):
        raise ProtocolError("a response topic with wildcards")
    expiry_s = published.message_expiry_interval
    message = Message(
        topic, published.payload, int(published.qos), published.retain, connection.session, properties_of(published),
        None if expiry_s is None else now_ns + expiry_s * NS_PER_S,
    )  # fmt: skip
    _accept(broker, connection, message, published.packet_id or 0, published.duplicate, now_ns)


def _valid_topic(broker: "Broker", raw: bytes) -> str:
    topic = frames.decoded_topic(raw)
    if problem := topic_problem(topic):
        raise MqttError(problem, 0x90)
    if len(broker.topics) >= TOPICS_MAX:
        broker.topics.clear()
    broker.topics[raw] = topic
    return topic


def _accept(
    broker: "Broker", connection: "Connection", message: Message, packet_id: int, is_duplicate: bool, now_ns: int
) -> None:
    """Take responsibility for a message, once, and say so."""
    session = connection.session
    assert session is not None
    if message.qos == 2 and packet_id in session.received:
        broker.send(connection, mqtt5.PubRecPacket(packet_id))
        return
    if message.qos == 2 and len(session.received) >= connection.receive_max:
        raise MqttError("more messages at QoS 2 than the receive maximum", 0x93)
    code = _refusal(broker, connection, message)
    if code == 0:
        broker.sequence += 1
        message.sequence = broker.sequence
        broker.counters.messages_received += 1
    if broker.log is not None:
        kind, flags = Kind.REJECTED if code else Kind.RECEIVED, RETAIN * message.retain | DUPLICATE * is_duplicate
        broker.log.add(now_ns, kind, session.log_number, broker.log.number(message.topic), message.sequence or -1,
                       len(message.payload), message.qos, code, flags)  # fmt: skip
    _answer(broker, connection, message.qos, packet_id, code or _nobody(broker, message))
    if code == 0:
        enter(broker, message, now_ns)


def _answer(broker: "Broker", connection: "Connection", qos: int, packet_id: int, code: int) -> None:
    if qos == 0:
        return
    if code >= 0x80 and connection.version < 5:
        broker.end(connection)  # 3.1.1 cannot say no, and an acknowledgement would be a lie [MQTT-3.3.5-2]
    elif qos == 1:
        _acknowledge(broker, connection, packet_id, code)
    else:
        if code < 0x80:
            assert connection.session is not None
            connection.session.received[packet_id] = None
            code = 0
        broker.send(connection, mqtt5.PubRecPacket(packet_id, reason_code=mqtt5.PubRecReasonCode(code)))


def _nobody(broker: "Broker", message: Message) -> int:
    return NO_MATCHING_SUBSCRIBERS if broker.subscriptions.route(message.topic).is_empty else 0


def _acknowledge(broker: "Broker", connection: "Connection", packet_id: int, code: int) -> None:
    if connection.is_wire and (code == 0 or connection.version < 5):
        broker.write(connection, b"\x40\x02" + packet_id.to_bytes(2, "big"))
    else:
        broker.send(connection, mqtt5.PubAckPacket(packet_id, reason_code=mqtt5.PubAckReasonCode(code)))


def _may_publish(broker: "Broker", connection: "Connection", topic: str) -> bool:
    if topic[0] == "$" and topic.startswith(RESERVED_TOPICS):
        return False
    access, session = broker.config.access, connection.session
    assert session is not None
    return access is None or access.allows(WRITE, connection.user, session.client_id, topic)


def _refusal(broker: "Broker", connection: "Connection", message: Message) -> int:
    """0, or the reason code with which the message is refused as a whole."""
    if not _may_publish(broker, connection, message.topic):
        return 0x87
    config = broker.config
    is_newly_retained = message.retain and message.payload and message.topic not in broker.retained
    if is_newly_retained and len(broker.retained) >= config.retained_max:
        broker.counters.rejected += 1
        return 0x97
    if config.queue_policy == "reject" and message.qos:
        route = broker.subscriptions.route(message.topic)
        if any(is_full(broker, target.session, message) for target in route.targets if target.qos):
            broker.counters.rejected += 1
            return 0x97
    return 0


def enter(broker: "Broker", message: Message, now_ns: int) -> None:
    """Through the emulated service at the input, if there is one."""
    if broker.config.service_in is None:
        publish(broker, message, now_ns)
        return
    broker.input_free_at_ns = max(now_ns, broker.input_free_at_ns) + broker.config.service_in()
    broker.at(broker.input_free_at_ns, publish, message)


def publish(broker: "Broker", message: Message, now_ns: int) -> None:
    """To every receiver, and kept if it is to be retained."""
    if message.retain:
        if message.payload:
            broker.retained[message.topic] = message
        else:
            broker.retained.pop(message.topic, None)
    route = broker.subscriptions.route(message.topic)
    message.is_additional = route.is_additional
    for receiver in route.targets:
        target = receiver.for_publisher(message.publisher)
        if target is not None:
            retain = message.retain and target.retain_as_published
            qos = min(message.qos, target.qos)
            deliver(broker, target.session, Delivery(message, qos, retain, target.identifiers), now_ns)
    _to_groups(broker, route, message, now_ns)


def _to_special(broker: "Broker", route: Route, message: Message, now_ns: int) -> None:
    for receiver in route.special:
        target = receiver.for_publisher(message.publisher)
        if target is not None:
            deliver(broker, target.session, Delivery(message, 0, False, target.identifiers), now_ns)
    _to_groups(broker, route, message, now_ns)


def _to_groups(broker: "Broker", route: Route, message: Message, now_ns: int) -> None:
    for group in route.groups:
        member = group.next_member()
        identifiers = (member.identifier,) if member.identifier else ()
        retain = message.retain and member.retain_as_published
        deliver(broker, member.session, Delivery(message, min(message.qos, member.qos), retain, identifiers), now_ns)

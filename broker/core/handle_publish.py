"""Handles PUBLISH: accepts or refuses a message, acknowledges it, retains it and delivers it to every receiver.

Notifications at QoS 0 without properties take a faster path, see notify.py.
"""

from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

import mqtt5

from brokerbed.broker.core import lifetime, persist
from brokerbed.broker.core.access import may_publish
from brokerbed.broker.core.deliver import copy_of, deliver, is_full
from brokerbed.broker.core.link import (
    IDENTITY,
    MESSAGE,
    MOVE_TOPIC,
    OVERLAY,
    RESERVED,
    RETAINED_FOR,
    UNADVERTISED_MESSAGE,
    Link,
    is_reserved,
    property_of,
    tag_only,
    untag,
)
from brokerbed.broker.core.run import TAGGED
from brokerbed.broker.core.session import Delivery, Session
from brokerbed.broker.core.subscriptions import Receivers
from brokerbed.broker.errors import MqttError, ProtocolError
from brokerbed.broker.mqtt import frames
from brokerbed.broker.values import (
    CACHED_TOPIC_CHARS_MAX,
    NO_PROPERTIES,
    NS_PER_S,
    Entry,
    Message,
    Published,
    properties_of,
)
from brokerbed.log.record import DUPLICATE, RETAIN, WAITED, Kind, Reason
from brokerbed.topics import topic_problem

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker
    from brokerbed.broker.core.connection import Connection

NO_MATCHING_SUBSCRIBERS = 0x10
TOPICS_MAX = 100_000  # topic names cached as valid
UNWANTED = Entry("")  # marks a retained message that is sent to the parent although the parent has not asked for it
RECEIVED, REJECTED = int(Kind.RECEIVED), int(Kind.REJECTED)


def handle_published(broker: "Broker", connection: "Connection", publication: Published, now_ns: int) -> None:
    """Handle a PUBLISH at any QoS on a simulated network."""
    old = publication.message
    message = Message(
        old.topic,
        old.payload,
        publication.qos,
        publication.retain,
        connection.session,
        old.properties,
        old.expires_at_ns,
    )
    message.origin, message.sequence = old.origin, old.sequence
    if connection.is_uplink:
        message.replay_for = publication.answers
    if connection.session is not None and connection.session.link is not None:
        message.is_unadvertised = old.is_unadvertised
    accept(broker, connection, message, publication.packet_id, publication.is_duplicate, now_ns)


def handle_frame(
    broker: "Broker", connection: "Connection", data: bytes, at: int, body: int, stop: int, now_ns: int
) -> None:
    """Handle the bytes of one PUBLISH of any kind. Its body is `data[body:stop]`."""
    first = data[at]
    qos = first >> 1 & 3
    if qos == 3 or (qos == 0 and first & 8):
        raise MqttError("a PUBLISH with flags that are not allowed", 0x81)
    raw, packet_id, payload_at = frames.publish_parts(data, body, stop, qos)
    origin, sequence = "", 0
    if connection.version == 5:
        if payload_at >= stop:
            raise MqttError("a PUBLISH without properties", 0x81)
        tagged = tag_only(data, payload_at) if connection.form == TAGGED and raw else None
        if tagged is not None:
            origin, sequence, payload_at = tagged
        elif data[payload_at] or not raw:
            assert connection.decode is not None
            decoded = connection.decode(data[at:stop])
            assert isinstance(decoded, mqtt5.PublishPacket)
            handle_packet(broker, connection, decoded, now_ns)
            return
        else:
            payload_at += 1
    topic = broker.topics.get(raw) or valid_topic(broker, raw)
    message = Message(topic, data[payload_at:stop], qos, bool(first & 1), connection.session)
    message.origin, message.sequence = origin, sequence
    accept(broker, connection, message, packet_id, bool(first & 8), now_ns)


def handle_packet(broker: "Broker", connection: "Connection", published: mqtt5.PublishPacket, now_ns: int) -> None:
    """Handle one decoded PUBLISH: one with properties, or one on a simulated network."""
    if published.subscription_ids and not connection.is_uplink:
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
    _check_topic(broker, topic)
    if published.response_topic is not None and topic_problem(published.response_topic):
        raise ProtocolError("a response topic with wildcards")
    expiry_s = published.message_expiry_interval
    message = Message(
        topic, published.payload, int(published.qos), published.retain, connection.session, properties_of(published),
        None if expiry_s is None else now_ns + expiry_s * NS_PER_S,
    )  # fmt: skip
    if connection.session is not None and connection.session.link is not None:
        _take_overlay_properties(message, published.user_properties, connection.session.link)
        if connection.carries_expiry:
            _take_exact_expiry(message, published.user_properties, connection.session.link)
    accept(broker, connection, message, published.packet_id or 0, published.duplicate, now_ns)


def _take_overlay_properties(message: Message, given: list[tuple[str, str]], link: Link) -> None:
    """Move the user properties that only links use into the message's own attributes, so that clients never see them.

    A foreign parent passes on whatever its clients made up. An invalid identity is ignored, and the message is given
    one here.
    """
    others = tuple(pair for pair in given if not pair[0].startswith(RESERVED))
    message.properties = message.properties._replace(user_properties=others)
    if (identity := property_of(given, MESSAGE)) is not None:
        with suppress(ProtocolError) if link.is_foreign else nullcontext():
            message.origin, message.sequence = untag(identity)
    message.is_unadvertised = property_of(given, UNADVERTISED_MESSAGE) is not None
    if link.is_parent and (topic_filter := property_of(given, RETAINED_FOR)) is not None:
        message.replay_for = Entry(topic_filter, property_of(given, IDENTITY) or "")


def _take_exact_expiry(message: Message, given: list[tuple[str, str]], link: Link) -> None:
    if (expires := property_of(given, lifetime.EXPIRES)) is not None:
        with suppress(ProtocolError) if link.is_foreign else nullcontext():
            message.expires_at_ns = lifetime.in_property(expires)


def _check_topic(broker: "Broker", topic: str) -> None:
    problem, levels_max = topic_problem(topic), broker.config.levels_max
    if problem is None and topic.count("/") >= levels_max and not topic.startswith(OVERLAY):
        problem = f"a topic has at most {levels_max} levels here"
    if problem:
        raise MqttError(problem, 0x90)


def valid_topic(broker: "Broker", raw: bytes) -> str:
    topic = frames.decoded_topic(raw)
    _check_topic(broker, topic)
    if len(raw) <= CACHED_TOPIC_CHARS_MAX:
        if len(broker.topics) >= TOPICS_MAX:
            broker.topics.clear()
        broker.topics[raw] = topic
    return topic


def accept(
    broker: "Broker", connection: "Connection", message: Message, packet_id: int, is_duplicate: bool, now_ns: int
) -> None:
    """Take responsibility for a message once, and acknowledge it."""
    session = connection.session
    assert session is not None
    qos, link = message.qos, session.link
    if link is not None and message.topic.startswith(OVERLAY) and (connection.is_uplink or message.topic == MOVE_TOPIC):
        _between_brokers(broker, connection, link, message, packet_id, is_duplicate, now_ns)
        return
    if qos == 2 and _is_open(broker, connection, session, packet_id):
        return
    if link is not None and _is_copy(broker, session, link, message, packet_id, is_duplicate):
        _answer(broker, connection, qos, packet_id, 0)
        return
    code = refusal(broker, session, message, now_ns)
    if code == 0:
        if not message.origin:
            broker.identify(message, session, now_ns)
        broker.counters.messages_received += 1
        if link is not None and link.is_foreign:
            broker.overlay.retained.received_from_foreign(link, message, now_ns)
    kind, flags = REJECTED if code else RECEIVED, RETAIN * message.retain | DUPLICATE * is_duplicate
    broker.log_message(now_ns, kind, session.log_number, message, qos, code, flags)
    if qos:
        _answer(broker, connection, qos, packet_id, code or _no_subscribers_code(broker, message))
    if code == 0:
        enter(broker, message, now_ns)


def _between_brokers(
    broker: "Broker",
    connection: "Connection",
    link: Link,
    message: Message,
    packet_id: int,
    is_duplicate: bool,
    now_ns: int,
) -> None:
    """Handle a message of a neighbour that is for this broker itself."""
    session = connection.session
    assert session is not None
    if message.topic != MOVE_TOPIC:
        broker.overlay.announced_by_parent(connection, message, packet_id, now_ns)
        _answer(broker, connection, message.qos, packet_id, 0)
        return
    is_copy = _is_copy(broker, session, link, message, packet_id, is_duplicate)
    _answer(broker, connection, message.qos, packet_id, 0)
    if not is_copy:
        broker.overlay.link_moves.entered(message, now_ns)


def _is_open(broker: "Broker", connection: "Connection", session: Session, packet_id: int) -> bool:
    """Whether a message at QoS 2 was received before. If so, it is acknowledged again."""
    if packet_id in session.received:
        broker.send(connection, mqtt5.PubRecPacket(packet_id))
        return True
    if len(session.received) >= connection.receive_max:
        raise MqttError("more messages at QoS 2 than the receive maximum", 0x93)
    return False


def _is_copy(
    broker: "Broker", session: Session, link: Link, message: Message, packet_id: int, is_duplicate: bool
) -> bool:
    """Whether this message has arrived over the link before."""
    if link.is_foreign:
        return bool(message.origin) and link.is_known_copy(message.origin, message.sequence)
    if message.qos == 0:
        return False
    if message.qos == 1 and is_duplicate and link.has_received(packet_id):
        return True
    persist.save_received_id(broker, session, packet_id)
    return False


def _answer(broker: "Broker", connection: "Connection", qos: int, packet_id: int, code: int) -> None:
    if qos == 0:
        return
    if code >= 0x80 and connection.version < 5:
        broker.end(connection)  # 3.1.1 cannot refuse a message, and acknowledging it would be wrong [MQTT-3.3.5-2]
    elif qos == 1:
        _acknowledge(broker, connection, packet_id, code)
    else:
        if code < 0x80:
            assert connection.session is not None
            persist.save_received(broker, connection.session, (packet_id,))
            code = 0
        broker.send(connection, mqtt5.PubRecPacket(packet_id, reason_code=mqtt5.PubRecReasonCode(code)))


def _no_subscribers_code(broker: "Broker", message: Message) -> int:
    subscriptions = broker.subscriptions
    route = subscriptions.routes.get(message.topic) or subscriptions.route(message.topic)
    return NO_MATCHING_SUBSCRIBERS if route.is_empty and broker.advertising is None else 0


def _acknowledge(broker: "Broker", connection: "Connection", packet_id: int, code: int) -> None:
    if connection.is_wire and (code == 0 or connection.version < 5):
        broker.write(connection, b"\x40\x02" + packet_id.to_bytes(2, "big"))
    elif code == 0 and connection.encode is None:
        broker.write(connection, mqtt5.PubAckPacket(packet_id))
    else:
        broker.send(connection, mqtt5.PubAckPacket(packet_id, reason_code=mqtt5.PubAckReasonCode(code)))


def refusal(broker: "Broker", session: Session, message: Message, now_ns: int) -> int:
    """The reason code with which the message is refused; 0 if it is accepted."""
    config, access, topic = broker.config, session.access, message.topic
    if (access is not None or topic[0] == "$") and not may_publish(access, session.user, session.client_id, topic):
        return 0x87
    properties = message.properties
    if properties is not NO_PROPERTIES and session.link is None and is_reserved(properties.user_properties):
        return 0x87
    if message.retain and message.payload and not persist.has_room_to_retain(broker, message):
        broker.counters.rejected += 1
        broker.counters.shed["retained"] += 1
        return 0x97
    if config.queue_policy == "reject" and message.qos:
        targets = broker.subscriptions.targets(message.topic)
        is_input_full = config.service_in is not None and _is_input_full(broker, message)
        is_input_full = is_input_full or (broker.advertising is not None and not broker.advertising.has_room(message))
        is_any_full = any(is_full(broker, target.session, message, now_ns) for target in targets if target.qos)
        if is_input_full or is_any_full:
            broker.counters.rejected += 1
            return 0x97
    return 0


def enter(broker: "Broker", message: Message, now_ns: int) -> None:
    """Pass a message through the emulated service at the input, if there is one; then publish it."""
    if broker.config.service_in is None:
        publish(broker, message, now_ns)
        return
    if _is_input_full(broker, message):
        broker.counters.dropped[Reason.INPUT_FULL] += 1
        _log_at_input(broker, Kind.DROPPED, message, now_ns, Reason.INPUT_FULL, WAITED)
        return
    copy, free_ns = copy_of(broker, message.topic), broker.input_free_ns
    due_ns, free_ns[copy] = lifetime.stage_end_ns(
        free_ns.get(copy, broker.input_floor_ns), now_ns, broker.config.service_in(), message.expires_at_ns
    )
    broker.entering += 1
    broker.entering_bytes += message.size
    broker.at(due_ns, _entered, message)
    persist.save_entering(broker, message)


def _entered(broker: "Broker", message: Message, due_ns: int) -> None:
    broker.entering -= 1
    broker.entering_bytes -= message.size
    if lifetime.is_over(message.expires_at_ns, due_ns):
        broker.counters.dropped[Reason.INPUT_EXPIRED] += 1
        broker.counters.expired["input"] += 1
        _log_at_input(broker, Kind.DROPPED, message, due_ns, Reason.INPUT_EXPIRED, WAITED)
    else:
        _log_at_input(broker, Kind.SERVED, message, due_ns)
        publish(broker, message, due_ns)
    persist.forget_entering(broker, message)


def _is_input_full(broker: "Broker", message: Message) -> bool:
    """Whether the input has no room for the message. It has the same limits as a session's queue."""
    config = broker.config
    return broker.entering >= config.queue_messages_max or broker.entering_bytes + message.size > config.queue_bytes_max


def _log_at_input(
    broker: "Broker", kind: Kind, message: Message, now_ns: int, reason: Reason = Reason.NONE, flags: int = 0
) -> None:
    if broker.log is not None:
        publisher = message.publisher.log_number if isinstance(message.publisher, Session) else -1
        broker.log_message(now_ns, kind, publisher, message, message.qos, reason, flags)


def publish(broker: "Broker", message: Message, now_ns: int, answers: Entry | None = None) -> None:
    """Deliver a message to every receiver, and retain it if its publisher asked for that.

    `answers` tells children that the message answers this subscription and is not a live publication.
    """
    if message.replay_for is not None:
        broker.overlay.retained.replayed(message, now_ns)
        return
    if message.retain:
        persist.retain(broker, message.topic, message if message.payload else None)
    subscriptions, topic = broker.subscriptions, message.topic
    receivers = (subscriptions.routes.get(topic) or subscriptions.route(topic)).receivers
    message.is_additional = receivers.is_additional
    if broker.placement is not None:
        source = message.publisher
        neighbour = source if isinstance(source, Session) and source.link is not None else None
        broker.placement.count(neighbour, receivers, message.origin, topic, 1)
    qos, targets, advertising = message.qos, subscriptions.targets(topic), broker.advertising
    if advertising is not None:
        advertising.mark(message, now_ns)
        if message.is_unadvertised:
            advertising.spread(message, targets, now_ns)
    for receiver in targets:
        target = receiver.for_publisher(message.publisher) if receiver.no_local else receiver
        if target is not None:
            retain = message.retain and target.retain_as_published
            marked = answers if target.session.link is not None else None
            qos_out = min(target.qos, qos)
            deliver(broker, target.session, Delivery(message, qos_out, retain, target.identifiers, marked), now_ns)
    if receivers.groups:
        _to_groups(broker, receivers, message, now_ns)
    if message.retain and (parent := broker.overlay.parent_for_retained(message)) is not None:
        deliver(broker, parent, Delivery(message, qos, True, (), UNWANTED), now_ns)


def to_special(broker: "Broker", receivers: Receivers, message: Message, now_ns: int) -> None:
    for receiver in receivers.special:
        target = receiver.for_publisher(message.publisher)
        if target is not None:
            deliver(broker, target.session, Delivery(message, 0, False, target.identifiers), now_ns)
    _to_groups(broker, receivers, message, now_ns)


def _to_groups(broker: "Broker", receivers: Receivers, message: Message, now_ns: int) -> None:
    for group in receivers.groups:
        member = group.next_member()
        identifiers = (member.identifier,) if member.identifier else ()
        retain = message.retain and member.retain_as_published
        deliver(broker, member.session, Delivery(message, min(message.qos, member.qos), retain, identifiers), now_ns)

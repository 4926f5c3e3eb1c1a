"""Deliveries to sessions: sending, queueing and dropping them, their acknowledgement, and emulated service on the way.

A delivery waits in its session's queue while the session is not connected, the peer does not read, the window of
unacknowledged messages is full, or the emulated service is busy. No newer delivery at QoS 1 or 2 overtakes one that
waits.
"""

from typing import TYPE_CHECKING, Any

import mqtt5

from brokerbed.broker.core import persist
from brokerbed.broker.core.link import (
    IDENTITY,
    MESSAGE,
    NOTIFICATION,
    RETAINED,
    RETAINED_FOR,
    UNADVERTISED,
    UNADVERTISED_MESSAGE,
    tag,
    tag_head,
)
from brokerbed.broker.core.run import TAGGED, V5
from brokerbed.broker.core.session import Delivery, Session
from brokerbed.broker.errors import ProtocolError
from brokerbed.broker.mqtt import frames, v5
from brokerbed.broker.values import (
    CACHED_TOPIC_CHARS_MAX,
    NO_PROPERTIES,
    NS_PER_S,
    Message,
    Published,
    format_indicator,
)
from brokerbed.log.record import ADDITIONAL, DUPLICATE, REPLAY, RETAIN, UNADVERTISED_FLAG, WAITED, Kind, Reason

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker
    from brokerbed.broker.core.connection import Connection

QOS = (mqtt5.QoS(0), mqtt5.QoS(1), mqtt5.QoS(2))
QUEUED, SENT, ACKNOWLEDGED = map(int, (Kind.QUEUED, Kind.SENT, Kind.ACKNOWLEDGED))  # access to enum members is slow


def is_full(broker: "Broker", session: Session, message: Message) -> bool:
    config = broker.config
    return (
        len(session.queue) >= config.queue_messages_max or session.queue_bytes + message.size > config.queue_bytes_max
    )


def copy_of(broker: "Broker", topic: str) -> str:
    """The set of emulated service stages for a topic: that of its copy, such as `copy3`, or "" for all other topics."""
    return topic.split("/", 1)[0] if broker.config.service_per_copy and topic.startswith("copy") else ""


def deliver(broker: "Broker", session: Session, delivery: Delivery, now_ns: int) -> None:
    """Pass a delivery through the emulated service of a link, if there is one; then send or queue it."""
    link = session.link
    if link is None or (demand := broker.config.service_link) is None:
        _deliver(broker, session, delivery, now_ns)
        return
    if len(link.staged) >= broker.config.queue_messages_max:
        drop(broker, session, delivery, Reason.QUEUE_FULL, now_ns)
        return
    copy = copy_of(broker, delivery.message.topic)
    due_ns = link.staged_free_ns[copy] = max(now_ns, link.staged_free_ns.get(copy, 0)) + demand()
    link.staged[delivery] = None
    if delivery.qos:
        persist.save_delivery(broker, session, delivery)
    _log_queued(broker, session, delivery, now_ns)
    broker.at(due_ns, _link_service_done, (session, delivery))


def _link_service_done(broker: "Broker", in_service: tuple[Session, Delivery], due_ns: int) -> None:
    session, delivery = in_service
    if session.link is not None and session.link.staged.pop(delivery, 0) is None:
        _deliver(broker, session, delivery, due_ns)


def _deliver(broker: "Broker", session: Session, delivery: Delivery, now_ns: int) -> None:
    """Send the delivery now if nothing waits before it; queue it otherwise."""
    connection = session.connection
    if delivery.qos == 0 and connection is None:
        drop(broker, session, delivery, Reason.OFFLINE, now_ns)
        return
    if delivery.qos == 0 and connection is not None and session.demand is None:
        if connection.is_blocked:
            drop(broker, session, delivery, Reason.SLOW, now_ns)
        else:
            _send(broker, session, connection, delivery, now_ns)
        return
    if (
        connection is not None
        and session.demand is None
        and not session.queue
        and not connection.is_blocked
        and len(session.inflight) < connection.inflight_max
    ):
        _send(broker, session, connection, delivery, now_ns)
        return
    while is_full(broker, session, delivery.message):
        oldest = session.pop_unsent() if broker.config.queue_policy != "reject" else None
        if oldest is None:
            drop(broker, session, delivery, Reason.QUEUE_FULL, now_ns)
            return
        if not session.parked:  # then the dropped head of the queue was the delivery in service
            session.service_due_ns = session.service_left_ns = None
        drop(broker, session, oldest, Reason.QUEUE_FULL, now_ns)
    delivery.queued_at_ns = now_ns
    session.push(delivery)
    if session.row_number:
        persist.save_delivery(broker, session, delivery)
    _log_queued(broker, session, delivery, now_ns)
    if session.demand is not None:
        _start_service(broker, session, now_ns)


def pump(broker: "Broker", session: Session, now_ns: int) -> None:
    """Send queued deliveries, as far as the window of unacknowledged messages allows."""
    connection = session.connection
    if session.demand is not None:
        _start_service(broker, session, now_ns)
        return
    while session.queue and connection is not None and not connection.is_blocked:
        if session.queue[0].qos and len(session.inflight) >= connection.inflight_max:
            return
        _send(broker, session, connection, session.pop(), now_ns)


def resume(broker: "Broker", session: Session, now_ns: int) -> None:
    """A session is connected (again): resend what is unacknowledged, in order, then send what is queued."""
    connection = session.connection
    assert connection is not None
    inflight = persist.deliveries_in_flight(broker, session)
    session.park(connection.inflight_max)
    for packet_id, delivery in list(inflight.items()):
        if delivery.is_released:
            broker.send(connection, mqtt5.PubRelPacket(packet_id))
            continue
        output = encoded(connection, delivery, packet_id, True, now_ns)
        if connection.is_wire and len(output) > connection.packet_bytes_max:  # the limit may be lower than before
            del session.inflight[packet_id]
            drop(broker, session, delivery, Reason.TOO_LARGE, now_ns)
        else:
            broker.write(connection, output)
    pump(broker, session, now_ns)


def _send(broker: "Broker", session: Session, connection: "Connection", delivery: Delivery, now_ns: int) -> None:
    message = delivery.message
    is_resent = delivery.packet_id != 0
    if message.expires_at_ns is not None and message.expires_at_ns <= now_ns and not is_resent:  # [MQTT-4.3.3-7]
        drop(broker, session, delivery, Reason.EXPIRED, now_ns)
        return
    packet_id = delivery.packet_id or (persist.take_packet_id(broker, session) if delivery.qos else 0)
    if is_resent:
        session.parked.pop(packet_id, None)
    aliases_before = len(connection.aliases_out)
    output = encoded(connection, delivery, packet_id, is_resent, now_ns)
    if connection.is_wire and len(output) > connection.packet_bytes_max:
        if len(connection.aliases_out) > aliases_before:
            connection.aliases_out.popitem()  # the packet that would have set the alias is not sent
        drop(broker, session, delivery, Reason.TOO_LARGE, now_ns)
        return
    if delivery.qos:
        session.inflight[packet_id] = delivery
        delivery.packet_id = packet_id
        if session.row_number:
            persist.save_delivery(broker, session, delivery)
    elif delivery.row_number:  # a delivery at QoS 0 is stored only while it waits for the emulated service
        persist.forget_delivery(broker, delivery)
    broker.counters.messages_delivered += 1
    flags = RETAIN * delivery.retain | DUPLICATE * is_resent | REPLAY * (delivery.answers is not None)
    flags |= WAITED * delivery.has_waited
    if session.link is not None and not is_resent:  # a message that is resent is not counted twice
        kind = UNADVERTISED if message.is_unadvertised else NOTIFICATION
        session.link.sent[kind if delivery.answers is None else RETAINED] += 1
        flags |= ADDITIONAL * (message.is_additional and session.link.is_parent)
        flags |= UNADVERTISED_FLAG * message.is_unadvertised
    broker.log_message(now_ns, SENT, session.log_number, message, delivery.qos, 0, flags)
    broker.write(connection, output)


def _unadvertised(session: Session, delivery: Delivery) -> int:
    """The flag of messages to links that were not advertised."""
    return UNADVERTISED_FLAG if session.link is not None and delivery.message.is_unadvertised else 0


def encoded(connection: "Connection", delivery: Delivery, packet_id: int, is_duplicate: bool, now_ns: int) -> Any:
    """The PUBLISH for a delivery as this connection needs it: bytes, or an object on a simulated network."""
    message = delivery.message
    if not connection.is_wire:
        return Published(
            message, delivery.qos, delivery.retain, packet_id, is_duplicate, delivery.identifiers, delivery.answers
        )
    has_properties = (
        message.properties != NO_PROPERTIES
        or delivery.identifiers
        or message.expires_at_ns is not None
        or delivery.answers is not None
        or (message.is_unadvertised and connection.form == TAGGED)
    ) and connection.version == 5
    if has_properties or connection.aliases_max:
        return v5.encode(_packet(connection, delivery, packet_id, is_duplicate, now_ns))
    first = 0x30 | is_duplicate << 3 | delivery.qos << 1 | delivery.retain
    number = packet_id.to_bytes(2, "big") if delivery.qos else b""
    properties = b""
    if connection.form == TAGGED:
        properties = tag_head(message.origin) + b"%016d" % message.sequence
    elif connection.form == V5:
        properties = b"\0"
    length = len(message.head) + len(number) + len(properties) + len(message.payload)
    start = first.to_bytes(1, "big") + frames.encoded_length(length)
    return b"".join((start, message.head, number, properties, message.payload))


def _aliased(connection: "Connection", topic: str) -> tuple[str, int | None]:
    """The topic and alias to send: only the alias if the client knows it already, and both to set it."""
    alias = connection.aliases_out.get(topic)
    if alias is not None:
        return "", alias
    if len(connection.aliases_out) < connection.aliases_max and len(topic) <= CACHED_TOPIC_CHARS_MAX:
        alias = connection.aliases_out[topic] = len(connection.aliases_out) + 1
    return topic, alias


def _packet(
    connection: "Connection", delivery: Delivery, packet_id: int, is_duplicate: bool, now_ns: int
) -> mqtt5.PublishPacket:
    message, properties = delivery.message, delivery.message.properties
    left_s = None
    if message.expires_at_ns is not None:
        left_s = max(1, (message.expires_at_ns - now_ns + NS_PER_S - 1) // NS_PER_S)
    user_properties = list(properties.user_properties)
    if connection.form == TAGGED:
        user_properties.append((MESSAGE, tag(message.origin, message.sequence)))
        if message.is_unadvertised:
            user_properties.append((UNADVERTISED_MESSAGE, ""))
        if delivery.answers is not None:
            user_properties.append((RETAINED_FOR, delivery.answers.filter))
            if delivery.answers.identity:
                user_properties.append((IDENTITY, delivery.answers.identity))
    topic, alias = _aliased(connection, message.topic)
    return mqtt5.PublishPacket(
        topic, message.payload, qos=QOS[delivery.qos], retain=delivery.retain, packet_id=packet_id or None,
        duplicate=is_duplicate, payload_format_indicator=format_indicator(properties), message_expiry_interval=left_s,
        content_type=properties.content_type, response_topic=properties.response_topic,
        correlation_data=properties.correlation_data, subscription_ids=list(delivery.identifiers),
        topic_alias=alias, user_properties=user_properties,
    )  # fmt: skip


def drop(broker: "Broker", session: Session, delivery: Delivery, reason: Reason, now_ns: int) -> None:
    broker.counters.dropped[reason] += 1
    session.parked.pop(delivery.packet_id, None)
    persist.forget_delivery(broker, delivery)
    flags = WAITED * (delivery.has_waited or delivery.packet_id != 0) | _unadvertised(session, delivery)
    broker.log_message(now_ns, Kind.DROPPED, session.log_number, delivery.message, delivery.qos, reason, flags)


# -- emulated service at a session's output: first come first served, only while connected, preemptive resume ---------


def _start_service(broker: "Broker", session: Session, now_ns: int) -> None:
    """Start or resume the service of the oldest queued message, if it is not in service already.

    After a service, `now_ns` is the time when it was due. If the timer was late, the next message may have been queued
    after that time, so its service does not start before it was queued.
    """
    connection = session.connection
    if not session.queue or connection is None or connection.is_blocked or session.service_due_ns is not None:
        return
    if session.queue[0].qos and len(session.inflight) >= connection.inflight_max:
        return
    assert session.demand is not None
    left_ns = session.demand() if session.service_left_ns is None else session.service_left_ns
    session.service_left_ns = None
    session.service_due_ns = max(now_ns, session.queue[0].queued_at_ns) + left_ns
    broker.at(session.service_due_ns, _service_done, session)


def _service_done(broker: "Broker", session: Session, due_ns: int) -> None:
    if session.service_due_ns != due_ns or session.connection is None:
        return
    session.service_due_ns = None
    _send(broker, session, session.connection, session.pop(), due_ns)
    _start_service(broker, session, due_ns)


def disconnected(broker: "Broker", session: Session, now_ns: int) -> None:
    """The session of a client or a link has lost its connection. Service that is in progress is interrupted."""
    session.connection = None
    if broker.log is not None:
        broker.log.add(now_ns, Kind.DISCONNECTED, session.log_number)
    if session.service_due_ns is not None:
        session.service_left_ns = max(0, session.service_due_ns - now_ns)
        session.service_due_ns = None


# -- acknowledgements from clients ------------------------------------------------------------------------------------


def acknowledged(broker: "Broker", session: Session, packet_id: int, now_ns: int) -> None:
    """Handle a PUBACK for a message, or for an announcement to a child.

    An unknown packet id is ignored: after a reconnection an acknowledgement may arrive late.
    """
    delivery = persist.delivery_in_flight(broker, session, packet_id)
    if delivery is None:
        if session.link is not None:
            session.link.announced.acknowledged(packet_id, now_ns)
        return
    if delivery.qos != 1:
        raise ProtocolError("PUBACK for a message at QoS 2")
    del session.inflight[packet_id]
    if delivery.row_number:
        persist.forget_delivery(broker, delivery)
    broker.log_message(now_ns, ACKNOWLEDGED, session.log_number, delivery.message, 1)
    if session.queue and session.service_due_ns is None:
        pump(broker, session, now_ns)


def acknowledged_by_client(broker: "Broker", connection: "Connection", packet: mqtt5.PubAckPacket, now_ns: int) -> None:
    assert connection.session is not None
    acknowledged(broker, connection.session, packet.packet_id, now_ns)


def received_by_client(broker: "Broker", connection: "Connection", packet: mqtt5.PubRecPacket, now_ns: int) -> None:
    session = _session(connection)
    delivery = persist.delivery_in_flight(broker, session, packet.packet_id)
    if delivery is not None and delivery.qos != 2:
        raise ProtocolError("PUBREC for a message at QoS 1")
    if delivery is None:
        code = mqtt5.PubRelReasonCode.PACKET_ID_NOT_FOUND
        broker.send(connection, mqtt5.PubRelPacket(packet.packet_id, reason_code=code))
        return
    if int(packet.reason_code) >= 0x80:
        del session.inflight[packet.packet_id]
        persist.forget_delivery(broker, delivery)
        pump(broker, session, now_ns)
        return
    if not delivery.is_released:
        delivery.is_released = True
        persist.save_delivery(broker, session, delivery)
        broker.log_message(now_ns, ACKNOWLEDGED, session.log_number, delivery.message, 2)
    broker.send(connection, mqtt5.PubRelPacket(packet.packet_id))


def released_by_client(broker: "Broker", connection: "Connection", packet: mqtt5.PubRelPacket, now_ns: int) -> None:
    del now_ns
    session = _session(connection)
    number = session.received.pop(packet.packet_id, None)
    code = mqtt5.PubCompReasonCode.PACKET_ID_NOT_FOUND
    if number is not None:
        persist.forget_received(broker, session, (number,))
        code = mqtt5.PubCompReasonCode.SUCCESS
    broker.send(connection, mqtt5.PubCompPacket(packet.packet_id, reason_code=code))


def completed_by_client(broker: "Broker", connection: "Connection", packet: mqtt5.PubCompPacket, now_ns: int) -> None:
    session = _session(connection)
    delivery = persist.delivery_in_flight(broker, session, packet.packet_id)
    if delivery is None:
        return
    if not delivery.is_released:
        raise ProtocolError("PUBCOMP for a message that was not released")
    del session.inflight[packet.packet_id]
    persist.forget_delivery(broker, delivery)
    pump(broker, session, now_ns)


def _session(connection: "Connection") -> Session:
    assert connection.session is not None
    return connection.session


def _log_queued(broker: "Broker", session: Session, delivery: Delivery, now_ns: int) -> None:
    flags = WAITED * delivery.has_waited | REPLAY * (delivery.answers is not None) | _unadvertised(session, delivery)
    broker.log_message(now_ns, QUEUED, session.log_number, delivery.message, delivery.qos, flags=flags)
    delivery.has_waited = True

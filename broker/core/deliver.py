"""Deliveries to sessions: sending, queueing and dropping them, their acknowledgement, and emulated service on the way.

A delivery waits in its session's queue while the session is not connected, the peer does not read, the window of
unacknowledged messages is full, or the emulated service is busy. No newer delivery at QoS 1 or 2 overtakes one that
waits.
"""

from typing import TYPE_CHECKING

import mqtt5

from brokerbed.broker.core import lifetime, moving_queue, persist
from brokerbed.broker.core.link import NOTIFICATION, RESYNC, RETAINED, SESSION_MESSAGE, UNADVERTISED, Link
from brokerbed.broker.core.moving import moved_in
from brokerbed.broker.core.publish_packet import encoded
from brokerbed.broker.core.session import Delivery, Session, is_from
from brokerbed.broker.errors import ProtocolError
from brokerbed.broker.values import Message
from brokerbed.log.record import ADDITIONAL, DUPLICATE, REPLAY, RETAIN, UNADVERTISED_FLAG, WAITED, Kind, Reason

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker
    from brokerbed.broker.core.connection import Connection

QUEUED, SENT, ACKNOWLEDGED = map(int, (Kind.QUEUED, Kind.SENT, Kind.ACKNOWLEDGED))  # access to enum members is slow


def is_full(broker: "Broker", session: Session, message: Message, now_ns: int) -> bool:
    """Whether the message cannot wait for the session, by the limits of its queue or those of all queues."""
    is_own_full = is_queue_full(broker, session, message)
    return is_own_full or (session.link is None and broker.all_queues.are_full(message.size, now_ns))


def is_queue_full(broker: "Broker", session: Session, message: Message) -> bool:
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
    if link is None:
        if session.move is not None and moving_queue.keeps(broker, session, session.move, delivery, now_ns):
            return
    else:
        if delivery.is_notice:
            _deliver_notice(broker, session, link, delivery, now_ns)
            return
        if link.skips and is_from(delivery.message.publisher, link.skips):
            return
        if link.successor is not None:
            session, link = link.successor, link.successor.link
    if link is None or (demand := broker.config.service_link) is None:
        send_or_queue(broker, session, delivery, now_ns)
        return
    if len(link.staged) >= broker.config.queue_messages_max:
        drop(broker, session, delivery, Reason.QUEUE_FULL, now_ns)
        return
    copy, free_ns = copy_of(broker, delivery.message.topic), link.staged_free_ns
    due_ns, free_ns[copy] = lifetime.stage_end_ns(
        free_ns.get(copy, link.staged_floor_ns), now_ns, demand(), delivery.message.expires_at_ns
    )
    link.staged[delivery] = None
    if delivery.qos:
        persist.save_delivery(broker, session, delivery)
    log_queued(broker, session, delivery, now_ns)
    broker.at(due_ns, _link_service_done, (session, delivery))


def _deliver_notice(broker: "Broker", session: Session, link: Link, delivery: Delivery, now_ns: int) -> None:
    """A notice is served in no time, but nothing overtakes it, and it overtakes nothing."""
    if broker.config.service_link is None:
        send_or_queue(broker, session, delivery, now_ns)
        return
    due_ns = max(now_ns, link.staged_floor_ns, *link.staged_free_ns.values())
    link.staged_floor_ns = due_ns
    link.staged_free_ns.clear()
    link.staged[delivery] = None
    persist.save_delivery(broker, session, delivery)
    broker.at(due_ns, _link_service_done, (session, delivery))


def _link_service_done(broker: "Broker", in_service: tuple[Session, Delivery], due_ns: int) -> None:
    session, delivery = in_service
    if session.link is None or session.link.staged.pop(delivery, 0) is not None:
        return
    if lifetime.is_over(delivery.message.expires_at_ns, due_ns):
        drop(broker, session, delivery, Reason.EXPIRED, due_ns)
    else:
        send_or_queue(broker, session, delivery, due_ns)


def send_or_queue(broker: "Broker", session: Session, delivery: Delivery, now_ns: int) -> None:
    """Send the delivery now if nothing waits before it; queue it otherwise."""
    connection = session.connection
    if delivery.qos == 0 and connection is None and not session.is_ordered:
        drop(broker, session, delivery, Reason.OFFLINE, now_ns)
        return
    if delivery.qos == 0 and connection is not None and session.demand is None and not session.is_ordered:
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
    if lifetime.is_over(delivery.message.expires_at_ns, now_ns):
        drop(broker, session, delivery, Reason.EXPIRED, now_ns)
        return
    if delivery.is_notice:
        keep_order(session)
    elif not _has_room(broker, session, delivery, now_ns):
        drop(broker, session, delivery, Reason.QUEUE_FULL, now_ns)
        return
    delivery.queued_at_ns = now_ns
    session.push(delivery)
    die_in_time(broker, session, delivery, now_ns)
    if session.row_number:
        persist.save_delivery(broker, session, delivery)
    log_queued(broker, session, delivery, now_ns)
    if session.demand is not None:
        _start_service(broker, session, now_ns)


def _has_room(broker: "Broker", session: Session, delivery: Delivery, now_ns: int) -> bool:
    """Whether the queue has room for the delivery, for which older ones are dropped unless the policy forbids that."""
    while is_queue_full(broker, session, delivery.message):
        oldest = session.pop_unsent() if broker.config.queue_policy != "reject" else None
        if oldest is None:
            return False
        if not session.parked:  # then the dropped head of the queue was the delivery in service
            session.service_due_ns = session.service_left_ns = None
        drop(broker, session, oldest, Reason.QUEUE_FULL, now_ns)
    return session.link is not None or broker.all_queues.make_room(delivery.message.size, now_ns)


def die_in_time(broker: "Broker", session: Session, delivery: Delivery, now_ns: int) -> None:
    """Have a delivery that was put into the session's queue dropped when its time is over, if it still waits then."""
    expires_at_ns = delivery.message.expires_at_ns
    if expires_at_ns is not None:
        due_ns = max(now_ns, expires_at_ns)
        delivery.expiry_timer = broker.timers.later(due_ns, _lifetime_over, (session, delivery))


def _lifetime_over(broker: "Broker", waiting: tuple[Session, Delivery], due_ns: int) -> None:
    session, delivery = waiting
    is_first = session.queue[0] is delivery
    session.remove(delivery)
    drop(broker, session, delivery, Reason.EXPIRED, due_ns)
    if is_first and session.demand is not None:  # it was in service, which the next one may have from now on
        session.service_due_ns = session.service_left_ns = None
        _start_service(broker, session, due_ns)


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
    if session.is_ordered and connection is not None and not session.queue:
        _end_order(session, connection)


def keep_order(session: Session) -> None:
    """From now on nothing overtakes what waits in the queue, until that has been sent."""
    session.is_ordered = True
    if session.connection is not None:
        session.connection.update_is_simple()


def _end_order(session: Session, connection: "Connection") -> None:
    link = session.link
    if link is None or link.successor is None:  # else it is not this queue that has to be sent first
        session.is_ordered = False
        connection.update_is_simple()


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
    if message.expires_at_ns is not None and not is_resent:
        broker.timers.cancel(delivery.expiry_timer)
        if message.expires_at_ns <= now_ns:  # [MQTT-4.3.3-7]
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
    if delivery.is_notice:
        assert session.link is not None
        moved = moved_in(message.payload)
        session.link.sent[SESSION_MESSAGE if moved else RESYNC] += 0 if is_resent else max(1, moved)
    else:
        _count_sent(broker, session, delivery, is_resent, now_ns)
    broker.write(connection, output)


def _count_sent(broker: "Broker", session: Session, delivery: Delivery, is_resent: bool, now_ns: int) -> None:
    message = delivery.message
    broker.counters.messages_delivered += 1
    flags = RETAIN * delivery.retain | DUPLICATE * is_resent | REPLAY * (delivery.answers is not None)
    flags |= WAITED * delivery.has_waited
    if session.link is not None and not is_resent:  # a message that is resent is not counted twice
        kind = UNADVERTISED if message.is_unadvertised else NOTIFICATION
        session.link.sent[kind if delivery.answers is None else RETAINED] += 1
        flags |= ADDITIONAL * (message.is_additional and session.link.is_parent)
        flags |= UNADVERTISED_FLAG * message.is_unadvertised
    broker.log_message(now_ns, SENT, session.log_number, message, delivery.qos, 0, flags)


def _unadvertised(session: Session, delivery: Delivery) -> int:
    """The flag of messages to links that were not advertised."""
    return UNADVERTISED_FLAG if session.link is not None and delivery.message.is_unadvertised else 0


def drop(broker: "Broker", session: Session, delivery: Delivery, reason: Reason, now_ns: int) -> None:
    broker.counters.dropped[reason] += 1
    if reason == Reason.EXPIRED:
        broker.counters.expired["session" if session.link is None else "link"] += 1
    broker.timers.cancel(delivery.expiry_timer)
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
    if session.link is not None and session.link.moved_open:
        broker.session_moves.acknowledged(session, delivery, now_ns)
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


def log_queued(broker: "Broker", session: Session, delivery: Delivery, now_ns: int) -> None:
    flags = WAITED * delivery.has_waited | REPLAY * (delivery.answers is not None) | _unadvertised(session, delivery)
    broker.log_message(now_ns, QUEUED, session.log_number, delivery.message, delivery.qos, flags=flags)
    delivery.has_waited = True

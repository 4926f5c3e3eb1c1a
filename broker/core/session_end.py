"""How sessions lose their connections, wait for their clients, and end; wills are sent on the way."""

from typing import TYPE_CHECKING

import mqtt5

from brokerbed.broker.core import deliver, handle_publish, handle_subscribe, persist
from brokerbed.broker.core.session import Session
from brokerbed.broker.errors import ProtocolError
from brokerbed.broker.values import NS_PER_S, Message, properties_of
from brokerbed.log.record import Kind, Reason

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker
    from brokerbed.broker.core.connection import Connection

NEVER_S = 0xFFFF_FFFF  # the expiry interval of a session that does not expire
NORMAL, TAKEN_OVER = 0x00, 0x8E


def disconnect(broker: "Broker", connection: "Connection", packet: mqtt5.DisconnectPacket, now_ns: int) -> None:
    del now_ns
    session = connection.session
    assert session is not None
    if packet.session_expiry_interval is not None:
        if session.expiry_s == 0 and packet.session_expiry_interval > 0:
            raise ProtocolError("a session expiry interval at DISCONNECT where CONNECT had none")
        session.expiry_s = min(packet.session_expiry_interval, broker.config.session_expiry_max_s)
    if int(packet.reason_code) == NORMAL:
        connection.will = None  # [MQTT-3.14.4-3]; with any other reason code the will is published
    broker.end(connection)


def connection_ended(broker: "Broker", connection: "Connection", now_ns: int) -> None:
    if connection.is_waiting:
        broker.session_claims.gone(connection)
    if connection.session is None or connection.session.connection is not connection:
        return
    if connection.is_uplink:
        broker.overlay.lost(now_ns)
    else:
        detach(broker, connection, now_ns)


def detach(broker: "Broker", connection: "Connection", now_ns: int) -> None:
    """The session has lost its connection. It ends now, later or never, depending on its expiry interval."""
    session = connection.session
    assert session is not None
    deliver.disconnected(broker, session, now_ns)
    if session.link is not None:
        session.link.lost(now_ns)
    if connection.will is not None:
        delay_s = min(connection.will.will_delay_interval, session.expiry_s)
        session.will, connection.will = connection.will, None
        if delay_s == 0:
            _send_will(broker, session, now_ns)
        else:
            session.will_timer = broker.timers.later(now_ns + delay_s * NS_PER_S, _send_will, session)
    if session.expiry_s == 0:
        end_session(broker, session, now_ns)
        return
    begin_expiry(broker, session, None, now_ns)
    persist.save_session(broker, session)


def begin_expiry(broker: "Broker", session: Session, left_ns: int | None, now_ns: int) -> None:
    """The session is without a client: it expires after its interval, or after what is left of that."""
    if session.expiry_s != NEVER_S:
        session.expires_at_ns = now_ns + (session.expiry_s * NS_PER_S if left_ns is None else left_ns)
        expire_later(broker, session)


def expire_later(broker: "Broker", session: Session) -> None:
    assert session.expires_at_ns is not None
    session.expiry_timer = broker.timers.later(session.expires_at_ns, end_session, session)


def cancel_timers(broker: "Broker", session: Session) -> None:
    broker.timers.cancel(session.will_timer)
    broker.timers.cancel(session.expiry_timer)


def end_session(broker: "Broker", session: Session, now_ns: int) -> None:
    cancel_timers(broker, session)
    _send_will(broker, session, now_ns)
    sessions = broker.sessions if session.link is None else broker.links
    if sessions.get(session.client_id) is session:
        del sessions[session.client_id]
    persist.forget_session(broker, session)
    handle_subscribe.forget_all(broker, session, now_ns)
    for delivery in persist.deliveries(broker, session):
        deliver.drop(broker, session, delivery, Reason.SESSION_ENDED, now_ns)
    session.queue.clear()
    if session.link is not None:
        session.link.staged.clear()
    session.inflight.clear()
    session.expires_at_ns = None
    if session.move is not None:
        broker.session_moves.ended(session, now_ns)
    if session.link is not None:
        broker.session_moves.link_forgotten(session.link, now_ns)


def _send_will(broker: "Broker", session: Session, now_ns: int) -> None:
    will, session.will = session.will, None
    if will is None:
        return
    expiry_s = will.message_expiry_interval
    expires_at_ns = None if expiry_s is None else now_ns + expiry_s * NS_PER_S
    payload = will.payload or b""
    message = Message(will.topic, payload, int(will.qos), will.retain, session, properties_of(will), expires_at_ns)
    code = handle_publish.refusal(broker, session, message, now_ns)
    broker.identify(message)
    broker.log_message(now_ns, Kind.REJECTED if code else Kind.RECEIVED, session.log_number, message, message.qos, code)
    if code == 0:
        handle_publish.publish(broker, message, now_ns)


def take_over(broker: "Broker", session: Session, now_ns: int) -> None:
    """Its client has connected again, here or at another broker: the connection so far ends."""
    connection = session.connection
    if connection is None:
        return
    if connection.version == 5:
        broker.send(connection, mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode(TAKEN_OVER)))
    broker.end(connection)
    detach(broker, connection, now_ns)


def forget_will(broker: "Broker", session: Session) -> None:
    """The client is back: its will is not sent, and its session does not expire."""
    session.will = None
    cancel_timers(broker, session)


def forget_link(broker: "Broker", session: Session, now_ns: int) -> None:
    """A link that has moved is not used any more. The notice before has shown that the other end has got everything."""
    for delivery in persist.deliveries(broker, session):
        if not delivery.is_released and not delivery.is_notice:
            broker.log_message(now_ns, Kind.ACKNOWLEDGED, session.log_number, delivery.message, delivery.qos)
        broker.timers.cancel(delivery.expiry_timer)
        persist.forget_delivery(broker, delivery)
    session.queue.clear()
    session.inflight.clear()
    assert session.link is not None
    session.link.staged.clear()
    end_link(broker, session, now_ns)


def end_link(broker: "Broker", session: Session, now_ns: int) -> None:
    """End the session of a link, whose connection may not have ended yet."""
    connection = session.connection
    if connection is not None:
        deliver.disconnected(broker, session, now_ns)
        broker.end(connection)
    end_session(broker, session, now_ns)

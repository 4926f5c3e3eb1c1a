"""CONNECT, DISCONNECT and the end of connections: sessions begin, are taken over, wait and end; wills are sent."""

import hashlib
from typing import TYPE_CHECKING

import mqtt5

from broker.core import child_link, deliver, handle_publish, handle_subscribe, overlay, persist
from broker.core.connection import PACKET_BYTES_ANY
from broker.core.link import INSTANCE, LINK_ID, NAME, PATH, is_reserved, property_of
from broker.core.run import TAGGED
from broker.core.session import Session
from broker.errors import MalformedPacketError, MqttError, ProtocolError
from broker.log_record import Kind, Reason
from broker.mqtt import frames
from broker.routing.filters import topic_problem
from broker.values import NS_PER_S, Message, properties_of

if TYPE_CHECKING:
    from broker.core.broker import Broker
    from broker.core.connection import Connection

NEVER_S = 0xFFFF_FFFF  # a session that does not expire
ALIASES_MAX = 1000  # that we use towards one client, whatever it allows
CLIENT_ID_BYTES_MAX = 1024  # the standard demands 23
NORMAL, TAKEN_OVER, KEEP_ALIVE_OVER = 0x00, 0x8E, 0x8D


def first_packet(broker: "Broker", connection: "Connection", frame: bytes, now_ns: int) -> None:
    """The first packet must be CONNECT; its protocol level says which codec reads it."""
    if frame[0] != frames.CONNECT << 4:
        raise ProtocolError("the first packet must be CONNECT")
    found = frames.bounds(frame, 0, len(frame))
    assert found is not None
    body = found[0]
    name_end = body + 2 + int.from_bytes(frame[body : body + 2], "big")
    if name_end >= len(frame):
        raise MalformedPacketError("a CONNECT without a protocol level")
    name, level = frame[body + 2 : name_end], frame[name_end]
    if name == b"MQTT" and level >= 5:
        broker.choose_codec(connection, 5)
        if level > 5:
            raise MqttError("only MQTT 3.1, 3.1.1 and 5 are spoken here", 0x84)
    else:
        broker.choose_codec(connection, 3 if level & 0x7F == 3 else 4)
    assert connection.decode is not None
    packet = connection.decode(frame)
    assert isinstance(packet, mqtt5.ConnectPacket)
    connect(broker, connection, packet, now_ns)


def refuse(broker: "Broker", connection: "Connection", error: MqttError) -> None:
    """A CONNACK with the reason, if it was a CONNECT at all; a malformed one is not worth an answer [MQTT-3.1.4-1]."""
    if connection.version and not isinstance(error, MalformedPacketError | ProtocolError):
        broker.send(connection, mqtt5.ConnAckPacket(reason_code=mqtt5.ConnAckReasonCode(error.reason_code)))


def connect(broker: "Broker", connection: "Connection", packet: mqtt5.ConnectPacket, now_ns: int) -> None:
    config = broker.config
    if packet.max_packet_size is not None:
        connection.packet_bytes_max = packet.max_packet_size
    _check(connection, packet)
    _authenticate(broker, packet)
    connection.user = packet.username
    client_id = packet.client_id
    if not client_id:
        broker.assigned += 1
        client_id = _assigned_id(f"{config.id_token}/{broker.assigned}")
    is_link = _is_link(broker, connection, packet, now_ns)
    session, is_present = _session(broker, client_id, packet.clean_start, now_ns)
    expiry_s = min(packet.session_expiry_interval, config.session_expiry_max_s)
    keep_alive_s = packet.keep_alive
    if connection.version == 5 and config.keep_alive_max_s and not 0 < keep_alive_s <= config.keep_alive_max_s:
        keep_alive_s = config.keep_alive_max_s
    session.expiry_s = expiry_s
    session.expires_at_ns = None
    session.connection = connection
    connection.session = session
    persist.save_session(broker, session)
    connection.will = packet.will
    connection.inflight_max = min(config.inflight_max, packet.receive_max)
    connection.receive_max = overlay.WINDOW if is_link else config.receive_maximum
    connection.aliases_max = min(packet.topic_alias_max, ALIASES_MAX)
    connection.look()
    if keep_alive_s:
        connection.keep_alive_ns = keep_alive_s * NS_PER_S * 3 // 2  # [MQTT-3.1.2-22]
        broker.at(now_ns + connection.keep_alive_ns, _keep_alive, connection)
    acknowledgement = mqtt5.ConnAckPacket(
        session_present=is_present and connection.version > 3,  # 3.1 had no such flag
        session_expiry_interval=expiry_s if expiry_s != packet.session_expiry_interval else None,
        assigned_client_id=None if packet.client_id else client_id,
        server_keep_alive=keep_alive_s if keep_alive_s != packet.keep_alive else None,
        receive_max=connection.receive_max,
        topic_alias_max=config.topic_alias_maximum,
        max_packet_size=config.packet_bytes_max if config.packet_bytes_max < PACKET_BYTES_ANY else None,
        user_properties=[(NAME, config.name), (PATH, broker.overlay.own_path)] if is_link else [],
    )
    if connection.encode is not None and len(connection.encode(acknowledgement)) > connection.packet_bytes_max:
        broker.end(connection)  # not even this may be sent [MQTT-3.1.2-24]
        return
    broker.send(connection, acknowledgement)
    if is_link:
        child_link.accept_link(broker, session, packet, now_ns)
    if broker.log is not None:
        if not is_link:
            session.log_number = broker.log.number(client_id)
        broker.log.add(now_ns, Kind.CONNECTED, session.log_number, flags=is_present)
    deliver.resume(broker, session, now_ns)


def _assigned_id(unique: str) -> str:
    """Looks like Mosquitto's; nobody can guess another client's without knowing the broker's token."""
    digits = hashlib.sha256(unique.encode()).hexdigest()
    return f"auto-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"


def _check(connection: "Connection", packet: mqtt5.ConnectPacket) -> None:
    if packet.authentication_method is not None:
        raise MqttError("no extended authentication here", 0x8C)
    if not packet.client_id and (connection.version == 3 or (connection.version == 4 and not packet.clean_start)):
        raise MqttError("an empty client id needs a clean session", 0x85)  # [MQTT-3.1.3-8] of 3.1.1
    if len(packet.client_id.encode()) > CLIENT_ID_BYTES_MAX:
        raise MqttError(f"a client id of more than {CLIENT_ID_BYTES_MAX} bytes", 0x85)
    if packet.will is not None and (problem := topic_problem(packet.will.topic)):
        raise MalformedPacketError(f"will topic: {problem}")


def _is_link(broker: "Broker", connection: "Connection", packet: mqtt5.ConnectPacket, now_ns: int) -> bool:
    """A link says who it is, which no other client may; another process of that name is refused while one is live.

    Children speak often. One that has been silent for longer is gone, though its connection has not broken.
    """
    if not packet.client_id.startswith(LINK_ID):
        claims = [*packet.user_properties, *(packet.will.user_properties if packet.will is not None else ())]
        if is_reserved(claims):
            raise MqttError("user properties that only links may use", 0x87)
        return False
    if connection.is_wire:
        connection.form = TAGGED
    name = property_of(packet.user_properties, NAME)
    if name is None or packet.client_id != LINK_ID + name:
        raise MqttError("client ids that begin with $link/ are for links between brokers", 0x85)
    old = broker.sessions.get(packet.client_id)
    is_live = old is not None and old.connection is not None and now_ns - old.connection.last_ns < overlay.SILENT_NS
    live = old.link if old is not None and is_live else None
    if live is not None and live.instance != property_of(packet.user_properties, INSTANCE):
        raise MqttError(f"a child called {name} is connected already", 0x85)
    return True


def _authenticate(broker: "Broker", packet: mqtt5.ConnectPacket) -> None:
    users = broker.config.users
    if packet.username is None:
        if not broker.config.allow_anonymous:
            raise MqttError("a user name and a password are needed", 0x87)
    elif users is not None and not users.accepts(packet.username, packet.password):
        raise MqttError("user name or password are wrong", 0x86)


def _session(broker: "Broker", client_id: str, clean_start: bool, now_ns: int) -> tuple[Session, bool]:
    """The session to go on with, and whether it was there before."""
    old = broker.sessions.get(client_id)
    if old is not None and old.connection is not None:
        taken = old.connection
        if taken.version == 5:
            broker.send(taken, mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode(TAKEN_OVER)))
        broker.end(taken)
        _detach(broker, taken, now_ns)
    old = broker.sessions.get(client_id)
    if old is not None and not clean_start:
        old.will = old.will_due_ns = None  # it is back before its will was due
        return old, True
    if old is not None:
        end_session(broker, old, now_ns)
    config = broker.config
    is_link = client_id.startswith(LINK_ID)
    demand = None if is_link else config.session_service.get(client_id)
    session = Session(client_id, demand, is_link and config.service_link is not None)
    broker.sessions[client_id] = session
    return session, False


def disconnect(broker: "Broker", connection: "Connection", packet: mqtt5.DisconnectPacket, now_ns: int) -> None:
    del now_ns
    session = connection.session
    assert session is not None
    if packet.session_expiry_interval is not None:
        if session.expiry_s == 0 and packet.session_expiry_interval > 0:
            raise ProtocolError("a session expiry interval at DISCONNECT where CONNECT had none")
        session.expiry_s = min(packet.session_expiry_interval, broker.config.session_expiry_max_s)
    if int(packet.reason_code) == NORMAL:
        connection.will = None  # [MQTT-3.14.4-3]; any other reason publishes it
    broker.end(connection)


def connection_ended(broker: "Broker", connection: "Connection", now_ns: int) -> None:
    if connection.session is None or connection.session.connection is not connection:
        return
    if connection.is_uplink:
        broker.overlay.lost(now_ns)
    else:
        _detach(broker, connection, now_ns)


def _detach(broker: "Broker", connection: "Connection", now_ns: int) -> None:
    """The session is without a connection from now on; it ends now, later or never."""
    session = connection.session
    assert session is not None
    deliver.disconnected(broker, session, now_ns)
    if connection.will is not None:
        delay_s = min(connection.will.will_delay_interval, session.expiry_s)
        session.will, connection.will = connection.will, None
        session.will_due_ns = now_ns + delay_s * NS_PER_S
        if delay_s == 0:
            _send_will(broker, session, now_ns)
        else:
            broker.at(session.will_due_ns, _will_due, session)
    if session.expiry_s == 0:
        end_session(broker, session, now_ns)
        return
    if session.expiry_s != NEVER_S:
        session.expires_at_ns = now_ns + session.expiry_s * NS_PER_S
        expire_later(broker, session)
    persist.save_session(broker, session)


def expire_later(broker: "Broker", session: Session) -> None:
    assert session.expires_at_ns is not None
    broker.at(session.expires_at_ns, _session_due, session)


def end_session(broker: "Broker", session: Session, now_ns: int) -> None:
    _send_will(broker, session, now_ns)
    broker.sessions.pop(session.client_id, None)
    persist.forget_session(broker, session)
    handle_subscribe.forget_all(broker, session, now_ns)
    for delivery in session.deliveries():
        deliver.drop(broker, session, delivery, Reason.SESSION_ENDED, now_ns)
    session.queue.clear()
    if session.link is not None:
        session.link.staged.clear()
    session.inflight.clear()
    session.expires_at_ns = None


def _send_will(broker: "Broker", session: Session, now_ns: int) -> None:
    will, session.will, session.will_due_ns = session.will, None, None
    if will is None:
        return
    expiry_s = will.message_expiry_interval
    expires_at_ns = None if expiry_s is None else now_ns + expiry_s * NS_PER_S
    payload = will.payload or b""
    message = Message(will.topic, payload, int(will.qos), will.retain, session, properties_of(will), expires_at_ns)
    broker.identify(message)
    broker.log_message(now_ns, Kind.RECEIVED, session.log_number, message, message.qos)
    handle_publish.publish(broker, message, now_ns)


def _will_due(broker: "Broker", session: Session, due_ns: int) -> None:
    if session.will_due_ns == due_ns:
        _send_will(broker, session, due_ns)


def _session_due(broker: "Broker", session: Session, due_ns: int) -> None:
    if session.expires_at_ns == due_ns and session.connection is None:
        end_session(broker, session, due_ns)


def _keep_alive(broker: "Broker", connection: "Connection", due_ns: int) -> None:
    """Fires once per period; a client that was heard since is left alone until its own time is over."""
    if connection.is_closing or connection not in broker.connections:
        return
    ends_ns = connection.last_ns + connection.keep_alive_ns
    if ends_ns > due_ns:
        broker.at(ends_ns, _keep_alive, connection)
        return
    if connection.version == 5:
        broker.send(connection, mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode(KEEP_ALIVE_OVER)))
    broker.end(connection)

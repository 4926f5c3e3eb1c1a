"""CONNECT, DISCONNECT and lost connections: sessions begin, are taken over, wait and end, and wills are sent."""

import hashlib
from typing import TYPE_CHECKING

import mqtt5

from brokerbed.broker.core import (
    child_link,
    deliver,
    introduction,
    link_proof,
    login,
    overlay,
    persist,
    session_end,
)
from brokerbed.broker.core.access import may_publish, may_subscribe
from brokerbed.broker.core.connection import PACKET_BYTES_ANY
from brokerbed.broker.core.link import (
    INSTANCE,
    LINK_ID,
    NAME,
    NAME_BYTES_MAX,
    PACKET_IDS,
    is_reserved,
    property_of,
)
from brokerbed.broker.core.link_proof import Challenge
from brokerbed.broker.core.moving import ClaimKey
from brokerbed.broker.core.run import OBJECT, TAGGED
from brokerbed.broker.core.session import Session
from brokerbed.broker.errors import MalformedPacketError, MqttError, ProtocolError
from brokerbed.broker.mqtt import frames
from brokerbed.broker.routing.strategy import Advertising
from brokerbed.broker.values import NS_PER_S
from brokerbed.log.record import Kind
from brokerbed.topics import topic_problem

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker
    from brokerbed.broker.core.connection import Connection

ALIASES_MAX = 1000  # topic aliases that we use towards one client, even if it allows more
CLIENT_ID_BYTES_MAX = 1024  # the standard requires at least 23
KEEP_ALIVE_OVER = 0x8D


def first_packet(broker: "Broker", connection: "Connection", frame: bytes, now_ns: int) -> None:
    """Handle the first packet, which must be CONNECT. Its protocol level determines the codec."""
    if frame[0] != frames.CONNECT << 4:
        raise ProtocolError("the first packet must be CONNECT")
    bounds = frames.bounds(frame, 0, len(frame))
    assert bounds is not None
    body = bounds[0]
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
    """Send a CONNACK with the reason, if the client's version is known.

    Before version 5, a malformed CONNECT is not answered: the connection is just closed [MQTT-3.1.4-1].
    """
    is_malformed = isinstance(error, MalformedPacketError | ProtocolError)
    if connection.version == 5 or (connection.version and not is_malformed):
        broker.send(connection, mqtt5.ConnAckPacket(reason_code=mqtt5.ConnAckReasonCode(error.reason_code)))


def connect(broker: "Broker", connection: "Connection", packet: mqtt5.ConnectPacket, now_ns: int) -> None:
    """Handle a CONNECT. A link that must prove the secret is challenged first, and accepted when it has answered."""
    config = broker.config
    broker.connecting.pop(connection, None)
    if packet.max_packet_size is not None:
        connection.packet_bytes_max = packet.max_packet_size
    _check(connection, packet)
    admission = config.admission(connection.listener)
    if packet.client_id.startswith(LINK_ID):
        _connect_link(broker, connection, packet, admission.links_only, now_ns)
    elif admission.links_only:
        raise MqttError("only links may connect here", 0x87)
    else:
        _check_claims(packet)
        login.begin(broker, connection, packet, now_ns)


def _connect_link(
    broker: "Broker", connection: "Connection", packet: mqtt5.ConnectPacket, links_only: bool, now_ns: int
) -> None:
    name, secret = _link_name(packet), broker.config.link_secret
    if links_only and connection.certificate_name != name:
        raise MqttError("the certificate of a link must be for the name of its broker", 0x87)
    if links_only and packet.authentication_method is None:
        accept(broker, connection, packet, True, now_ns)
    elif secret is None:
        if packet.authentication_method is not None:
            raise MqttError("this broker has no link secret", 0x8C)
        if broker.config.proves_links:
            raise MqttError("links need a certificate, on the listener that is for links only", 0x87)
        if not connection.is_local:
            raise MqttError("links from other machines need a link secret", 0x87)
        login.begin(broker, connection, packet, now_ns)
    elif packet.authentication_method != link_proof.METHOD:
        raise MqttError("a link must prove that it knows the link secret", 0x87)
    else:
        challenge = Challenge(secret, name, packet.authentication_data or b"", link_proof.nonce(broker))
        connection.challenge = packet, challenge
        broker.send(connection, link_proof.auth_packet(challenge.parent_answer()))


def logged_in(broker: "Broker", connection: "Connection", packet: mqtt5.ConnectPacket, now_ns: int) -> None:
    """Accept a client, or a link that is an ordinary user, which has shown who it is."""
    if packet.client_id.startswith(LINK_ID):
        algorithm = broker.overlay.algorithm
        gets_everything = not algorithm.stores_entries or algorithm.advertising is Advertising.EVERYWHERE
        if gets_everything and not may_subscribe(broker.config.access, packet.username, packet.client_id, "#"):
            raise MqttError("under this algorithm a link may get everything, which this user must not read", 0x87)
    accept(broker, connection, packet, False, now_ns)


def authenticated(broker: "Broker", connection: "Connection", packet: mqtt5.Packet, now_ns: int) -> None:
    """Check a link's answer to its challenge."""
    assert connection.challenge is not None
    (connect_packet, challenge), connection.challenge = connection.challenge, None
    if not isinstance(packet, mqtt5.AuthPacket) or not challenge.accepts(packet.authentication_data or b""):
        raise MqttError("the link does not know the link secret", 0x87)
    accept(broker, connection, connect_packet, True, now_ns)


def accept(
    broker: "Broker",
    connection: "Connection",
    packet: mqtt5.ConnectPacket,
    is_proven: bool,
    now_ns: int,
    claim: ClaimKey | None = None,
    is_lost: bool = False,
) -> None:
    """Send a CONNACK, and resume or begin the session. `is_proven`: this is a link that has proved the secret.

    A client that keeps its session may have one at another broker, so it waits first, and then there is a claim.
    `is_lost`: the session that the client had is not here, even if a new one is.
    """
    config = broker.config
    client_id = packet.client_id
    is_link = client_id.startswith(LINK_ID)
    if is_link:
        _check_only_child(broker, packet, now_ns)
        connection.form = TAGGED if connection.is_wire else OBJECT
        connection.carries_expiry = config.is_testbed
        if is_proven and client_id in broker.links:
            broker.links[client_id].user = None  # the session may have had a user before there was a secret
    elif not client_id:
        broker.client_ids_assigned += 1
        client_id = _assigned_id(f"{config.id_token}/{broker.client_ids_assigned}")
    user = packet.username if config.distinguishes_users and not is_proven else None
    access = None if is_proven else config.access
    if packet.will is not None and not may_publish(access, user, client_id, packet.will.topic):
        raise MqttError("a will on a topic that this client must not publish to", 0x87)
    claims = broker.session_claims
    if claim is None and not is_link:
        if not packet.clean_start and packet.client_id and claims.must_wait(client_id, _expiry_s(broker, packet)):
            claims.wait(connection, packet, user, now_ns)
            return
        claim = claims.connected(client_id, user, now_ns)
    session, is_present = _session(broker, client_id, user, packet.clean_start, now_ns)
    if claim is not None:
        session.claimed = max(session.claimed, claim)
    session.access = access
    _connected(broker, connection, session, packet, is_present and not is_lost, now_ns)


def _expiry_s(broker: "Broker", packet: mqtt5.ConnectPacket) -> int:
    return min(packet.session_expiry_interval, broker.config.session_expiry_max_s)


def _connected(
    broker: "Broker",
    connection: "Connection",
    session: Session,
    packet: mqtt5.ConnectPacket,
    is_present: bool,
    now_ns: int,
) -> None:
    """A client or a child is connected to its session. `is_present`: the session is not a new one."""
    config, is_link = broker.config, session.link is not None
    expiry_s = session.expiry_s = _expiry_s(broker, packet)
    keep_alive_s = _keep_alive_s(connection, packet.keep_alive, config.keep_alive_max_s)
    session.expires_at_ns = None
    session.connection = connection
    connection.session = session
    persist.save_session(broker, session)
    connection.will = packet.will
    connection.inflight_max = min(config.inflight_max, packet.receive_max)
    connection.receive_max = _receive_max(connection, config.receive_maximum, is_link)
    connection.aliases_max = min(packet.topic_alias_max, ALIASES_MAX)
    connection.update_is_simple()
    broker.timers.cancel(connection.timer)
    if keep_alive_s:
        connection.keep_alive_ns = keep_alive_s * NS_PER_S * 3 // 2  # [MQTT-3.1.2-22]
        connection.timer = broker.timers.later(now_ns + connection.keep_alive_ns, _keep_alive, connection)
    acknowledgement = mqtt5.ConnAckPacket(
        session_present=is_present and connection.version > 3,  # MQTT 3.1 has no such flag
        session_expiry_interval=expiry_s if expiry_s != packet.session_expiry_interval else None,
        assigned_client_id=None if packet.client_id else session.client_id,
        server_keep_alive=keep_alive_s if keep_alive_s != packet.keep_alive else None,
        receive_max=connection.receive_max,
        topic_alias_max=config.topic_alias_maximum,
        max_packet_size=config.packet_bytes_max if config.packet_bytes_max < PACKET_BYTES_ANY else None,
        authentication_method=packet.authentication_method,
        user_properties=broker.overlay.introduction.own_properties() if is_link else [],
    )
    if connection.encode is not None and len(connection.encode(acknowledgement)) > connection.packet_bytes_max:
        broker.end(connection)  # even the CONNACK is larger than the client allows [MQTT-3.1.2-24]
        return
    broker.send(connection, acknowledgement)
    if is_link:
        child_link.accept_link(broker, session, packet, is_present, now_ns)
    if broker.log is not None:
        if not is_link:
            session.log_number = broker.log.number(session.client_id)
        broker.log.add(now_ns, Kind.CONNECTED, session.log_number, flags=is_present)
    deliver.resume(broker, session, now_ns)
    if session.move is not None:
        broker.session_moves.stay(session, now_ns)
    broker.overlay.resynchronise(session, now_ns)


def _receive_max(connection: "Connection", configured: int, is_link: bool) -> int:
    """How many unreleased QoS 2 messages the client may have.

    Before version 5 a client cannot be told, so it may use all packet ids. Each such message costs only its id.
    """
    if is_link:
        return introduction.WINDOW
    return configured if connection.version == 5 else PACKET_IDS


def _keep_alive_s(connection: "Connection", wanted_s: int, max_s: int) -> int:
    """The keep-alive that the client asked for, or less if its version allows the broker to say so."""
    return max_s if connection.version == 5 and max_s and not 0 < wanted_s <= max_s else wanted_s


def _assigned_id(unique: str) -> str:
    """A client id in Mosquitto's format. Nobody can guess another client's id without knowing the broker's token."""
    digits = hashlib.sha256(unique.encode()).hexdigest()
    return f"auto-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:32]}"


def _check(connection: "Connection", packet: mqtt5.ConnectPacket) -> None:
    if packet.authentication_method is not None and not packet.client_id.startswith(LINK_ID):
        raise MqttError("no enhanced authentication here but for links", 0x8C)
    if not packet.client_id and (connection.version == 3 or (connection.version == 4 and not packet.clean_start)):
        raise MqttError("an empty client id needs a clean session", 0x85)  # [MQTT-3.1.3-8] of 3.1.1
    if len(packet.client_id.encode()) > CLIENT_ID_BYTES_MAX:
        raise MqttError(f"a client id of more than {CLIENT_ID_BYTES_MAX} bytes", 0x85)
    if packet.will is not None and (problem := topic_problem(packet.will.topic)):
        raise MalformedPacketError(f"will topic: {problem}")


def _check_claims(packet: mqtt5.ConnectPacket) -> None:
    claims = [*packet.user_properties, *(packet.will.user_properties if packet.will is not None else ())]
    if is_reserved(claims):
        raise MqttError("user properties that only links may use", 0x87)


def _link_name(packet: mqtt5.ConnectPacket) -> str:
    """The child's name, which a link gives in its CONNECT. Ordinary clients cannot use the client id of a link."""
    name = property_of(packet.user_properties, NAME)
    if name is None or packet.client_id != LINK_ID + name or len(name.encode()) > NAME_BYTES_MAX:
        raise MqttError("client ids that begin with $link/ are for links between brokers", 0x85)
    return name


def _check_only_child(broker: "Broker", packet: mqtt5.ConnectPacket, now_ns: int) -> None:
    """Refuse a second process with the name of a child that is still alive.

    Children send often. One that has been silent for longer is taken for dead even if its connection has not broken.
    """
    old = broker.links.get(packet.client_id)
    is_live = old is not None and old.connection is not None and now_ns - old.connection.last_ns < overlay.SILENT_NS
    live = old.link if old is not None and is_live else None
    if live is not None and live.instance != property_of(packet.user_properties, INSTANCE):
        raise MqttError(f"a child called {live.peer} is connected already", 0x85)


def _check_owner(broker: "Broker", old: Session, user: str | None) -> None:
    """A session belongs to its user: as long as that user can log in, no other user may take it over or end it."""
    if old.user != user and broker.config.may_log_in(old.user):
        raise MqttError("a session with this client id belongs to another user", 0x85)


def _session(
    broker: "Broker", client_id: str, user: str | None, clean_start: bool, now_ns: int
) -> tuple[Session, bool]:
    """The session for a client id, and whether it existed before."""
    is_link = client_id.startswith(LINK_ID)
    sessions = broker.links if is_link else broker.sessions
    old = sessions.get(client_id)
    if old is not None:
        _check_owner(broker, old, user)
    if old is not None:
        session_end.take_over(broker, old, now_ns)
    old = sessions.get(client_id)
    if old is not None and not clean_start and old.user == user:
        session_end.forget_will(broker, old)  # the client is back before it was due
        return old, True
    if old is not None:
        session_end.end_session(broker, old, now_ns)
    config = broker.config
    demand = None if is_link else config.session_service.get(client_id)
    session = Session(client_id, demand, is_link and config.service_link is not None)
    session.user, session.is_clean = user, clean_start
    if is_link:
        broker.overlay.open_link(session, client_id.removeprefix(LINK_ID), is_parent=False)
    sessions[client_id] = session
    return session, False


def _keep_alive(broker: "Broker", connection: "Connection", due_ns: int) -> None:
    """Runs about once per keep-alive period. If the client has sent anything since, the timer is set again."""
    if connection.is_closing:
        return
    ends_ns = connection.last_ns + connection.keep_alive_ns
    if ends_ns > due_ns:
        connection.timer = broker.timers.later(ends_ns, _keep_alive, connection)
        return
    if connection.version == 5:
        broker.send(connection, mqtt5.DisconnectPacket(reason_code=mqtt5.DisconnectReasonCode(KEEP_ALIVE_OVER)))
    broker.end(connection)

"""Other passwords and access rules come into force while clients are connected.

A client is disconnected if it could not log in as it did: its user is gone or has another password, or clients without
a user name are not let in any more. Its will is not published. Everybody else stays connected, under the new rules:
subscriptions, advertisements and waiting messages that the rules do not allow are dropped, as when a broker starts with
other rules than before. A message that was sent and is not acknowledged yet completes its handshake.
"""

from typing import TYPE_CHECKING

import mqtt5

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.core import advertisements, deliver, handle_subscribe, persist
from brokerbed.broker.core.access import may_publish, may_subscribe
from brokerbed.broker.core.session import Delivery, Session
from brokerbed.broker.core.subscriptions import split_share
from brokerbed.broker.values import advertisement
from brokerbed.log.record import Reason

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker
    from brokerbed.broker.core.connection import Connection

NOT_AUTHORIZED = mqtt5.DisconnectReasonCode(0x87)


def apply(broker: "Broker", config: BrokerConfig, now_ns: int) -> int:
    """Returns how many clients were disconnected."""
    old, broker.config = broker.config, config
    ended = 0
    for connection in list(broker.connections):
        if connection.is_closing or connection.is_uplink or _may_stay(old, config, connection):
            continue
        if connection.session is not None:
            ended += 1
            connection.will = None
            if connection.version == 5:
                broker.send(connection, mqtt5.DisconnectPacket(reason_code=NOT_AUTHORIZED))
        broker.end(connection)
    links = [] if config.proves_links else list(broker.links.values())
    if old.access is not None or config.access is not None:
        for session in [*broker.sessions.values(), *links]:
            session.access = config.access
            if not config.may_log_in(session.user):
                session.will = None
            if config.access is not None:
                _forbid(broker, session, now_ns)
    return ended


def _may_stay(old: BrokerConfig, new: BrokerConfig, connection: "Connection") -> bool:
    session = connection.session
    if session is None:  # one whose CONNECT is being decided has to come again
        return not connection.is_waiting and connection.challenge is None
    if session.link is not None and new.proves_links:
        return True
    if old.distinguishes_users != new.distinguishes_users:  # nobody knows who is who
        return False
    user, before, after = session.user, old.admission(connection.listener), new.admission(connection.listener)
    if user is None or after.users is None:
        return after.may_log_in(user, new.access is not None)
    known = before.users.passwords.get(user) if before.users is not None else None
    return known is not None and after.users.passwords.get(user) == known


def _forbid(broker: "Broker", session: Session, now_ns: int) -> None:
    """Drop what a session has and may not have any more."""
    client = session.access, session.user, session.client_id
    if session.link is not None:
        for entry in [it for it in session.link.entries if not may_subscribe(*client, it.filter)]:
            handle_subscribe.remove_entry(broker, session, entry, False, now_ns)
    else:
        for pattern in [it for it in session.subscriptions if not may_subscribe(*client, split_share(it)[1])]:
            handle_subscribe.remove(broker, session, pattern, [], now_ns)
        publisher = session.publisher
        for topics in [] if publisher is None else [it for it in publisher.filters if not may_publish(*client, it)]:
            advertisements.remove(broker, session, advertisement(topics), False, now_ns)
    if session.move is None:  # a session that moves is checked where it arrives
        _drop_unreadable(broker, session, now_ns)


def _drop_unreadable(broker: "Broker", session: Session, now_ns: int) -> None:
    """Drop waiting messages that the session may not read, and if it is not connected, those that were sent."""
    readable: dict[str, bool] = {}

    def is_readable(delivery: Delivery) -> bool:
        topic = delivery.message.topic
        if delivery.is_notice:
            return True
        if topic not in readable:
            readable[topic] = may_subscribe(session.access, session.user, session.client_id, topic)
        return readable[topic]

    waiting = list(session.queue)
    dropped = [delivery for delivery in waiting if not is_readable(delivery)]
    if dropped:
        session.queue.clear()
        session.queue.extend(delivery for delivery in waiting if readable.get(delivery.message.topic, True))
        session.queue_bytes -= sum(delivery.message.size for delivery in dropped)
        session.service_due_ns = session.service_left_ns = None  # if it was one of these that was served
    if session.connection is None:
        for packet_id, delivery in list(persist.deliveries_in_flight(broker, session).items()):
            if not delivery.is_released and not is_readable(delivery):
                del session.inflight[packet_id]
                dropped.append(delivery)
    for delivery in dropped:
        deliver.drop(broker, session, delivery, Reason.NOT_AUTHORIZED, now_ns)
    if dropped:
        deliver.pump(broker, session, now_ns)

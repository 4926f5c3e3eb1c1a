"""SUBSCRIBE and UNSUBSCRIBE, and the retained messages that a new subscription gets."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import mqtt5

from broker.core.access import READ
from broker.core.deliver import deliver
from broker.core.session import Delivery
from broker.core.subscriptions import SHARE, Subscription, split_share
from broker.errors import MalformedPacketError, ProtocolError
from broker.log_record import Kind
from broker.routing.filters import filter_problem, is_wildcard, matches
from broker.values import Message

if TYPE_CHECKING:
    from broker.core.broker import Broker
    from broker.core.connection import Connection
    from broker.core.session import Session

_GRANTED = (
    mqtt5.SubAckReasonCode.GRANTED_QOS_AT_MOST_ONCE,
    mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE,
    mqtt5.SubAckReasonCode.GRANTED_QOS_EXACTLY_ONCE,
)
ALWAYS, IF_NEW = 0, 1  # retain handling


def subscribe(broker: "Broker", connection: "Connection", packet: mqtt5.SubscribePacket, now_ns: int) -> None:
    session = connection.session
    assert session is not None
    codes = []
    wants_retained: list[Subscription] = []
    for wanted in packet.topic_filters:
        code = _refusal(broker, connection, session, wanted)
        if code is not None:
            codes.append(code)
            continue
        is_new = wanted.pattern not in session.subscriptions
        qos, retain_handling = int(wanted.max_qos), int(wanted.retain_handling)
        subscription = Subscription(
            session, wanted.pattern, qos, wanted.no_local, wanted.retain_as_published,
            packet.subscription_id or 0,
        )  # fmt: skip
        session.subscriptions[wanted.pattern] = subscription
        broker.subscriptions.add(subscription)
        codes.append(_GRANTED[qos])
        if is_new and broker.log is not None:
            number = broker.log.number(wanted.pattern)
            broker.log.add(now_ns, Kind.SUBSCRIBED, session.log_number, number, qos=qos)
        is_wanted = retain_handling == ALWAYS or (retain_handling == IF_NEW and is_new)
        if is_wanted and not wanted.pattern.startswith(SHARE):
            wants_retained.append(subscription)
    broker.send(connection, mqtt5.SubAckPacket(packet.packet_id, codes))
    for subscription in wants_retained:
        _send_retained(broker, session, subscription, now_ns)


def unsubscribe(broker: "Broker", connection: "Connection", packet: mqtt5.UnsubscribePacket, now_ns: int) -> None:
    session = connection.session
    assert session is not None
    codes = []
    for pattern in packet.patterns:
        if problem := filter_problem(split_share(pattern)[1]):
            raise MalformedPacketError(problem)
        if session.subscriptions.pop(pattern, None) is None:
            codes.append(mqtt5.UnsubAckReasonCode.NO_SUBSCRIPTION_EXISTED)
            continue
        broker.subscriptions.remove(session, pattern)
        codes.append(mqtt5.UnsubAckReasonCode.SUCCESS)
        if broker.log is not None:
            broker.log.add(now_ns, Kind.UNSUBSCRIBED, session.log_number, broker.log.number(pattern))
    broker.send(connection, mqtt5.UnsubAckPacket(packet.packet_id, codes))


def _refusal(
    broker: "Broker", connection: "Connection", session: "Session", wanted: mqtt5.TopicFilter
) -> mqtt5.SubAckReasonCode | None:
    pattern = wanted.pattern
    if pattern.startswith(SHARE):
        group, pattern = split_share(pattern)
        if not group or not pattern or is_wildcard(group):
            return mqtt5.SubAckReasonCode.TOPIC_FILTER_INVALID
        if wanted.no_local:
            raise ProtocolError("No Local on a shared subscription")  # [MQTT-3.8.3-4]
    if problem := filter_problem(pattern):
        raise MalformedPacketError(problem)
    access = broker.config.access
    if access is not None and not access.allows(READ, connection.user, session.client_id, pattern):
        return mqtt5.SubAckReasonCode.NOT_AUTHORIZED
    if len(session.subscriptions) >= broker.config.subscriptions_max and wanted.pattern not in session.subscriptions:
        return mqtt5.SubAckReasonCode.QUOTA_EXCEEDED
    return None


def _send_retained(broker: "Broker", session: "Session", subscription: Subscription, now_ns: int) -> None:
    identifiers = (subscription.identifier,) if subscription.identifier else ()
    for message in _retained(broker, subscription.filter, now_ns):
        qos = min(message.qos, subscription.qos)
        deliver(broker, session, Delivery(message, qos, True, identifiers), now_ns)


def _retained(broker: "Broker", topic_filter: str, now_ns: int) -> Iterator[Message]:
    if is_wildcard(topic_filter):
        found = [message for topic, message in broker.retained.items() if matches(topic_filter, topic)]
    else:
        found = [broker.retained[topic_filter]] if topic_filter in broker.retained else []
    for message in found:
        if message.expires_at_ns is not None and message.expires_at_ns <= now_ns:
            del broker.retained[message.topic]
        else:
            yield message

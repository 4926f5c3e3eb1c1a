"""Handles SUBSCRIBE and UNSUBSCRIBE, announcements of neighbours, and retained messages for new subscriptions."""

from collections.abc import Iterator
from itertools import takewhile
from typing import TYPE_CHECKING

import mqtt5

from brokerbed.broker.core import advertisements, child_link, persist
from brokerbed.broker.core.access import may_subscribe
from brokerbed.broker.core.announcements import Change
from brokerbed.broker.core.deliver import deliver
from brokerbed.broker.core.link import IDENTITY, RESYNC, RESYNCS, is_reserved, property_of
from brokerbed.broker.core.session import Delivery, Session
from brokerbed.broker.core.subscriptions import SHARE, Subscription, split_share
from brokerbed.broker.errors import MalformedPacketError, ProtocolError
from brokerbed.broker.values import ANSWERED, REQUESTED, Entry, Message
from brokerbed.log.record import Kind
from brokerbed.topics import ADVERTISE, filter_problem, is_wildcard, matches

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker
    from brokerbed.broker.core.connection import Connection

_GRANTED = (
    mqtt5.SubAckReasonCode.GRANTED_QOS_AT_MOST_ONCE,
    mqtt5.SubAckReasonCode.GRANTED_QOS_AT_LEAST_ONCE,
    mqtt5.SubAckReasonCode.GRANTED_QOS_EXACTLY_ONCE,
)
ALWAYS, IF_NEW, NEVER = 0, 1, 2  # values of the retain handling option


def subscribe(broker: "Broker", connection: "Connection", packet: mqtt5.SubscribePacket, now_ns: int) -> None:
    session = connection.session
    assert session is not None
    if session.link is not None:
        persist.save_received_id(broker, session, packet.packet_id)
    codes = []
    wants_retained: list[Subscription] = []
    for wanted in packet.topic_filters:
        is_advertised = wanted.pattern[:1] == "$" and _is_advertised(session, wanted.pattern)
        code = _refusal(broker, session, wanted)
        if session.link is None and is_reserved(packet.user_properties):
            code = mqtt5.SubAckReasonCode.NOT_AUTHORIZED
        if code is not None:
            codes.append(code)
            continue
        qos, retain_handling = int(wanted.max_qos), int(wanted.retain_handling)
        if is_advertised:
            codes.append(_GRANTED[qos])
            entry = Entry(wanted.pattern)
            advertisements.add(broker, session, entry, _is_resync(packet.user_properties), now_ns)
            continue
        subscription = Subscription(
            session, wanted.pattern, qos, wanted.no_local, wanted.retain_as_published, packet.subscription_id or 0
        )
        subscription.wants_retained = retain_handling != NEVER
        is_new = add(broker, subscription, packet.user_properties, now_ns)
        codes.append(_GRANTED[qos])
        is_wanted = retain_handling == ALWAYS or (retain_handling == IF_NEW and is_new)
        if is_wanted and not wanted.pattern.startswith(SHARE):
            wants_retained.append(subscription)
    broker.send(connection, mqtt5.SubAckPacket(packet.packet_id, codes))
    for subscription in wants_retained:
        broker.retained_scans.send_to(subscription, now_ns)


def _is_advertised(session: Session, pattern: str) -> bool:
    """Whether this is no subscription but an advertisement or, from a neighbour, an answer or a request."""
    return pattern.startswith(ADVERTISE if session.link is None else (ADVERTISE, ANSWERED, REQUESTED))


def add(broker: "Broker", subscription: Subscription, properties: list[tuple[str, str]], now_ns: int) -> bool:
    """Add a subscription to the table, and tell the routing strategy if it is new; returns whether it is new.

    A repeated SUBSCRIBE is not a new subscription.
    """
    session, topic_filter = subscription.session, subscription.filter
    old = session.subscriptions.get(topic_filter)
    if session.link is not None:
        subscription.identity = child_link.identity_of(broker, session, properties)
        entry = Entry(topic_filter, subscription.identity)
        is_new = session.link.entries.pop(entry, None) is None
        session.link.entries[entry] = now_ns  # moved to the end of the dictionary: see Overlay._watch_stale
        if is_new:
            persist.save_entry(broker, session, entry)
            if session.link.entry_index is not None:
                session.link.entry_index.add(topic_filter)
        subscription.entry_count = (old.entry_count if old else 0) + is_new
    else:
        is_new = old is None
        known = old.identity if old else subscription.identity  # a session that comes from another broker has them
        subscription.identity = known or child_link.identity_of(broker, session, properties)
    session.subscriptions[topic_filter] = subscription
    broker.subscriptions.add(subscription)
    subscription.row_number = old.row_number if old else 0
    persist.save_subscription(broker, subscription)
    if is_new:
        broker.subscriptions_held += session.link is None
        _log(broker, Kind.SUBSCRIBED, session, topic_filter, subscription.qos, now_ns)
        if (plain := child_link.plain_filter(topic_filter)) is not None:
            entry = Entry(plain, subscription.identity)
            broker.overlay.heard(session.link, entry, True, _is_resync(properties), now_ns, subscription)
    if session.link is not None and broker.overlay.algorithm.covers:
        _drop_covered(broker, session, topic_filter, _is_resync(properties), now_ns)
    return is_new


def _drop_covered(broker: "Broker", session: Session, cover: str, is_resync: bool, now_ns: int) -> None:
    """A neighbour has announced a filter: it takes the place of the neighbour's entries that it strictly covers."""
    assert session.link is not None
    assert session.link.entry_index is not None
    for topic_filter in session.link.entry_index.covered_by(cover):
        remove_entry(broker, session, Entry(topic_filter), is_resync, now_ns)


def unsubscribe(broker: "Broker", connection: "Connection", packet: mqtt5.UnsubscribePacket, now_ns: int) -> None:
    session = connection.session
    assert session is not None
    if session.link is not None:
        persist.save_received_id(broker, session, packet.packet_id)
    codes = []
    for pattern in packet.patterns:
        if problem := filter_problem(split_share(pattern)[1]):
            raise MalformedPacketError(problem)
        if pattern[:1] == "$" and _is_advertised(session, pattern):
            is_resync = _is_resync(packet.user_properties)
            existed = advertisements.remove(broker, session, Entry(pattern), is_resync, now_ns)
        else:
            existed = remove(broker, session, pattern, packet.user_properties, now_ns)
        codes.append(mqtt5.UnsubAckReasonCode.SUCCESS if existed else mqtt5.UnsubAckReasonCode.NO_SUBSCRIPTION_EXISTED)
    broker.send(connection, mqtt5.UnsubAckPacket(packet.packet_id, codes))


def remove(
    broker: "Broker", session: Session, topic_filter: str, properties: list[tuple[str, str]], now_ns: int
) -> bool:
    """Remove a subscription from the table and tell the routing strategy; returns False if there was none."""
    subscription = session.subscriptions.get(topic_filter)
    if subscription is None:
        return False
    identity = subscription.identity
    if session.link is not None:
        identity = child_link.identity_of(broker, session, properties)
        if session.link.entries.pop(Entry(topic_filter, identity), None) is None:
            return False
        persist.forget_entry(broker, session, Entry(topic_filter, identity))
        if session.link.entry_index is not None:
            session.link.entry_index.discard(topic_filter)
        subscription.entry_count -= 1
    if session.link is None or subscription.entry_count == 0:
        del session.subscriptions[topic_filter]
        persist.forget_subscription(broker, subscription)
        broker.subscriptions_held -= session.link is None
        broker.subscriptions.remove(session, topic_filter)
    _log(broker, Kind.UNSUBSCRIBED, session, topic_filter, 0, now_ns)
    if (plain := child_link.plain_filter(topic_filter)) is not None:
        broker.overlay.heard(session.link, Entry(plain, identity), False, _is_resync(properties), now_ns)
    return True


def drop_stale(broker: "Broker", session: Session, before_ns: int, now_ns: int) -> None:
    """Drop the entries that a neighbour has not repeated since `before_ns`."""
    assert session.link is not None
    for entry in _older(session.link.entries, before_ns):
        remove_entry(broker, session, entry, False, now_ns)
    for entry in _older(session.link.advertised, before_ns):
        advertisements.remove(broker, session, entry, False, now_ns, is_stale=True)
        broker.overlay.withdraw_unwanted(session.link, now_ns)


def _older(table: dict[Entry, int], before_ns: int) -> list[Entry]:
    return [entry for entry, _ in takewhile(lambda item: item[1] <= before_ns, table.items())]


def remove_entry(broker: "Broker", session: Session, entry: Entry, is_resync: bool, now_ns: int) -> None:
    """Remove an entry of a neighbour that has not withdrawn it by a message."""
    properties = [(IDENTITY, entry.identity)] + [(RESYNCS, "")] * is_resync
    remove(broker, session, entry.filter, properties, now_ns)


def announced_by_parent(broker: "Broker", session: Session, change: Change, now_ns: int) -> None:
    """The parent has announced or withdrawn an entry, as a child does with SUBSCRIBE and UNSUBSCRIBE."""
    entry = change.entry
    properties = [(IDENTITY, entry.identity)]
    if not entry.is_interest:
        action = advertisements.add if change.is_added else advertisements.remove
        action(broker, session, entry, change.kind == RESYNC, now_ns)
        return
    if change.kind == RESYNC:
        properties.append((RESYNCS, ""))
    if change.is_added:
        subscription = Subscription(session, entry.filter, 2, True, True, 0)
        subscription.wants_retained = False
        add(broker, subscription, properties, now_ns)
    else:
        remove(broker, session, entry.filter, properties, now_ns)


def forget_entries(broker: "Broker", session: Session, now_ns: int) -> None:
    """Remove all entries that the neighbour at the other end of a link has announced."""
    assert session.link is not None
    for entry in list(session.link.entries):
        remove_entry(broker, session, entry, True, now_ns)
    advertisements.remove_all(broker, session, now_ns)


def forget_all(broker: "Broker", session: Session, now_ns: int) -> None:
    """Remove all subscriptions of a session that ends."""
    if session.link is not None:
        forget_entries(broker, session, now_ns)
        broker.overlay.close_link(session, now_ns)
    else:
        advertisements.remove_all(broker, session, now_ns)
    for topic_filter in list(session.subscriptions):
        remove(broker, session, topic_filter, [], now_ns)


def _is_resync(properties: list[tuple[str, str]]) -> bool:
    return bool(properties) and property_of(properties, RESYNCS) is not None


def _log(broker: "Broker", kind: Kind, session: Session, topic_filter: str, qos: int, now_ns: int) -> None:
    if broker.log is not None:
        broker.log.add(now_ns, kind, session.log_number, broker.log.number(topic_filter), qos=qos)


def _refusal(broker: "Broker", session: Session, wanted: mqtt5.TopicFilter) -> mqtt5.SubAckReasonCode | None:
    pattern = wanted.pattern
    if pattern[:1] == "$":
        if session.link is not None and pattern.startswith(REQUESTED):
            pattern = pattern.removeprefix(REQUESTED)
        elif _is_advertised(session, pattern):
            return advertisements.refusal(broker, session, pattern)
    if pattern.startswith(SHARE):
        group, pattern = split_share(pattern)
        if not group or not pattern or is_wildcard(group) or pattern.startswith(ADVERTISE):
            return mqtt5.SubAckReasonCode.TOPIC_FILTER_INVALID
        if wanted.no_local:
            raise ProtocolError("No Local on a shared subscription")  # [MQTT-3.8.3-4]
    if problem := filter_problem(pattern):
        raise MalformedPacketError(problem)
    if not may_subscribe(session.access, session.user, session.client_id, pattern):
        return mqtt5.SubAckReasonCode.NOT_AUTHORIZED
    return _limit_reached(broker, session, wanted.pattern)


def _limit_reached(broker: "Broker", session: Session, pattern: str) -> mqtt5.SubAckReasonCode | None:
    if session.link is not None:  # it announces subscriptions of clients, which are limited at their broker
        return None
    if split_share(pattern)[1].count("/") >= broker.config.levels_max:
        return mqtt5.SubAckReasonCode.TOPIC_FILTER_INVALID
    advertised = len(session.publisher.filters) if session.publisher is not None else 0
    is_full = len(session.subscriptions) + advertised >= broker.config.subscriptions_max
    is_full = is_full or broker.subscriptions_held >= broker.config.all_subscriptions_max
    if is_full and pattern not in session.subscriptions:
        broker.counters.shed["subscriptions"] += 1
        return mqtt5.SubAckReasonCode.QUOTA_EXCEEDED
    return None


def send_one_retained(
    broker: "Broker", subscription: Subscription, message: Message, answers: Entry, now_ns: int
) -> None:
    """Send a retained message to a new subscriber. A child is told which of its subscriptions is answered."""
    identifiers = (subscription.identifier,) if subscription.identifier else ()
    session = subscription.session
    qos = min(message.qos, subscription.qos)
    marked = answers if session.link is not None else None
    deliver(broker, session, Delivery(message, qos, True, identifiers, marked), now_ns)


def retained_for(broker: "Broker", topic_filter: str, now_ns: int = 0) -> Iterator[Message]:
    """The retained messages that match a filter and have not expired."""
    if is_wildcard(topic_filter):
        retained = [message for topic, message in broker.retained.items() if matches(topic_filter, topic)]
    else:
        retained = [broker.retained[topic_filter]] if topic_filter in broker.retained else []
    for message in retained:
        if message.expires_at_ns is not None and message.expires_at_ns <= now_ns:
            persist.retain(broker, message.topic, None)
        else:
            yield message

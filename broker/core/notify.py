"""The hot path: notifications at QoS 0 are forwarded as the bytes that arrived, a whole run of them at a time.

Consecutive packets to one topic that differ only in payload and number form a run. A run costs one lookup in the
routing table, one piece of output for each receiver and one record in the log.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from brokerbed.broker.core import mixed_topics
from brokerbed.broker.core.access import may_publish
from brokerbed.broker.core.deliver import deliver
from brokerbed.broker.core.handle_publish import accept, handle_frame, to_special, valid_topic
from brokerbed.broker.core.link import DIGITS, NOTIFICATION, tag_head, tag_only
from brokerbed.broker.core.run import OBJECT, TAGGED, V5, Run
from brokerbed.broker.core.session import Delivery, Session
from brokerbed.broker.core.subscriptions import Receivers
from brokerbed.broker.mqtt import frames
from brokerbed.log.record import NOT_BACK, RECORD, Kind, Log, Reason

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker
    from brokerbed.broker.core.connection import Connection

PACK, ROUTED, DROPPED = RECORD.pack, int(Kind.ROUTED), int(Kind.DROPPED)
ONLY_SENDER: tuple[Session, ...] = (Session("", None),)  # placeholder: only the sender was skipped (No Local)
TAG_BYTES_MAX = 130  # how many bytes a message's identity adds at most


def run_at_qos0(
    broker: "Broker", connection: "Connection", data: bytes, at: int, body: int, stop: int, now_ns: int
) -> int:
    """Forward the packets from `at` on that differ from the first only in payload and number; returns their end."""
    if stop < len(data) and data[stop] == data[at]:
        topic_end = body + 2 + (data[body] << 8 | data[body + 1])
        if not data.startswith(data[at:topic_end], stop):  # the next packet has another topic or size
            end = mixed_topics.forward(broker, connection, data, at, data[body + 2 : topic_end], now_ns)
            if end > at:
                return end
    run = _run_at(broker, connection, data, at, body, stop)
    if run is None:
        handle_frame(broker, connection, data, at, body, stop, now_ns)  # the packet has properties or a topic alias
        return stop
    notify(broker, connection, run, now_ns)
    return at + len(run.data)


def notify_later(broker: "Broker", connection: "Connection", run: Run, now_ns: int) -> None:
    """Handle the messages of a run one by one: each passes the emulated service at the input, or has to be marked."""
    for message in run.messages(connection.session):
        accept(broker, connection, message, 0, False, now_ns)


def notify(broker: "Broker", connection: "Connection", run: Run, now_ns: int) -> None:
    """Forward a run to all receivers at once, and log it."""
    session, topic = connection.session, run.topic
    assert session is not None
    access = session.access
    if (access is not None or topic[0] == "$") and not may_publish(access, session.user, session.client_id, topic):
        return
    advertising = broker.advertising
    if advertising is not None and session.link is None and not advertising.is_advertised(session, topic):
        notify_later(broker, connection, run, now_ns)
        return
    if not run.origin:
        _identify(broker, session, run, now_ns)
    route = broker.routes.get(topic) or broker.subscriptions.route(topic)
    receivers = route.receivers
    if broker.placement is not None:
        neighbour = None if session.link is None else session
        broker.placement.count(neighbour, receivers, run.origin, topic, run.count)
    skipped = _pass_on(broker, session, receivers, run, now_ns)
    log = broker.log
    if log is not None:
        number, topic_number = receivers.log_number, route.log_topic
        if number < 0 or (skipped and skipped is not ONLY_SENDER):
            number = _log_receivers(log, receivers, skipped)
        if topic_number < 0:
            topic_number = route.log_topic = log.number(topic)
        flags = receivers.log_flags | NOT_BACK * (skipped is ONLY_SENDER)
        origin = log.origins.get(run.origin) or log.origin(run.origin)  # the number 0 is looked up again
        log.records += PACK(
            now_ns, run.sequence, origin, session.log_number, topic_number, number,
            run.size - run.payload_at, run.count, ROUTED, 0, 0, flags,
        )  # fmt: skip
    if receivers.has_others:
        for message in run.messages(session):
            to_special(broker, receivers, message, now_ns)


def _identify(broker: "Broker", session: Session, run: Run, now_ns: int) -> None:
    """Give identities to the messages of a run that enters the tree here."""
    run.origin, run.sequence = broker.origin, broker.sequence + 1
    broker.sequence += run.count
    if broker.config.is_testbed:
        for message in run.messages(session):
            broker.log_identity(now_ns, session, message.payload, message.sequence)


def _run_at(broker: "Broker", connection: "Connection", data: bytes, at: int, body: int, stop: int) -> Run | None:
    """The run that begins at `at`; None if the packet there has properties other than its identity."""
    raw, _, payload_at = frames.publish_parts(data, body, stop, 0)
    form, end, size = connection.form, stop, stop - at
    tagged = None
    if form == TAGGED:
        assert connection.session is not None
        assert connection.session.link is not None
        tagged = _tag_at(connection, data, payload_at) if raw and not connection.session.link.is_foreign else None
        if tagged is None:
            return None
        payload_at = tagged[2]
        end = _end_of_tagged(data, at, size, payload_at - at, tagged[1])
    elif form == V5:
        if payload_at >= stop or data[payload_at] or not raw:
            return None
        payload_at += 1
    topic = broker.topics.get(raw) or valid_topic(broker, raw)
    if tagged is None:
        prefix = data[at:payload_at]
        while data.startswith(prefix, end) and end + size <= len(data):
            end += size
    run = Run(data[at:end], size, raw, topic, payload_at - at, form)
    if tagged is not None:
        run.origin, run.sequence = tagged[:2]
    return run


def _tag_at(connection: "Connection", data: bytes, at: int) -> tuple[str, int, int] | None:
    """As tag_only, but faster if the message has the same origin as the one before, which is the usual case."""
    head, origin = connection.last_tag
    digits_at = at + len(head)
    if head and data.startswith(head, at) and (digits := data[digits_at : digits_at + DIGITS]).isdigit():
        return origin, int(digits), digits_at + DIGITS
    tagged = tag_only(data, at)
    if tagged is not None:
        connection.last_tag = tag_head(tagged[0]), tagged[0]
    return tagged


def _end_of_tagged(data: bytes, at: int, size: int, tag_end: int, sequence: int) -> int:
    """Where a run of messages from a link ends. Its messages have one origin and consecutive numbers."""
    prefix = data[at : at + tag_end - DIGITS]
    end = at + size
    while data.startswith(prefix, end) and end + size <= len(data):
        sequence += 1
        if data[end + tag_end - DIGITS : end + tag_end] != b"%016d" % sequence:
            break
        end += size
    return end


def _log_receivers(log: Log, receivers: Receivers, skipped: Sequence[Session]) -> int:
    """The log's number for the set of receivers that got the run."""
    if skipped and skipped is not ONLY_SENDER:
        skipped_sessions = set(skipped)
        return log.route(tuple(session.log_number for session in receivers.plain if session not in skipped_sessions))
    return receivers.number_in(log)


def _pass_on(broker: "Broker", sender: Session, receivers: Receivers, run: Run, now_ns: int) -> Sequence[Session]:
    """Write the run to every receiver in the receiver's form; returns the receivers that were skipped.

    Receivers that need more than the bytes are skipped here and get the messages one by one. If only the sender was
    skipped, the result is ONLY_SENDER.
    """
    is_sender_skipped = False
    others: list[Session] | None = None
    delivered = 0
    count = run.count
    for session in receivers.plain:
        if session is sender and session in receivers.no_local:
            is_sender_skipped = True
            continue
        connection = session.connection
        if (
            connection is None
            or session.has_service
            or (not connection.is_simple and _needs_single_delivery(connection, run.size))
        ):
            others = others or []
            others.append(session)
            is_queued = session.has_service or session.is_ordered
            if not is_queued and (connection is None or connection.is_blocked):
                _drop(broker, session, run, Reason.OFFLINE if connection is None else Reason.SLOW, now_ns)
                continue
            for message in run.messages(sender):
                deliver(broker, session, Delivery(message, 0, False, ()), now_ns)
            continue
        form = connection.form
        if form == OBJECT:
            connection.output.append(run)
        else:
            connection.output.append(run.data if form == run.form else run.in_form(form))
        delivered += count
        link = session.link
        if link is not None:
            link.sent[NOTIFICATION] += count
        if not connection.is_dirty:
            connection.is_dirty = True
            broker.dirty.append(connection)
    counters = broker.counters
    counters.messages_received += count
    counters.messages_delivered += delivered
    if others is None:
        return ONLY_SENDER if is_sender_skipped else ()
    return [*others, sender] if is_sender_skipped else others


def _drop(broker: "Broker", session: Session, run: Run, reason: Reason, now_ns: int) -> None:
    """The receiver of a run is not connected or does not read."""
    broker.counters.dropped[reason] += run.count
    broker.log_run(now_ns, DROPPED, session.log_number, run, 0, 0, run.count, reason)


def _needs_single_delivery(connection: "Connection", size: int) -> bool:
    """Whether the messages of a run cannot be written to a connection as one piece of bytes."""
    if connection.is_blocked or connection.aliases_max or size + TAG_BYTES_MAX > connection.packet_bytes_max:
        return True
    return connection.session is not None and connection.session.is_ordered

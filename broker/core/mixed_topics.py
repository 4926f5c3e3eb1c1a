"""Forwards consecutive notifications at QoS 0 to different topics, but with the same receivers, as one piece of bytes.

A subscriber to a wildcard gets messages whose topics change from one to the next. Each of them costs two dictionary
lookups and a log record; everything else is done once for the whole piece.
"""

from typing import TYPE_CHECKING

from brokerbed.broker.core.run import TAGGED, V5
from brokerbed.log.record import NOT_BACK, RECORD, Kind

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker
    from brokerbed.broker.core.connection import Connection
    from brokerbed.broker.core.session import Session
    from brokerbed.broker.core.subscriptions import Receivers

PACK, ROUTED = RECORD.pack, int(Kind.ROUTED)
PUBLISH, DOLLAR = 0x30, 0x24


def forward(broker: "Broker", connection: "Connection", data: bytes, at: int, raw_topic: bytes, now_ns: int) -> int:
    """Forward the notifications from `at` on, the first of which has this topic.

    Returns where they end, which is `at` if the first one must be forwarded alone.
    """
    session, route = connection.session, broker.routes.get(broker.topics.get(raw_topic, ""))
    assert session is not None
    if (
        route is None
        or session.access is not None
        or broker.config.is_testbed
        or connection.form == TAGGED
        or broker.advertising is not None
    ):
        return at
    receivers = route.receivers
    outputs = _outputs(receivers, session, connection.form)
    if outputs is None:
        return at
    topics, names, payload_size, end = _notifications_to(receivers, broker, connection.form, data, at)
    count = len(topics)
    if count < 2:
        return at
    piece, first = data[at:end], broker.sequence + 1
    if broker.placement is not None:
        for name in names:
            broker.placement.count(None, receivers, broker.origin, name, 1)
    for output in outputs:
        broker.write(output, piece)
    broker.sequence += count
    broker.counters.messages_received += count
    broker.counters.messages_delivered += count * len(outputs)
    log = broker.log
    if log is not None:
        origin, subject, number = log.origin(broker.origin), session.log_number, receivers.number_in(log)
        flags = receivers.log_flags | NOT_BACK * (len(outputs) < len(receivers.plain))
        log.records += b"".join(
            [
                PACK(now_ns, sequence, origin, subject, topic, number, payload_size, 1, ROUTED, 0, 0, flags)
                for sequence, topic in enumerate(topics, first)
            ]
        )
    return end


def _outputs(receivers: "Receivers", sender: "Session", form: int) -> "list[Connection] | None":
    """The connections of the receivers; None if one of them needs more than the bytes that arrived."""
    if receivers.has_others:
        return None
    outputs = []
    for receiver in receivers.plain:
        if receiver is sender and receiver in receivers.no_local:
            continue
        output = receiver.connection
        if output is None or receiver.has_service or not output.is_simple or output.form != form:
            return None
        outputs.append(output)
    return outputs


def _notifications_to(
    receivers: "Receivers", broker: "Broker", form: int, data: bytes, at: int
) -> tuple[list[int], list[str], int, int]:
    """The topics of the notifications to these receivers, as numbers in the log and, for placement only, as names; the
    size of each payload; and their end.

    A payload of another size, and whatever is unusual about a packet, ends the piece before it.
    """
    log, names, routes, properties = broker.log, broker.topics, broker.routes, int(form == V5)
    topics, topic_names, payload_size = list[int](), list[str](), -1
    end, length, size_max, is_counted = at, len(data), broker.config.packet_bytes_max, broker.placement is not None
    while end + 4 < length and data[end] == PUBLISH:
        body = end + 2
        stop = body + data[end + 1]
        if data[end + 1] & 0x80:  # the remaining length has more than one byte
            body = end + 3
            stop = body + (data[end + 1] & 0x7F | data[end + 2] << 7)
            if data[end + 2] & 0x80 or stop - end > size_max:
                break
        topic_end = body + 2 + (data[body] << 8 | data[body + 1])
        size = stop - topic_end - properties
        if stop > length or size < 0 or data[body + 2] == DOLLAR or (properties and data[topic_end]):
            break
        name = names.get(data[body + 2 : topic_end], "")
        route = routes.get(name)
        if route is None or route.receivers is not receivers or (size != payload_size and topics):
            break
        if route.log_topic < 0 and log is not None:
            route.log_topic = log.number(name)
        topics.append(route.log_topic)
        if is_counted:
            topic_names.append(name)
        payload_size, end = size, stop
    return topics, topic_names, payload_size, end

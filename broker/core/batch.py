"""Publications at QoS 1 and 2 in batches: a run of packets is accepted, acknowledged and forwarded as one piece.

The packet ids of a run are read and written as columns of its bytes, so that a message costs a few byte operations
instead of a few objects. A receiver's acknowledgements are consumed in the same way. Messages that need more than that
(durable sessions, links, topic aliases, a full window, emulated service) are delivered one by one by deliver.py; so are
messages whose receiver disconnects before it has acknowledged them.
"""

from typing import TYPE_CHECKING

from brokerbed.broker.core import deliver
from brokerbed.broker.core.access import may_publish
from brokerbed.broker.core.handle_publish import NO_MATCHING_SUBSCRIBERS, handle_frame, valid_topic
from brokerbed.broker.core.link import PACKET_IDS
from brokerbed.broker.core.run import V5, V311, Batch
from brokerbed.broker.core.session import Delivery, SentRun, Session
from brokerbed.broker.core.subscriptions import SharedGroup
from brokerbed.broker.errors import MalformedPacketError
from brokerbed.broker.mqtt import frames
from brokerbed.log.record import Kind

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker
    from brokerbed.broker.core.connection import Connection

PUBACK, PUBREC, PUBREL, PUBCOMP = 0x40, 0x50, 0x62, 0x70  # first bytes
SHORT_BYTES = 4  # of an acknowledgement without reason code and properties
RECEIVED, SENT, ACKNOWLEDGED = int(Kind.RECEIVED), int(Kind.SENT), int(Kind.ACKNOWLEDGED)
_HIGH = bytes(packet_id >> 8 for packet_id in range(PACKET_IDS + 1))
_LOW = bytes(packet_id & 0xFF for packet_id in range(PACKET_IDS + 1))


def publications(
    broker: "Broker", connection: "Connection", data: bytes, at: int, body: int, stop: int, now_ns: int
) -> int:
    """Handle the PUBLISH packets from `at` on that differ only in packet id and payload; returns where they end."""
    is_alone = 2 * stop - at > len(data) or data[stop] != data[at]  # a batch of one would cost more than it saves
    run = None if is_alone else _run_at(broker, connection, data, at, body, stop)
    if run is None:
        handle_frame(broker, connection, data, at, body, stop, now_ns)
        return stop
    session, topic = connection.session, run.topic
    assert session is not None
    subscriptions = broker.subscriptions
    route = subscriptions.routes.get(topic) or subscriptions.route(topic)
    run.is_additional = route.receivers.is_additional
    run.origin, run.sequence = broker.origin, broker.sequence + 1
    broker.sequence += run.count
    if broker.config.is_testbed:
        for message in run.messages(session):
            broker.log_identity(now_ns, session, message.payload, message.sequence)
    broker.counters.messages_received += run.count
    broker.log_run(now_ns, RECEIVED, session.log_number, run, run.qos, 0, run.count)
    broker.write(connection, _answers(connection, run, route.is_empty))
    for receiver in subscriptions.targets(topic):
        target = receiver.for_publisher(session) if receiver.no_local else receiver
        if target is not None:
            _forward(broker, target.session, min(target.qos, run.qos), target.identifiers, run, session, now_ns)
    for group in route.receivers.groups:
        _share(broker, group, run, session, now_ns)
    return at + len(run.data)


def _run_at(broker: "Broker", connection: "Connection", data: bytes, at: int, body: int, stop: int) -> Batch | None:
    """The run that begins at `at`; None if its first packet has to be handled alone."""
    form, session = connection.form, connection.session
    assert session is not None
    qos = data[at] >> 1 & 3
    raw, _, payload_at = frames.publish_parts(data, body, stop, qos)
    id_at = payload_at - 2
    if form not in (V311, V5) or session.link is not None or not raw or broker.config.queue_policy == "reject":
        return None
    if qos == 2 and session.row_number:  # unreleased messages of a durable session are stored one by one
        return None
    if form == V5:
        if payload_at >= stop or data[payload_at]:
            return None
        payload_at += 1
    topic = broker.topics.get(raw) or valid_topic(broker, raw)
    access = session.access
    if (access is not None or topic[0] == "$") and not may_publish(access, session.user, session.client_id, topic):
        return None
    if broker.advertising is not None and not broker.advertising.is_advertised(session, topic):
        return None
    size, end = stop - at, stop
    prefix, last_start, empty_at = data[at:id_at], len(data) - (stop - at), payload_at - 1 - at
    while end <= last_start and data.startswith(prefix, end) and (form == V311 or not data[end + empty_at]):
        end += size
    run = Batch(data[at:end], size, raw, topic, payload_at - at, form, qos)
    return run if _take_ids(connection, session, run) else None


def _take_ids(connection: "Connection", session: Session, run: Batch) -> bool:
    """Check the packet ids of a run. At QoS 2 they are noted as unreleased; False if some of them are so already."""
    if run.qos == 1:
        if 0 in run.ids_high and 0 in run.packet_ids():
            raise MalformedPacketError("a PUBLISH with packet id 0")
        return True
    packet_ids = run.packet_ids()
    if 0 in packet_ids:
        raise MalformedPacketError("a PUBLISH with packet id 0")
    received = session.received
    if (
        len(received) + run.count > connection.receive_max
        or len(set(packet_ids)) < run.count
        or not received.keys().isdisjoint(packet_ids)
    ):
        return False
    received.update(dict.fromkeys(packet_ids, 0))
    return True


def _answers(connection: "Connection", run: Batch, has_no_subscribers: bool) -> bytes:
    """The PUBACK or PUBREC packets for a run."""
    if has_no_subscribers and run.qos == 1 and connection.version == 5:
        answer = bytes((PUBACK, 3, 0, 0, NO_MATCHING_SUBSCRIBERS))
    else:
        answer = bytes((PUBACK if run.qos == 1 else PUBREC, 2, 0, 0))
    return _packets(answer, run.ids_high, run.ids_low)


def _forward(
    broker: "Broker",
    session: Session,
    qos: int,
    identifiers: tuple[int, ...],
    run: Batch,
    publisher: Session,
    now_ns: int,
) -> None:
    """Send a run to one receiver, as far as the window of unacknowledged messages allows; the rest is queued."""
    connection = session.connection
    needs_single_deliveries = identifiers or session.has_service or session.link is not None or session.row_number
    if connection is not None and connection.is_wire and connection.is_simple and not needs_single_deliveries:
        sent = _send(broker, session, connection, qos, run, publisher, now_ns)
        if sent == run.count:
            return
        if sent:
            run = run.part(sent, run.count)
    for message in run.messages(publisher):
        deliver.deliver(broker, session, Delivery(message, qos, False, identifiers), now_ns)


def _send(
    broker: "Broker",
    session: Session,
    connection: "Connection",
    qos: int,
    run: Batch,
    publisher: Session,
    now_ns: int,
) -> int:
    """Returns how many messages of the run could be sent."""
    count = run.count
    if qos:
        room = 0 if session.queue else connection.inflight_max - len(session.inflight)
        count = min(room, count)
        first_id = session.take_ids(count) if count > 0 else 0
        if first_id == 0:
            return 0
        if count < run.count:
            run = run.part(0, count)
        key = connection.form, qos, first_id
        if run.last_sent is None or run.last_sent[0] != key:
            stop_id = first_id + count
            by_id = dict.fromkeys(range(first_id, stop_id), SentRun(run, qos, first_id, publisher))
            output = run.with_ids(connection.form, qos, _HIGH[first_id:stop_id], _LOW[first_id:stop_id])
            run.last_sent = key, by_id, output
        _, by_id, output = run.last_sent
        session.inflight.update(by_id)
    else:
        output = run.in_form(connection.form)
    broker.counters.messages_delivered += count
    broker.log_run(now_ns, SENT, session.log_number, run, qos, 0, count)
    broker.write(connection, output)
    return count


def _share(broker: "Broker", group: SharedGroup, run: Batch, publisher: Session, now_ns: int) -> None:
    """Divide a run among the members of a shared group, in turn."""
    size = max(1, run.count // len(group.members))
    for start in range(0, run.count, size):
        member = group.next_member()
        part = run if size == run.count else run.part(start, min(start + size, run.count))
        identifiers = (member.identifier,) if member.identifier else ()
        _forward(broker, member.session, min(member.qos, run.qos), identifiers, part, publisher, now_ns)


# -- acknowledgements -------------------------------------------------------------------------------------------------


def acknowledgements(broker: "Broker", connection: "Connection", data: bytes, at: int, now_ns: int) -> int:
    """Handle the short PUBACK, PUBREC or PUBCOMP packets from `at` on that are for one run; returns where they end.

    Returns `at` if the first one is not for a run.
    """
    session = connection.session
    assert session is not None
    first = data[at]
    packet_id = data[at + 2] << 8 | data[at + 3]
    sent = session.inflight.get(packet_id)
    if (
        type(sent) is not SentRun
        or sent.is_released is not (first == PUBCOMP)
        or sent.qos != (1 if first == PUBACK else 2)
    ):
        return at
    inflight, count_max = session.inflight, _same(data, at, packet_id, sent.first_id + sent.run.count - packet_id)
    count = 1
    while count < count_max and inflight.get(packet_id + count) is sent:  # the others were acknowledged before
        count += 1
    packet_ids = range(packet_id, packet_id + count)
    if first == PUBREC:
        inflight.update(dict.fromkeys(packet_ids, sent.released()))
        broker.write(connection, short_packets(PUBREL, packet_ids))
    else:
        for number in packet_ids:
            del inflight[number]
    if first != PUBCOMP:
        broker.log_run(now_ns, ACKNOWLEDGED, session.log_number, sent.run, sent.qos, packet_id - sent.first_id, count)
    if session.queue and session.service_due_ns is None:
        deliver.pump(broker, session, now_ns)
    return at + SHORT_BYTES * count


def _same(data: bytes, at: int, packet_id: int, count_max: int) -> int:
    """How many packets at `at` are like the first one, with packet ids that go up by one."""
    count = min(count_max, (len(data) - at) // SHORT_BYTES)
    expected = short_packets(data[at], range(packet_id, packet_id + count))
    if data.startswith(expected, at):
        return count
    same = 1
    while data.startswith(expected[SHORT_BYTES * same : SHORT_BYTES * (same + 1)], at + SHORT_BYTES * same):
        same += 1
    return same


def releases(broker: "Broker", connection: "Connection", data: bytes, at: int) -> int:
    """Handle the short PUBREL packets from `at` on; returns where they end. Others are left to released_by_client."""
    session = connection.session
    assert session is not None
    received, end = session.received, at
    while (
        end + SHORT_BYTES <= len(data)
        and data[end] == PUBREL
        and data[end + 1] == 2
        and received.get(packet_id := data[end + 2] << 8 | data[end + 3]) == 0
    ):
        del received[packet_id]
        end += SHORT_BYTES
    if end > at:
        answers = bytearray(data[at:end])
        answers[0::SHORT_BYTES] = bytes((PUBCOMP,)) * ((end - at) // SHORT_BYTES)
        broker.write(connection, bytes(answers))
    return end


def short_packets(first: int, packet_ids: range) -> bytes:
    """Acknowledgements of one kind for consecutive packet ids."""
    ids = slice(packet_ids.start, packet_ids.stop)
    return _packets(bytes((first, 2, 0, 0)), _HIGH[ids], _LOW[ids])


def _packets(packet: bytes, ids_high: bytes, ids_low: bytes) -> bytes:
    """One packet for each packet id, which stands after its first two bytes."""
    size = len(packet)
    packets = bytearray(packet * len(ids_high))
    packets[2::size], packets[3::size] = ids_high, ids_low
    return bytes(packets)

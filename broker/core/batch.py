"""Publications at QoS 1 and 2 in batches: a run of packets is accepted, acknowledged and forwarded as one piece.

The packet ids of a run are read and written as columns of its bytes, so that a message costs a few byte operations
instead of a few objects. A receiver's acknowledgements are consumed in the same way. Messages that need more than that
(for links, topic aliases, a full window, emulated service) are delivered one by one by deliver.py; so are messages
whose receiver disconnects before it has acknowledged them.
"""

from struct import unpack_from
from typing import TYPE_CHECKING

from brokerbed.broker.core import deliver, persist
from brokerbed.broker.core.access import may_publish
from brokerbed.broker.core.handle_publish import NO_MATCHING_SUBSCRIBERS, handle_frame, valid_topic
from brokerbed.broker.core.run import ID_HIGH, ID_LOW, V5, V311, Batch
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
ANSWERS = {PUBACK: b"\x40\x02", PUBREC: b"\x50\x02"}  # how they begin, up to the packet id
QOS_OF = {PUBACK: 1, PUBREC: 2, PUBCOMP: 2}  # of the messages that they acknowledge
UNPACKED_MAX = 512  # acknowledgements that are looked at together
BATCH_BYTES_MAX = 16 * 1024  # a batch is kept until its last message is acknowledged


def publications(
    broker: "Broker", connection: "Connection", data: bytes, at: int, body: int, stop: int, now_ns: int
) -> int:
    """Handle the PUBLISH packets from `at` on that differ only in packet id and payload; returns where they end."""
    run = _run_at(broker, connection, data, at, body, stop)
    if run is None:
        handle_frame(broker, connection, data, at, body, stop, now_ns)
        return stop
    session, topic, count = connection.session, run.topic, run.count
    assert session is not None
    subscriptions = broker.subscriptions
    route = subscriptions.routes.get(topic) or subscriptions.route(topic)
    run.is_additional = route.receivers.is_additional
    run.origin, run.sequence = broker.origin, broker.sequence + 1
    broker.sequence += count
    if broker.config.is_testbed:
        for message in run.messages(session):
            broker.log_identity(now_ns, session, message.payload, message.sequence)
    broker.counters.messages_received += count
    broker.log_run(now_ns, RECEIVED, session.log_number, run, run.qos, 0, count)
    broker.write(connection, _answers(connection, run, route.is_empty and broker.advertising is None))
    if broker.placement is not None:
        broker.placement.count(None, route.receivers, run.origin, topic, count)
    for receiver in subscriptions.targets(topic) if route.targets is None else route.targets:
        target = receiver.for_publisher(session) if receiver.no_local else receiver
        if target is not None:
            _forward(broker, target.session, target.qos, target.identifiers, run, 0, count, session, now_ns)
    for group in route.receivers.groups:
        _share(broker, group, run, session, now_ns)
    run.last_sent = None  # it refers to the run, and reference cycles would keep the run in memory
    return at + len(run.data)


def _run_at(broker: "Broker", connection: "Connection", data: bytes, at: int, body: int, stop: int) -> Batch | None:
    """The run that begins at `at`; None if its first packet has to be handled alone."""
    form, session = connection.form, connection.session
    assert session is not None
    qos = data[at] >> 1 & 3
    raw, _, payload_at = frames.publish_parts(data, body, stop, qos)
    id_at = payload_at - 2
    if form == V5:
        if payload_at >= stop or data[payload_at] or not raw:
            return None
        payload_at += 1
    elif form != V311 or not raw:
        return None
    if session.link is not None or broker.config.queue_policy == "reject":
        return None
    topic = broker.topics.get(raw) or valid_topic(broker, raw)
    access = session.access
    if (access is not None or topic[0] == "$") and not may_publish(access, session.user, session.client_id, topic):
        return None
    if broker.advertising is not None and not broker.advertising.is_advertised(session, topic):
        return None
    size, end = stop - at, stop
    last_start = min(len(data), at + BATCH_BYTES_MAX) - size
    if end <= last_start and data[end] == data[at]:
        prefix, empty_at = data[at:id_at], payload_at - 1 - at
        while end <= last_start and data.startswith(prefix, end) and (form == V311 or not data[end + empty_at]):
            end += size
    run = Batch(data[at:end], size, raw, topic, payload_at - at, form, qos)
    return run if _take_ids(broker, connection, session, run) else None


def _take_ids(broker: "Broker", connection: "Connection", session: Session, run: Batch) -> bool:
    """Check the packet ids of a run. At QoS 2 they are noted as unreleased; False if some of them are so already."""
    if run.qos == 1:
        if run.count > 1 and 0 in run.ids_high and 0 in run.packet_ids():
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
    persist.save_received(broker, session, packet_ids)
    return True


def _answers(connection: "Connection", run: Batch, has_no_subscribers: bool) -> bytes:
    """The PUBACK or PUBREC packets for a run."""
    first = PUBACK if run.qos == 1 else PUBREC
    if has_no_subscribers and run.qos == 1 and connection.version == 5:
        return _packets(bytes((first, 3, 0, 0, NO_MATCHING_SUBSCRIBERS)), run.ids_high, run.ids_low)
    if run.count == 1:
        return ANSWERS[first] + run.data[run.id_at : run.id_at + 2]
    return _packets(bytes((first, 2, 0, 0)), run.ids_high, run.ids_low)


def _forward(
    broker: "Broker",
    session: Session,
    subscribed_qos: int,
    identifiers: tuple[int, ...],
    run: Batch,
    start: int,
    stop: int,
    publisher: Session,
    now_ns: int,
) -> None:
    """Send the messages from `start` to before `stop` to one receiver, as far as its window of unacknowledged messages
    allows; the rest is queued."""
    connection, qos = session.connection, run.qos
    if subscribed_qos < qos:
        qos = subscribed_qos
    if (
        connection is not None
        and connection.is_wire
        and connection.is_simple
        and not (identifiers or session.has_service or session.link is not None)
        and (not session.row_number or stop - start > 1)  # a message alone takes less room as a delivery
    ):
        count, output = stop - start, None
        if qos:
            room = 0 if session.queue else connection.inflight_max - len(session.inflight)
            if room < count:
                count = room
            if count > 0 and (first_id := session.take_ids(count)):
                sent = SentRun(run, qos, first_id, start, count, publisher)
                output = _sent(broker, session, connection.form, sent)
        else:
            output = run.slice(connection.form, start, stop)
        if output is not None:
            broker.counters.messages_delivered += count
            broker.log_run(now_ns, SENT, session.log_number, run, qos, start, count)
            broker.write(connection, output)
            start += count
            if start == stop:
                return
    for message in run.messages(publisher)[start:stop]:
        deliver.deliver(broker, session, Delivery(message, qos, False, identifiers), now_ns)


def _sent(broker: "Broker", session: Session, form: int, sent: SentRun) -> bytes:
    """Note that messages of a run are sent, and return their bytes."""
    run, qos, first_id, count = sent.run, sent.qos, sent.first_id, sent.count
    if count < run.count or count == 1 or session.row_number:
        for packet_id in range(first_id, first_id + count):
            session.inflight[packet_id] = sent
        if session.row_number:
            persist.save_sent_run(broker, session, sent)
        return run.with_ids(form, qos, sent.start, first_id, count)
    key = form, qos, first_id
    if run.last_sent is None or run.last_sent[0] != key:
        by_id = dict.fromkeys(range(first_id, first_id + count), sent)
        run.last_sent = key, by_id, run.with_ids(form, qos, 0, first_id, count)
    _, by_id, output = run.last_sent
    session.inflight.update(by_id)
    return output


def _share(broker: "Broker", group: SharedGroup, run: Batch, publisher: Session, now_ns: int) -> None:
    """Divide a run among the members of a shared group, in turn."""
    count = run.count
    size = group.part_size(count, now_ns)
    for start in range(0, count, size):
        member = group.next_member()
        identifiers = (member.identifier,) if member.identifier else ()
        stop = min(start + size, count)
        _forward(broker, member.session, member.qos, identifiers, run, start, stop, publisher, now_ns)


# -- acknowledgements -------------------------------------------------------------------------------------------------


def acknowledgements(broker: "Broker", connection: "Connection", data: bytes, at: int, now_ns: int) -> int:
    """Handle the short PUBACK, PUBREC or PUBCOMP packets from `at` on that are for runs; returns where they end.

    Returns `at` if the first one is not for a run.
    """
    session, first = connection.session, data[at]
    assert session is not None
    inflight, qos, is_released = session.inflight, QOS_OF[first], first == PUBCOMP
    head = first << 24 | 2 << 16  # an acknowledgement, read as a number, is this plus its packet id
    done, number = 0, min((len(data) - at) // SHORT_BYTES, UNPACKED_MAX)
    packets = unpack_from(f">{number}I" if number > 1 else ">I", data, at)
    while done < number:
        packet = packets[done]
        packet_id = packet - head
        sent = inflight.get(packet_id)
        if type(sent) is not SentRun or sent.is_released is not is_released or sent.qos != qos:
            break
        index, start = packet_id - sent.first_id, done
        stop = min(number, done + sent.count - index)
        done += 1
        while done < stop and packets[done] == packet + done - start and inflight.get(packets[done] - head) is sent:
            done += 1
        count = done - start
        if first == PUBREC:
            packet_ids = range(packet_id, packet_id + count)
            inflight.update(dict.fromkeys(packet_ids, sent.released()))
            broker.write(connection, short_packets(PUBREL, packet_ids))
        else:
            for acknowledged_id in range(packet_id, packet_id + count):
                del inflight[acknowledged_id]
        if sent.row is not None:
            persist.acknowledged_in_run(broker, session, sent, 0 if first == PUBREC else count)
        if not is_released:
            broker.log_run(now_ns, ACKNOWLEDGED, session.log_number, sent.run, qos, sent.start + index, count)
    if done and session.queue and session.service_due_ns is None:
        deliver.pump(broker, session, now_ns)
    return at + SHORT_BYTES * done


def releases(broker: "Broker", connection: "Connection", data: bytes, at: int) -> int:
    """Handle the short PUBREL packets from `at` on; returns where they end. Others are left to released_by_client."""
    session = connection.session
    assert session is not None
    received, end, numbers = session.received, at, dict[int, None]()
    while (
        end + SHORT_BYTES <= len(data)
        and data[end] == PUBREL
        and data[end + 1] == 2
        and (number := received.pop(data[end + 2] << 8 | data[end + 3], None)) is not None
    ):
        numbers[number] = None
        end += SHORT_BYTES
    if end > at:
        persist.forget_received(broker, session, numbers)
        answers = bytearray(data[at:end])
        answers[0::SHORT_BYTES] = bytes((PUBCOMP,)) * ((end - at) // SHORT_BYTES)
        broker.write(connection, bytes(answers))
    return end


def short_packets(first: int, packet_ids: range) -> bytes:
    """Acknowledgements of one kind for consecutive packet ids."""
    ids = slice(packet_ids.start, packet_ids.stop)
    return _packets(bytes((first, 2, 0, 0)), ID_HIGH[ids], ID_LOW[ids])


def _packets(packet: bytes, ids_high: bytes, ids_low: bytes) -> bytes:
    """One packet for each packet id, which stands after its first two bytes."""
    size = len(packet)
    packets = bytearray(packet * len(ids_high))
    packets[2::size], packets[3::size] = ids_high, ids_low
    return bytes(packets)

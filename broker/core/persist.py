"""The state of a broker that survives a restart, as rows of a store. restore.py turns rows back into state.

Handlers note in `broker.unsaved` what has changed. A driver with a store writes those rows, all or none of them, before
it writes any output, so nothing is acknowledged that is not stored. `unsaved` is None if the driver has no store.
A row has a key, which consists of its kind and a number that is never reused. A small message with one delivery is part
of the delivery's row; other messages have rows of their own. A run that was sent has one row for its messages, and for
each receiver one row that says which of them are not acknowledged. Sessions that end with their connection, and
everything that belongs to them, have the row number 0 and are not stored.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from brokerbed.broker.core import rows
from brokerbed.broker.core.rows import Row
from brokerbed.broker.core.session import Delivery, RunRow, SentRun, Session
from brokerbed.broker.core.subscriptions import Subscription
from brokerbed.broker.values import Entry, Message

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker

IDS_RESERVED = 1000  # packet ids that a link reserves at a time; a restart skips those that were not used
INLINE_BYTES_MAX = 1024  # largest payload that is stored in the row of the message's only delivery
SHIFT = 56  # a key is its kind, which is a multiple of 2**SHIFT, plus the row number
LOG = 0  # the key of the row for the message log, which belongs to the driver; see runtime/log_file.py
SESSION, SUBSCRIPTION, ENTRY, ANNOUNCED, RECEIVED_ID, RECEIVED, MESSAGE, RETAINED, DELIVERY, ENTERING, RUN, SENT_RUN = (
    kind << SHIFT for kind in range(1, 13)
)  # kinds of rows, in the order in which they are restored


def take(broker: "Broker") -> list[tuple[int, Row | None]]:
    """Take the changes that the store has to write now: keys with their new rows, or None for rows to remove."""
    unsaved = broker.unsaved
    assert unsaved is not None
    taken: list[tuple[int, Row | None]] = []
    for key, changed in unsaved.items():
        if changed is None:
            taken.append((key, None))
            continue
        kind = key >> SHIFT << SHIFT
        if kind == SENT_RUN:
            run = changed[1].run
            if run.row_number == 0:
                run.row_number = broker.take_row_number()
                taken.append((RUN | run.row_number, rows.run_row(run)))
        elif kind >= RETAINED:  # rows of these kinds refer to a message
            message = changed.message if kind == DELIVERY else changed
            if message.row_number == 0 and (
                kind != DELIVERY or message.references > 1 or len(message.payload) > INLINE_BYTES_MAX
            ):
                message.row_number = broker.take_row_number()
                taken.append((MESSAGE | message.row_number, rows.message_row(message)))
        taken.append((key, _ROWS[kind](changed)))
    unsaved.clear()
    return taken


# -- what handlers call -----------------------------------------------------------------------------------------------


def save_session(broker: "Broker", session: Session) -> None:
    """Called if the session is new, or its connection or expiry has changed."""
    if broker.unsaved is None:
        return
    if session.expiry_s == 0:
        forget_session(broker, session)
        return
    if session.row_number == 0:
        session.row_number = broker.take_row_number()
    broker.unsaved[SESSION | session.row_number] = session


def forget_session(broker: "Broker", session: Session) -> None:
    """Remove the rows of a session and of everything that belongs to it. In memory the session may go on."""
    if session.row_number == 0:
        return
    assert broker.unsaved is not None
    advertised = session.publisher.filters if session.publisher is not None else {}
    for subscription in (*session.subscriptions.values(), *advertised.values()):
        forget_subscription(broker, subscription)
    for delivery in deliveries(broker, session):
        forget_delivery(broker, delivery)
    for number in session.received_rows:
        broker.unsaved[RECEIVED | number] = None
    session.received_rows.clear()
    session.received = dict.fromkeys(session.received, 0)
    if session.link is not None:
        for entry in list(session.link.entry_rows):
            forget_entry(broker, session, entry)
        broker.unsaved[RECEIVED_ID | session.row_number] = None
    broker.unsaved[SESSION | session.row_number] = None
    session.row_number = 0


def save_subscription(broker: "Broker", subscription: Subscription) -> None:
    if subscription.session.row_number == 0:
        return
    assert broker.unsaved is not None
    if subscription.row_number == 0:
        subscription.row_number = broker.take_row_number()
    broker.unsaved[SUBSCRIPTION | subscription.row_number] = subscription


def forget_subscription(broker: "Broker", subscription: Subscription) -> None:
    if subscription.row_number:
        assert broker.unsaved is not None
        broker.unsaved[SUBSCRIPTION | subscription.row_number] = None
        subscription.row_number = 0


def save_entry(broker: "Broker", session: Session, entry: Entry) -> None:
    """Store an entry that the neighbour at the other end of a link has announced."""
    if session.row_number == 0:
        return
    assert session.link is not None
    assert broker.unsaved is not None
    number = session.link.entry_rows[entry] = broker.take_row_number()
    broker.unsaved[ENTRY | number] = (session.row_number, entry)


def forget_entry(broker: "Broker", session: Session, entry: Entry) -> None:
    assert session.link is not None
    number = session.link.entry_rows.pop(entry, 0)
    if number:
        assert broker.unsaved is not None
        broker.unsaved[ENTRY | number] = None


def save_announced(broker: "Broker", number: int, row: tuple[Session, Entry, bool]) -> int:
    """Store an entry that was announced over the link of a session, and whether that is acknowledged.

    `number` is that of the entry's row, or 0 if it has none yet. Returns the number of the row, or 0 without a store.
    """
    if broker.unsaved is None or row[0].row_number == 0:
        return 0
    number = number or broker.take_row_number()
    broker.unsaved[ANNOUNCED | number] = row
    return number


def forget_announced(broker: "Broker", number: int) -> None:
    if number:
        assert broker.unsaved is not None
        broker.unsaved[ANNOUNCED | number] = None


def save_received_id(broker: "Broker", session: Session, packet_id: int) -> None:
    """Store the newest packet id that the other end of a link has used; 0 if the other end starts again."""
    assert session.link is not None
    session.link.last_received_id = packet_id
    if session.row_number:
        assert broker.unsaved is not None
        broker.unsaved[RECEIVED_ID | session.row_number] = session


def take_packet_id(broker: "Broker", session: Session) -> int:
    """Take a packet id that is not in use. Those of a link continue after a restart (see `Link.has_received`).

    They are reserved many at a time, so that not every message has to store the last id.
    """
    packet_id = session.take_id()
    if session.link is not None and session.ids_reserved < 0:
        session.ids_reserved = IDS_RESERVED
        save_session(broker, session)
    return packet_id


def save_received(broker: "Broker", session: Session, packet_ids: Sequence[int]) -> None:
    """The peer has sent messages at QoS 2 and has not released them yet. They share a row."""
    number = 0
    if session.row_number:
        assert broker.unsaved is not None
        number = broker.take_row_number()
        session.received_rows[number] = packet_ids
        broker.unsaved[RECEIVED | number] = (session.row_number, *packet_ids)
    session.received.update(dict.fromkeys(packet_ids, number))


def forget_received(broker: "Broker", session: Session, numbers: Iterable[int]) -> None:
    """The peer has released messages at QoS 2, or never will. They were in these rows."""
    for number in numbers:
        if number:
            assert broker.unsaved is not None
            left = [other for other in session.received_rows[number] if session.received.get(other) == number]
            broker.unsaved[RECEIVED | number] = (session.row_number, *left) if left else None
            if not left:
                del session.received_rows[number]


def save_delivery(broker: "Broker", session: Session, delivery: Delivery) -> None:
    """Store a delivery that waits to be sent or, once it is sent, to be acknowledged."""
    if session.row_number == 0:
        return
    assert broker.unsaved is not None
    if delivery.row_number == 0:
        delivery.message.references += 1
        delivery.row_number = broker.take_row_number()
        delivery.session_row = session.row_number
    broker.unsaved[DELIVERY | delivery.row_number] = delivery


def forget_delivery(broker: "Broker", delivery: Delivery) -> None:
    if delivery.row_number:
        assert broker.unsaved is not None
        broker.unsaved[DELIVERY | delivery.row_number] = None
        delivery.row_number = 0
        _release(broker, delivery.message)


def save_sent_run(broker: "Broker", session: Session, sent: SentRun) -> None:
    """Store a run that was sent to a session that is stored.

    It takes a row number for each of its messages, because rows of deliveries are restored in the order of their
    numbers, and its messages may become deliveries of their own.
    """
    assert broker.unsaved is not None
    sent.run.references += 1
    sent.row = RunRow(broker.last_row_number + 1, sent.count)
    broker.last_row_number += sent.count
    broker.unsaved[SENT_RUN | sent.row.number] = session, sent


def acknowledged_in_run(broker: "Broker", session: Session, sent: SentRun, count: int) -> None:
    """Messages of a stored run were acknowledged; `count` of them are not in flight any more."""
    row, run = sent.row, sent.run
    assert row is not None
    assert broker.unsaved is not None
    row.unacknowledged -= count
    if row.unacknowledged:
        broker.unsaved[SENT_RUN | row.number] = session, sent
        return
    broker.unsaved[SENT_RUN | row.number] = None
    run.references -= 1
    if run.references == 0 and run.row_number:
        broker.unsaved[RUN | run.row_number] = None
        run.row_number = 0


def delivery_in_flight(broker: "Broker", session: Session, packet_id: int) -> Delivery | None:
    """What was sent with this packet id and is not acknowledged. A message of a run becomes a delivery of its own."""
    sent = session.inflight.get(packet_id)
    if not isinstance(sent, SentRun):
        return sent
    delivery = session.inflight[packet_id] = sent.delivery(packet_id)
    if sent.row is not None:
        delivery.message.references += 1
        delivery.row_number = sent.row.number + packet_id - sent.first_id
        delivery.session_row = session.row_number
        acknowledged_in_run(broker, session, sent, 1)
    save_delivery(broker, session, delivery)
    return delivery


def deliveries_in_flight(broker: "Broker", session: Session) -> dict[int, Delivery]:
    """All of them; `Session.inflight` itself, in which there are no runs afterwards."""
    for packet_id in session.inflight:
        delivery_in_flight(broker, session, packet_id)
    return session.inflight  # type: ignore[return-value]


def deliveries(broker: "Broker", session: Session) -> list[Delivery]:
    """All deliveries that are still to be sent to this session or acknowledged by it."""
    staged = session.link.staged if session.link is not None else ()
    held = session.move.held if session.move is not None else ()
    return [*deliveries_in_flight(broker, session).values(), *staged, *session.queue, *held]


def save_entering(broker: "Broker", message: Message) -> None:
    """Store a message that is acknowledged and now in the emulated service at the input."""
    if broker.unsaved is not None and message.qos:
        message.references += 1
        message.entering_row = broker.take_row_number()
        broker.unsaved[ENTERING | message.entering_row] = message


def forget_entering(broker: "Broker", message: Message) -> None:
    if message.entering_row:
        assert broker.unsaved is not None
        broker.unsaved[ENTERING | message.entering_row] = None
        message.entering_row = 0
        _release(broker, message)


def has_room_to_retain(broker: "Broker", message: Message) -> bool:
    """Whether the limits allow the message to be retained."""
    old = broker.retained.get(message.topic)
    if old is None and len(broker.retained) >= broker.config.retained_max:
        return False
    grown = message.size - (0 if old is None else old.size)
    return grown <= 0 or broker.retained_bytes + grown <= broker.config.retained_bytes_max


def retain(broker: "Broker", topic: str, message: Message | None) -> None:
    """Replace the retained message of a topic. None: the topic has no retained message any more."""
    old = broker.retained.pop(topic, None)
    if old is not None:
        broker.retained_bytes -= old.size
    if message is not None:
        broker.retained[topic] = message
        broker.retained_bytes += message.size
        message.retained_row = broker.take_row_number()
    if broker.unsaved is None:
        return
    if message is not None:
        message.references += 1
        broker.unsaved[RETAINED | message.retained_row] = message
    if old is not None and old.retained_row:
        broker.unsaved[RETAINED | old.retained_row] = None
        old.retained_row = 0
        _release(broker, old)


def _release(broker: "Broker", message: Message) -> None:
    """One reference to a message is gone. With the last reference, the row of the message is removed."""
    message.references -= 1
    if message.references == 0 and message.row_number:
        assert broker.unsaved is not None
        broker.unsaved[MESSAGE | message.row_number] = None
        message.row_number = 0


_ROWS: dict[int, Any] = {
    SESSION: rows.session_row,
    SUBSCRIPTION: rows.subscription_row,
    ENTRY: rows.entry_row,
    ANNOUNCED: rows.announced_row,
    RECEIVED_ID: rows.received_id_row,
    RECEIVED: tuple,
    RETAINED: lambda message: (message.row_number,),
    DELIVERY: rows.delivery_row,
    ENTERING: rows.entering_row,
    SENT_RUN: rows.sent_run_row,
}

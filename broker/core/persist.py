"""What survives the death of a broker: which rows stand for its state, and how the state is made of them again.

Handlers note in `broker.unsaved` what has changed; a driver with a store writes those rows, all or none of them, before
it writes any output (so nothing is acknowledged that is not stored). `unsaved` is None where nothing is to survive.
A row is found by its key: its kind and a number that is never used again. A small message with one delivery is part of
the delivery's row; others have a row of their own. Sessions that end with their connection have
the number 0, and so has everything that belongs to them: they cost nothing.
"""

from typing import TYPE_CHECKING, Any

from brokerbed.broker.core.link import PACKET_IDS
from brokerbed.broker.core.session import Delivery, Session
from brokerbed.broker.core.subscriptions import Subscription
from brokerbed.broker.values import NO_PROPERTIES, Entry, Message

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker

Row = tuple[Any, ...]  # of numbers, text, bytes, None and tuples of them
IDS_RESERVED = 1000  # packet ids of a link at a time, of which a restart skips the rest
INLINE_BYTES_MAX = 1024  # of the payload of a message that is stored with its only delivery
SHIFT = 56
LOG = 0  # the key of a row that is the driver's: of its message log, see runtime/log_file.py
SESSION, SUBSCRIPTION, ENTRY, KNOWN, RECEIVED_ID, RECEIVED, MESSAGE, RETAINED, DELIVERY, ENTERING = (
    kind << SHIFT for kind in range(1, 11)
)  # in the order in which they are restored


def take(broker: "Broker") -> list[tuple[int, Row | None]]:
    """What a store has to write now: rows by key, None for those that are gone."""
    unsaved = broker.unsaved
    assert unsaved is not None
    taken: list[tuple[int, Row | None]] = []
    for key, it in unsaved.items():
        if it is None:
            taken.append((key, None))
            continue
        kind = key >> SHIFT << SHIFT
        if kind >= RETAINED:  # it refers to a message
            message = it.message if kind == DELIVERY else it
            if message.number == 0 and (
                kind != DELIVERY or message.uses > 1 or len(message.payload) > INLINE_BYTES_MAX
            ):
                message.number = broker.take_number()
                taken.append((MESSAGE | message.number, _message_row(message)))
        taken.append((key, _ROWS[kind](it)))
    unsaved.clear()
    return taken


# -- what handlers call -----------------------------------------------------------------------------------------------


def save_session(broker: "Broker", session: Session) -> None:
    """It is new, or its connection or expiry has changed."""
    if broker.unsaved is None:
        return
    if session.expiry_s == 0:
        forget_session(broker, session)
        return
    if session.number == 0:
        session.number = broker.take_number()
    broker.unsaved[SESSION | session.number] = session


def forget_session(broker: "Broker", session: Session) -> None:
    """With all that belongs to it; in memory it may go on."""
    if session.number == 0:
        return
    assert broker.unsaved is not None
    for subscription in session.subscriptions.values():
        forget_subscription(broker, subscription)
    for delivery in session.deliveries():
        forget_delivery(broker, delivery)
    for packet_id, number in session.received.items():
        broker.unsaved[RECEIVED | number] = None
        session.received[packet_id] = 0
    if session.link is not None:
        for entry in list(session.link.entry_numbers):
            forget_entry(broker, session, entry)
        broker.unsaved[RECEIVED_ID | session.number] = None
    broker.unsaved[SESSION | session.number] = None
    session.number = 0


def save_subscription(broker: "Broker", subscription: Subscription) -> None:
    if subscription.session.number == 0:
        return
    assert broker.unsaved is not None
    if subscription.number == 0:
        subscription.number = broker.take_number()
    broker.unsaved[SUBSCRIPTION | subscription.number] = subscription


def forget_subscription(broker: "Broker", subscription: Subscription) -> None:
    if subscription.number:
        assert broker.unsaved is not None
        broker.unsaved[SUBSCRIPTION | subscription.number] = None
        subscription.number = 0


def save_entry(broker: "Broker", session: Session, entry: Entry) -> None:
    """A child's entry in our table."""
    if session.number == 0:
        return
    assert session.link is not None
    assert broker.unsaved is not None
    number = session.link.entry_numbers[entry] = broker.take_number()
    broker.unsaved[ENTRY | number] = (session.number, entry)


def forget_entry(broker: "Broker", session: Session, entry: Entry) -> None:
    assert session.link is not None
    number = session.link.entry_numbers.pop(entry, 0)
    if number:
        assert broker.unsaved is not None
        broker.unsaved[ENTRY | number] = None


def save_known(broker: "Broker", number: int, entry: Entry | None, is_sure: bool) -> int:
    """What the parent knows; returns the number of the row. No entry: it does not know it any more."""
    if broker.unsaved is None:
        return 0
    number = number or broker.take_number()
    broker.unsaved[KNOWN | number] = None if entry is None else (entry, is_sure)
    return number


def save_received_id(broker: "Broker", session: Session, packet_id: int) -> None:
    """The newest packet id that the other end of a link has used; 0: that end begins anew."""
    assert session.link is not None
    session.link.last_received_id = packet_id
    if session.number:
        assert broker.unsaved is not None
        broker.unsaved[RECEIVED_ID | session.number] = session


def take_packet_id(broker: "Broker", session: Session) -> int:
    """A packet id that is not in use; those of a link go on after a restart where they were (`Link.has_received`).

    So that not every message costs a row for that, they are reserved many at a time.
    """
    packet_id = session.take_id()
    if session.link is not None and session.ids_reserved < 0:
        session.ids_reserved = IDS_RESERVED
        save_session(broker, session)
    return packet_id


def save_received(broker: "Broker", session: Session, packet_id: int) -> None:
    """The client has sent a message at QoS 2, and has not released it yet."""
    number = 0
    if session.number:
        assert broker.unsaved is not None
        number = broker.take_number()
        broker.unsaved[RECEIVED | number] = (session.number, packet_id)
    session.received[packet_id] = number


def forget_received(broker: "Broker", session: Session, packet_id: int) -> bool:
    """The client has released a message at QoS 2, or will not; returns False if no such message was open."""
    number = session.received.pop(packet_id, None)
    if number:
        assert broker.unsaved is not None
        broker.unsaved[RECEIVED | number] = None
    return number is not None


def save_delivery(broker: "Broker", session: Session, delivery: Delivery) -> None:
    """It waits, or was sent and waits for its acknowledgement."""
    if session.number == 0:
        return
    assert broker.unsaved is not None
    if delivery.number == 0:
        delivery.message.uses += 1
        delivery.number = broker.take_number()
        delivery.session = session.number
    broker.unsaved[DELIVERY | delivery.number] = delivery


def forget_delivery(broker: "Broker", delivery: Delivery) -> None:
    if delivery.number:
        assert broker.unsaved is not None
        broker.unsaved[DELIVERY | delivery.number] = None
        delivery.number = 0
        _release(broker, delivery.message)


def save_entering(broker: "Broker", message: Message) -> None:
    """It is acknowledged, and in the emulated service at the input."""
    if broker.unsaved is not None and message.qos:
        message.uses += 1
        message.entering = broker.take_number()
        broker.unsaved[ENTERING | message.entering] = message


def forget_entering(broker: "Broker", message: Message) -> None:
    if message.entering:
        assert broker.unsaved is not None
        broker.unsaved[ENTERING | message.entering] = None
        message.entering = 0
        _release(broker, message)


def retain(broker: "Broker", topic: str, message: Message | None) -> None:
    """The retained message of a topic from now on; None: there is none."""
    old = broker.retained.pop(topic, None)
    if message is not None:
        broker.retained[topic] = message
    if broker.unsaved is None:
        return
    if message is not None:
        message.uses += 1
        message.retained = broker.take_number()
        broker.unsaved[RETAINED | message.retained] = message
    if old is not None and old.retained:
        broker.unsaved[RETAINED | old.retained] = None
        old.retained = 0
        _release(broker, old)


def _release(broker: "Broker", message: Message) -> None:
    """The row of a message goes with the last that refers to it."""
    message.uses -= 1
    if message.uses == 0 and message.number:
        assert broker.unsaved is not None
        broker.unsaved[MESSAGE | message.number] = None
        message.number = 0


# -- rows -------------------------------------------------------------------------------------------------------------


def _session_row(it: Session) -> Row:
    link = it.link
    first_id = (it.next_id + it.ids_reserved) % PACKET_IDS + 1  # of the next life
    about_link = (link.peer, link.is_parent, link.is_foreign, first_id) if link is not None else None
    return it.client_id, it.expiry_s, it.expires_at_ns, about_link, it.user


def _subscription_row(it: Subscription) -> Row:
    return (
        it.session.number, it.filter, it.qos, it.no_local, it.retain_as_published, it.identifier, it.identity,
        it.wants_retained,
    )  # fmt: skip


def _entry_row(it: tuple[int, Entry]) -> Row:
    return it[0], *it[1]


def _known_row(it: tuple[Entry, bool]) -> Row:
    return *it[0], it[1]


def _received_id_row(it: Session) -> Row:
    assert it.link is not None
    return (it.link.last_received_id,)


def _message_row(it: Message) -> Row:
    properties = tuple(it.properties) if it.properties != NO_PROPERTIES else None
    return it.topic, it.payload, it.qos, it.retain, it.origin, it.sequence, it.expires_at_ns, properties


def _delivery_row(it: Delivery) -> Row:
    answers = tuple(it.answers) if it.answers is not None else None
    message = it.message.number or _message_row(it.message)
    return it.session, message, it.qos, it.retain, it.packet_id, it.is_released, it.identifiers, answers


def _entering_row(it: Message) -> Row:
    publisher = it.publisher.number if isinstance(it.publisher, Session) else 0
    return it.number, publisher, tuple(it.replay_for) if it.replay_for is not None else None


_ROWS: dict[int, Any] = {
    SESSION: _session_row,
    SUBSCRIPTION: _subscription_row,
    ENTRY: _entry_row,
    KNOWN: _known_row,
    RECEIVED_ID: _received_id_row,
    RECEIVED: tuple,
    RETAINED: lambda it: (it.number,),
    DELIVERY: _delivery_row,
    ENTERING: _entering_row,
}

"""The state of a broker as rows of a store: one function per kind of row. restore.py reads what they write."""

from typing import Any

from brokerbed.broker.core.link import PACKET_IDS
from brokerbed.broker.core.run import Batch
from brokerbed.broker.core.session import Delivery, SentRun, Session
from brokerbed.broker.core.subscriptions import Subscription
from brokerbed.broker.values import NO_PROPERTIES, Entry, Message

Row = tuple[Any, ...]  # contains numbers, text, bytes, None, and tuples of them
OF_DELIVERY = 8  # the length of a delivery's row; there is one more element if the delivery is held
EXPIRES_AT = 6  # where a message's row has the time at which it dies
SENT, RELEASED = 1, 2  # states of messages in the row of a sent run


def session_row(session: Session) -> Row:
    link = session.link
    first_id = (session.next_id + session.ids_reserved) % PACKET_IDS + 1  # the first packet id after a restart
    about_link = None
    if link is not None:
        move = link.is_silent, link.is_successor, link.has_moved, link.moves_to, link.came_from, link.hands_over
        about_link = link.peer, link.is_parent, link.is_foreign, first_id, *move, link.skips, link.address
    row = session.client_id, session.expiry_s, session.expires_at_ns, about_link, session.user
    if link is not None:
        return row
    return *row, tuple(session.claimed), None if session.move is None else session.move.row()


def subscription_row(subscription: Subscription) -> Row:
    return (
        subscription.session.row_number,
        subscription.filter,
        subscription.qos,
        subscription.no_local,
        subscription.retain_as_published,
        subscription.identifier,
        subscription.identity,
        subscription.wants_retained,
    )


def entry_row(row: tuple[int, Entry]) -> Row:
    return row[0], *row[1]


def announced_row(announced: tuple[Session, Entry, bool]) -> Row:
    session, entry, is_acknowledged = announced
    return *entry, is_acknowledged, session.row_number


def received_id_row(session: Session) -> Row:
    assert session.link is not None
    return (session.link.last_received_id,)


def message_row(message: Message) -> Row:
    properties = tuple(message.properties) if message.properties != NO_PROPERTIES else None
    row = (
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        message.origin,
        message.sequence,
        message.expires_at_ns,
        properties,
    )
    return (*row, True) if message.is_unadvertised else row


def delivery_row(delivery: Delivery) -> Row:
    answers = tuple(delivery.answers) if delivery.answers is not None else None
    message = delivery.message.row_number or message_row(delivery.message)
    row = (
        delivery.session_row,
        message,
        delivery.qos,
        delivery.retain,
        delivery.packet_id,
        delivery.is_released,
        delivery.identifiers,
        answers,
    )
    return (*row, True) if delivery.is_held else row


def run_row(run: Batch) -> Row:
    return (
        run.data, run.size, run.raw_topic, run.topic, run.payload_at, run.form, run.qos, run.origin, run.sequence,
        run.is_additional,
    )  # fmt: skip


def sent_run_row(changed: tuple[Session, SentRun]) -> Row:
    """The states of its messages are SENT or RELEASED, or 0 for those that are not in flight any more."""
    session, sent = changed
    in_flight = [session.inflight.get(packet_id) for packet_id in range(sent.first_id, sent.first_id + sent.count)]
    states = [
        (RELEASED if other.is_released else SENT) if isinstance(other, SentRun) and other.row is sent.row else 0
        for other in in_flight
    ]
    return session.row_number, sent.run.row_number, sent.qos, sent.first_id, sent.start, bytes(states)


def entering_row(message: Message) -> Row:
    publisher = message.publisher.row_number if isinstance(message.publisher, Session) else 0
    return message.row_number, publisher, tuple(message.replay_for) if message.replay_for is not None else None

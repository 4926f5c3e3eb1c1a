"""Restores a broker to the state in which it was last stored: turns the rows of persist.py into sessions and tables."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from brokerbed.broker.core import advertisements, deliver, handle_publish, persist, session_end
from brokerbed.broker.core.access import may_publish, may_subscribe
from brokerbed.broker.core.link import MOVE_TOPIC, PACKET_IDS
from brokerbed.broker.core.moving import AWAY, Moving, moved_in
from brokerbed.broker.core.rows import EXPIRES_AT, OF_DELIVERY, RELEASED, Row
from brokerbed.broker.core.run import Batch
from brokerbed.broker.core.session import Delivery, RunRow, SentRun, Session
from brokerbed.broker.core.subscriptions import Subscription, split_share
from brokerbed.broker.values import NO_PROPERTIES, NS_PER_S, Entry, Message, Properties, topic_head
from brokerbed.log.record import Reason
from brokerbed.topics import ADVERTISE

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker

NUMBER = (1 << persist.SHIFT) - 1  # mask for the row number in a key


class _Restoring:
    """Has one method per kind of row. Rows come in the order of kinds, and within a kind in the order of creation."""

    def __init__(self, broker: "Broker", now_ns: int) -> None:
        self.broker = broker
        self.now_ns = now_ns
        self.sessions: dict[int, Session] = {}  # by row number
        self.messages: dict[int, Message] = {}  # by row number
        self.runs: dict[int, Batch] = {}  # by row number
        self.entering_messages: list[Message] = []
        self.forbidden: list[tuple[Session, Delivery]] = []
        self._read_permissions: dict[tuple[Session, str], bool] = {}

    def log(self, number: int, row: Row) -> None:
        """The driver owns this row."""

    def session(self, number: int, row: Row) -> None:
        client_id, expiry_s, expires_at_ns, link, user, *roaming = row  # `roaming`: since version 7 of the store
        broker = self.broker
        demand = None if link is not None else broker.config.session_service.get(client_id)
        is_staged = link is not None and broker.config.service_link is not None
        session = self.sessions[number] = Session(client_id, demand, is_staged)
        session.row_number, session.expiry_s, session.user = number, expiry_s, user
        is_trusted = link is not None and (link[1] or broker.config.proves_links)  # parent or proven link
        session.access = None if is_trusted else broker.config.access
        session.queue = _StoredQueue()
        name = client_id
        if link is not None:
            opened = broker.overlay.open_link(session, link[0], link[1])
            opened.is_foreign, session.next_id, *move = link[2:]  # `move` is missing before version 6 of the store
            if move:
                broker.overlay.link_moves.restore(session, opened, move)
            name = f"{broker.config.name}>{link[0]}"
        if broker.log is not None:
            session.log_number = broker.log.number(name)
        if session.link is not None and session.link.is_parent:
            if not session.link.is_successor:
                broker.overlay.restore_parent(session)
        else:
            sessions = broker.sessions if link is None else broker.links
            sessions[self._key(session, roaming)] = session
            if expiry_s != session_end.NEVER_S and session.move is None:
                session.expires_at_ns = expires_at_ns
                if expires_at_ns is None:  # the session was connected: its expiry interval begins now
                    session.expires_at_ns = self.now_ns + expiry_s * NS_PER_S
                    persist.save_session(broker, session)
                session_end.expire_later(broker, session)

    def _key(self, session: Session, roaming: list[Any]) -> str:
        """The key of a session by which the broker finds it. One that is leaving is not found by its client's id."""
        if not roaming:
            return session.client_id
        session.claimed, moving = roaming
        if moving is None:
            return session.client_id
        move = Moving.restored(moving)
        self.broker.session_moves.restored(session, move, self.now_ns)
        return session.client_id + AWAY + move.hop_out if move.target else session.client_id

    def subscription(self, number: int, row: Row) -> None:
        session, topic_filter, qos, no_local, retain_as_published, identifier, identity, wants_retained = row
        restored = self.sessions[session]
        if topic_filter.startswith(ADVERTISE):
            self._advertised(number, Subscription(restored, topic_filter, 0, False, False, 0))
            return
        if not self._may_read(restored, split_share(topic_filter)[1]):
            self._remove(persist.SUBSCRIPTION | number)
            return
        subscription = Subscription(restored, topic_filter, qos, no_local, retain_as_published, identifier)
        subscription.row_number, subscription.identity, subscription.wants_retained = number, identity, wants_retained
        subscription.entry_count = 0 if restored.link is not None else 1
        restored.subscriptions[topic_filter] = subscription
        self.broker.subscriptions.add(subscription)
        self.broker.subscriptions_held += subscription.session.link is None

    def _advertised(self, number: int, subscription: Subscription) -> None:
        session, topics = subscription.session, subscription.filter.removeprefix(ADVERTISE)
        if not may_publish(session.access, session.user, session.client_id, topics):
            self._remove(persist.SUBSCRIPTION | number)
            return
        subscription.row_number = number
        advertisements.note(session, subscription)

    def entry(self, number: int, row: Row) -> None:
        """An entry of a neighbour. The subscription to its filter was restored before."""
        session, topic_filter, identity = row
        entry, restored = Entry(topic_filter, identity), self.sessions[session]
        assert restored.link is not None
        is_interest = entry.is_interest
        if is_interest and topic_filter not in restored.subscriptions and not self._may_read(restored, topic_filter):
            self._remove(persist.ENTRY | number)
            return
        restored.link.table(entry)[entry] = self.now_ns
        restored.link.entry_rows[entry] = number
        if is_interest:
            restored.subscriptions[topic_filter].entry_count += 1
        if is_interest and restored.link.entry_index is not None:
            restored.link.entry_index.add(topic_filter)
        if entry.is_advertisement and restored.link.advertised_index is not None:
            restored.link.advertised_index.add(entry.topics)

    def announced(self, number: int, row: Row) -> None:
        # Before version 4 of the store there was no session in the row: the link was always that to the parent.
        topic_filter, identity, is_acknowledged, *session = row
        restored = self.sessions[session[0]] if session else None
        self.broker.overlay.restore_announced(restored, Entry(topic_filter, identity), number, is_acknowledged)

    def received_id(self, number: int, row: Row) -> None:
        link = self.sessions[number].link
        assert link is not None
        link.last_received_id = row[0]

    def received(self, number: int, row: Row) -> None:
        session, *packet_ids = row
        self.sessions[session].received.update(dict.fromkeys(packet_ids, number))
        self.sessions[session].received_rows[number] = packet_ids

    def message(self, number: int, row: Row) -> None:
        message = self.messages[number] = _message(row)
        message.row_number = number

    def retained(self, number: int, row: Row) -> None:
        message = self.messages[row[0]]
        self.broker.retained[message.topic] = message
        self.broker.retained_bytes += message.size
        message.retained_row = number
        message.references += 1

    def delivery(self, number: int, row: Row) -> None:
        """A delivery that has a packet id is sent again with the same id; others go back to the queue."""
        session, stored, packet_id = self.sessions[row[0]], row[1], row[4]
        message = None
        if isinstance(stored, int):
            message = self.messages[stored]
            message.references += 1
            topic, size = message.topic, message.size
        else:
            topic, size = stored[0], len(topic_head(stored[0])) + len(stored[1])
        if not self._may_read(session, topic):
            self.forbidden.append((session, _delivery(number, row, message)))
            return
        is_notice = topic == MOVE_TOPIC
        if is_notice and session.link is not None:
            session.link.moved_open += moved_in(stored[1] if message is None else message.payload)
        if packet_id:
            session.inflight[packet_id] = _delivery(number, row, message)
            return
        session.is_ordered = session.is_ordered or is_notice or row[2] == 0
        session.queue_bytes += size
        if len(row) > OF_DELIVERY:
            assert session.move is not None
            session.move.held.append(_delivery(number, row, message))
            return
        expires_at_ns = message.expires_at_ns if message is not None else stored[EXPIRES_AT]
        if expires_at_ns is None:
            session.queue.append((number, row, message))  # type: ignore[arg-type]  # see _StoredQueue
            return
        delivery = _delivery(number, row, message)
        session.queue.append(delivery)
        deliver.die_in_time(self.broker, session, delivery, self.now_ns)

    def run(self, number: int, row: Row) -> None:
        *given, origin, sequence, is_additional = row
        run = self.runs[number] = Batch(*given)
        run.row_number = number
        run.origin, run.sequence, run.is_additional = origin, sequence, is_additional

    def sent_run(self, number: int, row: Row) -> None:
        session, run, qos, first_id, start, states = row
        sent = SentRun(self.runs[run], qos, first_id, start, len(states), None)
        sent.row = RunRow(number, len(states) - states.count(0))
        sent.run.references += 1
        self.broker.last_row_number = max(self.broker.last_row_number, number + len(states) - 1)
        restored = self.sessions[session]
        for packet_id, state in enumerate(states, first_id):
            if state:
                restored.inflight[packet_id] = sent.released() if state == RELEASED else sent
                delivery = persist.delivery_in_flight(self.broker, restored, packet_id)
                assert delivery is not None
                delivery.has_waited = True
                if not self._may_read(restored, delivery.message.topic):
                    del restored.inflight[packet_id]
                    self.forbidden.append((restored, delivery))

    def entering(self, number: int, row: Row) -> None:
        """A message that was in the emulated service at the input starts there again."""
        stored, publisher, *replay_for = row  # `replay_for` is missing in version 2 of the store
        message = self.messages[stored]
        message.references += 1
        message.entering_row = number
        message.publisher = self.sessions.get(publisher)
        message.replay_for = Entry(*replay_for[0]) if replay_for and replay_for[0] is not None else None
        self.entering_messages.append(message)

    def _may_read(self, session: Session, topic: str) -> bool:
        """Whether a session may still read a topic: the access rules may have changed since the row was stored."""
        access = session.access
        if access is None:
            return True
        is_allowed = self._read_permissions.get((session, topic))
        if is_allowed is None:
            is_allowed = self._read_permissions[session, topic] = may_subscribe(
                access, session.user, session.client_id, topic
            )
        return is_allowed

    def _remove(self, key: int) -> None:
        assert self.broker.unsaved is not None
        self.broker.unsaved[key] = None


class _StoredQueue(deque[Delivery]):
    """The queue of a restored session. Its items are rows at first, and each becomes a Delivery when it is first read.

    Creating a million deliveries at once would add seconds to a restart. A row must become one Delivery, never two,
    because the Delivery knows its row in the store and counts as one reference to its message. The type of an item that
    has not been read is `tuple[int, Row, Message | None]`: the arguments of `_delivery`.
    """

    def popleft(self) -> Delivery:
        item: Any = super().popleft()
        return _delivery(*item) if type(item) is tuple else item

    def __getitem__(self, index: Any) -> Any:
        item: Any = super().__getitem__(index)
        if type(item) is tuple:
            item = self[index] = _delivery(*item)
        return item

    def __iter__(self) -> Iterator[Delivery]:
        items: Iterator[Any] = super().__iter__()
        made = [_delivery(*item) if type(item) is tuple else item for item in items]
        self.clear()
        self.extend(made)
        return super().__iter__()


def _delivery(number: int, row: Row, message: Message | None) -> Delivery:
    """The delivery in a row. `message` is None if the message is part of the row."""
    session, stored, qos, retain, packet_id, is_released, identifiers, answers, *held = row
    if message is None:
        message = _message(stored)
        message.references = 1
    delivery = Delivery(message, qos, retain, identifiers, None if answers is None else Entry(*answers))
    delivery.row_number, delivery.session_row, delivery.packet_id = number, session, packet_id
    delivery.is_released, delivery.has_waited, delivery.is_held = is_released, True, bool(held)
    return delivery


def _in_order_of_sending(inflight: dict[int, Delivery | SentRun]) -> dict[int, Delivery | SentRun]:
    """The unacknowledged deliveries of a link in the order of sending. Emulated service may have reordered them.

    Packet ids wrap around and only some of them are in use, so the oldest one follows the largest gap.
    """
    ids = sorted(inflight)
    gaps = [(later - earlier) % PACKET_IDS for earlier, later in pairwise([*ids[-1:], *ids])]
    first = gaps.index(max(gaps)) if gaps else 0
    return {packet_id: inflight[packet_id] for packet_id in (*ids[first:], *ids[:first])}


def _message(row: Row) -> Message:
    topic, payload, qos, retain, origin, sequence, expires_at_ns, properties, *unadvertised = row
    given = NO_PROPERTIES if properties is None else Properties(*properties)
    message = Message(topic, payload, qos, retain, None, given, expires_at_ns)
    message.origin, message.sequence = origin, sequence
    message.is_unadvertised = bool(unadvertised)
    return message


_KINDS = {
    persist.LOG: "log",
    persist.SESSION: "session",
    persist.SUBSCRIPTION: "subscription",
    persist.ENTRY: "entry",
    persist.ANNOUNCED: "announced",
    persist.RECEIVED_ID: "received_id",
    persist.RECEIVED: "received",
    persist.MESSAGE: "message",
    persist.RETAINED: "retained",
    persist.DELIVERY: "delivery",
    persist.ENTERING: "entering",
    persist.RUN: "run",
    persist.SENT_RUN: "sent_run",
}


def restore(broker: "Broker", rows: Iterable[tuple[int, Row]], now_ns: int) -> None:
    """Restore a new broker from rows in the order of their keys. Any error means that the rows are inconsistent."""
    assert broker.unsaved is not None
    restoring = _Restoring(broker, now_ns)
    handlers = {kind: getattr(restoring, name) for kind, name in _KINDS.items()}
    number = 0
    for key, row in rows:
        number = key & NUMBER
        handlers[key - number](number, row)
        if number > broker.last_row_number:
            broker.last_row_number = number
    for session in restoring.sessions.values():
        if session.link is not None:
            session.inflight = _in_order_of_sending(session.inflight)
        elif restoring.runs:  # deliveries and runs were restored one kind after the other
            in_order = sorted(persist.deliveries_in_flight(broker, session).values(), key=attrgetter("row_number"))
            session.inflight = {delivery.packet_id: delivery for delivery in in_order}
    broker.overlay.rebuild_strategy()
    for session, delivery in restoring.forbidden:
        deliver.drop(broker, session, delivery, Reason.NOT_AUTHORIZED, now_ns)
    for message in restoring.entering_messages:
        persist.forget_entering(broker, message)
        if message.topic == MOVE_TOPIC:
            broker.overlay.link_moves.entered(message, now_ns)
        else:
            handle_publish.enter(broker, message, now_ns)

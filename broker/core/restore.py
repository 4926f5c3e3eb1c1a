"""A broker as it was when its store was last written: the rows of persist.py made into sessions, tables and queues."""

from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from broker.core import child_link, handle_connect, handle_publish, persist
from broker.core.link import Link, Mark
from broker.core.persist import Row
from broker.core.session import Delivery, Session
from broker.core.subscriptions import Subscription
from broker.values import NO_PROPERTIES, NS_PER_S, Entry, Message, Properties, topic_head

if TYPE_CHECKING:
    from broker.core.broker import Broker

NUMBER = (1 << persist.SHIFT) - 1  # the part of a key that is the number


class _Restoring:
    """Rows come in the order of their kinds, and within a kind in the order in which they were made."""

    def __init__(self, broker: "Broker", now_ns: int) -> None:
        self.broker = broker
        self.now_ns = now_ns
        self.sessions: dict[int, Session] = {}
        self.messages: dict[int, Message] = {}
        self.inputs: list[Message] = []

    def log(self, number: int, row: Row) -> None:
        """It is the driver's."""

    def session(self, number: int, row: Row) -> None:
        client_id, expiry_s, expires_at_ns, link = row
        broker = self.broker
        demand = None if link is not None else broker.config.session_service.get(client_id)
        is_staged = link is not None and broker.config.service_link is not None
        session = self.sessions[number] = Session(client_id, demand, is_staged)
        session.number, session.expiry_s = number, expiry_s
        session.queue = _StoredQueue(self)
        name = client_id
        if link is not None:
            session.link = Link(link[0], link[1])
            session.link.is_foreign = link[2]
            name = f"{broker.config.name}>{link[0]}"
        if broker.log is not None:
            session.log_number = broker.log.number(name)
        if session.link is not None and session.link.is_parent:
            broker.overlay.restore_parent(session)
        else:
            broker.sessions[client_id] = session
            if expiry_s != handle_connect.NEVER_S:  # who was connected until the end has his full time now
                session.expires_at_ns = expires_at_ns or self.now_ns + expiry_s * NS_PER_S
                handle_connect.expire_later(broker, session)
        if session.link is not None and (session.link.is_parent or broker.overlay.strategy.floods):
            child_link.subscribe_to_all(broker, session)

    def subscription(self, number: int, row: Row) -> None:
        session, topic_filter, qos, no_local, retain_as_published, identifier, identity, wants_retained = row
        its = self.sessions[session]
        subscription = Subscription(its, topic_filter, qos, no_local, retain_as_published, identifier)
        subscription.number, subscription.identity, subscription.wants_retained = number, identity, wants_retained
        subscription.uses = 0 if its.link is not None else 1
        its.subscriptions[topic_filter] = subscription
        self.broker.subscriptions.add(subscription)

    def entry(self, number: int, row: Row) -> None:
        """Of a child; the subscription to that filter is there already."""
        session, topic_filter, identity = row
        entry, its = Entry(topic_filter, identity), self.sessions[session]
        assert its.link is not None
        its.link.entries[entry] = self.now_ns
        its.link.entry_numbers[entry] = number
        its.subscriptions[topic_filter].uses += 1

    def known(self, number: int, row: Row) -> None:
        topic_filter, identity, is_sure = row
        self.broker.overlay.restore_known(Entry(topic_filter, identity), number, is_sure)

    def mark(self, number: int, row: Row) -> None:
        session, origin, sequence = row
        link = self.sessions[session].link
        assert link is not None
        mark = link.marks[origin] = Mark(origin)
        mark.number, mark.session, mark.sequence = number, session, sequence

    def received(self, number: int, row: Row) -> None:
        del number
        session, packet_id = row
        self.sessions[session].received[packet_id] = None

    def message(self, number: int, row: Row) -> None:
        message = self.messages[number] = _message(row)
        message.number = number

    def retained(self, number: int, row: Row) -> None:
        message = self.messages[row[0]]
        self.broker.retained[message.topic] = message
        message.retained = number
        message.uses += 1

    def delivery(self, number: int, row: Row) -> None:
        """What was sent, or about to be sent, is sent again with the same packet id."""
        session, stored, packet_id = self.sessions[row[0]], row[1], row[4]
        if isinstance(stored, int):
            message = self.messages[stored]
            message.uses += 1
            size = message.size
        else:
            size = len(topic_head(stored[0])) + len(stored[1])
        if packet_id:
            session.inflight[packet_id] = self.made(number, row)
            return
        session.queue_bytes += size
        session.queue.append((number, row))  # type: ignore[arg-type]  # see _StoredQueue

    def made(self, number: int, row: Row) -> Delivery:
        session, stored, qos, retain, packet_id, is_released, identifiers, answers = row
        if isinstance(stored, int):
            message = self.messages[stored]
        else:
            message = _message(stored)
            message.uses = 1
        delivery = Delivery(message, qos, retain, identifiers, None if answers is None else Entry(*answers))
        delivery.number, delivery.session, delivery.packet_id = number, session, packet_id
        delivery.is_released, delivery.has_waited = is_released, True
        return delivery

    def entering(self, number: int, row: Row) -> None:
        """It was in the emulated service at the input, and begins there anew."""
        message = self.messages[row[0]]
        message.uses += 1
        message.entering = number
        message.publisher = self.sessions.get(row[1])
        self.inputs.append(message)


class _StoredQueue(deque[Delivery]):
    """The queue of a session as it was stored: a row becomes a delivery when somebody looks at it.

    So a broker with a million messages in its queues is back soon.
    """

    def __init__(self, restoring: _Restoring) -> None:
        super().__init__()
        self._restoring = restoring

    def _made(self, it: Any) -> Delivery:
        return self._restoring.made(*it) if type(it) is tuple else it

    def popleft(self) -> Delivery:
        return self._made(super().popleft())

    def __getitem__(self, index: Any) -> Any:
        made = self[index] = self._made(super().__getitem__(index))
        return made

    def __iter__(self) -> Iterator[Delivery]:
        return map(self._made, super().__iter__())


def _message(row: Row) -> Message:
    topic, payload, qos, retain, origin, sequence, expires_at_ns, properties = row
    given = NO_PROPERTIES if properties is None else Properties(*properties)
    message = Message(topic, payload, qos, retain, None, given, expires_at_ns)
    message.origin, message.sequence = origin, sequence
    return message


_KINDS = {
    persist.LOG: "log",
    persist.SESSION: "session",
    persist.SUBSCRIPTION: "subscription",
    persist.ENTRY: "entry",
    persist.KNOWN: "known",
    persist.MARK: "mark",
    persist.RECEIVED: "received",
    persist.MESSAGE: "message",
    persist.RETAINED: "retained",
    persist.DELIVERY: "delivery",
    persist.ENTERING: "entering",
}


def restore(broker: "Broker", rows: Iterable[tuple[int, Row]], now_ns: int) -> None:
    """Into a broker that is new, from rows in the order of their keys; errors mean that they do not fit together."""
    assert broker.unsaved is not None
    restoring = _Restoring(broker, now_ns)
    handlers = {kind: getattr(restoring, name) for kind, name in _KINDS.items()}
    number = 0
    for key, row in rows:
        number = key & NUMBER
        handlers[key - number](number, row)
        if number > broker.last_number:
            broker.last_number = number
    broker.overlay.count_interest()
    for message in restoring.inputs:
        persist.forget_entering(broker, message)
        handle_publish.enter(broker, message, now_ns)

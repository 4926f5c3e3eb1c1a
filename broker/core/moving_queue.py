"""The queue of a session that moves: which new messages are for it, and where they wait.

At the broker to which a session comes, its queue has what came from the broker before, and new messages are held behind
that until nothing more comes. At the broker that it leaves, new messages go to the end of the queue, at QoS 0 as well.
"""

from typing import TYPE_CHECKING

from brokerbed.broker.core import deliver, persist
from brokerbed.broker.core.access import may_subscribe
from brokerbed.broker.core.moving import Moving
from brokerbed.broker.core.session import Delivery, Session, is_from
from brokerbed.log.record import Reason

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker

RELEASED_AT_A_TIME = 10  # messages that go from those held to the queue before it is the turn of other work


def keeps(broker: "Broker", session: Session, move: Moving, delivery: Delivery, now_ns: int) -> bool:
    """Take care of a new message for a session that moves; returns False if it is to be delivered as usual."""
    if move.source:
        if not move.is_taken:
            return True  # the broker before still gets it, and passes it on
        if not move.is_given and is_from(delivery.message.publisher, move.source):
            return True  # it has got it, and passes it on
    if move.source or move.held:
        _hold(broker, session, move, delivery, now_ns)
    elif move.target:
        append(broker, session, delivery, now_ns)
        pass_on(broker, session, now_ns)
    else:
        move.has_seen(delivery.message)
        return False
    return True


def append(broker: "Broker", session: Session, delivery: Delivery, now_ns: int) -> None:
    """Add a message to the end of the queue, or send it if the client is here and nothing waits before it."""
    access = session.access
    if access is not None and not may_subscribe(access, session.user, session.client_id, delivery.message.topic):
        deliver.drop(broker, session, delivery, Reason.NOT_AUTHORIZED, now_ns)
        return
    session.is_ordered = session.is_ordered or session.connection is None
    deliver.send_or_queue(broker, session, delivery, now_ns)


def pass_on(broker: "Broker", session: Session, now_ns: int) -> None:
    """If the session is leaving, what was added to its queue goes to the neighbour in its turn."""
    if session.move is not None and session.move.target:
        broker.session_moves.has_more(session, now_ns)


def _hold(broker: "Broker", session: Session, move: Moving, delivery: Delivery, now_ns: int) -> None:
    config, size = broker.config, delivery.message.size
    while (
        len(session.queue) + len(move.held) >= config.queue_messages_max
        or session.queue_bytes + size > config.queue_bytes_max
    ):
        oldest = None if config.queue_policy == "reject" else session.pop_unsent() or _pop(session, move)
        if oldest is None:
            deliver.drop(broker, session, delivery, Reason.QUEUE_FULL, now_ns)
            return
        deliver.drop(broker, session, oldest, Reason.QUEUE_FULL, now_ns)
    delivery.queued_at_ns = now_ns
    delivery.is_held = True
    move.held.append(delivery)
    session.queue_bytes += size
    if session.row_number:
        persist.save_delivery(broker, session, delivery)
    deliver.log_queued(broker, session, delivery, now_ns)


def _pop(session: Session, move: Moving) -> Delivery | None:
    if not move.held:
        return None
    delivery = move.held.popleft()
    session.queue_bytes -= delivery.message.size
    delivery.is_held = False
    return delivery


def release(broker: "Broker", session: Session, now_ns: int) -> None:
    """Nothing more comes from the broker before: what was held goes to the end of the queue, a little at a time.

    It gets new rows in the store, because the queue is restored in the order of their numbers.
    """
    move = session.move
    if move is None or move.source:
        return
    for _ in range(min(RELEASED_AT_A_TIME, len(move.held))):
        delivery = _pop(session, move)
        assert delivery is not None
        persist.forget_delivery(broker, delivery)
        append(broker, session, delivery, now_ns)
    pass_on(broker, session, now_ns)
    if move.held:
        broker.timers.in_background(now_ns, _continue, session)
    else:
        broker.session_moves.came_to_an_end(session, now_ns)


def _continue(broker: "Broker", session: Session, now_ns: int) -> None:
    release(broker, session, now_ns)

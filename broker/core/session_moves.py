"""Moves a client's session to another broker, hop by hop along the tree, while messages flow.

Each hop is between two neighbours: the session leaves one and arrives at the other. They exchange notices, as those of
link_moves.py: each arrives after everything that was sent over the link before it, survives cuts and kills, and what it
changes is stored together with it.

- `session`, to the neighbour: everything about the session but its messages. The neighbour makes the same session with
  the same subscriptions at once, but ignores all messages for it.
- messages, several in a notice: first those that were sent to the client and are not acknowledged, then the notice
  `begun`, then the queue. New messages for the session go to the end of the queue. At most MOVED_WINDOW of all sessions
  are unacknowledged on a link at a time, so that what others send waits behind few of them.
- `taken`, from the neighbour, once its new interest is acknowledged. Everything that it had sent over the link for the
  session is in the queue. From now on the neighbour holds new messages, except those that come over the link.
- `given`, to the neighbour: the subscriptions here are gone, and the queue does not grow any more. What comes over the
  link after it is for the session there, too. The session is settled there: a client can resume it, or it goes on.
- `end`, to the neighbour: the queue is empty, and the session is forgotten here. What was held comes behind it.

So interest appears at one end of a link before it goes at the other; each message is put into the queue by exactly one
of the two, and those of a publisher stay in order. A session that comes to a broker where its client has a new session
adds its messages to that one.
"""

from typing import TYPE_CHECKING, Any

from brokerbed.broker.core import deliver, handle_subscribe, lifetime, moving, moving_queue, persist, session_end
from brokerbed.broker.core.link import Link
from brokerbed.broker.core.moving import AWAY, MOVED_BYTES_MAX, Moving
from brokerbed.broker.core.session import Delivery, Session
from brokerbed.broker.core.session_arrivals import SessionArrivals
from brokerbed.log.record import Kind, Reason

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker

MOVED_WINDOW = 200  # messages of moving sessions on a link; enough to keep it busy, and few beside a link's window
PASSED_AT_A_TIME = 10  # messages before it is the turn of other work, and of the next session that leaves over a link


class SessionMoves:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.hops = 0  # how many sessions have left, or begun to
        self._outgoing: dict[str, Session] = {}  # hop -> the session that leaves
        # Leaving sessions with something to pass on, by neighbour and whether they have begun with their queues. Those
        # that have not go first: their clients wait for that, and must not wait behind the queues of others.
        self._ready: dict[tuple[str, bool], dict[Session, None]] = {}
        self._paused: dict[str, None] = {}  # neighbours to which messages are passed on again in a moment
        self._delayed: dict[Session, None] = {}  # sessions that cannot go on at the moment
        self.arrivals = SessionArrivals(broker)
        self.handlers = {"taken": self._taken, **self.arrivals.handlers}

    @property
    def is_busy(self) -> bool:
        """Whether sessions are on their way over links of this broker, which therefore must not move."""
        return bool(self._outgoing or self.arrivals.sessions)

    # -- a session leaves -----------------------------------------------------------------------------------------

    def follow(self, session: Session, way: tuple[str, ...], now_ns: int) -> None:
        """Have a session go this way, now or as soon as it has settled here and the link can be used."""
        move = session.move = session.move or Moving()
        session.has_service = True  # every message for it is looked at, see deliver.deliver
        move.way = way
        if move.is_settled:
            self._go(session, move, now_ns)
        else:
            persist.save_session(self._broker, session)

    def stay(self, session: Session, now_ns: int) -> None:
        """The client has come to this broker."""
        self._delayed.pop(session, None)
        if session.move is not None:
            session.move.way = ()
            self.came_to_an_end(session, now_ns)

    def retry(self, now_ns: int) -> None:
        """Links have changed: sessions that could not go on may do so now."""
        for session in list(self._delayed):
            assert session.move is not None
            self._go(session, session.move, now_ns)

    def _go(self, session: Session, move: Moving, now_ns: int) -> None:
        broker, link_moves = self._broker, self._broker.overlay.link_moves
        target = link_moves.neighbour(move.way[0])
        if target is None:
            self._delayed.pop(session, None)
            self.arrivals.rest(session, move, now_ns)
            return
        if target.connection is None or link_moves.is_moving:
            self._delayed[session] = None
            persist.save_session(broker, session)
            return
        self._delayed.pop(session, None)
        session_end.take_over(broker, session, now_ns)
        session_end.forget_will(broker, session)
        if session.expires_at_ns is not None:
            move.left_ns, session.expires_at_ns = max(0, session.expires_at_ns - now_ns), None
        self.hops += 1
        hop = move.hop_out = f"{broker.origin}/{self.hops}"
        move.target, *rest = move.way
        move.way = ()
        del broker.sessions[session.client_id]
        broker.sessions[session.client_id + AWAY + hop] = session
        persist.deliveries_in_flight(broker, session)
        self._outgoing[hop] = session
        persist.save_session(broker, session)
        content = moving.described(session)
        self._notify(target, now_ns, do="session", hop=hop, way=rest, left_ns=move.left_ns, **content)
        self._begin(session, move, target, now_ns)
        self.has_more(session, now_ns)

    def has_more(self, session: Session, now_ns: int) -> None:
        """There is something new to pass on for a session that is leaving."""
        assert session.move is not None
        self._make_ready(session, session.move)
        self._run(session.move.target, now_ns)

    def _make_ready(self, session: Session, move: Moving) -> None:
        self._ready.setdefault((move.target, move.is_begun_out), {})[session] = None

    def acknowledged(self, session: Session, delivery: Delivery, now_ns: int) -> None:
        """The neighbour at the other end of a link has acknowledged a notice."""
        link = session.link
        assert link is not None
        moved = moving.moved_in(delivery.message.payload) if delivery.is_notice else 0
        if moved:
            link.moved_open -= moved
            if link.moved_open <= MOVED_WINDOW // 2:
                self._run(link.peer, now_ns)

    def _run(self, neighbour: str, now_ns: int) -> None:
        """Pass on some messages of the sessions that leave over a link, in turn, as far as the window allows."""
        target = self._broker.overlay.link_moves.neighbour(neighbour)
        if neighbour in self._paused or target is None or target.link is None:
            return
        left = PASSED_AT_A_TIME
        for is_begun in (False, True):
            ready = self._ready.get((neighbour, is_begun))
            while ready and left > 0 and (room := MOVED_WINDOW - target.link.moved_open) > 0:
                session = next(iter(ready))
                del ready[session]
                passed = self._pass_on(session, target, min(left, room), now_ns)
                left -= max(1, passed)
                if passed and (session.inflight or session.queue):
                    assert session.move is not None
                    self._make_ready(session, session.move)
        if left <= 0 and target.link.moved_open < MOVED_WINDOW:
            self._paused[neighbour] = None
            self._broker.timers.in_background(now_ns, _goes_on, neighbour)

    def goes_on(self, neighbour: str, now_ns: int) -> None:
        self._paused.pop(neighbour)
        self._run(neighbour, now_ns)

    def _pass_on(self, session: Session, target: Session, count: int, now_ns: int) -> int:
        """Pass on up to so many messages of a session; returns how many."""
        move, passed = session.move, 0
        assert move is not None
        while passed < count and (session.inflight or session.queue):
            self._begin(session, move, target, now_ns)
            together, size, size_max = list[Delivery](), 0, self._bytes_max(target)
            while passed + len(together) < count and (following := self._following(session, move)) is not None:
                size += following.message.size
                if together and size > size_max:
                    break
                together.append(self._take(session))
            self._pass(session, move, target, together, now_ns)
            passed += len(together)
        if not (session.inflight or session.queue):
            self._begin(session, move, target, now_ns)
            if move.is_given_out and not (move.source or move.held or move.merges):
                self._left(session, move, target, now_ns)
        return passed

    @staticmethod
    def _bytes_max(target: Session) -> int:
        """How much may go into one notice with other messages; nothing if the neighbour takes only small packets."""
        connection = target.connection
        return MOVED_BYTES_MAX if connection is None or connection.packet_bytes_max > 4 * MOVED_BYTES_MAX else 0

    @staticmethod
    def _following(session: Session, move: Moving) -> Delivery | None:
        """What is passed on next. None at the end, and where the neighbour has to be told first, see `_begin`."""
        if session.inflight:
            delivery = session.inflight[next(iter(session.inflight))]
            assert isinstance(delivery, Delivery)
            return delivery
        return session.queue[0] if session.queue and (move.is_begun_out or session.queue[0].packet_id) else None

    @staticmethod
    def _take(session: Session) -> Delivery:
        if session.inflight:
            return session.inflight.pop(next(iter(session.inflight)))  # type: ignore[return-value]
        return session.pop()

    def _begin(self, session: Session, move: Moving, target: Session, now_ns: int) -> None:
        """Tell the neighbour once everything has been passed on that was sent to the client and not acknowledged."""
        if not (move.is_begun_out or session.inflight or (session.queue and session.queue[0].packet_id)):
            move.is_begun_out = True
            persist.save_session(self._broker, session)
            self._notify(target, now_ns, do="begun", hop=move.hop_out)

    def _pass(self, session: Session, move: Moving, target: Session, deliveries: list[Delivery], now_ns: int) -> None:
        """Pass on messages in one notice."""
        broker, log = self._broker, self._broker.log
        passed = []
        for delivery in deliveries:
            if not delivery.packet_id and lifetime.is_over(delivery.message.expires_at_ns, now_ns):
                deliver.drop(broker, session, delivery, Reason.EXPIRED, now_ns)
                continue
            broker.timers.cancel(delivery.expiry_timer)
            persist.forget_delivery(broker, delivery)
            passed.append(delivery)
        if not passed:
            return
        assert target.link is not None
        target.link.moved_open += len(passed)
        broker.overlay.link_moves.send_notice(target, moving.written(broker, move.hop_out, passed, now_ns), now_ns)
        if log is None:
            return
        for delivery in passed:
            message = delivery.message
            log.add(
                now_ns, Kind.MOVED, target.log_number, log.number(message.topic), message.sequence,
                len(message.payload), delivery.qos, origin=log.origin(message.origin) if message.origin else -1,
                route=session.log_number,
            )  # fmt: skip

    def _taken(self, source: Session, content: dict[str, Any], now_ns: int) -> None:
        """The neighbour has taken over: from now on it gets new messages by itself."""
        session = self._outgoing.get(content["hop"])
        if session is None or session.move is None:
            return
        session.move.is_given_out = True
        handle_subscribe.forget_all(self._broker, session, now_ns)
        persist.save_session(self._broker, session)
        self._notify(source, now_ns, do="given", hop=content["hop"])
        self.has_more(session, now_ns)

    def _left(self, session: Session, move: Moving, target: Session, now_ns: int) -> None:
        broker = self._broker
        self._notify(target, now_ns, do="end", hop=move.hop_out)
        del self._outgoing[move.hop_out]
        del broker.sessions[session.client_id + AWAY + move.hop_out]
        persist.forget_session(broker, session)
        session.move = None
        if broker.log is not None:
            broker.log.add(now_ns, Kind.SESSION_LEFT, session.log_number, broker.log.number(move.target))

    # -- all of them ----------------------------------------------------------------------------------------------

    def came_to_an_end(self, session: Session, now_ns: int) -> None:
        """Something of the move of a session is done, maybe the last of it."""
        broker, move = self._broker, session.move
        if move is None:
            return
        if move.target:
            self.has_more(session, now_ns)
        elif move.is_over:
            session.move = None
            session.has_service = session.demand is not None
            if session.connection is None and session.expires_at_ns is None:
                session_end.begin_expiry(broker, session, move.left_ns, now_ns)
            persist.save_session(broker, session)

    def linked(self, session: Session, now_ns: int) -> None:
        """A link is up."""
        assert session.link is not None
        session.link.claims_queued = 0
        self.arrivals.linked(session, now_ns)
        self.retry(now_ns)
        self._run(session.link.peer, now_ns)

    def link_forgotten(self, link: Link, now_ns: int) -> None:
        """The neighbour at the other end of a link has lost everything, or the link has been removed.

        What has been passed on is lost with it; what was not comes to rest here.
        """
        self.arrivals.link_forgotten(link.peer, now_ns)
        for is_begun in (False, True):
            self._ready.pop((link.peer, is_begun), None)
        for hop, session in list(self._outgoing.items()):
            move = session.move
            if move is None or move.target != link.peer:
                continue
            del self._outgoing[hop]
            del self._broker.sessions[session.client_id + AWAY + hop]
            move.target = move.hop_out = ""
            if move.is_given_out or session.client_id in self._broker.sessions:
                session_end.end_session(self._broker, session, now_ns)
            else:
                self._broker.sessions[session.client_id] = session
                self.came_to_an_end(session, now_ns)

    def ended(self, session: Session, now_ns: int) -> None:
        """A session has ended here."""
        self._delayed.pop(session, None)
        if session.move is not None:
            self.arrivals.ended(session, session.move, now_ns)
            session.move = None

    def restored(self, session: Session, move: Moving, now_ns: int) -> None:
        """A session that was moving is restored."""
        session.move, session.has_service, session.is_ordered = move, True, True
        self.arrivals.restored(session, move)
        if move.target:
            self._outgoing[move.hop_out] = session
            self._make_ready(session, move)
        elif move.way and move.is_settled:
            self._delayed[session] = None
        if not move.source:
            self._broker.timers.next_turn(now_ns, _restored, session)

    def _notify(self, session: Session, now_ns: int, **content: Any) -> None:
        self._broker.overlay.link_moves.notify(session, now_ns, **content)


def _goes_on(broker: "Broker", neighbour: str, now_ns: int) -> None:
    broker.session_moves.goes_on(neighbour, now_ns)


def _restored(broker: "Broker", session: Session, now_ns: int) -> None:
    moving_queue.release(broker, session, now_ns)

"""How a client's session arrives at this broker, or passes through it on its way to another; see session_moves.py."""

from typing import TYPE_CHECKING, Any

from brokerbed.broker.core import (
    advertisements,
    deliver,
    handle_subscribe,
    moving,
    moving_queue,
    persist,
    session_end,
)
from brokerbed.broker.core.moving import ClaimKey, Moving
from brokerbed.broker.core.session import Delivery, Session
from brokerbed.broker.core.subscriptions import SHARE
from brokerbed.broker.values import advertisement
from brokerbed.log.record import WAITED, Kind, Reason

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker


class SessionArrivals:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.sessions: dict[str, Session] = {}  # hop -> the session that arrives, or that gets its messages
        self.handlers = {"session": self._session, "begun": self._begun, "given": self._given, "end": self._end}

    def _session(self, source: Session, content: dict[str, Any], now_ns: int) -> None:
        broker, client_id, hop = self._broker, content["client"], content["hop"]
        assert source.link is not None
        broker.session_claims.found(client_id)
        old = broker.sessions.get(client_id)
        if old is not None:
            self._merge(old, source, content, now_ns)
            return
        session = broker.sessions[client_id] = Session(client_id, broker.config.session_service.get(client_id))
        session.user, session.access, session.expiry_s = content["user"], broker.config.access, content["expiry_s"]
        session.next_id, session.service_left_ns = content["next_id"], content["service_left_ns"]
        session.claimed = ClaimKey(*content["claimed"])
        session.has_service = True
        move = session.move = Moving()
        move.source, move.hop_in, move.way = source.link.peer, hop, tuple(content["way"])
        move.left_ns = content["left_ns"]
        self.sessions[hop] = session
        if broker.log is not None:
            session.log_number = broker.log.number(client_id)
            broker.log.add(now_ns, Kind.SESSION_CAME, session.log_number, broker.log.number(source.link.peer))
        persist.save_session(broker, session)
        if content["received"]:
            persist.save_received(broker, session, content["received"])
        for subscription in moving.subscriptions_in(content, session):
            handle_subscribe.add(broker, subscription, [], now_ns)
        for topics in content["advertised"]:
            advertisements.add(broker, session, advertisement(topics), False, now_ns)
        self._take_when_announced(session, source, now_ns)

    def _take_when_announced(self, session: Session, source: Session, now_ns: int) -> None:
        """Tell the neighbour that this broker takes over, once it has acknowledged all interest and advertisements."""
        assert source.link is not None
        if source.connection is not None:  # else as soon as the link is up again
            source.link.announced.when_acknowledged(lambda now_ns: self._take(session, source, now_ns), now_ns)

    def _take(self, session: Session, source: Session, now_ns: int) -> None:
        move = session.move
        if move is not None and move.source and not move.is_taken:
            move.is_taken = True
            persist.save_session(self._broker, session)
            self._notify(source, now_ns, do="taken", hop=move.hop_in)

    def _merge(self, old: Session, source: Session, content: dict[str, Any], now_ns: int) -> None:
        """The client has a session here already, which gets the messages of the one that comes; its subscriptions end.

        If the client began its session with a clean start, it does not want the messages either.
        """
        assert source.link is not None
        if old.user == content["user"] and not old.is_clean:
            old.move = old.move or Moving()
            old.has_service = True
            old.move.merges[content["hop"]] = source.link.peer
            old.claimed = max(old.claimed, ClaimKey(*content["claimed"]))
            self.sessions[content["hop"]] = old
            persist.save_session(self._broker, old)
        self._notify(source, now_ns, do="taken", hop=content["hop"])

    def moved(self, notice: bytes, now_ns: int) -> None:
        """Messages of a session that is coming here have arrived."""
        hop, deliveries = moving.read(self._broker, notice, now_ns)
        for delivery in deliveries:
            self._moved(hop, delivery, now_ns)
        session = self.sessions.get(hop)
        if session is not None:
            moving_queue.pass_on(self._broker, session, now_ns)

    def _moved(self, hop: str, delivery: Delivery, now_ns: int) -> None:
        broker, session = self._broker, self.sessions.get(hop)
        if session is None or session.move is None:  # the session has ended here meanwhile
            if not delivery.is_released:
                broker.log_message(
                    now_ns, Kind.DROPPED, -1, delivery.message, delivery.qos, Reason.SESSION_ENDED, WAITED
                )
            return
        if hop != session.move.hop_in:
            if delivery.is_released or session.move.has_seen(delivery.message):
                return  # the client has it, or will get it
            delivery.packet_id = 0  # the client does not know it any more
        if not delivery.packet_id:
            moving_queue.append(broker, session, delivery, now_ns)
            return
        session.inflight[delivery.packet_id] = delivery
        persist.save_delivery(broker, session, delivery)
        deliver.log_queued(broker, session, delivery, now_ns)

    def _begun(self, _: Session, content: dict[str, Any], now_ns: int) -> None:
        session = self._arriving(content["hop"])
        if session is not None and session.move is not None:
            session.move.is_begun = True
            self._settle(session, session.move, now_ns)

    def _given(self, _: Session, content: dict[str, Any], now_ns: int) -> None:
        session = self._arriving(content["hop"])
        if session is not None and session.move is not None:
            session.move.is_given = True
            for topic_filter in session.subscriptions:
                if topic_filter.startswith(SHARE):
                    self._broker.subscriptions.group_changed(topic_filter)
            self._settle(session, session.move, now_ns)

    def _arriving(self, hop: str) -> Session | None:
        """The session that arrives, if it is not only its messages that do."""
        session = self.sessions.get(hop)
        return session if session is not None and session.move is not None and session.move.hop_in == hop else None

    def _settle(self, session: Session, move: Moving, now_ns: int) -> None:
        """If all that a client needs has come, the client gets the session, or the session goes on."""
        persist.save_session(self._broker, session)
        if not move.is_settled:
            return
        claims = self._broker.session_claims
        if claims.accept(session, now_ns):
            return
        newer = claims.newer_way(session)
        if newer is not None:
            move.way = newer
        if move.way:
            self._broker.session_moves.follow(session, move.way, now_ns)
        else:
            self.rest(session, move, now_ns)

    def rest(self, session: Session, move: Moving, now_ns: int) -> None:
        """The client is not here, and nobody asks for the session elsewhere. It may expire from now on."""
        move.way = ()
        if session.connection is None and session.expires_at_ns is None:
            session_end.begin_expiry(self._broker, session, move.left_ns, now_ns)
        persist.save_session(self._broker, session)
        self._broker.session_moves.came_to_an_end(session, now_ns)

    def _end(self, _: Session, content: dict[str, Any], now_ns: int) -> None:
        session = self.sessions.pop(content["hop"], None)
        if session is None or session.move is None:
            return
        if session.move.hop_in == content["hop"]:
            session.move.source = session.move.hop_in = ""
        if session.move.merges.pop(content["hop"], None) is not None and not session.move.merges:
            session.move.seen = None
        persist.save_session(self._broker, session)
        if self._broker.log is not None and session.connection is not None:
            self._broker.log.add(now_ns, Kind.SESSION_HERE, session.log_number)
        moving_queue.release(self._broker, session, now_ns)

    def begin_again(self, session: Session, now_ns: int) -> None:
        """The client does not wait any longer for a session that arrives: it becomes a new one, which gets its
        messages.

        What was sent and not acknowledged is sent once more, because the client has forgotten it.
        """
        broker, move = self._broker, session.move
        assert move is not None
        self._take_over(session, move, now_ns)
        handle_subscribe.forget_all(broker, session, now_ns)
        persist.forget_received(broker, session, list(session.received_rows))
        session.received.clear()
        unacknowledged = list(persist.deliveries_in_flight(broker, session).values())
        session.inflight.clear()
        for delivery in unacknowledged:
            persist.forget_delivery(broker, delivery)
            if not delivery.is_released:
                delivery.packet_id = 0
                moving_queue.append(broker, session, delivery, now_ns)
        move.merges[move.hop_in], move.source, move.hop_in, move.way = move.source, "", "", ()
        move.seen = {}
        persist.save_session(broker, session)
        moving_queue.release(broker, session, now_ns)

    def has_begun_anew(self, session: Session) -> None:
        """The client has a new session, but another broker may have an old one, which would come later."""
        move = session.move = session.move or Moving()
        session.has_service, move.seen = True, {}

    def is_the_only_one(self, session: Session, now_ns: int) -> None:
        """No other broker has a session of this client."""
        if session.move is not None and session.move.seen is not None:
            session.move.seen = None
            self._broker.session_moves.came_to_an_end(session, now_ns)

    def linked(self, session: Session, now_ns: int) -> None:
        """A link is up."""
        assert session.link is not None
        for arriving in list(self.sessions.values()):
            if arriving.move is not None and arriving.move.source == session.link.peer:
                self._take_when_announced(arriving, session, now_ns)

    def ended(self, session: Session, move: Moving, now_ns: int) -> None:
        """A session has ended here. What still comes for it is dropped."""
        if move.source:
            self._take_over(session, move, now_ns)
        for hop in (move.hop_in, *move.merges):
            self.sessions.pop(hop, None)

    def _take_over(self, session: Session, move: Moving, now_ns: int) -> None:
        source = self._broker.overlay.link_moves.neighbour(move.source)
        if source is not None:
            self._take(session, source, now_ns)

    def link_forgotten(self, peer: str, now_ns: int) -> None:
        """The neighbour has lost everything: nothing more comes from there."""
        for hop, session in list(self.sessions.items()):
            move = session.move
            if move is not None and peer in (move.source if hop == move.hop_in else "", move.merges.get(hop, "")):
                is_primary = hop == move.hop_in
                self._end(session, {"hop": hop}, now_ns)
                if is_primary and session.connection is None and not move.target:
                    self._settle(session, move, now_ns)

    def restored(self, session: Session, move: Moving) -> None:
        for hop in (move.hop_in, *move.merges):
            if hop:
                self.sessions[hop] = session

    def _notify(self, session: Session, now_ns: int, **content: Any) -> None:
        self._broker.overlay.link_moves.notify(session, now_ns, **content)

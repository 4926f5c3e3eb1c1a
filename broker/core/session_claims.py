"""Finds the session of a client that connects to another broker than before: a claim goes through the whole tree.

A client that keeps a session and has none here waits for its CONNACK, while a claim goes over all links and from there
on, away from this broker. A broker that has the session has it go back the way on which the claim came. Any other
broker answers `nobody` once all its other neighbours have. If all have, the client gets a new session; it also gets one
if there is no session after `move_timeout_s`. What another broker holds for it comes later in that case.

Claims are numbered by the time at which the client connected, and every broker remembers the newest claims of many
clients. So a session that comes to rest where its client is not any more goes on towards the newest claim, and a claim
that is late cannot take a session from a client that has connected elsewhere since: it is answered by `outdated`, and
the client that waits for it is disconnected.
"""

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import mqtt5

from brokerbed.broker.core import handle_connect
from brokerbed.broker.core.link import Link
from brokerbed.broker.core.moving import NO_CLAIM, ClaimKey
from brokerbed.broker.core.run import Run
from brokerbed.broker.core.session import Session
from brokerbed.broker.errors import MqttError
from brokerbed.broker.values import NS_PER_S, Published
from brokerbed.log.record import Kind

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker
    from brokerbed.broker.core.connection import Connection
    from brokerbed.broker.core.timers import Timer

WAITING_MAX = 20_000  # clients that wait; further ones get new sessions. Each holds its CONNECT and a claim
REMEMBERED_MAX = 20_000  # clients whose newest claim is remembered; a claim takes some hundred bytes
QUEUED_MAX = 1000  # claims that wait for a link that is down; further ones are not sent over it
REPEATED_S = 1.0  # a claim that was not answered is repeated
REPEATED_S_MAX = 60.0  # once the client has a new session, it is repeated less and less often
ANSWER_S_MAX = 5.0  # how long an answer is awaited if clients must not wait for links that are down
UNKNOWN = ""  # stands for a parent that was never connected, and so has not told its name
PACKETS_MAX = 1000  # that a client on a simulated network sends before its CONNACK


class Claim:
    """The newest claim of a client, as this broker knows it."""

    __slots__ = ("asked", "is_found", "key", "source", "way")

    def __init__(self, key: ClaimKey, source: str, way: tuple[str, ...]) -> None:
        self.key = key
        self.source = source  # the neighbour from which it came; empty: the client is waiting here
        self.way = way  # the brokers between here and the client, this broker's neighbour first
        self.asked: dict[str, bool] = {}  # neighbour -> whether it has answered `nobody`
        self.is_found = False  # the session is somewhere in this direction

    def repeat(self) -> None:
        """Answers so far do not count any more: a broker may have been killed since, or a link has moved."""
        self.asked.update(dict.fromkeys(self.asked, False))


class Waiting:
    """A client that waits for its session."""

    __slots__ = ("connection", "ends_ns", "key", "packet", "packets", "timer", "user")

    def __init__(
        self, connection: "Connection", packet: mqtt5.ConnectPacket, user: str | None, key: ClaimKey, ends_ns: int
    ) -> None:
        self.connection = connection
        self.packet = packet
        self.user = user
        self.key = key
        self.ends_ns = ends_ns
        self.timer: Timer | None = None
        self.packets: list[mqtt5.Packet | Run | Published] = []  # on a simulated network: what came after CONNECT


class SessionClaims:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._waiting: dict[str, Waiting] = {}  # by client id
        self._ids: dict[Connection, str] = {}  # the client ids of the connections that wait
        self._newest: OrderedDict[str, Claim] = OrderedDict()  # by client id
        self._last_number = 0  # the highest number of a claim that was seen here
        self.handlers = {
            "claim": self._claimed, "nobody": self._nobody, "unreachable": self._unreachable,
            "outdated": self._outdated,
        }  # fmt: skip

    # -- the broker to which the client connects ------------------------------------------------------------------

    def must_wait(self, client_id: str, expiry_s: int) -> bool:
        """Whether a client that connects may have a session elsewhere."""
        broker = self._broker
        session = broker.sessions.get(client_id)
        if session is not None:
            return session.move is not None and not session.move.is_settled
        if expiry_s == 0 or not broker.config.roaming or len(self._waiting) >= WAITING_MAX:
            return False
        return any(link.link is not None and not self._is_foreign(link.link) for link in broker.overlay.links())

    def wait(self, connection: "Connection", packet: mqtt5.ConnectPacket, user: str | None, now_ns: int) -> None:
        """Have a client wait for its session. If it waits already, over another connection, that one is closed."""
        broker, client_id = self._broker, packet.client_id
        old = self._waiting.get(client_id)
        if old is not None and old.user != user:
            raise MqttError("a client with this id is waiting for the session of another user", 0x85)
        self.forget(client_id)
        key = self.next_key(now_ns)
        timeout_s = broker.config.move_timeout_s or ANSWER_S_MAX
        waiting = self._waiting[client_id] = Waiting(
            connection, packet, user, key, now_ns + round(timeout_s * NS_PER_S)
        )
        connection.is_waiting = True
        self._ids[connection] = client_id
        broker.timers.cancel(connection.timer)
        if broker.log is not None:
            broker.log.add(now_ns, Kind.CONNECTING, broker.log.number(client_id))
        older = self._newest.get(client_id)
        if client_id in broker.sessions and older is not None and older.source:  # no claim tells that broker
            self._answer(older, self._outdating(client_id, older.key, key), now_ns)
        self._remember(client_id, Claim(key, "", ()))
        self._set_timer(client_id, waiting, now_ns)
        self._ask(client_id, waiting, now_ns)

    def next_key(self, now_ns: int) -> ClaimKey:
        """The key of a client that connects now, which is higher than any that was seen here."""
        self._last_number = max(now_ns, self._last_number + 1)
        return ClaimKey(self._last_number, self._broker.config.name)

    def connected(self, client_id: str, user: str | None, now_ns: int) -> ClaimKey:
        """A client connects that need not wait. Who waits for its session here is not the client any more."""
        waiting = self._waiting.get(client_id)
        if waiting is not None and waiting.user == user:
            self.forget(client_id)
        return self.next_key(now_ns)

    def _ask(self, client_id: str, waiting: Waiting, now_ns: int) -> None:
        if client_id in self._broker.sessions:
            return  # it is arriving
        claim = self._newest.get(client_id)
        if claim is None or claim.key != waiting.key:  # forgotten, as there were many others
            claim = self._remember(client_id, Claim(waiting.key, "", ()))
        content = {"client": client_id, "user": waiting.user, "key": waiting.key}
        if not self._pass_on(claim, content, "", now_ns) and self._broker.config.move_timeout_s == 0:
            self._give_up(client_id, now_ns)
        else:
            self._check_answers(client_id, claim, now_ns)

    def _set_timer(self, client_id: str, waiting: Waiting, now_ns: int) -> None:
        due_ns = min(waiting.ends_ns, now_ns + round(REPEATED_S * NS_PER_S))
        waiting.timer = self._broker.timers.later(due_ns, _waits, client_id)

    def waits(self, client_id: str, now_ns: int) -> None:
        """A client has waited for some time."""
        waiting = self._waiting[client_id]
        if now_ns >= waiting.ends_ns:
            self._give_up(client_id, now_ns)
        else:
            self._set_timer(client_id, waiting, now_ns)
            if (claim := self._newest.get(client_id)) is not None:
                claim.repeat()
            self._ask(client_id, waiting, now_ns)

    def _give_up(self, client_id: str, now_ns: int) -> None:
        """The client gets a new session."""
        waiting = self._waiting.pop(client_id)
        session = self._broker.sessions.get(client_id)
        is_new = session is None
        if session is not None and session.move is not None and not session.move.is_settled:
            self._broker.session_moves.arrivals.begin_again(session, now_ns)
            is_new = True
        self._accept(waiting, is_new, now_ns)
        if self._unanswered(client_id) is not None:
            self._broker.session_moves.arrivals.has_begun_anew(self._broker.sessions[client_id])
        self._repeat_later(client_id, REPEATED_S, now_ns)

    def _repeat_later(self, client_id: str, after_s: float, now_ns: int) -> None:
        """Repeat the claim of a client that has a new session, as long as not all brokers have answered."""
        if self._unanswered(client_id) is not None:
            due_ns = now_ns + round(after_s * NS_PER_S)
            self._broker.timers.later(due_ns, _repeats, (client_id, min(2 * after_s, REPEATED_S_MAX)))

    def _unanswered(self, client_id: str) -> Claim | None:
        claim = self._newest.get(client_id)
        if claim is None or claim.source or claim.is_found or all(claim.asked.values()):
            return None
        return claim if client_id in self._broker.sessions else None

    def repeats(self, client_id: str, after_s: float, now_ns: int) -> None:
        claim = self._unanswered(client_id)
        if claim is not None:
            session = self._broker.sessions[client_id]
            if session.claimed > claim.key:  # the client has connected here again
                claim = self._remember(client_id, Claim(ClaimKey(*session.claimed), "", ()))
            self._pass_on(claim, {"client": client_id, "user": session.user, "key": claim.key}, "", now_ns)
            self._repeat_later(client_id, after_s, now_ns)

    def accept(self, session: Session, now_ns: int) -> bool:
        """Give a session that has come here to its client; returns False if the client does not wait for it here."""
        waiting = self._waiting.get(session.client_id)
        if waiting is None or waiting.key < session.claimed or waiting.user != session.user:
            return False
        del self._waiting[session.client_id]
        self._accept(waiting, False, now_ns)
        return True

    def _accept(self, waiting: Waiting, is_new: bool, now_ns: int) -> None:
        broker, connection = self._broker, waiting.connection
        broker.timers.cancel(waiting.timer)
        connection.is_waiting = False
        del self._ids[connection]
        connection.last_ns = now_ns
        try:
            handle_connect.accept(broker, connection, waiting.packet, False, now_ns, waiting.key, is_new)
        except MqttError as error:
            broker.fail(connection, error, now_ns)
            return
        if connection.is_wire:
            broker.received(connection, b"", now_ns)
        for packet in waiting.packets:
            broker.received_packet(connection, packet, now_ns)

    def keep(self, connection: "Connection", packet: mqtt5.Packet | Run | Published) -> None:
        """A client on a simulated network goes on before it has its CONNACK."""
        waiting = self._waiting[self._ids[connection]]
        if len(waiting.packets) < PACKETS_MAX:
            waiting.packets.append(packet)
        else:
            self._broker.end(connection)

    def forget(self, client_id: str) -> None:
        """Nobody waits for this session any more: who did is disconnected."""
        waiting = self._waiting.pop(client_id, None)
        if waiting is not None:
            self._broker.timers.cancel(waiting.timer)
            waiting.connection.is_waiting = False
            del self._ids[waiting.connection]
            self._broker.end(waiting.connection)

    def gone(self, connection: "Connection") -> None:
        """A client that was waiting has disconnected. Its session comes here nevertheless."""
        if connection in self._ids:  # else it was waiting until its password is checked
            self.forget(self._ids[connection])

    def linked(self, now_ns: int) -> None:
        """A link is up: the new neighbour is asked, too."""
        for client_id, waiting in list(self._waiting.items()):
            if self._waiting.get(client_id) is waiting:
                self._ask(client_id, waiting, now_ns)

    # -- all brokers ----------------------------------------------------------------------------------------------

    def _remember(self, client_id: str, claim: Claim) -> Claim:
        self._newest[client_id] = claim
        self._newest.move_to_end(client_id)
        if len(self._newest) > REMEMBERED_MAX:
            self._newest.popitem(last=False)
        return claim

    def found(self, client_id: str) -> None:
        """The session of a client has come to this broker: nobody is told that there is none."""
        if client_id in self._newest:
            self._newest[client_id].is_found = True

    def newer_way(self, session: Session) -> tuple[str, ...] | None:
        """Where a session has to go, if a claim is known that is newer than the one that it follows."""
        claim = self._newest.get(session.client_id)
        if claim is None or not claim.source or claim.key <= session.claimed:
            return None
        session.claimed = claim.key
        return claim.way

    def _claimed(self, source: Session, content: dict[str, Any], now_ns: int) -> None:
        """A claim has come over a link."""
        assert source.link is not None
        broker, client_id, way = self._broker, content["client"], tuple(content["way"])
        key = content["key"] = ClaimKey(*content["key"])
        self._last_number = max(self._last_number, key.number)
        session, claim = broker.sessions.get(client_id), self._newest.get(client_id)
        waiting = self._waiting.get(client_id)
        is_wanted = session is not None and session.expiry_s and session.user == content["user"]
        known = ClaimKey(*session.claimed) if is_wanted and session is not None else NO_CLAIM
        known = max(known, claim.key if claim is not None else NO_CLAIM)
        if known > key:
            self._notify(source, now_ns, **self._outdating(client_id, key, known))
            return
        if waiting is not None and waiting.user == content["user"]:
            self.forget(client_id)
        if claim is None or claim.key != key:
            claim = self._remember(client_id, Claim(key, source.link.peer, way))
        else:
            claim.repeat()
            claim.source, claim.way = source.link.peer, way
        if is_wanted and session is not None and broker.config.roaming:
            claim.is_found = True
            session.claimed = key
            broker.session_moves.follow(session, way, now_ns)
            return
        if not self._pass_on(claim, content, source.link.peer, now_ns):
            self._notify(source, now_ns, do="unreachable", client=client_id, key=key)
        self._check_answers(client_id, claim, now_ns)

    def _pass_on(self, claim: Claim, content: dict[str, Any], source: str, now_ns: int) -> bool:
        """Ask all other neighbours that have not answered; returns False if one of them cannot be reached now."""
        broker = self._broker
        is_complete = True
        for session in broker.overlay.links():
            link = session.link
            if link is None or link.peer == source or self._is_foreign(link):
                continue
            name = link.peer if link.is_known else UNKNOWN
            if name and link.is_parent:
                claim.asked.pop(UNKNOWN, None)
            is_first = name not in claim.asked
            is_down = session.connection is None
            is_complete = is_complete and not is_down
            if claim.asked.setdefault(name, False):
                continue
            if link.is_moving or not link.is_known or (is_down and (not is_first or link.claims_queued >= QUEUED_MAX)):
                continue
            link.claims_queued += is_down
            way = [broker.config.name, *content.get("way", ())]
            self._notify(session, now_ns, **{**content, "do": "claim", "way": way})
        return is_complete

    def _is_foreign(self, link: Link) -> bool:
        return link.is_foreign or (link.is_parent and self._broker.config.parent_is_foreign)

    def _check_answers(self, client_id: str, claim: Claim, now_ns: int) -> None:
        """If all other neighbours have answered, this broker answers."""
        if claim.is_found or not all(claim.asked.values()):
            return
        if claim.source:
            source = self._broker.overlay.link_moves.neighbour(claim.source)
            if source is not None:
                self._notify(source, now_ns, do="nobody", client=client_id, key=claim.key)
        elif (waiting := self._waiting.get(client_id)) is not None and waiting.key == claim.key:
            self._give_up(client_id, now_ns)
        elif (session := self._broker.sessions.get(client_id)) is not None:
            self._broker.session_moves.arrivals.is_the_only_one(session, now_ns)

    def _nobody(self, source: Session, content: dict[str, Any], now_ns: int) -> None:
        claim = self._claim_of(content)
        if claim is not None and source.link is not None and not claim.asked.get(source.link.peer, True):
            claim.asked[source.link.peer] = True
            self._check_answers(content["client"], claim, now_ns)

    def _unreachable(self, _: Session, content: dict[str, Any], now_ns: int) -> None:
        """A broker further on cannot be asked now."""
        claim = self._claim_of(content)
        if claim is None:
            return
        if claim.source:
            self._answer(claim, content, now_ns)
        elif content["client"] in self._waiting and self._broker.config.move_timeout_s == 0 and not claim.is_found:
            self._give_up(content["client"], now_ns)

    def _outdating(self, client_id: str, key: ClaimKey, known: ClaimKey) -> dict[str, Any]:
        way = [self._broker.config.name]
        return {"do": "outdated", "client": client_id, "key": key, "known": known, "way": way}

    def _outdated(self, _: Session, content: dict[str, Any], now_ns: int) -> None:
        """The client has connected elsewhere since: who waits for its session here is not the client any more.

        If that one has got a new session because it has waited too long, the session goes where the client is.
        """
        claim = self._claim_of(content)
        if claim is None:
            return
        client_id, way, known = content["client"], content["way"], ClaimKey(*content["known"])
        self._last_number = max(self._last_number, known.number)
        session = self._broker.sessions.get(client_id)
        if claim.source:
            self._answer(claim, {**content, "way": [self._broker.config.name, *way]}, now_ns)
        elif client_id in self._waiting:
            self.forget(client_id)
        elif session is not None and session.expiry_s and session.claimed < known:
            self._broker.session_moves.follow(session, tuple(way), now_ns)

    def _claim_of(self, content: dict[str, Any]) -> Claim | None:
        claim = self._newest.get(content["client"])
        return claim if claim is not None and claim.key == ClaimKey(*content["key"]) else None

    def _answer(self, claim: Claim, content: dict[str, Any], now_ns: int) -> None:
        source = self._broker.overlay.link_moves.neighbour(claim.source)
        if source is not None:
            self._notify(source, now_ns, **content)

    def _notify(self, session: Session, now_ns: int, **content: Any) -> None:
        """A link that moves carries nothing else any more; the claim is repeated."""
        if session.link is not None and not session.link.is_moving:
            self._broker.overlay.link_moves.notify(session, now_ns, **content)


def _waits(broker: "Broker", client_id: str, due_ns: int) -> None:
    broker.session_claims.waits(client_id, due_ns)


def _repeats(broker: "Broker", what: tuple[str, float], due_ns: int) -> None:
    broker.session_claims.repeats(*what, due_ns)

"""Moves a child to another parent while messages flow, so that none is lost, delivered twice or out of order.

Three brokers take part: the child, its parent so far and its next parent, which is a neighbour of the parent so far.
They send one another notices, which are messages at QoS 1 under `$overlay/`. A notice arrives after everything that was
sent over its link before it, and before everything that is sent after it:

- `prepare`, to the next parent, which answers `ready`, or `refuse` if it is taking part in another move.
- `leave`, to the child, which may answer `stay` for the same reason; the next parent is told to `cancel` then. From now
  on the child keeps what is for its parent in the queue of the next link.
- `left`, from the child: nothing more comes from it. Its entries do not change until it is at its next parent, and its
  old parent announces nothing to it any more.
- `adopt`, to the next parent, with these entries, and with the entries of the old parent that the child's
  advertisements call for there. From now on that parent keeps what the child wants in a queue, except what comes from
  the old parent.
- `adopted`, from the next parent, with the entries of the child that it has announced hereby, and the answers to
  advertisements that it withdraws until the child has given its own. What came from there before, the old parent has
  passed on to the child; it leaves the rest to the next parent. From now on what others send to the child takes the
  way over the next parent, too.
- `switched`, to the next parent. What comes from the old parent after it is for the child as well.
- `go`, to the child: nothing more comes over the old link. The child connects to its next parent.
- `arrived`, from the next parent. The old parent forgets the child.

So every message that takes the old way is ahead of a notice on its whole way, and none takes both ways. Notices and
what they change are stored together: if a broker is killed or a link is cut, the move goes on later where it stopped. A
broker takes part in one move at a time, and so the links between the three do not change meanwhile.
"""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import mqtt5

from brokerbed.broker.core import advertisements, deliver, handle_subscribe, persist, session_end
from brokerbed.broker.core.announcements import Change
from brokerbed.broker.core.introduction import SESSION_S
from brokerbed.broker.core.link import EVERYBODY, LINK_ID, MOVE_TOPIC, RESYNC, Link
from brokerbed.broker.core.moving import moved_in
from brokerbed.broker.core.session import Delivery, Session
from brokerbed.broker.values import Entry, Message
from brokerbed.log.record import Kind

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker


class LinkMoves:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._handlers = {
            "prepare": self._prepare, "ready": self._ready, "refuse": self._refuse, "cancel": self._cancel,
            "leave": self._leave, "stay": self._stay, "left": self._left, "adopt": self._adopt,
            "adopted": self._adopted, "switched": self._switched, "go": self._go, "arrived": self._arrived,
        }  # fmt: skip

    # -- the parent so far ----------------------------------------------------------------------------------------

    def begin(self, child: str, parent: str, now_ns: int) -> str | None:
        """Begin to move a child of this broker to another neighbour; returns why that is not possible, if so."""
        session, target = self._broker.links.get(LINK_ID + child), self.neighbour(parent)
        if not self._broker.overlay.algorithm.lets_links_move:
            return f"links do not move under {self._broker.overlay.algorithm.name} routing"
        if session is None or target is None or target is session:
            return f"{child} is no child of this broker, or {parent} is no other neighbour"
        if self.is_busy:
            return "this broker is taking part in another move"
        if session.connection is None or target.connection is None:
            return f"{child} or {parent} is not connected"
        assert session.link is not None
        assert target.link is not None
        if not target.link.address:
            return f"{parent} has not said where other brokers reach it (address in its configuration)"
        session.link.moves_to = parent
        persist.save_session(self._broker, session)
        self.notify(target, now_ns, do="prepare", child=child)
        return None

    @property
    def is_busy(self) -> bool:
        """Whether this broker cannot take part in a move now. Links over which a session is on its way stay."""
        return self.is_moving or self._broker.session_moves.is_busy

    @property
    def is_moving(self) -> bool:
        """Whether this broker is moving, or a child is about to leave it or to come to it."""
        return any(
            link is not None and (link.successor or link.moves_to or link.hands_over or link.came_from or link.skips)
            for link in (session.link for session in self._broker.overlay.links())
        )

    def _ready(self, source: Session, content: dict[str, Any], now_ns: int) -> None:
        child = self._child(content)
        assert source.link is not None
        if child is None or child.moves_to != source.link.peer:  # its session has begun again since
            self.notify(source, now_ns, do="cancel")
        else:
            self.notify(child.announced.session, now_ns, do="leave", to=source.link.peer, address=source.link.address)

    def _refuse(self, _: Session, content: dict[str, Any], now_ns: int) -> None:
        """The next parent is taking part in another move."""
        child = self._child(content)
        if child is not None:
            self._stays(child, now_ns)

    def _stay(self, session: Session, _: dict[str, Any], now_ns: int) -> None:
        """The child is taking part in another move."""
        link = session.link
        assert link is not None
        target = self.neighbour(link.moves_to)
        if target is not None:
            self.notify(target, now_ns, do="cancel")
        self._stays(link, now_ns)

    def _stays(self, child: Link, now_ns: int) -> None:
        child.moves_to = ""
        persist.save_session(self._broker, child.announced.session)
        self._ended(child.peer, False, now_ns)

    def _left(self, session: Session, _: dict[str, Any], now_ns: int) -> None:
        link = session.link
        assert link is not None
        target = self.neighbour(link.moves_to)
        if target is None:
            return
        link.is_silent = True
        persist.save_session(self._broker, session)
        announced = [[*entry, it.unacknowledged_id == 0] for entry, it in link.announced.entries.items()]
        advertised = [entry for entry in link.advertised if entry.is_advertisement]
        called_for = self._assumed(target, target, advertised, now_ns)
        self.notify(
            target, now_ns, do="adopt", child=link.peer, user=session.user, address=link.address,
            entries=[*advertised, *link.entries, *(entry for entry in link.advertised if entry.is_answer)],
            announced=announced, called_for=called_for,
        )  # fmt: skip

    def _adopted(self, source: Session, content: dict[str, Any], now_ns: int) -> None:
        """What the child wants is from now on behind its next parent, which will not announce it again."""
        link = self._child(content)
        assert source.link is not None
        if link is None or not link.is_silent:
            return
        session = link.announced.session
        for each in content["assumed"]:
            if (entry := Entry(*each)) not in source.link.table(entry):
                self._hear(source, entry, now_ns)
        for each in content["unanswered"]:
            advertisements.remove(self._broker, source, Entry(*each), True, now_ns)
        link.skips = EVERYBODY
        persist.save_session(self._broker, session)
        self._forget_entries(session, link, now_ns)
        self._links_changed(now_ns)
        self.notify(source, now_ns, do="switched", child=link.peer)
        self.notify(session, now_ns, do="go")

    def _arrived(self, _: Session, content: dict[str, Any], now_ns: int) -> None:
        child = self._child(content)
        if child is not None and child.moves_to:
            session_end.forget_link(self._broker, child.announced.session, now_ns)
        self._ended(content["child"], True, now_ns)

    def _ended(self, child: str, is_done: bool, now_ns: int) -> None:
        if self._broker.placement is not None:
            self._broker.placement.move_ended(child, is_done, now_ns)

    def _child(self, content: dict[str, Any]) -> Link | None:
        """The link of the child that is moving, if there is one."""
        session = self._broker.links.get(LINK_ID + content["child"])
        return None if session is None else session.link

    # -- the child ------------------------------------------------------------------------------------------------

    def _leave(self, session: Session, content: dict[str, Any], now_ns: int) -> None:
        broker, link = self._broker, session.link
        assert link is not None
        if session is not broker.overlay.parent or self.is_busy:
            self.notify(session, now_ns, do="stay")
            return
        successor = Session(content["to"], None, broker.config.service_link is not None)
        successor.expiry_s, successor.is_ordered = SESSION_S, True
        successor.link = broker.overlay.new_link(successor, content["to"], is_parent=True)
        successor.link.is_successor = successor.link.has_moved = True
        successor.link.address = content["address"]
        if broker.log is not None:
            successor.log_number = broker.log.number(f"{broker.config.name}>{content['to']}")
            broker.log.add(now_ns, Kind.LINK_LEAVES, successor.log_number, broker.log.number(link.peer))
        link.successor, link.is_silent = successor, True
        deliver.keep_order(session)
        persist.save_session(broker, successor)
        persist.save_session(broker, session)
        self.notify(session, now_ns, do="left")

    def _go(self, session: Session, _: dict[str, Any], now_ns: int) -> None:
        """The old link is empty. The next parent has the same entries, and knows what the old one knew."""
        broker, overlay, old = self._broker, self._broker.overlay, session.link
        assert old is not None
        successor = old.successor
        if successor is None or successor.link is None:
            return
        link = successor.link
        link.is_successor = False
        overlay.strategy.joined(link)
        for entry, announced in old.announced.entries.items():
            link.announced.assume(entry, announced.unacknowledged_id == 0)
        for entry in (*old.advertised, *old.entries):
            self._hear(successor, entry, now_ns)
        self._forget_entries(session, old, now_ns)
        if session.connection is not None:
            broker.send(session.connection, mqtt5.DisconnectPacket())
        old.successor = None
        overlay.parent = successor
        broker.counters.moves += 1
        session_end.forget_link(self._broker, session, now_ns)
        overlay.moved_to = link
        overlay.retained.lost()
        persist.save_session(broker, successor)
        self._links_changed(now_ns)
        if broker.log is not None:
            broker.log.add(now_ns, Kind.LINK_MOVED, successor.log_number, broker.log.number(old.peer))

    # -- the next parent ------------------------------------------------------------------------------------------

    def _prepare(self, source: Session, content: dict[str, Any], now_ns: int) -> None:
        assert source.link is not None
        if self.is_busy:
            self.notify(source, now_ns, do="refuse", child=content["child"])
            return
        source.link.hands_over = content["child"]
        persist.save_session(self._broker, source)
        self.notify(source, now_ns, do="ready", child=content["child"])

    def _cancel(self, source: Session, _: dict[str, Any], now_ns: int) -> None:
        del now_ns
        assert source.link is not None
        source.link.hands_over = ""
        persist.save_session(self._broker, source)

    def _adopt(self, source: Session, content: dict[str, Any], now_ns: int) -> None:
        broker, child = self._broker, content["child"]
        assert source.link is not None
        if (stale := broker.links.get(LINK_ID + child)) is not None:
            session_end.end_link(self._broker, stale, now_ns)
        session = Session(LINK_ID + child, None, broker.config.service_link is not None)
        session.expiry_s, session.is_ordered, session.user = SESSION_S, True, content["user"]
        link = broker.overlay.open_link(session, child, is_parent=False)
        link.came_from = link.skips = source.link.peer
        link.address = content["address"]
        source.link.hands_over = ""
        persist.save_session(broker, source)
        broker.links[session.client_id] = session
        if broker.log is not None:
            session.log_number = broker.log.number(f"{broker.config.name}>{child}")
            broker.log.add(now_ns, Kind.LINK_ADOPTED, session.log_number, broker.log.number(source.link.peer))
        persist.save_session(broker, session)
        for topic_filter, identity, is_acknowledged in content["announced"]:
            link.announced.assume(Entry(topic_filter, identity), is_acknowledged)
        entries = [Entry(*each) for each in content["entries"]]
        assumed = self._assumed(source, session, entries, now_ns)  # the old parent adds these by itself
        for each in content["called_for"]:
            self._hear(source, Entry(*each), now_ns)
        broker.overlay.start_refreshing(now_ns)
        self._links_changed(now_ns)
        unanswered = self._unanswered(source.link)
        self.notify(source, now_ns, do="adopted", child=child, assumed=assumed, unanswered=unanswered)
        if source.link.is_parent:
            broker.overlay.retained.adopted([entry for entry in entries if entry.is_interest], assumed, now_ns)

    def _switched(self, _: Session, content: dict[str, Any], now_ns: int) -> None:
        broker, child = self._broker, self._child(content)
        if child is None:
            return
        session = child.announced.session
        if broker.log is not None:
            broker.log.add(now_ns, Kind.LINK_SWITCHED, session.log_number, broker.log.number(child.skips))
        child.skips = ""
        persist.save_session(broker, session)

    def connected(self, session: Session, now_ns: int) -> None:
        """A child has connected. If it comes from another broker, that one may forget it."""
        link = session.link
        assert link is not None
        if link.came_from:
            source = self.neighbour(link.came_from)
            link.came_from = ""
            persist.save_session(self._broker, session)
            if source is not None:
                self.notify(source, now_ns, do="arrived", child=link.peer)

    # -- all of them ----------------------------------------------------------------------------------------------

    def _hear(self, session: Session, entry: Entry, now_ns: int) -> None:
        """A neighbour has an entry without having announced it."""
        handle_subscribe.announced_by_parent(self._broker, session, Change(entry, True, RESYNC, False), now_ns)

    def _assumed(self, to: Session, source: Session, entries: Iterable[Entry], now_ns: int) -> list[Entry]:
        """Hear entries of a neighbour; returns what a notice has to tell another one therefore."""
        assert to.link is not None
        announced = to.link.announced
        before = [entry for entry in announced.entries if announced.is_in_force(entry)]
        announced.is_assuming = True
        for entry in entries:
            self._hear(source, entry, now_ns)
        announced.is_assuming = False
        known = dict.fromkeys(before)
        return [entry for entry in announced.entries if entry not in known and announced.is_in_force(entry)]

    def _unanswered(self, link: Link) -> list[Entry]:
        """Forget the answers that are not complete any more, because the adopted child owes its own."""
        wanted = dict.fromkeys(self._broker.overlay.strategy.wanted(link))
        found = [entry for entry in link.announced.unwanted(wanted) if entry.is_answer]
        for entry in found:
            link.announced.forget(entry)
        return found

    def _forget_entries(self, session: Session, link: Link, now_ns: int) -> None:
        """The entries of a neighbour have become those of another one. Answers last until the link is forgotten."""
        for entry in list(link.entries):
            handle_subscribe.remove_entry(self._broker, session, entry, True, now_ns)
        for entry in [entry for entry in link.advertised if entry.is_advertisement]:
            advertisements.remove(self._broker, session, entry, True, now_ns)

    def entered(self, message: Message, now_ns: int) -> None:
        """A notice has arrived. The emulated service at the input serves it in no time, but in its turn."""
        broker = self._broker
        if broker.config.service_in is None:
            self.received(message, now_ns)
            return
        due_ns = broker.input_floor_ns = max(now_ns, broker.input_floor_ns, *broker.input_free_ns.values())
        broker.input_free_ns.clear()
        persist.save_entering(broker, message)
        broker.at(due_ns, _served, message)

    def received(self, message: Message, now_ns: int) -> None:
        """Handle a notice, when everything that was sent before it has been passed on."""
        session, broker = message.publisher, self._broker
        if not isinstance(session, Session) or session.link is None or session.link.is_foreign:
            return
        if moved_in(message.payload):
            broker.session_moves.arrivals.moved(message.payload, now_ns)
            return
        content = json.loads(message.payload)
        what = content["do"]
        if (handler := self._handlers.get(what)) is not None:
            handler(session, content, now_ns)
            if not self.is_moving:
                broker.session_moves.retry(now_ns)
        elif (
            handler := broker.session_moves.handlers.get(what) or broker.session_claims.handlers.get(what)
        ) is not None:
            handler(session, content, now_ns)
        elif broker.placement is not None:
            broker.placement.received(content, now_ns)

    def restore(self, session: Session, link: Link, stored: list[Any]) -> None:
        """The link of a restored session is taking part in a move, or has moved."""
        link.is_silent, link.is_successor, link.has_moved, link.moves_to, *others = stored
        link.came_from, link.hands_over, link.skips, link.address = others
        session.is_ordered = link.is_successor or bool(link.came_from)
        if link.is_successor:
            self._broker.overlay.successor_restored(session)
        elif link.is_parent:
            session.is_ordered = link.is_silent

    def neighbour(self, name: str) -> Session | None:
        """The session of the link to a neighbour."""
        parent = self._broker.overlay.parent
        if parent is not None and parent.link is not None and parent.link.peer == name:
            return parent
        return self._broker.links.get(LINK_ID + name)

    def notify(self, session: Session, now_ns: int, **content: Any) -> None:
        """Send a notice to a neighbour. It arrives after everything that was sent there before."""
        self.send_notice(session, json.dumps(content).encode(), now_ns)

    def send_notice(self, session: Session, payload: bytes, now_ns: int) -> None:
        message = Message(MOVE_TOPIC, payload, 1, False, None)
        message.origin = self._broker.origin  # it has no number, as it is no message that entered the tree
        deliver.deliver(self._broker, session, Delivery(message, 1, False, ()), now_ns)

    def _links_changed(self, now_ns: int) -> None:
        if self._broker.placement is not None:
            self._broker.placement.links_changed(now_ns)


def _served(broker: "Broker", message: Message, due_ns: int) -> None:
    broker.overlay.link_moves.received(message, due_ns)
    persist.forget_entering(broker, message)

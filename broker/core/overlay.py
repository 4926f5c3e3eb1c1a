"""A broker's place in the tree: the entries that it announces over its links, and the link to its parent.

Both ends of a link are sessions: a child's link is a session at its parent, and the parent is one more session of the
child. So messages for a cut link wait in a session queue like any other. The subscriptions of such a session are the
routing entries that the neighbour has announced; a neighbour that gets every notification is subscribed to everything
except what it sent itself (No Local). The routing strategy decides which entries are announced, and announcements.py
sends them. Entries that change while a link is down are not queued: on reconnection the difference between the entries
that the neighbour has and those it should have is announced, and counts as resync.
"""

from collections import deque
from typing import TYPE_CHECKING

import mqtt5

from brokerbed.broker.core import child_link, deliver, handle_connect, handle_publish, handle_subscribe, persist
from brokerbed.broker.core.announcements import Announcements, Change, read_from_parent
from brokerbed.broker.core.introduction import PING_S, SESSION_S, WINDOW, Introduction
from brokerbed.broker.core.link import (
    ENTRY_TOPIC,
    NAME,
    NOTIFICATION,
    PATH,
    PATH_TOPIC,
    REFRESH,
    RESYNC,
    RETAINED,
    SUBSCRIBE,
    UNSUBSCRIBE,
    Link,
    property_of,
)
from brokerbed.broker.core.run import TAGGED
from brokerbed.broker.core.session import Session
from brokerbed.broker.routing.strategy import Algorithm
from brokerbed.broker.values import NS_PER_S, Entry, Message
from brokerbed.log.record import REPLAY, RETAIN, Kind
from brokerbed.topics import matches

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker
    from brokerbed.broker.core.connection import Connection

SILENT_NS = PING_S * NS_PER_S * 3 // 2  # a child that sends nothing for so long is taken for dead
STALE_PERIODS = 3  # an entry that was not repeated for so many refresh periods is dropped


class Overlay:
    def __init__(self, broker: "Broker", algorithm: Algorithm) -> None:
        self._broker = broker
        self.algorithm = algorithm
        self.strategy = algorithm.make()
        self.parent: Session | None = None
        self.last_subscription_number = 0  # part of the identities of local subscriptions
        self._retained_requests: dict[Entry, bool] = {}  # entries asked for at the parent -> `is_late` of `_announce`
        self._late_answers: set[tuple[str, int]] = set()  # identities of answers to late requests on this connection
        self._foreign_requests: dict[Entry, set[str]] = {}  # requests a foreign parent is answering -> topics so far
        self._pings: deque[Entry | None] = deque()  # unanswered pings, with the entry whose request each one follows
        self._is_first = True  # the link to the parent has no session yet
        self._refresh_ns = round(broker.config.refresh_s * NS_PER_S)
        self._is_refreshing = False
        self._next_refresh_ns = 0
        self.path: tuple[str, ...] = ()  # our ancestors, parent first
        self.loop_problem: str | None = None  # set if the brokers form a loop and therefore no tree
        self.introduction = Introduction(broker)

    # -- entries and links ------------------------------------------------------------------------------------

    def heard(self, source: Link | None, entry: Entry, is_added: bool, is_resync: bool, now_ns: int) -> None:
        """A client, or the neighbour over `source`, gained or lost an entry. Announcements inherit `is_resync`."""
        for link, announced, is_announced in self.strategy.heard(source, entry, is_added):
            kind = RESYNC if is_resync else SUBSCRIBE if is_announced else UNSUBSCRIBE
            assert isinstance(link, Link)
            self._announce(link, announced, is_announced, kind, now_ns)

    def _announce(
        self, link: Link, entry: Entry, is_added: bool, kind: str, now_ns: int, is_late: bool = False
    ) -> None:
        """Announce or withdraw an entry, if the link is up.

        `is_late`: the subscribers behind the entry already got the retained messages that this broker has.
        """
        if link.is_parent and not is_added:
            self._retained_requests.pop(entry, None)
        if link.announced.session.connection is None:
            return
        requests_retained = link.is_parent and is_added and entry not in self._retained_requests
        if requests_retained:
            self._ask(entry, link.announced.session, is_late)
        link.announced.announce(Change(entry, is_added, kind, requests_retained), now_ns)

    def open_link(self, session: Session, peer: str, is_parent: bool) -> Link:
        """The session becomes one end of a link."""
        link = session.link = Link(peer, is_parent)
        link.announced = Announcements(self._broker, session)
        self.strategy.joined(link)
        if self._sends_everything(link):
            self._broker.subscriptions.add(child_link.subscription_to_everything(session))
        return link

    def close_link(self, session: Session) -> None:
        """The link has been removed for good. The entries announced over it have been removed before."""
        link = session.link
        assert link is not None
        if self._sends_everything(link):
            self._broker.subscriptions.remove(session, "#")
        link.announced.forget_all()
        self.strategy.left(link)

    def _sends_everything(self, link: Link) -> bool:
        """Whether every notification crosses the link, or only those that the neighbour has asked for."""
        return self.algorithm.climbs if link.is_parent else not self.algorithm.stores_entries

    def parent_for_retained(self, message: Message) -> Session | None:
        """The parent, if a retained message must be sent to it although its announced entries do not match."""
        parent = self.parent
        if parent is None or self.algorithm.climbs or message.publisher is parent:
            return None
        return None if self._broker.subscriptions.reaches(parent, message.topic) else parent

    def links(self) -> list[Session]:
        """The sessions of all links, the parent's first."""
        return [*([] if self.parent is None else [self.parent]), *self._broker.links.values()]

    def announced_by_parent(self, connection: "Connection", message: Message, packet_id: int, now_ns: int) -> None:
        """Handle a message under `$overlay/`, which is for this broker itself."""
        session = connection.session
        assert session is not None
        if message.topic == PATH_TOPIC:
            self.path_changed(connection, message.payload.decode("utf-8", "replace"))
        elif message.topic == ENTRY_TOPIC and message.qos == 1:
            persist.save_received_id(self._broker, session, packet_id)
            change = read_from_parent(message.payload)
            handle_subscribe.announced_by_parent(self._broker, session, change, now_ns)

    def restore_parent(self, session: Session) -> None:
        self.parent = session
        self._is_first = False

    def restore_announced(self, session: Session | None, entry: Entry, number: int, is_acknowledged: bool) -> None:
        """`session` is that of the link. It is None in old stores, which had announcements to the parent only."""
        session = session or self.parent
        assert session is not None
        assert session.link is not None
        session.link.announced.restore(entry, number, is_acknowledged)
        if is_acknowledged and session.link.is_parent:
            self._retained_requests[entry] = False

    def rebuild_strategy(self) -> None:
        """Replace the strategy by a new one, and tell it of all links and entries that there are."""
        self.strategy = self.algorithm.make()
        for session in self.links():
            assert session.link is not None
            self.strategy.joined(session.link)
        for session in (*self._broker.sessions.values(), *self.links()):
            for entry in child_link.interest(session):
                self.strategy.heard(session.link, entry, True)

    # -- retained messages ------------------------------------------------------------------------------------

    def _ask(self, entry: Entry, parent: Session, is_late: bool) -> None:
        """Note that the parent is asked for the retained messages of a new entry.

        Ours may be outdated, so they are dropped, except those still waiting to be sent to the parent.
        """
        self._retained_requests[entry] = is_late
        ours = [] if is_late else list(handle_subscribe.retained_for(self._broker, entry.filter))
        if ours:
            climbing = _climbing(parent)
            for message in ours:
                if message.topic not in climbing:
                    persist.retain(self._broker, message.topic, None)

    def replayed(self, message: Message, now_ns: int) -> None:
        """Pass a retained message from the parent to the subscribers that asked, unless ours is known to be newer."""
        entry, message.replay_for = message.replay_for, None
        assert entry is not None
        assert self.parent is not None
        stored = self._broker.retained.get(message.topic)
        is_same = stored is not None and (stored.origin, stored.sequence) == (message.origin, message.sequence)
        if stored is not None and message.topic in _climbing(self.parent):
            return
        if not self.algorithm.stores_entries:
            if not is_same:
                handle_publish.publish(self._broker, message, now_ns, entry)
            return
        is_late = self._retained_requests.get(entry)
        if is_late is None:
            return
        persist.retain(self._broker, message.topic, message)
        identity = message.origin, message.sequence
        if is_late and is_same and identity not in self._late_answers:  # subscribers already got it from us
            return
        if is_late:
            self._late_answers.add(identity)
        for subscription in list(self._broker.subscriptions.to_filter(entry.filter)):
            if subscription.wants_retained and (not entry.identity or child_link.holds_entry(subscription, entry)):
                handle_subscribe.send_one_retained(self._broker, subscription, message, entry, now_ns)

    def foreign_parent_asked(self, connection: "Connection", entry: Entry) -> None:
        """A foreign parent was asked for retained messages. It does not mark its answer, so a ping follows: the answer
        is complete when the ping is answered."""
        self._foreign_requests[entry] = set()
        self.ping(connection, entry)

    def ping(self, connection: "Connection", request: Entry | None = None) -> None:
        self._pings.append(request)
        self._broker.send(connection, mqtt5.PingReqPacket())

    def ping_answered(self) -> None:
        if self._pings and (answered := self._pings.popleft()) is not None:
            self._foreign_requests.pop(answered, None)

    def received_from_foreign(self, link: Link, message: Message, now_ns: int) -> None:
        """Count and log a message from a foreign parent, which does neither, and recognise answers to our requests."""
        if message.retain:
            for entry, topics in self._foreign_requests.items():
                if message.topic not in topics and matches(entry.filter, message.topic):
                    topics.add(message.topic)
                    message.replay_for = entry
                    break
        link.received[NOTIFICATION if message.replay_for is None else RETAINED] += 1
        log = self._broker.log
        if log is not None:
            flags = RETAIN * message.retain | REPLAY * (message.replay_for is not None)
            subject = log.number(f"{link.peer}>{self._broker.config.name}")
            self._broker.log_message(now_ns, Kind.SENT, subject, message, message.qos, flags=flags)

    # -- refresh ----------------------------------------------------------------------------------------------

    def start_refreshing(self, now_ns: int) -> None:
        """Called when there is a link, up or down: refreshing begins, if it is configured."""
        if self._refresh_ns and not self._is_refreshing:
            self._is_refreshing = True
            self._broker.at(now_ns + self._refresh_ns, self._refresh, None)

    def _refresh(self, broker: "Broker", _: None, now_ns: int) -> None:
        """Rebuild the strategy, drop entries that neighbours did not repeat, and repeat ours, so that errors in routing
        tables do not last."""
        self._next_refresh_ns = now_ns + self._refresh_ns
        for session in self.links():
            self._watch_stale(session, now_ns)
        self.rebuild_strategy()
        for session in self.links():
            assert session.link is not None
            for entry in self._withdraw_unwanted(session.link, UNSUBSCRIBE, now_ns):
                self._announce(session.link, entry, True, REFRESH, now_ns, is_late=True)
        broker.at(self._next_refresh_ns, self._refresh, None)

    def _watch_stale(self, session: Session, now_ns: int) -> None:
        """Set a timer for the oldest entry if it becomes stale before the next refresh.

        One timer per link is enough, because entries are in the order in which they were last repeated.
        """
        assert session.link is not None
        if not session.link.entries:
            return
        due_ns = next(iter(session.link.entries.values())) + STALE_PERIODS * self._refresh_ns
        if due_ns < self._next_refresh_ns:
            self._broker.at(max(due_ns, now_ns), self._drop_stale, session)

    def _drop_stale(self, broker: "Broker", session: Session, now_ns: int) -> None:
        handle_subscribe.drop_stale(broker, session, now_ns - STALE_PERIODS * self._refresh_ns, now_ns)
        self._watch_stale(session, now_ns)

    # -- the link to the parent -------------------------------------------------------------------------------

    def dialled(self, connection: "Connection") -> None:
        """The driver has connected to the parent: send our CONNECT."""
        connection.is_uplink = True
        self._broker.choose_codec(connection, 5)
        if connection.is_wire:
            connection.form = TAGGED
        self._broker.send(connection, self.introduction.connect_packet(self._is_first))

    def answered(self, connection: "Connection", packet: mqtt5.Packet, now_ns: int) -> None:
        """Handle the parent's answer to our CONNECT."""
        accepted = self.introduction.answered(connection, packet)
        if accepted is None:
            return
        self._is_first = False
        name = None if self._broker.config.parent_is_foreign else property_of(accepted.user_properties, NAME)
        self.expect_parent(name or connection.peer)
        parent = self.parent
        assert parent is not None
        assert parent.link is not None
        parent.link.is_foreign = name is None
        if not accepted.session_present:
            parent.link.announced.forget_all()
            handle_subscribe.forget_entries(self._broker, parent, now_ns)
            parent.received.clear()  # its packet ids start again
            persist.forget_received(self._broker, parent, list(parent.received_rows))
            persist.save_received_id(self._broker, parent, 0)
            if name is None and not self.algorithm.stores_entries:  # a foreign parent is asked for everything, once
                everything = mqtt5.TopicFilter("#", max_qos=mqtt5.QoS(2), no_local=True, retain_as_published=True)
                packet_id = persist.take_packet_id(self._broker, parent)
                self._broker.send(connection, mqtt5.SubscribePacket(packet_id, [everything]))
                self.foreign_parent_asked(connection, Entry("#"))
        parent.connection = connection
        connection.session = parent
        connection.inflight_max = min(WINDOW, accepted.receive_max)
        connection.receive_max = WINDOW
        if accepted.max_packet_size is not None:
            connection.packet_bytes_max = accepted.max_packet_size
            connection.update_is_simple()
        self._broker.timers.cancel(connection.timer)
        connection.timer = self._broker.timers.later(now_ns + PING_S * NS_PER_S, _ping, connection)
        if self._broker.log is not None:
            self._broker.log.add(now_ns, Kind.CONNECTED, parent.log_number)
        self.start_refreshing(now_ns)
        self.path_changed(connection, property_of(accepted.user_properties, PATH) or parent.client_id)
        deliver.resume(self._broker, parent, now_ns)  # before our requests: what waits for the parent is older
        self.resynchronise(parent, now_ns)

    def path_changed(self, connection: "Connection", path: str) -> None:
        """The parent has told us our ancestors. Our children are told in turn. A loop ends the link for good."""
        name = self._broker.config.name
        new = tuple(path.split("/"))
        if name in new:
            circle = " -> ".join((name, *new[: new.index(name) + 1]))
            self.loop_problem = f"{name} is among its own ancestors ({circle}); check --parent"
            self._broker.end(connection)
        elif new != self.path:
            self.path = new
            packet = mqtt5.PublishPacket(PATH_TOPIC, self.own_path.encode())
            for session in self._broker.links.values():
                if session.connection is not None:
                    self._broker.send(session.connection, packet)

    @property
    def own_path(self) -> str:
        return "/".join((self._broker.config.name, *self.path))

    def expect_parent(self, name: str) -> None:
        """This broker has a parent, connected or not: from now on its messages are queued for the parent."""
        broker = self._broker
        if self.parent is None:
            self.parent = Session(name, None, broker.config.service_link is not None)
            self.parent.expiry_s = SESSION_S
            self.open_link(self.parent, name, is_parent=True)
        parent = self.parent
        assert parent.link is not None
        parent.link.peer = parent.client_id = name
        if broker.log is not None:
            parent.log_number = broker.log.number(f"{broker.config.name}>{name}")
        persist.save_session(broker, parent)

    def forget_parent(self, now_ns: int) -> None:
        """This broker has become a root."""
        if self.parent is not None:
            handle_connect.end_session(self._broker, self.parent, now_ns)
            self.parent = None

    def lost(self, now_ns: int) -> None:
        """The link to the parent is down."""
        assert self.parent is not None
        assert self.parent.link is not None
        deliver.disconnected(self._broker, self.parent, now_ns)
        for entry in self.parent.link.announced.lost():
            self._retained_requests.pop(entry, None)
        self._late_answers.clear()
        self._foreign_requests.clear()
        self._pings.clear()

    def resynchronise(self, session: Session, now_ns: int) -> None:
        """A link is up: announce the difference between the entries that the neighbour has and those it should have."""
        link = session.link
        if link is None:  # it is the session of a client
            return
        for entry in self._withdraw_unwanted(link, RESYNC, now_ns):
            if not link.announced.is_acknowledged(entry):
                self._announce(link, entry, True, RESYNC, now_ns, is_late=True)

    def _withdraw_unwanted(self, link: Link, kind: str, now_ns: int) -> dict[Entry, None]:
        """Withdraw the entries that the neighbour should not have; returns all entries that it should have."""
        wanted = dict.fromkeys(self.strategy.wanted(link))
        for entry in [entry for entry in link.announced.entries if entry not in wanted]:
            self._announce(link, entry, False, kind, now_ns)
        return wanted


def _ping(broker: "Broker", connection: "Connection", now_ns: int) -> None:
    if connection.is_closing:
        return
    if now_ns - connection.last_ns > 3 * PING_S * NS_PER_S:
        broker.end(connection)
        return
    broker.overlay.ping(connection)
    connection.timer = broker.timers.later(now_ns + PING_S * NS_PER_S, _ping, connection)


def _climbing(parent: Session) -> set[str]:
    """Topics with a retained message that waits to be sent to the parent, and is therefore newer than the parent's."""
    assert parent.link is not None
    waiting = (*parent.link.staged, *parent.queue)
    return {delivery.message.topic for delivery in waiting if delivery.message.retain}

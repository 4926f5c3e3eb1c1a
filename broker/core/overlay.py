"""A broker's place in the tree: the entries that it announces over its links, and the link to its parent.

Both ends of a link are sessions: a child's link is a session at its parent, and the parent is one more session of the
child. So messages for a cut link wait in a session queue like any other. The subscriptions of such a session are the
routing entries that the neighbour has announced; a neighbour that gets every notification is subscribed to everything
except what it sent itself (No Local). The routing strategy decides which entries are announced, and announcements.py
sends them. Entries that change while a link is down are not queued: on reconnection the difference between the entries
that the neighbour has and those it should have is announced, and counts as resync.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

import mqtt5

from brokerbed.broker.core import child_link, deliver, handle_subscribe, link_moves, persist, session_end
from brokerbed.broker.core.advertisements import Advertisements, advertisements_of
from brokerbed.broker.core.announcements import Announcements, Change, kind_of, read_from_parent
from brokerbed.broker.core.introduction import PING_S, SESSION_S, WINDOW, Introduction
from brokerbed.broker.core.link import (
    ENTRY_TOPIC,
    NAME,
    PATH,
    PATH_TOPIC,
    REFRESH,
    RESYNC,
    Link,
    property_of,
    stated_address,
)
from brokerbed.broker.core.retained_requests import RetainedRequests
from brokerbed.broker.core.run import TAGGED
from brokerbed.broker.core.session import Session
from brokerbed.broker.core.subscriptions import Subscription
from brokerbed.broker.routing.strategy import Advertising, Algorithm, Announcement
from brokerbed.broker.values import NS_PER_S, Entry, Message
from brokerbed.log.record import Kind

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker
    from brokerbed.broker.core.connection import Connection

SILENT_NS = PING_S * NS_PER_S * 3 // 2  # a child that sends nothing for so long is taken for dead
STALE_PERIODS = 3  # an entry that was not repeated for so many refresh periods is dropped


class Overlay:
    def __init__(self, broker: "Broker", algorithm: Algorithm) -> None:
        self._broker = broker
        self.algorithm = algorithm
        self._parameters = algorithm.checked(broker.config.routing_parameters)
        self.strategy = algorithm.make(**self._parameters)
        self.advertising = Advertisements(broker) if algorithm.advertises else None
        # Interest that is not announced to the parent does not bring retained messages, so they are asked for.
        self.requests_retained = algorithm.advertising is Advertising.EVERYWHERE
        self.parent: Session | None = None
        self.last_subscription_number = 0  # part of the identities of local subscriptions
        self.retained = RetainedRequests(broker)
        self._is_first = True  # the link to the parent has no session yet
        self._refresh_ns = round(broker.config.refresh_s * NS_PER_S)
        self._is_refreshing = False
        self._next_refresh_ns = 0
        self.path: tuple[str, ...] = ()  # our ancestors, parent first
        self.loop_problem: str | None = None  # set if the brokers form a loop and therefore no tree
        self.introduction = Introduction(broker)
        self.link_moves = link_moves.LinkMoves(broker)
        self.moved_to: Link | None = (
            None  # the link to the parent, if that is not the one of the configuration any more
        )

    # -- entries and links ------------------------------------------------------------------------------------

    def heard(
        self,
        source: Link | None,
        entry: Entry,
        is_added: bool,
        is_resync: bool,
        now_ns: int,
        cause: Subscription | None = None,
    ) -> None:
        """A client, or the neighbour over `source`, gained or lost an entry. Announcements inherit `is_resync`.

        `cause`: the new subscription that the entry stands for.
        """
        announcements = self.strategy.heard(source, entry, is_added)
        if announcements:
            self._announce_all(announcements, is_resync, now_ns, cause)
        if self.requests_retained and cause is not None:
            self.retained.request(entry, cause, now_ns)

    def _announce_all(
        self, announcements: Iterable[Announcement], is_resync: bool, now_ns: int, cause: Subscription | None = None
    ) -> None:
        for link, entry, is_added in announcements:
            assert isinstance(link, Link)
            kind = RESYNC if is_resync else kind_of(entry, is_added)
            self._announce(link, entry, is_added, kind, now_ns, cause)

    def _announce(
        self, link: Link, entry: Entry, is_added: bool, kind: str, now_ns: int, cause: Subscription | None = None
    ) -> None:
        """Announce or withdraw an entry, if the link is up.

        `cause`: the new subscription because of which the entry is announced. There is none if the subscribers behind
        the entry have already got the retained messages that this broker has.
        """
        announced = link.announced
        if announced.is_assuming and is_added:
            if not announced.is_in_force(entry):
                asks_later = link.is_parent and entry.is_interest  # for the parent's retained messages
                announced.assume(entry, is_acknowledged=not asks_later)
            return
        if announced.session.connection is None or link.is_silent:
            return
        requests_retained = link.is_parent and is_added and announced.asks_for_retained(entry)
        if requests_retained and cause is not None:
            self.retained.ask(entry, announced.session, cause)
        announced.announce(Change(entry, is_added, kind, requests_retained), now_ns)

    def announce_again(self, link: Link, entry: Entry, now_ns: int) -> None:
        """Announce an entry that the neighbour has or will have, to get what an announcement brings."""
        self._announce(link, entry, True, RESYNC, now_ns)

    def open_link(self, session: Session, peer: str, is_parent: bool) -> Link:
        """The session becomes one end of a link."""
        link = session.link = self.new_link(session, peer, is_parent)
        self.strategy.joined(link)
        if self._sends_everything(link):
            self._broker.subscriptions.add(child_link.subscription_to_everything(session))
        return link

    def new_link(self, session: Session, peer: str, is_parent: bool) -> Link:
        """A link of which the routing strategy does not know yet."""
        is_indexed = self.algorithm.covers or self.algorithm.advertises
        link = Link(peer, is_parent, is_indexed)
        link.announced = Announcements(self._broker, session, is_indexed)
        return link

    def close_link(self, session: Session, now_ns: int) -> None:
        """The link has been removed for good. The entries announced over it have been removed before."""
        link = session.link
        assert link is not None
        if self._sends_everything(link):
            self._broker.subscriptions.remove(session, "#")
        link.announced.forget_all()
        self._announce_all(self.strategy.left(link), False, now_ns)

    def _sends_everything(self, link: Link) -> bool:
        """Whether every notification crosses the link, or only those that the neighbour has asked for."""
        return self.algorithm.climbs if link.is_parent else not self.algorithm.stores_entries

    def parent_for_retained(self, message: Message) -> Session | None:
        """The parent, if a retained message must be sent to it although its announced entries do not match."""
        parent = self.parent
        if parent is None or self.algorithm.climbs or message.is_unadvertised or message.publisher is parent:
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
        if session.link is not None and session.link.has_moved:
            self.moved_to = session.link

    def successor_restored(self, session: Session) -> None:
        """The link to the next parent has been restored, after the link to the parent."""
        assert self.parent is not None
        assert self.parent.link is not None
        self.parent.link.successor = session

    def restore_announced(self, session: Session | None, entry: Entry, number: int, is_acknowledged: bool) -> None:
        """`session` is that of the link. It is None in old stores, which had announcements to the parent only."""
        session = session or self.parent
        assert session is not None
        assert session.link is not None
        session.link.announced.restore(entry, number, is_acknowledged)

    def rebuild_strategy(self) -> None:
        """Replace the strategy by a new one, and tell it of all links and entries that there are."""
        self.strategy = self.algorithm.make(**self._parameters)
        for session in self.links():
            assert session.link is not None
            self.strategy.joined(session.link)
        for session in (*self._broker.sessions.values(), *self.links()):
            for entry in child_link.interest(session):
                self.strategy.heard(session.link, entry, True)
            if self.advertising is not None:
                for entry in advertisements_of(session):
                    self.strategy.heard(session.link, entry, True)

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
            for entry in dict.fromkeys(self.strategy.wanted(session.link)):
                self._announce(session.link, entry, True, REFRESH, now_ns)
            self.withdraw_unwanted(session.link, now_ns)
        broker.at(self._next_refresh_ns, self._refresh, None)

    def withdraw_unwanted(self, link: Link, now_ns: int) -> None:
        """Withdraw what the neighbour should not have."""
        for entry in link.announced.unwanted(dict.fromkeys(self.strategy.wanted(link))):
            self._announce(link, entry, False, kind_of(entry, False), now_ns)

    def _watch_stale(self, session: Session, now_ns: int) -> None:
        """Set a timer for the oldest entry if it becomes stale before the next refresh.

        One timer per link is enough, because the entries of a table are in the order in which they were last repeated.
        """
        assert session.link is not None
        tables = session.link.entries, session.link.advertised
        renewed_ns = [next(iter(table.values())) for table in tables if table]
        due_ns = min(renewed_ns, default=self._next_refresh_ns) + STALE_PERIODS * self._refresh_ns
        if due_ns < self._next_refresh_ns:
            self._broker.at(max(due_ns, now_ns), self._drop_stale, session)

    def _drop_stale(self, broker: "Broker", session: Session, now_ns: int) -> None:
        handle_subscribe.drop_stale(broker, session, now_ns - STALE_PERIODS * self._refresh_ns, now_ns)
        self._watch_stale(session, now_ns)

    # -- the link to the parent -------------------------------------------------------------------------------

    def dialled(self, connection: "Connection") -> None:
        """The driver has connected to the parent: send our CONNECT."""
        connection.is_uplink = True
        self._broker.connecting.pop(connection, None)
        self._broker.choose_codec(connection, 5)
        if connection.is_wire:
            connection.form, connection.carries_expiry = TAGGED, self._broker.config.is_testbed
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
        parent.link.is_foreign, parent.link.is_known = name is None, True
        parent.link.address = stated_address(accepted.user_properties) or connection.peer
        if not accepted.session_present:
            self._broker.session_moves.link_forgotten(parent.link, now_ns)
            parent.link.announced.forget_all()
            handle_subscribe.forget_entries(self._broker, parent, now_ns)
            parent.received.clear()  # its packet ids start again
            persist.forget_received(self._broker, parent, list(parent.received_rows))
            persist.save_received_id(self._broker, parent, 0)
            if name is None and not self.algorithm.stores_entries:  # a foreign parent is asked for everything, once
                everything = mqtt5.TopicFilter("#", max_qos=mqtt5.QoS(2), no_local=True, retain_as_published=True)
                packet_id = persist.take_packet_id(self._broker, parent)
                self._broker.send(connection, mqtt5.SubscribePacket(packet_id, [everything]))
                self.retained.foreign_parent_asked(connection, Entry("#"))
        parent.connection = connection
        connection.session = parent
        connection.update_is_simple()
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
            self.open_link(self.parent, name, is_parent=True).is_known = not self._is_first
        parent = self.parent
        assert parent.link is not None
        parent.link.peer = parent.client_id = name
        if broker.log is not None:
            parent.log_number = broker.log.number(f"{broker.config.name}>{name}")
        persist.save_session(broker, parent)

    def forget_parent(self, now_ns: int) -> None:
        """This broker has become a root."""
        if self.parent is not None:
            if self.parent.link is not None and self.parent.link.successor is not None:
                persist.forget_session(self._broker, self.parent.link.successor)
            session_end.end_session(self._broker, self.parent, now_ns)
            self.parent = self.moved_to = None

    def lost(self, now_ns: int) -> None:
        """The link to the parent is down."""
        assert self.parent is not None
        assert self.parent.link is not None
        deliver.disconnected(self._broker, self.parent, now_ns)
        self.parent.link.lost(now_ns)
        self.retained.lost()

    def resynchronise(self, session: Session, now_ns: int) -> None:
        """A link is up: announce the difference between the entries that the neighbour has and those it should have."""
        link = session.link
        if link is None or link.is_silent:  # it is the session of a client, or of a link that is about to end
            return
        link.renew(now_ns)
        wanted, has_dropped_ours = dict.fromkeys(self.strategy.wanted(link)), self._may_have_dropped_ours(link, now_ns)
        for entry in wanted:
            if has_dropped_ours or not link.announced.is_acknowledged(entry):
                self._announce(link, entry, True, RESYNC, now_ns)
        link.announced.repeat_requests(now_ns)
        for entry in link.announced.unwanted(wanted):  # last, so that there is an entry for everything at any time
            self._announce(link, entry, False, RESYNC, now_ns)
        self._broker.session_moves.linked(session, now_ns)
        self._broker.session_claims.linked(now_ns)

    def _may_have_dropped_ours(self, link: Link, now_ns: int) -> bool:
        """Whether the neighbour may have dropped our entries because they were not repeated while the link was down.

        They may have been repeated for the last time one period before it was lost.
        """
        if not self._refresh_ns:
            return False
        return link.lost_ns is None or now_ns - link.lost_ns >= (STALE_PERIODS - 1) * self._refresh_ns


def _ping(broker: "Broker", connection: "Connection", now_ns: int) -> None:
    if connection.is_closing:
        return
    if now_ns - connection.last_ns > 3 * PING_S * NS_PER_S:
        broker.end(connection)
        return
    broker.overlay.retained.ping(connection)
    connection.timer = broker.timers.later(now_ns + PING_S * NS_PER_S, _ping, connection)

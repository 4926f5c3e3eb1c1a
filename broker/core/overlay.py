"""A broker's place in the tree: what it tells its parent, and the link on which it does so.

The parent is one more session of this broker, subscribed to everything but what it sent itself (No Local); so what
waits for a cut parent link is a session queue like any other. A child's link is an ordinary session at the parent,
and its subscriptions are the routing entries. Interest that changes while the link is down is not queued: on
reconnection the difference between what the parent knows and what it should know travels, and counts as resync.
"""

from collections import deque
from typing import TYPE_CHECKING

import mqtt5

from brokerbed.broker.core import child_link, deliver, handle_connect, handle_publish, handle_subscribe, persist
from brokerbed.broker.core.entries_at_parent import Change, EntriesAtParent
from brokerbed.broker.core.introduction import PING_S, SESSION_S, WINDOW, Introduction
from brokerbed.broker.core.link import (
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
from brokerbed.broker.routing import registry
from brokerbed.broker.values import NS_PER_S, Entry, Message
from brokerbed.log.record import REPLAY, RETAIN, Kind
from brokerbed.topics import matches

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker
    from brokerbed.broker.core.connection import Connection

SILENT_NS = PING_S * NS_PER_S * 3 // 2  # a child that says nothing for so long is not live
STALE_PERIODS = 3  # an entry that was not repeated for so many refreshes is dropped


class Overlay:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self.algorithm = registry.algorithm(broker.config.routing)
        self.strategy = self.algorithm.make()
        self.parent: Session | None = None
        self.subscribed = 0  # local subscriptions so far; numbers their identities
        self.at_parent = EntriesAtParent(broker)
        self._asked: dict[Entry, bool] = {}  # the parent is asked for retained messages; whether late, after a cut
        self._learned: set[tuple[str, int]] = set()  # retained messages that late answers brought since the link is up
        self._foreign_asks: dict[Entry, set[str]] = {}  # a foreign parent is answering: topics that came so far
        self._pings: deque[Entry | None] = deque()  # sent to the parent; an entry's answer is complete with its ping's
        self._is_first = True
        self._refresh_ns = round(broker.config.refresh_s * NS_PER_S)
        self._is_refreshing = False
        self._next_refresh_ns = 0
        self.path: tuple[str, ...] = ()  # our ancestors, parent first
        self.loop: str | None = None  # why the tree is none
        self.introduction = Introduction(broker)

    # -- interest ---------------------------------------------------------------------------------------------

    def added(self, topic_filter: str, identity: str, is_resync: bool, now_ns: int) -> None:
        """A subscription appeared at this broker, from a client or from a child; what a resync causes is one, too."""
        kind = RESYNC if is_resync else SUBSCRIBE
        self._tell(self.strategy.added(Entry(topic_filter, identity)), True, kind, now_ns)

    def removed(self, topic_filter: str, identity: str, is_resync: bool, now_ns: int) -> None:
        kind = RESYNC if is_resync else UNSUBSCRIBE
        self._tell(self.strategy.removed(Entry(topic_filter, identity)), False, kind, now_ns)

    def _tell(self, entry: Entry | None, is_added: bool, kind: str, now_ns: int, is_late: bool = False) -> None:
        """`is_late`: those who want it have had what we know."""
        parent = self.parent
        if entry is not None and not is_added:
            self._asked.pop(entry, None)
        if entry is None or parent is None or parent.connection is None:
            return
        is_question = is_added and entry not in self._asked
        if is_question:
            self._ask(entry, parent, is_late)
        self.at_parent.tell(parent, Change(entry, is_added, kind, is_question), now_ns)

    def acknowledged(self, packet_id: int, now_ns: int) -> None:
        if self.parent is not None:
            self.at_parent.acknowledged(self.parent, packet_id, now_ns)

    def restore_parent(self, session: Session) -> None:
        self.parent = session
        self._is_first = False

    def restore_known(self, entry: Entry, number: int, is_sure: bool) -> None:
        self.at_parent.restore(entry, number, is_sure)
        if is_sure:
            self._asked[entry] = False

    def count_interest(self) -> None:
        """All that clients and children want, counted anew."""
        self.strategy = self.algorithm.make()
        for session in (*self._broker.sessions.values(), *self._broker.links.values()):
            for entry in child_link.interest(session):
                self.strategy.added(entry)

    # -- retained messages ------------------------------------------------------------------------------------

    def _ask(self, entry: Entry, parent: Session, is_late: bool) -> None:
        """The parent will send what is retained for a new entry; ours may be old, unless it is on its way up."""
        self._asked[entry] = is_late
        ours = [] if is_late else list(handle_subscribe.retained_for(self._broker, entry.filter))
        if ours:
            climbing = _climbing(parent)
            for message in ours:
                if message.topic not in climbing:
                    persist.retain(self._broker, message.topic, None)

    def replayed(self, message: Message, now_ns: int) -> None:
        """The parent's answer goes to those who asked, if they are still there; what we know to be newer stays."""
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
        is_late = self._asked.get(entry)
        if is_late is None:
            return
        persist.retain(self._broker, message.topic, message)
        identity = message.origin, message.sequence
        if is_late and is_same and identity not in self._learned:  # they had it from us when they subscribed
            return
        if is_late:
            self._learned.add(identity)
        for subscription in list(self._broker.subscriptions.to_filter(entry.filter)):
            if subscription.wants_retained and (not entry.identity or child_link.stands_for(subscription, entry)):
                handle_subscribe.send_one_retained(self._broker, subscription, message, entry, now_ns)

    def foreign_asked(self, connection: "Connection", entry: Entry) -> None:
        """A foreign parent does not mark its answer, but it is complete when a ping that follows is answered."""
        self._foreign_asks[entry] = set()
        self.ping(connection, entry)

    def ping(self, connection: "Connection", asked: Entry | None = None) -> None:
        self._pings.append(asked)
        self._broker.send(connection, mqtt5.PingReqPacket())

    def pinged(self) -> None:
        if self._pings and (answered := self._pings.popleft()) is not None:
            self._foreign_asks.pop(answered, None)

    def received_from_foreign(self, link: Link, message: Message, now_ns: int) -> None:
        """We count and log what a foreign parent sends, as it does not; and see what is an answer to a question."""
        if message.retain:
            for entry, topics in self._foreign_asks.items():
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

    def begin(self, now_ns: int) -> None:
        """Called when there is a link, up or down: from now on interest is refreshed, if it is to be."""
        if self._refresh_ns and not self._is_refreshing:
            self._is_refreshing = True
            self._broker.at(now_ns + self._refresh_ns, self._refresh, None)

    def _refresh(self, broker: "Broker", _: None, now_ns: int) -> None:
        """Count our interest anew, drop what children did not repeat, repeat ours: wrong tables do not last."""
        self._next_refresh_ns = now_ns + self._refresh_ns
        for session in broker.links.values():
            self._watch_stale(session, now_ns)
        self.count_interest()
        for entry in self._tell_unwanted(UNSUBSCRIBE, now_ns):
            self._tell(entry, True, REFRESH, now_ns, is_late=True)
        broker.at(self._next_refresh_ns, self._refresh, None)

    def _watch_stale(self, session: Session, now_ns: int) -> None:
        """An entry that will be too old before the next refresh is dropped just then, unless it is repeated.

        One timer per link is enough: entries are in the order in which they were repeated.
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
        """The driver has reached the parent: introduce ourselves."""
        connection.is_uplink = True
        self._broker.choose_codec(connection, 5)
        if connection.is_wire:
            connection.form = TAGGED
        self._broker.send(connection, self.introduction.connect_packet(self._is_first))

    def answered(self, connection: "Connection", packet: mqtt5.Packet, now_ns: int) -> None:
        """The parent's answer to our CONNECT."""
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
            self.at_parent.forget()
            for packet_id in list(parent.received):  # its numbers begin anew
                persist.forget_received(self._broker, parent, packet_id)
            persist.save_received_id(self._broker, parent, 0)
            if (
                name is None and not self.algorithm.stores_entries
            ):  # a foreign parent must be asked for everything, once
                everything = mqtt5.TopicFilter("#", max_qos=mqtt5.QoS(2), no_local=True, retain_as_published=True)
                packet_id = persist.take_packet_id(self._broker, parent)
                self._broker.send(connection, mqtt5.SubscribePacket(packet_id, [everything]))
                self.foreign_asked(connection, Entry("#"))
        parent.connection = connection
        connection.session = parent
        connection.inflight_max = min(WINDOW, accepted.receive_max)
        connection.receive_max = WINDOW
        if accepted.max_packet_size is not None:
            connection.packet_bytes_max = accepted.max_packet_size
            connection.look()
        self._broker.timers.cancel(connection.timer)
        connection.timer = self._broker.timers.later(now_ns + PING_S * NS_PER_S, _ping, connection)
        if self._broker.log is not None:
            self._broker.log.add(now_ns, Kind.CONNECTED, parent.log_number)
        self.begin(now_ns)
        self.path_changed(connection, property_of(accepted.user_properties, PATH) or parent.client_id)
        deliver.resume(self._broker, parent, now_ns)  # first: what we have for the parent is older than our questions
        self._resynchronise(now_ns)

    def path_changed(self, connection: "Connection", path: str) -> None:
        """Our ancestors, as the parent tells them; our children are told in turn. A loop ends the link for good."""
        name = self._broker.config.name
        new = tuple(path.split("/"))
        if name in new:
            circle = " -> ".join((name, *new[: new.index(name) + 1]))
            self.loop = f"{name} is among its own ancestors ({circle}); check --parent"
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
        """There is a parent, reached or not: from now on all that is published waits for it."""
        broker = self._broker
        if self.parent is None:
            self.parent = Session(name, None, broker.config.service_link is not None)
            self.parent.link = Link(name, is_parent=True)
            self.parent.expiry_s = SESSION_S
            child_link.subscribe_to_all(broker, self.parent)
        parent = self.parent
        assert parent.link is not None
        parent.link.peer = parent.client_id = name
        if broker.log is not None:
            parent.log_number = broker.log.number(f"{broker.config.name}>{name}")
        persist.save_session(broker, parent)

    def forget_parent(self, now_ns: int) -> None:
        """This broker has become a root."""
        if self.parent is not None:
            self._broker.subscriptions.remove(self.parent, "#")
            handle_connect.end_session(self._broker, self.parent, now_ns)
            self.at_parent.forget()
            self.parent = None

    def lost(self, now_ns: int) -> None:
        """What was told and not acknowledged may or may not have arrived: the parent is told again how it is."""
        assert self.parent is not None
        deliver.disconnected(self._broker, self.parent, now_ns)
        for entry in self.at_parent.lost(self.parent):
            self._asked.pop(entry, None)
        self._learned.clear()
        self._foreign_asks.clear()
        self._pings.clear()

    def _resynchronise(self, now_ns: int) -> None:
        for entry in self._tell_unwanted(RESYNC, now_ns):
            if not self.at_parent.is_sure(entry):
                self._tell(entry, True, RESYNC, now_ns, is_late=True)

    def _tell_unwanted(self, kind: str, now_ns: int) -> dict[Entry, None]:
        """Take back what the parent knows and should not; returns all that it should know."""
        wanted = dict.fromkeys(self.strategy.wanted())
        for entry in [entry for entry in self.at_parent.known if entry not in wanted]:
            self._tell(entry, False, kind, now_ns)
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
    """Topics with a retained message that waits for the parent: ours is newer than the parent's."""
    assert parent.link is not None
    waiting = (*parent.link.staged, *parent.queue)
    return {delivery.message.topic for delivery in waiting if delivery.message.retain}

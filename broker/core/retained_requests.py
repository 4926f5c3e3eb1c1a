"""Retained messages that this broker asks its parent for, and what it does with the answers.

All retained messages climb to the root. A broker that announces a filter to its parent asks for those that match, keeps
them, and is kept up to date by the entry from then on. So whatever it has for a topic that a subscription here matches
is the newest one, and all these subscribers have got it: a retained message from the parent that is new here goes to
all of them, and one that is already here goes to nobody.
"""

from collections import OrderedDict, deque
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import mqtt5

from brokerbed.broker.core import handle_publish, handle_subscribe, persist
from brokerbed.broker.core.link import NOTIFICATION, RETAINED, Link
from brokerbed.broker.core.session import Session
from brokerbed.broker.core.subscriptions import Subscription
from brokerbed.broker.values import Entry, Message, request
from brokerbed.log.record import REPLAY, RETAIN, Kind
from brokerbed.topics import matches

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker
    from brokerbed.broker.core.connection import Connection

CHILDREN_ASKING_MAX = 10_000  # filters for which children wait for retained messages; an answer takes a round trip


class RetainedRequests:
    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._children_asking: OrderedDict[str, dict[Session, None]] = OrderedDict()  # by filter, for us to pass on
        self._foreign_requests: dict[Entry, set[str]] = {}  # requests a foreign parent is answering -> topics so far
        self._pings: deque[Entry | None] = deque()  # unanswered pings, with the entry whose request each one follows

    def ask(self, entry: Entry, parent: Session, cause: Subscription | None) -> None:
        """The parent is asked for the retained messages of an entry, because of a new subscription.

        Ours may be outdated, so they are dropped, except those still waiting to be sent to the parent and those that
        another subscription has kept up to date.
        """
        ours = list(handle_subscribe.retained_for(self._broker, entry.filter))
        if ours:
            climbing = _climbing(parent)
            for message in ours:
                if message.topic not in climbing and not self._is_kept_up_to_date(message.topic, cause):
                    persist.retain(self._broker, message.topic, None)

    def _is_kept_up_to_date(self, topic: str, cause: Subscription | None) -> bool:
        return any(
            subscription is not cause or subscription.entry_count > 1 for subscription in self._interested(topic)
        )

    def _interested(self, topic: str) -> list[Subscription]:
        """The subscriptions of clients and children, also shared ones, that match a topic."""
        matching = self._broker.subscriptions.matching(topic)
        return [it for it in matching if it.session.link is None or not it.session.link.is_parent]

    def request(self, entry: Entry, cause: Subscription, now_ns: int) -> None:
        """Ask the parent for retained messages because of a new subscription that may not be announced to it."""
        parent = self._broker.overlay.parent
        if parent is None or cause.session is parent:
            return
        assert parent.link is not None
        announced = parent.link.announced
        if announced.is_in_force(Entry(entry.filter)) or self._others_want(entry.filter, cause):
            return
        self.ask(entry, parent, cause)
        announced.request(request(entry.filter), now_ns)

    def adopted(self, entries: Iterable[Entry], assumed: Collection[Entry], now_ns: int) -> None:
        """A child with these entries has come from the parent. Later subscribers here get what is retained for them.

        `assumed`: those that the parent takes for announced, without having been asked for retained messages.
        """
        overlay = self._broker.overlay
        assert overlay.parent is not None
        assert overlay.parent.link is not None
        for entry in entries:
            if entry in assumed:
                overlay.announce_again(overlay.parent.link, entry, now_ns)
            elif overlay.requests_retained and not overlay.parent.link.announced.is_in_force(entry):
                overlay.parent.link.announced.request(request(entry.filter), now_ns)

    def requested(self, child: Session, topic_filter: str, now_ns: int) -> None:
        """A child asks for retained messages without a lasting entry. Only if we know them all do we answer."""
        parent = self._broker.overlay.parent
        if parent is None or self._others_want(topic_filter, None):
            subscription = Subscription(child, topic_filter, 2, True, True, 0)
            for message in list(handle_subscribe.retained_for(self._broker, topic_filter, now_ns)):
                handle_subscribe.send_one_retained(self._broker, subscription, message, Entry(topic_filter), now_ns)
            return
        assert parent.link is not None
        self._children_asking.setdefault(topic_filter, {})[child] = None
        self._children_asking.move_to_end(topic_filter)
        if len(self._children_asking) > CHILDREN_ASKING_MAX:
            self._children_asking.popitem(last=False)
        parent.link.announced.request(request(topic_filter), now_ns)

    def _others_want(self, topic_filter: str, cause: Subscription | None) -> bool:
        """Whether another subscription of a client or child to this filter keeps all its topics up to date."""
        return any(
            subscription is not cause and (subscription.session.link is None or not subscription.session.link.is_parent)
            for subscription in self._broker.subscriptions.to_filter(topic_filter)
        )

    def _pass_on(self, message: Message, entry: Entry, now_ns: int) -> None:
        """Send a retained message to the children that have asked for it without a lasting entry."""
        for child in self._children_asking.get(entry.filter, ()):
            subscription = Subscription(child, entry.filter, 2, True, True, 0)
            handle_subscribe.send_one_retained(self._broker, subscription, message, entry, now_ns)

    def replayed(self, message: Message, now_ns: int) -> None:
        """Pass a retained message from the parent to the subscribers here, unless they have it or ours is newer."""
        entry, message.replay_for = message.replay_for, None
        parent = self._broker.overlay.parent
        assert entry is not None
        assert parent is not None
        assert parent.link is not None
        topic = message.topic
        stored = self._broker.retained.get(topic)
        self._pass_on(message, entry, now_ns)
        if stored is not None and (topic in _climbing(parent) or _is_same(stored, message, parent.link)):
            return
        if not self._broker.overlay.algorithm.stores_entries:
            handle_publish.publish(self._broker, message, now_ns, entry)
            return
        interested = self._interested(topic)
        if not interested and not parent.link.announced.is_in_force(entry):
            return  # nobody is interested any more
        persist.retain(self._broker, topic, message)
        for subscription in interested:
            is_link = subscription.session.link is not None  # it knows only what it got from us
            if (subscription.wants_retained or is_link) and not subscription.is_shared:
                answers = Entry(subscription.filter, subscription.identity)
                handle_subscribe.send_one_retained(self._broker, subscription, message, answers, now_ns)

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

    def lost(self) -> None:
        """The link to the parent is down."""
        self._foreign_requests.clear()
        self._pings.clear()


def _is_same(ours: Message, theirs: Message, link: Link) -> bool:
    """Whether the parent's retained message is the one that is here. Clients of a foreign parent give no identity."""
    is_same = (ours.origin, ours.sequence) == (theirs.origin, theirs.sequence)
    return is_same or (link.is_foreign and ours.payload == theirs.payload)


def _climbing(parent: Session) -> set[str]:
    """Topics with a retained message that waits to be sent to the parent, and is therefore newer than the parent's."""
    assert parent.link is not None
    waiting = (*parent.link.staged, *parent.queue)
    return {delivery.message.topic for delivery in waiting if delivery.message.retain}

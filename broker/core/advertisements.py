"""Advertisements of clients and neighbours, and what becomes of publications that nobody has advertised.

A client advertises a filter by subscribing to `$advertise/` and the filter, under any routing algorithm; nothing is
ever delivered for it. If the algorithm advertises, brokers announce advertisements over links in the same way, and
answers to them; both are entries in a table of their own. What a session publishes without an advertisement of its own
that all links have answered is of kind `unadvertised`: it spreads as if there were no advertisements, and is marked as
such on every link, so that it does so everywhere.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import mqtt5

from brokerbed.broker.core import handle_subscribe, persist
from brokerbed.broker.core.access import may_publish
from brokerbed.broker.core.deliver import deliver, is_queue_full
from brokerbed.broker.core.link import Link
from brokerbed.broker.core.session import Delivery, Session
from brokerbed.broker.core.subscriptions import Subscription, Target
from brokerbed.broker.errors import MalformedPacketError
from brokerbed.broker.routing.strategy import Advertising, AdvertisingStrategy
from brokerbed.broker.values import CACHED_TOPIC_CHARS_MAX, Entry, Message, advertisement, answer
from brokerbed.log.record import Kind
from brokerbed.topics import ADVERTISE, filter_problem, is_wildcard, matches

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker

TOPICS_MAX = 10_000  # topics of one session for which it is cached whether they are advertised


class Publisher:
    """What a client's session advertises."""

    __slots__ = ("filters", "is_advertised", "is_hinted", "version", "wildcards")

    def __init__(self) -> None:
        self.filters: dict[str, Subscription] = {}  # the subscription with which each filter was advertised
        self.wildcards: dict[str, None] = {}  # those with wildcards
        self.is_advertised: dict[str, bool] = {}  # cache by topic
        self.version = -1  # of the advertisements for which the cache holds
        self.is_hinted = False  # the log has the hint that something was not advertised


class Advertisements:
    """Decides which publications spread as if there were no advertisements, and where to."""

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._version = 0  # changes with every advertisement and every answer

    def changed(self) -> None:
        self._version += 1

    def is_advertised(self, session: Session, topic: str) -> bool:
        """Whether a client has advertised a topic, and all links have answered."""
        publisher = session.publisher
        if publisher is None:
            return topic[0] == "$"
        if publisher.version != self._version or len(publisher.is_advertised) >= TOPICS_MAX:
            publisher.version = self._version
            publisher.is_advertised.clear()
        is_advertised = publisher.is_advertised.get(topic)
        if is_advertised is None:
            strategy: AdvertisingStrategy = self._broker.overlay.strategy  # type: ignore[assignment]
            is_advertised = topic[0] == "$" or any(map(strategy.is_answered, _advertised(publisher, topic)))
            if len(topic) <= CACHED_TOPIC_CHARS_MAX:
                publisher.is_advertised[topic] = is_advertised
        return is_advertised

    def mark(self, message: Message, now_ns: int) -> None:
        """Mark a message that was not advertised. Those from links are marked already."""
        session = message.publisher
        if not isinstance(session, Session):  # its session has ended
            message.is_unadvertised = message.topic[0] != "$"
        elif session.link is None and not self.is_advertised(session, message.topic):
            message.is_unadvertised = True
            self._hint(session, message.topic, now_ns)

    def _hint(self, session: Session, topic: str, now_ns: int) -> None:
        publisher = session.publisher
        if publisher is None:
            publisher = session.publisher = Publisher()
        if publisher.is_hinted or any(_advertised(publisher, topic)):
            return
        publisher.is_hinted = True
        if self._broker.log is not None:
            self._broker.log.add(now_ns, Kind.NOT_ADVERTISED, session.log_number, self._broker.log.number(topic))

    def spread(self, message: Message, targets: list[Target], now_ns: int) -> None:
        """Send an unadvertised message over the links that get it although no entry of theirs matches."""
        reached = [target.session for target in targets if target.session.link is not None]
        for session in self._links():
            if session is not message.publisher and session not in reached:
                deliver(self._broker, session, Delivery(message, message.qos, message.retain, ()), now_ns)

    def has_room(self, message: Message) -> bool:
        """Whether all links that may get a message have room for it."""
        return not any(is_queue_full(self._broker, session, message) for session in self._links())

    def _links(self) -> list[Session]:
        overlay = self._broker.overlay
        if overlay.algorithm.advertising is Advertising.EVERYWHERE:
            return overlay.links()
        return [] if overlay.parent is None else [overlay.parent]

    # -- the two ends of a link when an advertisement is withdrawn --------------------------------------------

    def withdrawing(self, session: Session, entry: Entry, now_ns: int) -> None:
        """The withdrawal of our advertisement was sent: the neighbour's answer to it is no longer valid."""
        remove(self._broker, session, answer(entry.topics), False, now_ns)

    def withdrawn(self, session: Session, entry: Entry, now_ns: int) -> None:
        """The neighbour has acknowledged it: drop its entries that none of our other advertisements calls for."""
        link = session.link
        assert link is not None
        assert link.entry_index is not None
        assert link.announced.advertised_index is not None
        for topic_filter in link.entry_index.overlapping(entry.topics):
            if not link.announced.advertised_index.overlaps(topic_filter):
                handle_subscribe.remove_entry(self._broker, session, Entry(topic_filter), False, now_ns)


def _withdrawn_by_neighbour(link: Link, entry: Entry) -> None:
    """The neighbour drops those of our entries that none of its other advertisements calls for, and our answer."""
    announced = link.announced
    announced.forget(answer(entry.topics))
    assert announced.index is not None
    assert link.advertised_index is not None
    for topic_filter in announced.index.overlapping(entry.topics):
        if not link.advertised_index.overlaps(topic_filter):
            announced.forget(Entry(topic_filter))


def _advertised(publisher: Publisher, topic: str) -> Iterator[str]:
    """The filters with which a topic is advertised."""
    if topic in publisher.filters:
        yield topic
    for topic_filter in publisher.wildcards:
        if matches(topic_filter, topic):
            yield topic_filter


def refusal(broker: "Broker", session: Session, pattern: str) -> mqtt5.SubAckReasonCode | None:
    """Why a client or a neighbour must not advertise: whoever may publish may advertise."""
    topics = pattern.partition("/")[2]
    if problem := filter_problem(topics):
        raise MalformedPacketError(problem)
    if not may_publish(session.access, session.user, session.client_id, topics):
        return mqtt5.SubAckReasonCode.NOT_AUTHORIZED
    advertised = session.publisher.filters if session.publisher is not None else {}
    is_full = len(session.subscriptions) + len(advertised) >= broker.config.subscriptions_max
    if session.link is None and is_full and topics not in advertised:
        return mqtt5.SubAckReasonCode.QUOTA_EXCEEDED
    return None


def add(broker: "Broker", session: Session, entry: Entry, is_resync: bool, now_ns: int) -> None:
    """A client or a neighbour advertises, or a neighbour has answered. A repetition changes nothing.

    An answer to an advertisement that is being withdrawn is ignored. The neighbour forgets it with the advertisement.
    """
    link = session.link
    if entry.is_request:
        broker.overlay.retained.requested(session, entry.topics, now_ns)
        return
    if link is not None and entry.is_answer and not link.announced.is_in_force(advertisement(entry.topics)):
        return
    if link is None:
        is_new = session.publisher is None or entry.topics not in session.publisher.filters
        if is_new:
            subscription = Subscription(session, entry.filter, 0, False, False, 0)
            note(session, subscription)
            persist.save_subscription(broker, subscription)
    else:
        is_new = link.advertised.pop(entry, None) is None
        link.advertised[entry] = now_ns  # moved to the end of the dictionary: see Overlay._watch_stale
        if is_new:
            persist.save_entry(broker, session, entry)
            if link.advertised_index is not None and entry.is_advertisement:
                link.advertised_index.add(entry.topics)
    if is_new:
        _changed(broker, session, entry, True, is_resync, now_ns)


def note(session: Session, subscription: Subscription) -> None:
    """Remember an advertisement of a client."""
    if session.publisher is None:
        session.publisher = Publisher()
    topics = subscription.filter.removeprefix(ADVERTISE)
    session.publisher.filters[topics] = subscription
    session.publisher.version = -1
    if is_wildcard(topics):
        session.publisher.wildcards[topics] = None


def remove(
    broker: "Broker", session: Session, entry: Entry, is_resync: bool, now_ns: int, is_stale: bool = False
) -> bool:
    """An advertisement or an answer was withdrawn; returns False if there was none.

    `is_stale`: the neighbour did not withdraw it, so the neighbour drops none of our entries by itself.
    """
    link, publisher = session.link, session.publisher
    if link is not None:
        if link.advertised.pop(entry, None) is None:
            return False
        persist.forget_entry(broker, session, entry)
        if link.advertised_index is not None and entry.is_advertisement:
            link.advertised_index.discard(entry.topics)
            if not is_stale:
                _withdrawn_by_neighbour(link, entry)
    else:
        subscription = None if publisher is None else publisher.filters.pop(entry.topics, None)
        if publisher is None or subscription is None:
            return False
        publisher.wildcards.pop(entry.topics, None)
        publisher.version = -1
        persist.forget_subscription(broker, subscription)
    _changed(broker, session, entry, False, is_resync, now_ns)
    return True


def remove_all(broker: "Broker", session: Session, now_ns: int) -> None:
    """Withdraw all that a client or a neighbour advertises."""
    if session.link is not None:
        for entry in list(session.link.advertised):
            remove(broker, session, entry, True, now_ns)
    elif session.publisher is not None:
        for topics in list(session.publisher.filters):
            remove(broker, session, advertisement(topics), False, now_ns)


def advertisements_of(session: Session) -> Iterator[Entry]:
    """The entries of a client's or a neighbour's advertisements and answers. Topics with `$` are not announced."""
    if session.link is not None:
        yield from session.link.advertised
    elif session.publisher is not None:
        for topics in session.publisher.filters:
            if not topics.startswith("$"):
                yield advertisement(topics)


def _changed(broker: "Broker", session: Session, entry: Entry, is_added: bool, is_resync: bool, now_ns: int) -> None:
    if broker.log is not None and entry.is_advertisement:
        kind = Kind.ADVERTISED if is_added else Kind.UNADVERTISED
        broker.log.add(now_ns, kind, session.log_number, broker.log.number(entry.topics))
    if broker.advertising is not None and not entry.topics.startswith("$"):
        broker.advertising.changed()
        broker.overlay.heard(session.link, entry, is_added, is_resync, now_ns)

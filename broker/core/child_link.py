"""A child's link at its parent, and how what clients and children want travels."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import mqtt5

from brokerbed.broker.core import handle_subscribe
from brokerbed.broker.core.link import IDENTITY, INSTANCE, property_of
from brokerbed.broker.core.session import Session
from brokerbed.broker.core.subscriptions import Subscription, split_share
from brokerbed.broker.values import Entry

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker


def accept_link(broker: "Broker", session: Session, packet: mqtt5.ConnectPacket, is_present: bool, now_ns: int) -> None:
    """At the parent: a child's link is connected; `is_present`: not for the first time."""
    assert session.link is not None
    broker.overlay.begin(now_ns)
    if not is_present:
        if broker.log is not None:
            session.log_number = broker.log.number(f"{broker.config.name}>{session.link.peer}")
        if not broker.overlay.algorithm.stores_entries:
            everything = subscribe_to_all(broker, session)
            for message in handle_subscribe.retained_for(broker, "#", now_ns):
                handle_subscribe.send_one_retained(broker, everything, message, Entry("#"), now_ns)
    session.link.instance = property_of(packet.user_properties, INSTANCE) or ""


def subscribe_to_all(broker: "Broker", session: Session) -> Subscription:
    """As our parent is, and under flooding every child; but not to what the session itself has sent."""
    everything = Subscription(session, "#", 2, True, True, 0)
    everything.wants_retained = False
    broker.subscriptions.add(everything)
    return everything


def identity_of(broker: "Broker", session: Session, properties: list[tuple[str, str]]) -> str:
    """The identity of a new subscription: given by the child that passes it on, or by us for a client's."""
    if session.link is not None:
        return property_of(properties, IDENTITY) or ""
    broker.overlay.subscribed += 1
    return f"{broker.origin}.{broker.overlay.subscribed}"


def plain_filter(topic_filter: str) -> str | None:
    """The filter as it travels: without its shared group; None for one that stays on its broker."""
    plain = split_share(topic_filter)[1]
    return None if plain.startswith("$") else plain


def stands_for(subscription: Subscription, entry: Entry) -> bool:
    """Whether an entry with that identity, for the filter of this subscription, is one of its session's."""
    link = subscription.session.link
    return entry in link.entries if link is not None else subscription.identity == entry.identity


def interest(session: Session) -> Iterator[Entry]:
    """What a client or a child wants, as it travels."""
    entries = session.link.entries if session.link is not None else session.subscriptions.values()
    for entry in entries:
        if (plain := plain_filter(entry.filter)) is not None:
            yield Entry(plain, entry.identity)

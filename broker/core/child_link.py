"""The parent's end of a child's link, and the routing entries that stand for clients' and neighbours' subscriptions."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import mqtt5

from brokerbed.broker.core import handle_subscribe
from brokerbed.broker.core.link import IDENTITY, INSTANCE, property_of, stated_address
from brokerbed.broker.core.session import Session
from brokerbed.broker.core.subscriptions import Subscription, split_share
from brokerbed.broker.values import Entry

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker


def accept_link(broker: "Broker", session: Session, packet: mqtt5.ConnectPacket, is_present: bool, now_ns: int) -> None:
    """A child's link is connected to this broker. `is_present`: the link has a session from an earlier connection."""
    assert session.link is not None
    broker.overlay.start_refreshing(now_ns)
    if not is_present:
        if broker.log is not None:
            session.log_number = broker.log.number(f"{broker.config.name}>{session.link.peer}")
        if not broker.overlay.algorithm.stores_entries:
            for message in handle_subscribe.retained_for(broker, "#", now_ns):
                handle_subscribe.send_one_retained(
                    broker, subscription_to_everything(session), message, Entry("#"), now_ns
                )
    session.link.address = stated_address(packet.user_properties)
    session.link.instance = property_of(packet.user_properties, INSTANCE) or ""
    broker.overlay.link_moves.connected(session, now_ns)


def subscription_to_everything(session: Session) -> Subscription:
    """The subscription of a neighbour that gets every notification except those it has sent itself."""
    subscription = Subscription(session, "#", 2, True, True, 0)
    subscription.wants_retained = False
    return subscription


def identity_of(broker: "Broker", session: Session, properties: list[tuple[str, str]]) -> str:
    """The identity of a new subscription: given by the neighbour that announces it, or by this broker for a client."""
    if session.link is not None:
        return property_of(properties, IDENTITY) or ""
    broker.overlay.last_subscription_number += 1
    return f"{broker.origin}.{broker.overlay.last_subscription_number}"


def plain_filter(topic_filter: str) -> str | None:
    """The filter as it is announced, without its shared group; None for a filter that is never announced."""
    plain = split_share(topic_filter)[1]
    return None if plain.startswith("$") else plain


def holds_entry(subscription: Subscription, entry: Entry) -> bool:
    """Whether the session of a subscription holds this entry. The entry has the subscription's filter."""
    link = subscription.session.link
    return entry in link.entries if link is not None else subscription.identity == entry.identity


def interest(session: Session) -> Iterator[Entry]:
    """The entries that a client or a neighbour wants, as they are announced."""
    entries = session.link.entries if session.link is not None else session.subscriptions.values()
    for entry in entries:
        if (plain := plain_filter(entry.filter)) is not None:
            yield Entry(plain, entry.identity)

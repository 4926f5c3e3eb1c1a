"""What belongs to a session that moves to another broker, and how sessions and messages are written into notices.

session_moves.py has the protocol. A notice is JSON. One with messages that move is not: it begins with MOVED, their
number and the size of a header in JSON, after which the payloads follow as they are.
"""

import json
from collections import deque
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import TYPE_CHECKING, Any, NamedTuple

from brokerbed.broker.core.session import Delivery, Session
from brokerbed.broker.core.subscriptions import Subscription
from brokerbed.broker.values import NO_PROPERTIES, Message, Properties

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker

MOVED = b"M"  # how a notice with messages that move begins; all other notices begin with a brace
_NUMBERS = Struct(">BHI")  # of such a notice: MOVED, how many messages, and the size of the header
MOVED_BYTES_MAX = 16 * 1024  # a notice with more than one message is not larger than this
SEEN_MAX = 10_000  # messages that are remembered for one session; only for sessions of clients that did not wait
AWAY = "\0"  # part of the key of a session that is leaving; no client id contains this character


class ClaimKey(NamedTuple):
    """Claims are in the order in which clients connected: the newest one gets the session."""

    number: int  # when the client connected, by the clock of its broker
    broker: str  # breaks ties


NO_CLAIM = ClaimKey(0, "")


class Moving:
    """The move of one session, as this broker sees it: where it comes from, where it goes, and how far that is."""

    __slots__ = (
        "held", "hop_in", "hop_out", "is_begun", "is_begun_out", "is_given", "is_given_out", "is_taken", "left_ns",
        "merges", "seen", "source", "target", "way",
    )  # fmt: skip

    def __init__(self) -> None:
        # Arriving: the session is made here, and its messages follow.
        self.source = ""  # the neighbour from which it comes; empty once everything has come
        self.hop_in = ""  # identifies this part of its way
        self.is_taken = False  # the neighbour was told that this broker takes over; before, everything is ignored here
        self.is_given = False  # ... and the neighbour has given up the subscriptions
        self.is_begun = False  # everything that was sent and not acknowledged has come
        self.held: deque[Delivery] = deque()  # new messages, which wait behind those that come from the neighbour
        self.merges: dict[str, str] = {}  # other sessions of this client that come here: hop -> neighbour
        # The messages that a new session has got whose client may have another one, which would add them once more:
        self.seen: dict[tuple[str, int], None] | None = None
        # Leaving:
        self.way: tuple[str, ...] = ()  # the brokers to which it has still to go, the next one first
        self.target = ""  # the neighbour to which it goes
        self.hop_out = ""
        self.is_begun_out = False  # everything that was sent and not acknowledged is passed on
        self.is_given_out = False  # its subscriptions here are gone
        self.left_ns: int | None = None  # the time after which it expires, counted from when it comes to rest

    @property
    def is_settled(self) -> bool:
        """The session is here with all that a client needs to resume it; the rest of its queue may still be coming."""
        return not self.source or (self.is_given and self.is_begun)

    @property
    def is_over(self) -> bool:
        is_moving = self.source or self.target or self.held or self.merges or self.way
        return not is_moving and self.seen is None

    def has_seen(self, message: Message) -> bool:
        """Whether the session has got a message. It is remembered for the next call."""
        if self.seen is None:
            return False
        identity = message.origin, message.sequence
        is_known = identity in self.seen
        self.seen[identity] = None
        if len(self.seen) > SEEN_MAX:
            del self.seen[next(iter(self.seen))]
        return is_known

    @property
    def ignores_groups(self) -> bool:
        """Whether other members of a shared group should get its messages."""
        return bool(self.source) and not self.is_given

    def row(self) -> tuple[Any, ...]:
        return (
            self.source, self.hop_in, self.is_taken, self.is_given, self.is_begun, tuple(self.merges.items()), self.way,
            self.target, self.hop_out, self.is_begun_out, self.is_given_out, self.left_ns,
        )  # fmt: skip

    @staticmethod
    def restored(row: tuple[Any, ...]) -> "Moving":
        move = Moving()
        move.source, move.hop_in, move.is_taken, move.is_given, move.is_begun, merges, *others = row
        move.merges = dict(merges)
        move.way, move.target, move.hop_out, move.is_begun_out, move.is_given_out, move.left_ns = others
        return move


# -- notices ----------------------------------------------------------------------------------------------------------


def described(session: Session) -> dict[str, Any]:
    """Everything about a session but its messages. The neighbour makes the same session from it."""
    publisher = session.publisher
    return {
        "client": session.client_id,
        "user": session.user,
        "expiry_s": session.expiry_s,
        "claimed": session.claimed,
        "subscriptions": [
            [it.filter, it.qos, it.no_local, it.retain_as_published, it.identifier, it.identity]
            for it in session.subscriptions.values()
        ],
        "advertised": [] if publisher is None else list(publisher.filters),
        "received": list(session.received),
        "next_id": session.next_id,
        "service_left_ns": session.service_left_ns,
    }


def subscriptions_in(content: dict[str, Any], session: Session) -> list[Subscription]:
    """They get no retained messages: the client has had them where it subscribed."""
    found = []
    for topic_filter, qos, no_local, retain_as_published, identifier, identity in content["subscriptions"]:
        subscription = Subscription(session, topic_filter, qos, no_local, retain_as_published, identifier)
        subscription.identity, subscription.wants_retained = identity, False
        found.append(subscription)
    return found


def written(broker: "Broker", hop: str, deliveries: Sequence[Delivery], now_ns: int) -> bytes:
    """Messages of a session that moves, as a notice.

    Brokers of a testbed have clocks that agree. Others tell how much of a message's time is left.
    """
    described = [_message(broker, delivery, now_ns) for delivery in deliveries]
    header = json.dumps([hop, described], separators=(",", ":")).encode()
    payloads = (delivery.message.payload for delivery in deliveries)
    return b"".join((_NUMBERS.pack(MOVED[0], len(deliveries), len(header)), header, *payloads))


def _message(broker: "Broker", delivery: Delivery, now_ns: int) -> tuple[Any, ...]:
    message, properties = delivery.message, None
    if message.properties != NO_PROPERTIES:
        data = message.properties.correlation_data
        properties = message.properties._replace(correlation_data=None if data is None else data.hex())  # type: ignore[arg-type]
    expires = message.expires_at_ns
    if expires is not None and not broker.config.is_testbed:
        expires -= now_ns
    return (
        len(message.payload), message.topic, message.qos, message.retain, message.origin, message.sequence, expires,
        properties, message.is_unadvertised, delivery.qos, delivery.retain, delivery.identifiers, delivery.packet_id,
        delivery.is_released,
    )  # fmt: skip


def read(broker: "Broker", notice: bytes, now_ns: int) -> tuple[str, Iterator[Delivery]]:
    """The hop and the deliveries in what `written` has written."""
    _, _, size = _NUMBERS.unpack_from(notice)
    at = _NUMBERS.size + size
    hop, described = json.loads(notice[_NUMBERS.size : at])
    return hop, _deliveries(broker, notice, at, described, now_ns)


def _deliveries(
    broker: "Broker", notice: bytes, at: int, described: list[list[Any]], now_ns: int
) -> Iterator[Delivery]:
    for size, topic, qos, retain, origin, sequence, ends, given, is_unadvertised, *of_delivery in described:
        properties = NO_PROPERTIES
        if given is not None:
            payload_format, content_type, response_topic, data, user = given
            correlation_data = None if data is None else bytes.fromhex(data)
            user_properties = tuple((key, value) for key, value in user)
            properties = Properties(payload_format, content_type, response_topic, correlation_data, user_properties)
        expires_at_ns = ends if ends is None or broker.config.is_testbed else ends + now_ns
        message = Message(topic, notice[at : at + size], qos, retain, None, properties, expires_at_ns)
        at += size
        message.origin, message.sequence, message.is_unadvertised = origin, sequence, is_unadvertised
        qos_out, retain_out, identifiers, packet_id, is_released = of_delivery
        delivery = Delivery(message, qos_out, retain_out, tuple(identifiers))
        delivery.packet_id, delivery.is_released, delivery.has_waited = packet_id, is_released, True
        yield delivery


def moved_in(notice: bytes) -> int:
    """How many messages that move are in a notice."""
    return int(_NUMBERS.unpack_from(notice)[1]) if notice.startswith(MOVED) else 0

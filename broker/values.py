"""What a broker handles: messages and what goes with them. No behaviour but equality and encoding that is shared."""

from functools import lru_cache
from typing import NamedTuple

import mqtt5

NS_PER_S = 1_000_000_000
CACHED_TOPIC_CHARS_MAX = 256  # longer topics are in no cache: 100 000 topics of 64 KB would be 6 GB
FORMAT_0_GIVEN = 2  # in packet objects: a Payload Format Indicator of 0 that was given; there 0 means that none was


class Entry(NamedTuple):
    """One entry in a routing table. `identity` tells equal filters apart where the algorithm stores each one."""

    filter: str
    identity: str = ""


class Properties(NamedTuple):
    """The properties of a PUBLISH that are forwarded unchanged (section 3.3.2.3)."""

    payload_format: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user_properties: tuple[tuple[str, str], ...] = ()


NO_PROPERTIES = Properties()


class Message:
    """One publication on its way through the broker; shared by all its deliveries, never changed."""

    __slots__ = (
        "entering",
        "expires_at_ns",
        "head",
        "is_additional",
        "number",
        "origin",
        "payload",
        "properties",
        "publisher",
        "qos",
        "replay_for",
        "retain",
        "retained",
        "sequence",
        "size",
        "topic",
        "uses",
    )

    def __init__(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        retain: bool,
        publisher: object,
        properties: Properties = NO_PROPERTIES,
        expires_at_ns: int | None = None,
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.publisher = publisher  # the session it came from, for No Local
        self.properties = properties
        self.expires_at_ns = expires_at_ns
        self.is_additional = False  # nobody at this broker or below it wants it
        self.origin = ""  # the broker at which it entered the tree, and its number there: its identity
        self.sequence = 0
        self.replay_for: Entry | None = None  # a retained message that answers this subscription only
        self.number = 0  # of its row in the store; 0: it has none
        self.uses = 0  # by other rows
        self.entering = self.retained = 0  # rows that say that it is at the input, or retained
        self.head = _cached_head(topic) if len(topic) <= CACHED_TOPIC_CHARS_MAX else topic_head(topic)
        self.size = len(self.head) + len(payload)


class Published(NamedTuple):
    """A PUBLISH packet on a simulated network."""

    message: Message
    qos: int
    retain: bool
    packet_id: int
    is_duplicate: bool
    identifiers: tuple[int, ...] = ()
    answers: Entry | None = None


def topic_head(topic: str) -> bytes:
    """A topic as it stands in a PUBLISH packet."""
    encoded = topic.encode()
    return len(encoded).to_bytes(2, "big") + encoded


_cached_head = lru_cache(maxsize=100_000)(topic_head)
_FORMATS = {0: None, 1: 1, FORMAT_0_GIVEN: 0}
_INDICATORS = {payload_format: indicator for indicator, payload_format in _FORMATS.items()}


def format_indicator(properties: Properties) -> int:
    """The Payload Format Indicator as packet objects hold it."""
    return _INDICATORS[properties.payload_format]


def properties_of(packet: "mqtt5.PublishPacket | mqtt5.Will") -> Properties:
    return Properties(
        _FORMATS[packet.payload_format_indicator],
        packet.content_type,
        packet.response_topic,
        packet.correlation_data,
        tuple(packet.user_properties),
    )

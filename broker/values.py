"""The value types that all parts of a broker share: messages, their properties and routing entries.

They have no behaviour except equality and the encodings that several modules need.
"""

from functools import lru_cache
from typing import NamedTuple

import mqtt5

from brokerbed.topics import ADVERTISE

NS_PER_S = 1_000_000_000
LONG_AGO_NS = -(1 << 62)  # earlier than any time that occurs; simulated clients connect at negative times
CACHED_TOPIC_CHARS_MAX = 256  # longer topics are never cached: 100 000 topics of 64 KB would be 6 GB
ANSWERED = "$answered/"  # begins the filter of an entry that ends the answer to an advertisement; see Entry.is_answer
REQUESTED = "$retained/"  # begins the filter of an entry that asks for retained messages; see Entry.is_request
FORMAT_0_GIVEN = 2  # stands for a Payload Format Indicator of 0 in packet objects, where 0 means that there is none


class Entry(NamedTuple):
    """One entry in a routing table.

    `identity` distinguishes entries with equal filters if the algorithm stores one for each subscription. Besides
    interest there are advertisements, answers to them, and requests for retained messages; a prefix of the filter,
    which begins with `$` as no announced filter of a client does, tells them apart.
    """

    filter: str
    identity: str = ""

    @property
    def is_advertisement(self) -> bool:
        """Whether the entry says that somebody will publish, not that somebody wants to receive."""
        return self.filter.startswith(ADVERTISE)

    @property
    def is_answer(self) -> bool:
        """Whether the entry is the end of the answer to an advertisement: all interest in it has been announced."""
        return self.filter.startswith(ANSWERED)

    @property
    def is_request(self) -> bool:
        """Whether it is no lasting entry, but asks the parent once for the retained messages that match."""
        return self.filter.startswith(REQUESTED)

    @property
    def is_interest(self) -> bool:
        return self.filter[0] != "$"

    @property
    def topics(self) -> str:
        """The filter of an advertisement, of the answer to one, or of a request."""
        return self.filter.partition("/")[2]


def advertisement(topics: str) -> Entry:
    return Entry(ADVERTISE + topics)


def request(topics: str) -> Entry:
    return Entry(REQUESTED + topics)


def answer(topics: str) -> Entry:
    return Entry(ANSWERED + topics)


class Properties(NamedTuple):
    """The properties of a PUBLISH that are forwarded unchanged (section 3.3.2.3)."""

    payload_format: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user_properties: tuple[tuple[str, str], ...] = ()


NO_PROPERTIES = Properties()


class Message:
    """One publication on its way through the broker. All its deliveries share it, and its content never changes."""

    __slots__ = (
        "entering_row",
        "expires_at_ns",
        "head",
        "is_additional",
        "is_unadvertised",
        "origin",
        "payload",
        "properties",
        "publisher",
        "qos",
        "references",
        "replay_for",
        "retain",
        "retained_row",
        "row_number",
        "sequence",
        "size",
        "topic",
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
        self.publisher = publisher  # the session that sent it, for No Local
        self.properties = properties
        self.expires_at_ns = expires_at_ns
        self.is_additional = False  # True: no subscriber at this broker or below wants it
        self.is_unadvertised = False  # True: it spreads as if there were no advertisements; see advertisements.py
        self.origin = ""  # name and incarnation of the broker at which the message entered the tree
        self.sequence = 0  # its number at that broker; origin and sequence identify the message
        self.replay_for: Entry | None = None  # set on a retained message that answers this subscription only
        self.row_number = 0  # of the message's row in the store; 0: it has none
        self.references = 0  # how many other rows in the store refer to the message
        self.entering_row = 0  # number of the row saying that the message is at the input; 0: none
        self.retained_row = 0  # number of the row saying that the message is retained, which grows with time; 0: none
        self.head = _cached_head(topic) if len(topic) <= CACHED_TOPIC_CHARS_MAX else topic_head(topic)
        self.size = len(self.head) + len(payload)


class Published(NamedTuple):
    """A PUBLISH packet as an object on a simulated network."""

    message: Message
    qos: int
    retain: bool
    packet_id: int
    is_duplicate: bool
    identifiers: tuple[int, ...] = ()
    answers: Entry | None = None


def topic_head(topic: str) -> bytes:
    """The topic as a PUBLISH packet encodes it: two bytes of length, then UTF-8."""
    encoded = topic.encode()
    return len(encoded).to_bytes(2, "big") + encoded


_cached_head = lru_cache(maxsize=100_000)(topic_head)
_FORMATS = {0: None, 1: 1, FORMAT_0_GIVEN: 0}
_INDICATORS = {payload_format: indicator for indicator, payload_format in _FORMATS.items()}


def format_indicator(properties: Properties) -> int:
    """The Payload Format Indicator as packet objects represent it."""
    return _INDICATORS[properties.payload_format]


def properties_of(packet: "mqtt5.PublishPacket | mqtt5.Will") -> Properties:
    return Properties(
        _FORMATS[packet.payload_format_indicator],
        packet.content_type,
        packet.response_topic,
        packet.correlation_data,
        tuple(packet.user_properties),
    )

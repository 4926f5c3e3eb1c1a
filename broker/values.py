"""What a broker handles: messages and what goes with them. No behaviour but equality and encoding that is shared."""

from typing import NamedTuple

import mqtt5

NS_PER_S = 1_000_000_000


class Entry(NamedTuple):
    """One entry in a routing table. `identity` tells equal filters apart where the algorithm stores each one."""

    filter: str
    identity: str = ""


class Properties(NamedTuple):
    """The properties of a PUBLISH that are forwarded unchanged (section 3.3.2.3)."""

    payload_format: int = 0
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    user_properties: tuple[tuple[str, str], ...] = ()


NO_PROPERTIES = Properties()


class Message:
    """One publication on its way through the broker; shared by all its deliveries, never changed."""

    __slots__ = (
        "expires_at_ns",
        "head",
        "is_additional",
        "origin",
        "payload",
        "properties",
        "publisher",
        "qos",
        "replay_for",
        "retain",
        "sequence",
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
        encoded = topic.encode()
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
        self.head = len(encoded).to_bytes(2, "big") + encoded

    @property
    def size(self) -> int:
        return len(self.head) + len(self.payload)


def properties_of(packet: "mqtt5.PublishPacket | mqtt5.Will") -> Properties:
    return Properties(
        packet.payload_format_indicator,
        packet.content_type,
        packet.response_topic,
        packet.correlation_data,
        tuple(packet.user_properties),
    )

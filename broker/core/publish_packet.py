"""Encodes a delivery as the PUBLISH that one connection needs: bytes, or an object on a simulated network."""

from typing import TYPE_CHECKING, Any

import mqtt5

from brokerbed.broker.core import lifetime
from brokerbed.broker.core.link import (
    IDENTITY,
    MESSAGE,
    RETAINED_FOR,
    UNADVERTISED_MESSAGE,
    tag,
    tag_head,
)
from brokerbed.broker.core.run import TAGGED, V5
from brokerbed.broker.core.session import Delivery
from brokerbed.broker.mqtt import frames, v5
from brokerbed.broker.values import CACHED_TOPIC_CHARS_MAX, NO_PROPERTIES, Published, format_indicator

if TYPE_CHECKING:
    from brokerbed.broker.core.connection import Connection

QOS = (mqtt5.QoS(0), mqtt5.QoS(1), mqtt5.QoS(2))


def encoded(connection: "Connection", delivery: Delivery, packet_id: int, is_duplicate: bool, now_ns: int) -> Any:
    """The PUBLISH for a delivery as this connection needs it: bytes, or an object on a simulated network."""
    message = delivery.message
    if not connection.is_wire:
        return Published(
            message, delivery.qos, delivery.retain, packet_id, is_duplicate, delivery.identifiers, delivery.answers
        )
    has_properties = (
        message.properties != NO_PROPERTIES
        or delivery.identifiers
        or message.expires_at_ns is not None
        or delivery.answers is not None
        or (message.is_unadvertised and connection.form == TAGGED)
    ) and connection.version == 5
    if has_properties or connection.aliases_max:
        return v5.encode(_packet(connection, delivery, packet_id, is_duplicate, now_ns))
    first = 0x30 | is_duplicate << 3 | delivery.qos << 1 | delivery.retain
    number = packet_id.to_bytes(2, "big") if delivery.qos else b""
    properties = b""
    if connection.form == TAGGED:
        properties = tag_head(message.origin) + b"%016d" % message.sequence
    elif connection.form == V5:
        properties = b"\0"
    length = len(message.head) + len(number) + len(properties) + len(message.payload)
    start = first.to_bytes(1, "big") + frames.encoded_length(length)
    return b"".join((start, message.head, number, properties, message.payload))


def _aliased(connection: "Connection", topic: str) -> tuple[str, int | None]:
    """The topic and alias to send: only the alias if the client knows it already, and both to set it."""
    alias = connection.aliases_out.get(topic)
    if alias is not None:
        return "", alias
    if len(connection.aliases_out) < connection.aliases_max and len(topic) <= CACHED_TOPIC_CHARS_MAX:
        alias = connection.aliases_out[topic] = len(connection.aliases_out) + 1
    return topic, alias


def _packet(
    connection: "Connection", delivery: Delivery, packet_id: int, is_duplicate: bool, now_ns: int
) -> mqtt5.PublishPacket:
    message, properties = delivery.message, delivery.message.properties
    left_s = None
    if message.expires_at_ns is not None:
        left_s = lifetime.interval_s(message.expires_at_ns, now_ns)
    user_properties = list(properties.user_properties)
    if connection.form == TAGGED:
        user_properties.append((MESSAGE, tag(message.origin, message.sequence)))
        if message.is_unadvertised:
            user_properties.append((UNADVERTISED_MESSAGE, ""))
        if message.expires_at_ns is not None and connection.carries_expiry:
            user_properties.append((lifetime.EXPIRES, lifetime.property_value(message.expires_at_ns)))
        if delivery.answers is not None:
            user_properties.append((RETAINED_FOR, delivery.answers.filter))
            if delivery.answers.identity:
                user_properties.append((IDENTITY, delivery.answers.identity))
    topic, alias = _aliased(connection, message.topic)
    return mqtt5.PublishPacket(
        topic, message.payload, qos=QOS[delivery.qos], retain=delivery.retain, packet_id=packet_id or None,
        duplicate=is_duplicate, payload_format_indicator=format_indicator(properties), message_expiry_interval=left_s,
        content_type=properties.content_type, response_topic=properties.response_topic,
        correlation_data=properties.correlation_data, subscription_ids=list(delivery.identifiers),
        topic_alias=alias, user_properties=user_properties,
    )  # fmt: skip

"""How many bytes packets have on a link, as the broker encodes them: for simulated links, and for predictions.

The packets of real links are encoded by the same functions.
"""

from functools import lru_cache
from typing import NamedTuple

import mqtt5

from brokerbed.broker.core.announcements import Change, packet_to_child, packet_to_parent
from brokerbed.broker.core.connection import Connection
from brokerbed.broker.core.link import SUBSCRIBE, UNSUBSCRIBE
from brokerbed.broker.core.publish_packet import encoded
from brokerbed.broker.core.run import TAGGED, Run
from brokerbed.broker.core.session import Delivery
from brokerbed.broker.mqtt import v5
from brokerbed.broker.values import Entry, Message, Published

LINK = Connection(0, is_wire=True, peer="", is_local=True)  # stands for any real link; it is only looked at
LINK.version, LINK.form, LINK.carries_expiry = 5, TAGGED, True  # simulated links are those of a testbed
_ID, _ORIGIN_END = 1, ".1"  # any packet id, and what follows the name of a broker that was started once


def link_bytes(packet: mqtt5.Packet | Run | Published) -> int:
    """As the broker encodes it. A duplicate has the same size, and so has an expiry interval whatever is left of it."""
    if isinstance(packet, Run):
        (message,) = packet.messages(None)
        return len(encoded(LINK, Delivery(message, 0, False, ()), 0, False, 0))
    if not isinstance(packet, Published):
        return len(v5.encode(packet))
    message = packet.message
    delivery = Delivery(message, packet.qos, packet.retain, packet.identifiers, packet.answers)
    return len(encoded(LINK, delivery, packet.packet_id, False, message.expires_at_ns or 0))


class Exchange(NamedTuple):
    """The sizes of the packets of one message: those in its own direction, and the answers to them."""

    forth: tuple[int, ...]
    back: tuple[int, ...]


@lru_cache(maxsize=100_000)
def notification(broker: str, payload_bytes: int, qos: int, topic_bytes: int) -> Exchange:
    """A notification that was published at this broker, and its acknowledgements."""
    message = Message("t" * topic_bytes, bytes(payload_bytes), qos, False, None)
    message.origin, message.sequence = broker + _ORIGIN_END, 1
    publish = link_bytes(Published(message, qos, False, _ID if qos else 0, False, (), None))
    if qos == 0:
        return Exchange((publish,), ())
    if qos == 1:
        return Exchange((publish,), (link_bytes(mqtt5.PubAckPacket(_ID)),))
    received, released = link_bytes(mqtt5.PubRecPacket(_ID)), link_bytes(mqtt5.PubRelPacket(_ID))
    return Exchange((publish, released), (received, link_bytes(mqtt5.PubCompPacket(_ID))))


@lru_cache(maxsize=100_000)
def announcement(identity_bytes: int, is_added: bool, is_to_parent: bool, filter_bytes: int) -> Exchange:
    """An entry that is announced over a link or withdrawn, and the answer. `identity_bytes`: 0 if it has none."""
    entry = Entry("t" * filter_bytes, "i" * identity_bytes)
    change = Change(entry, is_added, SUBSCRIBE if is_added else UNSUBSCRIBE, False)
    if not is_to_parent:
        return Exchange((link_bytes(packet_to_child(_ID, change)),), (link_bytes(mqtt5.PubAckPacket(_ID)),))
    answer: mqtt5.Packet = mqtt5.UnsubAckPacket(_ID, [mqtt5.UnsubAckReasonCode(0)])
    if is_added:
        answer = mqtt5.SubAckPacket(_ID, [mqtt5.SubAckReasonCode(2)])
    return Exchange((link_bytes(packet_to_parent(_ID, change)),), (link_bytes(answer),))

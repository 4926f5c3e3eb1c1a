"""How many bytes a packet of a simulated link would be on a real one, which decides how long a narrow link takes."""

from brokerbed.broker.core.connection import Connection
from brokerbed.broker.core.deliver import encoded
from brokerbed.broker.core.run import TAGGED, Run
from brokerbed.broker.core.session import Delivery
from brokerbed.broker.mqtt import v5
from brokerbed.broker.values import Published
from brokerbed.clients.session import Packet

LINK = Connection(0, is_wire=True, peer="", is_local=True)  # stands for any real link; it is only looked at
LINK.version, LINK.form = 5, TAGGED


def link_bytes(packet: Packet) -> int:
    """As the broker encodes it. A duplicate has the same size, and so has an expiry interval whatever is left of it."""
    if isinstance(packet, Run):
        (message,) = packet.messages(None)
        return len(encoded(LINK, Delivery(message, 0, False, ()), 0, False, 0))
    if not isinstance(packet, Published):
        return len(v5.encode(packet))
    message = packet.message
    delivery = Delivery(message, packet.qos, packet.retain, packet.identifiers, packet.answers)
    return len(encoded(LINK, delivery, packet.packet_id, False, message.expires_at_ns or 0))

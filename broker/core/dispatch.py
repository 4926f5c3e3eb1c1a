"""Which function handles which packet.

A frame is looked up by its first byte. The frames that make up the load of a broker have functions of their own, which
take the bytes and handle a whole run of such frames at a time; all other frames are decoded into a packet, and the type
of the packet decides.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import mqtt5

from brokerbed.broker.core import batch, deliver, handle_publish, handle_subscribe, notify, session_end
from brokerbed.broker.errors import MalformedPacketError, ProtocolError
from brokerbed.broker.mqtt import frames

if TYPE_CHECKING:
    from brokerbed.broker.core.broker import Broker
    from brokerbed.broker.core.connection import Connection


def _ping(broker: "Broker", connection: "Connection", packet: mqtt5.PingReqPacket, now_ns: int) -> None:
    del packet, now_ns
    broker.send(connection, mqtt5.PingRespPacket())


def _second_connect(*_: object) -> None:
    raise ProtocolError("a second CONNECT")  # [MQTT-3.1.0-2]


Handler = Callable[["Broker", "Connection", Any, int], None]
Handlers = dict[int, Handler]  # by packet type; packets of other types are not decoded

_FROM_BOTH: Handlers = {
    frames.PUBLISH: handle_publish.handle_packet,
    frames.PUBACK: deliver.acknowledged_by_client,
    frames.PUBREC: deliver.received_by_client,
    frames.PUBREL: deliver.released_by_client,
    frames.PUBCOMP: deliver.completed_by_client,
}
_FROM_CLIENTS: Handlers = {
    **_FROM_BOTH,
    frames.CONNECT: _second_connect,
    frames.SUBSCRIBE: handle_subscribe.subscribe,
    frames.UNSUBSCRIBE: handle_subscribe.unsubscribe,
    frames.PINGREQ: _ping,
    frames.DISCONNECT: session_end.disconnect,
}


def _announcement_acknowledged(
    broker: "Broker", connection: "Connection", packet: mqtt5.SubAckPacket | mqtt5.UnsubAckPacket, now_ns: int
) -> None:
    del broker
    assert connection.session is not None
    assert connection.session.link is not None
    connection.session.link.announced.acknowledged(packet.packet_id, now_ns)


def _ping_answered(broker: "Broker", *_: object) -> None:
    broker.overlay.retained.ping_answered()


def _parent_disconnects(
    broker: "Broker", connection: "Connection", packet: mqtt5.DisconnectPacket, now_ns: int
) -> None:
    del packet, now_ns
    broker.end(connection)


_FROM_PARENT: Handlers = {
    **_FROM_BOTH,
    frames.SUBACK: _announcement_acknowledged,
    frames.UNSUBACK: _announcement_acknowledged,
    frames.PINGRESP: _ping_answered,
    frames.DISCONNECT: _parent_disconnects,
}


def handler_of(connection: "Connection", packet_type: int, flags: int = 0) -> Handler:
    handler = (_FROM_PARENT if connection.is_uplink else _FROM_CLIENTS).get(packet_type)
    if handler is None:
        if packet_type == 0 or flags:
            raise MalformedPacketError("a fixed header with reserved bits")
        raise ProtocolError(f"packet type {packet_type} is not for us")
    return handler


# -- frames -----------------------------------------------------------------------------------------------------------

# takes the bytes, where the frame, its body and the next frame begin, and the time; returns where handled frames end
FrameHandler = Callable[["Broker", "Connection", bytes, int, int, int, int], int]


def decoded(broker: "Broker", connection: "Connection", data: bytes, at: int, body: int, stop: int, now_ns: int) -> int:
    """Handle one frame of any kind."""
    del body
    assert connection.decode is not None
    handler = handler_of(connection, data[at] >> 4, data[at] & 0x0F)
    handler(broker, connection, connection.decode(data[at:stop]), now_ns)
    return stop


def _publish(
    broker: "Broker", connection: "Connection", data: bytes, at: int, body: int, stop: int, now_ns: int
) -> int:
    handle_publish.handle_frame(broker, connection, data, at, body, stop, now_ns)
    return stop


def _acknowledgement(
    broker: "Broker", connection: "Connection", data: bytes, at: int, body: int, stop: int, now_ns: int
) -> int:
    """PUBACK, PUBREC or PUBCOMP; a short one may be followed by others for the same run."""
    if stop - body == 2:
        end = batch.acknowledgements(broker, connection, data, at, now_ns)
        if end > at:
            return end
        if data[at] == batch.PUBACK:
            assert connection.session is not None
            deliver.acknowledged(broker, connection.session, data[body] << 8 | data[body + 1], now_ns)
            return stop
    return decoded(broker, connection, data, at, body, stop, now_ns)


def _release(
    broker: "Broker", connection: "Connection", data: bytes, at: int, body: int, stop: int, now_ns: int
) -> int:
    end = batch.releases(broker, connection, data, at)
    return end if end > at else decoded(broker, connection, data, at, body, stop, now_ns)


_EVERY_PUBLISH = dict.fromkeys(range(frames.PUBLISH << 4, (frames.PUBLISH + 1) << 4), _publish)
WITH_SERVICE: dict[int, FrameHandler] = {  # by first byte: if messages pass an emulated service one by one
    **_EVERY_PUBLISH,
    batch.PUBACK: _acknowledgement,
    batch.PUBREC: _acknowledgement,
    batch.PUBCOMP: _acknowledgement,
    batch.PUBREL: _release,
}
IN_RUNS: dict[int, FrameHandler] = {
    **WITH_SERVICE,
    0x30: notify.run_at_qos0,
    0x32: batch.publications,
    0x34: batch.publications,
}

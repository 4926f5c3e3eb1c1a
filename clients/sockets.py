"""Clients on sockets: model time on a real clock, and connections that carry the packets of session.Client."""

import asyncio
import heapq
import math
import time
from collections.abc import Callable
from typing import Any, cast

import mqtt5

from brokerbed.broker.core.lifetime import interval_s
from brokerbed.broker.core.run import Run
from brokerbed.broker.errors import MqttError
from brokerbed.broker.mqtt import frames, v5
from brokerbed.broker.values import NO_PROPERTIES, Message, Published, format_indicator, properties_of, topic_head
from brokerbed.clients.precise_timer import PreciseTimer
from brokerbed.clients.session import QOS, Client, Packet

BACKOFF_S = 0.05  # after a failed connection, before a client tries again
PACKET_BYTES_MAX = 268_435_460
AT_ONCE_MAX = 100  # actions in one turn of the event loop, so that the network is served in between
LATE_NS = 100_000_000  # of wall time; an action that is later than this counts as late


class RealClock:
    """Model time is wall time since the start multiplied by the speed-up. Before the start it is zero."""

    def __init__(self, speedup: float) -> None:
        self.speedup = speedup
        self.late_ns = self.late_ns_max = 0  # lateness of actions in wall time: the sum and the maximum
        self.done = self.done_late = 0  # counts of actions
        self._start_ns: int | None = None  # on the monotonic clock
        self._start_wall_ns = 0
        self._heap: list[tuple[int, int, Callable[[Any], None], Any]] = []
        self._sequence = 0  # breaks ties
        self._timer = PreciseTimer(asyncio.get_running_loop(), self._run_due_actions)
        self._is_busy = False  # running actions

    @property
    def now_ns(self) -> int:
        if self._start_ns is None:
            return 0
        return round((time.monotonic_ns() - self._start_ns) * self.speedup)

    def of_brokers_ns(self, time_ns: int) -> int:
        """Rounded down, like `model_ns`, so that nothing seems to live longer than it does."""
        return self._start_wall_ns + math.floor(time_ns / self.speedup)

    def model_ns(self, of_brokers_ns: int) -> int:
        return math.floor((of_brokers_ns - self._start_wall_ns) * self.speedup)

    def start(self, wall_ns: int) -> None:
        """Model time zero is at this wall time."""
        self._start_ns = wall_ns - time.time_ns() + time.monotonic_ns()
        self._start_wall_ns = wall_ns
        self._arm()

    def close(self) -> None:
        """Cancels all actions that are left."""
        self._timer.close()

    def at(self, due_ns: int, action: Callable[[Any], None], argument: Any) -> None:
        self._sequence += 1
        heapq.heappush(self._heap, (due_ns, self._sequence, action, argument))
        if self._heap[0][1] == self._sequence:
            self._arm()

    def _arm(self) -> None:
        if self._start_ns is not None and self._heap and not self._is_busy:
            self._timer.set(self._start_ns + math.ceil(self._heap[0][0] / self.speedup))

    def _run_due_actions(self) -> None:
        heap = self._heap
        self._is_busy = True
        try:
            for _ in range(AT_ONCE_MAX):
                now_ns = self.now_ns
                if not heap or heap[0][0] > now_ns:
                    break
                due_ns, _, action, argument = heapq.heappop(heap)
                late_ns = round((now_ns - due_ns) / self.speedup)
                self.done += 1
                self.done_late += late_ns > LATE_NS
                self.late_ns += late_ns
                self.late_ns_max = max(self.late_ns_max, late_ns)
                action(argument)
        finally:
            self._is_busy = False
            self._arm()


class SocketConnection(asyncio.Protocol):
    """One TCP connection, from the first attempt on. Packets that are sent before it is established wait."""

    def __init__(self, client: Client, address: tuple[str, int]) -> None:
        self._client = client
        self._transport: asyncio.Transport | None = None
        self._waiting: list[bytes] = []
        self._rest = b""
        self._is_closed = False
        self._task = asyncio.get_running_loop().create_task(self._dial(address))

    @property
    def out(self) -> "SocketConnection":
        return self

    async def _dial(self, address: tuple[str, int]) -> None:
        try:
            await asyncio.get_running_loop().create_connection(lambda: self, *address)
        except OSError:
            self.connection_lost(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._is_closed:
            self._transport.abort()
            return
        self._transport.write(b"".join(self._waiting))
        self._waiting.clear()

    @property
    def unsent_bytes(self) -> int:
        """How many bytes the other side has not accepted yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    def send(self, packet: Packet) -> None:
        data = _encoded(packet)
        if self._transport is None:
            self._waiting.append(data)
        else:
            self._transport.write(data)

    def close(self) -> None:
        self._is_closed = True
        if self._transport is not None:
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._is_closed:
            return
        data = self._rest + data if self._rest else data
        at = 0
        try:
            while at < len(data) and (bounds := frames.bounds(data, at, PACKET_BYTES_MAX)) is not None:
                body, stop = bounds
                self._client.arrived(self, _decoded(data, at, body, stop))
                at = stop
        except MqttError:  # the broker violates the protocol, so the client reconnects
            self.close()
            self._client.lost(self)
        self._rest = data[at:]

    def connection_lost(self, error: Exception | None) -> None:
        del error
        if not self._is_closed:
            self._is_closed = True
            self._client.lost(self)


def _encoded(packet: Packet) -> bytes:
    if isinstance(packet, Run):
        return _publish(packet.topic, packet.data, 0, 0, False)
    if isinstance(packet, Published):
        message = packet.message
        if message.properties != NO_PROPERTIES or message.expires_at_ns is not None:
            return v5.encode(_with_properties(packet))
        return _publish(message.topic, message.payload, packet.qos, packet.packet_id, packet.is_duplicate)
    return v5.encode(packet)


def _publish(topic: str, payload: bytes, qos: int, packet_id: int, is_duplicate: bool) -> bytes:
    """A PUBLISH without properties."""
    head = topic_head(topic) + (packet_id.to_bytes(2, "big") if qos else b"") + b"\0"
    first = bytes((frames.PUBLISH << 4 | is_duplicate << 3 | qos << 1,))
    return first + frames.encoded_length(len(head) + len(payload)) + head + payload


def _with_properties(published: Published) -> mqtt5.PublishPacket:
    message, properties = published.message, published.message.properties
    return mqtt5.PublishPacket(
        message.topic,
        message.payload,
        qos=QOS[published.qos],
        packet_id=published.packet_id or None,
        duplicate=published.is_duplicate,
        payload_format_indicator=format_indicator(properties),
        content_type=properties.content_type,
        response_topic=properties.response_topic,
        correlation_data=properties.correlation_data,
        user_properties=list(properties.user_properties),
        message_expiry_interval=None
        if message.expires_at_ns is None
        else interval_s(message.expires_at_ns, time.time_ns()),
    )


def _decoded(data: bytes, at: int, body: int, stop: int) -> Packet:
    if data[at] >> 4 != frames.PUBLISH:
        return v5.decode(data[at:stop])
    qos = data[at] >> 1 & 3
    raw_topic, packet_id, rest = frames.publish_parts(data, body, stop, qos)
    properties = NO_PROPERTIES
    if data[rest]:
        packet = cast("mqtt5.PublishPacket", v5.decode(data[at:stop]))
        payload, properties = bytes(packet.payload or b""), properties_of(packet)
    else:
        payload = data[rest + 1 : stop]
    message = Message(frames.decoded_topic(raw_topic), payload, qos, False, None, properties)
    return Published(message, qos, False, packet_id, bool(data[at] & 8))

"""Peers on aiomqtt, an independent client: protocol, window and retransmission after a lost connection are aiomqtt's.

This module decides when the client connects and when its connection breaks, puts a queue in front of its window, and
corrects defects of aiomqtt 2.5 and of paho-mqtt 2.2, which are described where they are corrected. docs/grounds.md
explains how such a peer differs from the light one. The event loop must be asyncio's own: under uvloop, the loss of a
connection that is reset while there are bytes left to read is never noticed.
"""

import asyncio
import logging
import math
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self, TypeVar

import aiomqtt
from paho.mqtt import properties as paho
from paho.mqtt.client import mqtt_ms_queued, mqtt_ms_resend_pubrel, mqtt_ms_wait_for_pubcomp
from paho.mqtt.packettypes import PacketTypes

from brokerbed.broker.core.lifetime import interval_s
from brokerbed.broker.values import NO_PROPERTIES, Message, Properties
from brokerbed.clients.actor import Received
from brokerbed.clients.session import FOREVER_S, WINDOW
from brokerbed.clients.sockets import BACKOFF_S

Moved = Callable[["StockClient", str], None]  # from a broker, of which the client is no longer

WRITE_S_MAX = 1.0  # time for publish() at QoS 0 to return; after that the packet was lost with its connection
FLUSH_S_MAX = 0.1  # time for publications at QoS 0 to be written before the connection is broken on purpose
SILENT = logging.CRITICAL + 1  # the log of a run has lost connections, so aiomqtt need not report them

T = TypeVar("T")
_LOGGER = logging.getLogger("brokerbed.clients.stock")
_LOGGER.setLevel(SILENT)


class Refused(aiomqtt.MqttError):
    """The broker answered a publication with an error."""


class _Session(aiomqtt.Client):
    """aiomqtt's client. One object serves all connections, because it holds the unacknowledged publications.

    Packets are sent at once: with Nagle's algorithm a packet waits up to 40 ms until the system has acknowledged the
    previous one, which is 0.8 s of model time at a speed-up of 20.
    """

    def __init__(self, client_id: str, lost: Callable[[], None]) -> None:
        """The address of the broker is given before every connection."""
        properties = paho.Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = FOREVER_S
        super().__init__(
            hostname="",
            identifier=client_id,
            protocol=aiomqtt.ProtocolVersion.V5,
            clean_start=False,
            max_inflight_messages=WINDOW,
            properties=properties,
            socket_options=[(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
            logger=_LOGGER,
        )
        self.pending_calls_threshold = WINDOW
        self._lost = lost
        self._thread = threading.get_ident()  # of the event loop
        self._refused: set[int] = set()  # packet ids of publications

    @property
    def address(self) -> tuple[str, int]:
        return self._hostname, self._port

    @address.setter
    def address(self, address: tuple[str, int]) -> None:
        self._hostname, self._port = address

    @property
    def is_open(self) -> bool:
        return self._client.socket() is not None

    def break_(self) -> None:
        """Breaks the connection as a failing network would: both sides see it end, and no DISCONNECT is sent."""
        connection = self._client.socket()
        if isinstance(connection, socket.socket):
            with suppress(OSError):  # it may have ended by itself
                connection.shutdown(socket.SHUT_RDWR)

    async def __aenter__(self) -> Self:
        # paho closes the socket of an attempt that timed out in the thread that connects, where the event loop must not
        # be touched. aiomqtt keeps the old answer after a lost connection, so it would not wait for the next CONNACK.
        self._client._sock_close()
        self._remember_releases()
        self._connected = asyncio.get_running_loop().create_future()
        await super().__aenter__()
        if not self.is_open:  # lost again before this task ran, which aiomqtt does not remember
            self._disconnected.set_exception(aiomqtt.MqttError("the connection was lost at once"))
        return self

    def _remember_releases(self) -> None:
        """paho forgets that it has sent PUBREL if the next connection is lost before CONNACK.

        It would then publish a message at QoS 2 again that the broker has already forwarded.
        """
        for message in self._client._out_messages.values():
            if message.state == mqtt_ms_resend_pubrel:
                message.state = mqtt_ms_wait_for_pubcomp

    def _on_connect(self, client: Any, userdata: Any, flags: Any, reason_code: Any, properties: Any = None) -> None:
        """paho ignores that a broker has no session of this client.

        It would publish messages at QoS 2 again that the broker of an earlier session may have taken [MQTT-3.2.2-5].
        """
        if not reason_code.is_failure and not flags.session_present:
            for mid, message in list(self._client._out_messages.items()):
                if message.qos == 2 and message.state != mqtt_ms_queued and mid in self._pending_publishes:
                    del self._client._out_messages[mid]
                    self._refused.add(mid)
                    self._pending_publishes[mid].set()
        super()._on_connect(client, userdata, flags, reason_code, properties)

    def _on_disconnect(self, *arguments: Any, **options: Any) -> None:
        """aiomqtt does not notice a connection that is lost before CONNACK, and waits for its timeout."""
        self._lost()
        if not self._connected.done():
            self._connected.set_exception(aiomqtt.MqttError("the connection was lost before the broker had answered"))
        super()._on_disconnect(*arguments, **options)
        if self._disconnected.done():
            self._disconnected.exception()  # marks it as retrieved, even if nothing iterates over messages now

    def _on_socket_register_write(self, client: Any, userdata: Any, sock: Any) -> None:
        """aiomqtt registers a socket for writing one turn of the event loop later.

        By then the socket may be closed, and its file descriptor may belong to another client, which would get stuck.
        """
        del client, userdata
        if threading.get_ident() == self._thread:
            self._watch(sock)
        else:  # called in the thread that connects
            self._loop.call_soon_threadsafe(self._watch, sock)

    def _watch(self, sock: Any) -> None:
        is_open = sock is self._client.socket()
        if is_open:
            self._loop.add_writer(sock.fileno(), self._client.loop_write)

    def _on_publish(self, client: Any, userdata: Any, mid: int, reason_code: Any, properties: Any) -> None:
        """aiomqtt treats every answer as a success."""
        if reason_code.is_failure and mid in self._pending_publishes:
            self._refused.add(mid)
        super()._on_publish(client, userdata, mid, reason_code, properties)

    @contextmanager
    def _pending_call(self, mid: int, value: T, pending_dict: dict[int, T]) -> Iterator[None]:
        with super()._pending_call(mid, value, pending_dict):
            yield
        if mid in self._refused:
            self._refused.discard(mid)
            raise Refused


class StockClient:
    """A stock client with the contract of actor.PeerClient."""

    unsent_bytes = 0  # data that the socket does not accept wait in calls of publish()

    def __init__(
        self, address_of: Callable[[str], tuple[str, int]], client_id: str, broker: str, moved: Moved | None = None
    ) -> None:
        self.client_id = client_id
        self.broker = broker
        self.received: Received | None = None
        self.acknowledged: Callable[[Message], None] | None = None
        self.is_too_late: Callable[[Message], bool] | None = None
        self.is_accepted_changed: Callable[[bool], None] | None = None
        self._address_of = address_of
        self._moved = moved
        self._filters: list[tuple[str, int]] = []
        self._session: _Session | None = None
        self._wanted = asyncio.Event()  # it should be connected
        self._accepted = asyncio.Event()  # it is connected, and the broker has accepted it
        self._is_subscribed = False
        self._is_idle = True
        self._waiting: deque[Message] = deque()  # to be published when the window allows
        self._publishing: dict[asyncio.Task[None], int] = {}  # calls of publish() that have not returned, with the QoS
        self._tasks: set[asyncio.Task[None]] = set()  # all other tasks

    @property
    def is_connected(self) -> bool:
        return self._accepted.is_set()

    @property
    def is_settled(self) -> bool:
        if not self._wanted.is_set():
            return self._is_idle
        return self.is_connected and (self._is_subscribed or not self._filters)

    @property
    def under_way(self) -> int:
        return len(self._publishing) + len(self._waiting)

    @property
    def held(self) -> int:
        return len(self._waiting) if self.is_connected else 0

    # -- connection -----------------------------------------------------------------------------------------

    def connect(self) -> None:
        self._wanted.set()
        if self._session is None:
            self._session = _Session(self.client_id, lambda: self._accept(False))
            self._start(self._keep_connected(self._session))

    def disconnect(self) -> None:
        self._wanted.clear()
        self._accept(False)
        if self._session is not None:
            unwritten = [call for call, qos in self._publishing.items() if qos == 0]
            if unwritten:
                self._start(self._break_when_written(self._session, unwritten))
            else:
                self._session.break_()

    def move_to(self, broker: str) -> None:
        assert not self._wanted.is_set(), "it must leave one broker before it comes to another one"
        before, self.broker = self.broker, broker
        if self._moved is not None:
            self._moved(self, before)

    async def _break_when_written(self, session: _Session, calls: list[asyncio.Task[None]]) -> None:
        """publish() at QoS 0 returns when the socket has accepted the packet; before that, the packet would be lost."""
        await asyncio.wait(calls, timeout=FLUSH_S_MAX)
        session.break_()

    async def _keep_connected(self, session: _Session) -> None:
        """Connects whenever the client should be connected."""
        while True:
            self._is_idle = True
            await self._wanted.wait()
            self._is_idle = False
            session.address = self._address_of(self.broker)
            with suppress(aiomqtt.MqttError):
                async with session:
                    await self._serve(session)
            self._accept(False)
            if self._wanted.is_set():
                await asyncio.sleep(BACKOFF_S)

    async def _serve(self, session: _Session) -> None:
        """Receives until the connection is lost. It is not cancelled before: a message could be lost."""
        if not self._wanted.is_set() or session.address != self._address_of(self.broker):
            session.break_()  # it is to be OFF, or at another broker
        elif session.is_open:
            self._accept(True)
        subscribing = asyncio.create_task(self._subscribe(session))
        try:
            async for message in session.messages:
                if self.received is not None:
                    properties = _properties_of(message)
                    self.received(message.topic.value, bytes(message.payload), message.qos, properties)
        finally:
            subscribing.cancel()

    async def _subscribe(self, session: _Session) -> None:
        """Subscribes on every connection, because aiomqtt does not report whether the session was kept."""
        if not self._filters:
            return
        try:
            answers = await session.subscribe(self._filters)
        except aiomqtt.MqttError:
            session.break_()
            return
        self._is_subscribed = not any(getattr(answer, "is_failure", False) for answer in answers)
        if not self._is_subscribed:
            session.break_()

    def _accept(self, is_accepted: bool) -> None:
        if is_accepted == self._accepted.is_set():
            return
        if is_accepted:
            self._accepted.set()
            self._pump()
        else:
            self._accepted.clear()
            self._is_subscribed = False
        if self.is_accepted_changed is not None:
            self.is_accepted_changed(is_accepted)

    # -- requests ---------------------------------------------------------------------------------------------

    def subscribe(self, topic_filter: str, qos: int) -> None:
        """Adds a subscription; called before the client connects."""
        assert self._session is None
        self._filters.append((topic_filter, qos))

    def publish(
        self,
        topic: str,
        payload: bytes,
        qos: int,
        properties: Properties = NO_PROPERTIES,
        expires_at_ns: int | None = None,
    ) -> None:
        self._waiting.append(Message(topic, payload, qos, False, None, properties, expires_at_ns))
        self._pump()

    def _pump(self) -> None:
        """Publishes at most a window at once, because paho sends all that it holds again after a lost connection."""
        while self._waiting and self._accepted.is_set() and len(self._publishing) < WINDOW:
            message = self._waiting.popleft()
            if self._is_too_late(message):
                continue
            call = asyncio.create_task(self._publish(message))
            self._publishing[call] = message.qos
            call.add_done_callback(self._published)

    async def _publish(self, message: Message) -> None:
        """Publishes a message; at QoS 1 and 2 it waits for the acknowledgement, over however many connections."""
        assert self._session is not None
        while not self._session.is_open:  # the connection was lost before this task ran
            await self._accepted.wait()
        if self._is_too_late(message):
            return
        timeout_s = math.inf if message.qos else WRITE_S_MAX
        try:
            await self._session.publish(
                message.topic, message.payload, message.qos, properties=_encoded(message), timeout=timeout_s
            )
        except aiomqtt.MqttError:  # the message was refused, or lost with its connection at QoS 0
            return
        if message.qos and self.acknowledged is not None:
            self.acknowledged(message)

    def _is_too_late(self, message: Message) -> bool:
        return message.expires_at_ns is not None and self.is_too_late is not None and self.is_too_late(message)

    def _published(self, call: asyncio.Task[None]) -> None:
        del self._publishing[call]
        if not call.cancelled():
            call.result()
        self._pump()

    def _start(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _encoded(message: Message) -> paho.Properties | None:
    """The properties of a request, an answer, or a message with a lifetime; these clients send no others."""
    properties = message.properties
    if properties == NO_PROPERTIES and message.expires_at_ns is None:
        return None
    encoded = paho.Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    if properties.response_topic is not None:
        encoded.ResponseTopic = properties.response_topic
    if properties.correlation_data is not None:
        encoded.CorrelationData = properties.correlation_data
    if message.expires_at_ns is not None:
        encoded.MessageExpiryInterval = interval_s(message.expires_at_ns, time.time_ns())
    return encoded


def _properties_of(message: aiomqtt.Message) -> Properties:
    """paho has an attribute only for a property that was sent."""
    given = message.properties
    return Properties(
        response_topic=getattr(given, "ResponseTopic", None), correlation_data=getattr(given, "CorrelationData", None)
    )

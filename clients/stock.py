"""Peers on aiomqtt, a client that nobody here wrote: its protocol, its window, its resending after a lost connection.

What is ours: when it connects and when its connection breaks, a queue in front of its window, and corrections of
aiomqtt 2.5 and of paho-mqtt 2.2 under it, which are named where they are made. docs/grounds.md says how such a peer
differs from the light one. The event loop must be asyncio's own: under uvloop a connection that is reset while there
are bytes left to read is never found to be lost.
"""

import asyncio
import logging
import math
import socket
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Self, TypeVar

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from brokerbed.broker.values import Message
from brokerbed.clients.session import FOREVER_S, WINDOW
from brokerbed.clients.sockets import BACKOFF_S

WRITE_S_MAX = 1.0  # for publish() at QoS 0 to return; after that the packet was lost with its connection
FLUSH_S_MAX = 0.1  # for what was published at QoS 0 to be written, before the connection is broken on purpose
SILENT = logging.CRITICAL + 1  # the log of a run tells of lost connections; aiomqtt need not

T = TypeVar("T")
_LOGGER = logging.getLogger("brokerbed.clients.stock")
_LOGGER.setLevel(SILENT)


class Refused(aiomqtt.MqttError):
    """The broker answered a publication with an error."""


class _Session(aiomqtt.Client):
    """aiomqtt's client. One object for all connections, because its unacknowledged publications are in it.

    Its packets are sent at once: with Nagle's algorithm one waits up to 40 ms until the system has acknowledged the one
    before it, which a speed-up of 20 makes 0.8 s.
    """

    def __init__(self, address: tuple[str, int], client_id: str, lost: Callable[[], None]) -> None:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = FOREVER_S
        super().__init__(
            *address,
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
    def is_open(self) -> bool:
        return self._client.socket() is not None

    def break_(self) -> None:
        """The network fails: both sides see the connection end, and no DISCONNECT is sent."""
        connection = self._client.socket()
        if isinstance(connection, socket.socket):
            with suppress(OSError):  # it may have ended by itself
                connection.shutdown(socket.SHUT_RDWR)

    async def __aenter__(self) -> Self:
        # paho closes the socket of an attempt that timed out in the thread that connects, where the event loop must not
        # be touched. And aiomqtt keeps the old answer after a lost connection: it would not wait for the next CONNACK.
        self._client._sock_close()
        self._connected = asyncio.get_running_loop().create_future()
        await super().__aenter__()
        if not self.is_open:  # lost again before this task had its turn, and aiomqtt has forgotten that
            self._disconnected.set_exception(aiomqtt.MqttError("the connection was lost at once"))
        return self

    def _on_disconnect(self, *told: Any, **more: Any) -> None:
        """aiomqtt does not hear of a connection that is lost before CONNACK, and waits for its timeout."""
        self._lost()
        if not self._connected.done():
            self._connected.set_exception(aiomqtt.MqttError("the connection was lost before the broker had answered"))
        super()._on_disconnect(*told, **more)
        if self._disconnected.done():
            self._disconnected.exception()  # somebody has looked at it, even if nobody iterates over messages just now

    def _on_socket_register_write(self, client: Any, userdata: Any, sock: Any) -> None:
        """aiomqtt asks for a socket to be watched one turn of the event loop later.

        By then the socket may be closed, and its file descriptor that of another client, who is not heard any more.
        """
        del client, userdata
        if threading.get_ident() == self._thread:
            self._watch(sock)
        else:  # in the thread that connects
            self._loop.call_soon_threadsafe(self._watch, sock)

    def _watch(self, sock: Any) -> None:
        is_open = sock is self._client.socket()
        if is_open:
            self._loop.add_writer(sock.fileno(), self._client.loop_write)

    def _on_publish(self, client: Any, userdata: Any, mid: int, reason_code: Any, properties: Any) -> None:
        """aiomqtt takes every answer for a success."""
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
    """A peer's client, with the contract of crowd.PeerClient."""

    unsent_bytes = 0  # what the socket does not take waits in calls of publish()

    def __init__(self, address: Callable[[], tuple[str, int]], client_id: str) -> None:
        self.client_id = client_id
        self.received: Callable[[str, bytes, int], None] | None = None
        self.taken: Callable[[Message], None] | None = None
        self.is_accepted_changed: Callable[[bool], None] | None = None
        self._address = address
        self._filter: tuple[str, int] | None = None
        self._session: _Session | None = None
        self._wanted = asyncio.Event()  # it is to be connected
        self._accepted = asyncio.Event()  # it is, and the broker has said so
        self._is_subscribed = False
        self._is_idle = True
        self._waiting: deque[Message] = deque()  # to be published when the window allows
        self._calls: dict[asyncio.Task[None], int] = {}  # of publish() that have not returned, with the QoS
        self._tasks: set[asyncio.Task[None]] = set()  # the others

    @property
    def is_connected(self) -> bool:
        return self._accepted.is_set()

    @property
    def is_settled(self) -> bool:
        if not self._wanted.is_set():
            return self._is_idle
        return self.is_connected and (self._is_subscribed or self._filter is None)

    @property
    def under_way(self) -> int:
        return len(self._calls) + len(self._waiting)

    @property
    def held(self) -> int:
        return len(self._waiting) if self.is_connected else 0

    # -- being connected --------------------------------------------------------------------------------------

    def connect(self) -> None:
        self._wanted.set()
        if self._session is None:
            self._session = _Session(self._address(), self.client_id, lambda: self._accept(False))
            self._do(self._stay(self._session))

    def disconnect(self) -> None:
        self._wanted.clear()
        self._accept(False)
        if self._session is not None:
            unwritten = [call for call, qos in self._calls.items() if qos == 0]
            if unwritten:
                self._do(self._break_when_written(self._session, unwritten))
            else:
                self._session.break_()

    async def _break_when_written(self, session: _Session, calls: list[asyncio.Task[None]]) -> None:
        """publish() at QoS 0 returns when the socket has taken the packet; before that, it would be lost."""
        await asyncio.wait(calls, timeout=FLUSH_S_MAX)
        session.break_()

    async def _stay(self, session: _Session) -> None:
        """Connected whenever it is to be."""
        while True:
            self._is_idle = True
            await self._wanted.wait()
            self._is_idle = False
            with suppress(aiomqtt.MqttError):
                async with session:
                    await self._serve(session)
            self._accept(False)
            if self._wanted.is_set():
                await asyncio.sleep(BACKOFF_S)

    async def _serve(self, session: _Session) -> None:
        """Until the connection is lost. This loop is never cancelled while it is needed: a message could go with it."""
        if not self._wanted.is_set():
            session.break_()
        elif session.is_open:
            self._accept(True)
        subscribing = asyncio.create_task(self._subscribe(session))
        try:
            async for message in session.messages:
                if self.received is not None:
                    self.received(message.topic.value, bytes(message.payload), message.qos)
        finally:
            subscribing.cancel()

    async def _subscribe(self, session: _Session) -> None:
        """Again on every connection, as aiomqtt's users do, for it does not tell whether the session was kept."""
        if self._filter is None:
            return
        try:
            answers = await session.subscribe(*self._filter)
        except aiomqtt.MqttError:
            session.break_()
            return
        self._is_subscribed = not any(getattr(it, "is_failure", False) for it in answers)
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

    # -- what it does -----------------------------------------------------------------------------------------

    def subscribe(self, topic_filter: str, qos: int) -> None:
        """Before it is connected."""
        assert self._session is None
        self._filter = topic_filter, qos

    def publish(self, topic: str, payload: bytes, qos: int) -> None:
        self._waiting.append(Message(topic, payload, qos, False, None))
        self._pump()

    def _pump(self) -> None:
        """No more than a window at once: after a lost connection paho sends again all that it has, in one go."""
        while self._waiting and self._accepted.is_set() and len(self._calls) < WINDOW:
            message = self._waiting.popleft()
            call = asyncio.create_task(self._publish(message))
            self._calls[call] = message.qos
            call.add_done_callback(self._called)

    async def _publish(self, message: Message) -> None:
        """At QoS 1 and 2 until the broker has acknowledged it, over however many connections."""
        assert self._session is not None
        while not self._session.is_open:  # the connection was lost before this task had its turn
            await self._accepted.wait()
        timeout_s = math.inf if message.qos else WRITE_S_MAX
        try:
            await self._session.publish(message.topic, message.payload, message.qos, timeout=timeout_s)
        except aiomqtt.MqttError:  # refused; or at QoS 0 lost with its connection
            return
        if message.qos and self.taken is not None:
            self.taken(message)

    def _called(self, call: asyncio.Task[None]) -> None:
        del self._calls[call]
        if not call.cancelled():
            call.result()
        self._pump()

    def _do(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

"""Peers on aiomqtt, joined to a broker that says exactly what a test wants it to say."""

import asyncio
import socket
import struct
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

import pytest

from brokerbed.broker.values import Message
from brokerbed.clients.process import Clients
from brokerbed.clients.session import WINDOW, Client
from brokerbed.clients.stock import StockClient
from brokerbed.scenario import load

CONNECT, PUBLISH, PUBACK, PUBREC, PUBREL, SUBSCRIBE = 0x10, 0x30, 0x40, 0x50, 0x60, 0x80
ACCEPTED = bytes((0x20, 3, 1, 0, 0))  # CONNACK, the session is there, success
ACCEPTED_ANEW = bytes((0x20, 3, 0, 0, 0))  # ... there was no session
SERVER_BUSY = bytes((0x20, 3, 0, 0x89, 0))
ANSWER_S_MAX = 5.0  # far below the 10 s for which aiomqtt waits for an answer
SHORT_S = 0.1  # for something that must not happen


class Connection:
    """The broker's end of one connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def packet(self) -> tuple[int, bytes]:
        """The first byte of the next one, and all after its length."""
        first, length = await self._reader.readexactly(2)
        assert length < 128
        return first, await self._reader.readexactly(length)

    async def packets(self, kind: int, count: int) -> list[tuple[int, bytes]]:
        """That many of this kind, whatever comes between them."""
        found: list[tuple[int, bytes]] = []
        while len(found) < count:
            first, body = await self.packet()
            if first & 0xF0 == kind:
                found.append((first, body))
        return found

    async def is_silent(self) -> bool:
        try:
            await asyncio.wait_for(self._reader.readexactly(1), SHORT_S)
        except TimeoutError:
            return True
        return False

    @property
    def host(self) -> str:
        return str(self._writer.get_extra_info("sockname")[0])

    def say(self, data: bytes) -> None:
        self._writer.write(data)

    async def ended(self) -> None:
        await self._reader.read()

    def end(self) -> None:
        """At once, not in the next turn of the event loop."""
        self._writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    def reset(self) -> None:
        if not self._writer.is_closing():
            linger = struct.pack("ii", 1, 0)
            self._writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self._writer.transport.abort()


class World:
    """One client and its connections, in the order in which it makes them."""

    def __init__(self, port: int, made: asyncio.Queue[Connection]) -> None:
        self.port = port
        self._made = made
        self.accepted: list[bool] = []
        self.connects: list[bytes] = []
        self.hosts: list[str] = []  # the addresses to which it connected
        self.acknowledged: list[bytes] = []
        self.received: list[bytes] = []
        self.client = StockClient(self._address_of, "c", "b0")
        self.client.is_accepted_changed = self.accepted.append
        self.client.acknowledged = self._acknowledge
        self.client.received = lambda _, payload, *__: self.received.append(payload)

    def _address_of(self, broker: str) -> tuple[str, int]:
        return "127.0.0.1" if broker == "b0" else "127.0.0.2", self.port

    def _acknowledge(self, message: Message) -> None:
        self.acknowledged.append(message.payload)

    async def connection(self, answer: bytes = ACCEPTED) -> Connection:
        """The next one; CONNECT has been read and answered."""
        connection = await self._made.get()
        first, body = await connection.packet()
        assert first == CONNECT
        self.connects.append(body)
        self.hosts.append(connection.host)
        connection.say(answer)
        return connection

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


def play(story: Callable[[World], Awaitable[None]]) -> None:
    async def whole() -> None:
        made: asyncio.Queue[Connection] = asyncio.Queue()
        connections: list[Connection] = []

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections.append(Connection(reader, writer))
            await made.put(connections[-1])

        server = await asyncio.start_server(serve, "0.0.0.0", 0)  # clients move to other loopback addresses
        world = World(server.sockets[0].getsockname()[1], made)
        try:
            await asyncio.wait_for(story(world), ANSWER_S_MAX)
        finally:
            world.client.disconnect()
            server.close()
            for connection in connections:
                connection.reset()
            await asyncio.wait_for(world.until(lambda: world.client.is_settled), ANSWER_S_MAX)

    asyncio.run(whole())


def payload_of(body: bytes, qos: int) -> bytes:
    return body[2 + 1 + (2 if qos else 0) + 1 :]  # topic t, packet id, no properties


def _qos_1(number: int) -> bytes:
    """A PUBLISH with this packet id; its payload is one letter."""
    return bytes((PUBLISH | 2, 7, 0, 1)) + b"t" + bytes((0, number, 0, 64 + number))


def puback(body: bytes, code: int = 0) -> bytes:
    return bytes((PUBACK, 3)) + body[3:5] + bytes((code,))


def test_every_connection_waits_for_its_own_connack() -> None:
    async def story(world: World) -> None:
        world.client.connect()
        first = await world.connection()
        await world.until(lambda: world.accepted == [True])
        first.reset()
        await world.until(lambda: world.accepted == [True, False])
        second = await world.connection(answer=b"")
        await asyncio.sleep(SHORT_S)
        assert world.accepted == [True, False]
        second.say(ACCEPTED)
        await world.until(lambda: world.accepted == [True, False, True])

    play(story)


def test_refused_client_tries_again() -> None:
    async def story(world: World) -> None:
        world.client.connect()
        await (await world.connection(SERVER_BUSY)).ended()
        assert world.accepted == []
        await world.connection()
        await world.until(lambda: world.accepted == [True])

    play(story)


def test_connection_lost_before_connack_is_made_again_at_once() -> None:
    async def story(world: World) -> None:
        world.client.connect()
        (await world.connection(answer=b"")).reset()
        await world.connection()
        await world.until(lambda: world.accepted == [True])

    play(story)


def test_client_that_is_switched_off_while_it_connects_is_not_connected() -> None:
    async def story(world: World) -> None:
        world.client.connect()
        first = await world.connection(answer=b"")
        world.client.disconnect()
        await first.ended()
        await world.until(lambda: world.client.is_settled)
        assert world.accepted == []
        world.client.connect()
        await world.connection()
        await world.until(lambda: world.accepted == [True])

    play(story)


def test_reset_connection_is_lost_though_there_are_bytes_left() -> None:
    async def story(world: World) -> None:
        world.client.connect()
        first = await world.connection()
        await world.until(lambda: world.accepted == [True])
        first.say(bytes((PUBLISH, 6, 0, 1)) + b"t\0hi")
        first.say(20 * (bytes((PUBLISH, 6, 0, 1)) + b"t\0hi"))
        first.reset()
        await world.connection()
        await world.until(lambda: world.accepted == [True, False, True])

    play(story)


def test_small_packets_are_not_held_back_by_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nagle's algorithm would keep a publication until the one before it is acknowledged: 40 ms."""
    ports: list[int] = []  # of sockets that send at once

    def noting(sock: socket.socket, level: int, option: int, value: int | bytes) -> None:
        super(socket.socket, sock).setsockopt(level, option, value)
        if (level, option, value) == (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1):
            ports.append(sock.getsockname()[1])

    monkeypatch.setattr(socket.socket, "setsockopt", noting, raising=False)

    async def story(world: World) -> None:
        world.client.connect()
        await world.connection()
        await world.until(lambda: world.accepted == [True])
        assert [port for port in ports if port != world.port]  # the broker's end does so, too

    play(story)


@pytest.mark.parametrize("qos", [1, 2])
def test_unacknowledged_publications_are_sent_again_in_order_before_new_ones(qos: int) -> None:
    """As duplicates, with their packet ids; and never more at once than the broker allows."""

    async def story(world: World) -> None:
        world.client.connect()
        first = await world.connection()
        names = [str(number).encode() for number in range(2 * WINDOW)]
        for name in names:
            world.client.publish("t", name, qos)
        sent = await first.packets(PUBLISH, WINDOW)
        assert [payload_of(body, qos) for _, body in sent] == names[:WINDOW]
        assert await first.is_silent()
        world.client.disconnect()
        await world.until(lambda: world.client.is_settled)
        world.client.connect()
        second = await world.connection()
        again = await second.packets(PUBLISH, WINDOW)
        assert [body for _, body in again] == [body for _, body in sent]
        assert all(head & 0x08 for head, _ in again)
        assert await second.is_silent()
        assert world.acknowledged == []
        assert world.client.under_way == 2 * WINDOW

    play(story)


def test_publication_counts_as_taken_when_it_is_acknowledged_and_not_when_it_is_refused() -> None:
    async def story(world: World) -> None:
        world.client.connect()
        first = await world.connection()
        for name in (b"a", b"b", b"c"):
            world.client.publish("t", name, 1)
        sent = await first.packets(PUBLISH, 3)
        for (_, body), code in zip(sent, (0, 0x97, 0x10), strict=True):
            first.say(puback(body, code))
        await world.until(lambda: world.client.under_way == 0)
        assert world.acknowledged == [b"a", b"c"]

    play(story)


def test_publication_is_taken_over_two_connections() -> None:
    async def story(world: World) -> None:
        world.client.connect()
        first = await world.connection()
        world.client.publish("t", b"a", 1)
        await first.packets(PUBLISH, 1)
        first.reset()
        second = await world.connection()
        ((_, body),) = await second.packets(PUBLISH, 1)
        second.say(puback(body))
        await world.until(lambda: world.acknowledged == [b"a"])

    play(story)


def test_released_publication_is_not_published_again_after_a_connection_that_was_lost_before_connack() -> None:
    """[MQTT-4.3.3-6]: once it has sent PUBREL, a client never sends PUBLISH again with this packet id."""

    async def story(world: World) -> None:
        world.client.connect()
        first = await world.connection()
        await world.until(lambda: world.client.is_connected)
        world.client.publish("t", b"once", 2)
        ((_, published),) = await first.packets(PUBLISH, 1)
        packet_id = published[3:5]  # after the length of the topic and the topic
        first.say(bytes((PUBREC, 2)) + packet_id)
        await first.packets(PUBREL, 1)
        first.end()
        for _ in range(2):
            unanswered = await world.connection(answer=b"")
            unanswered.end()
        last = await world.connection()
        kind, released = await last.packet()
        assert (kind & 0xF0, released[:2]) == (PUBREL, packet_id)

    play(story)


def test_what_was_published_at_qos_0_is_written_before_the_connection_is_broken() -> None:
    async def story(world: World) -> None:
        world.client.connect()
        first = await world.connection()
        await world.until(lambda: world.accepted == [True])
        for name in (b"a", b"b"):
            world.client.publish("t", name, 0)
        world.client.disconnect()
        sent = await first.packets(PUBLISH, 2)
        assert [payload_of(body, 0) for _, body in sent] == [b"a", b"b"]
        await first.ended()

    play(story)


def test_what_was_received_before_the_connection_broke_is_not_lost() -> None:
    """At QoS 1 aiomqtt has acknowledged what is still in its queue."""

    async def story(world: World) -> None:
        world.client.subscribe("t", 1)
        world.client.connect()
        first = await world.connection()
        await first.packets(SUBSCRIBE, 1)
        for number in range(1, 10):
            first.say(_qos_1(number))
        await first.packets(PUBACK, 9)
        world.client.disconnect()
        await world.until(lambda: world.client.is_settled)
        assert world.received == [bytes((64 + number,)) for number in range(1, 10)]

    play(story)


def test_socket_that_gets_the_descriptor_of_a_lost_connection_is_left_alone() -> None:
    """The client has just published when its connection ends; the next socket of the process is another client's."""

    async def story(world: World) -> None:
        world.client.connect()
        first = await world.connection()
        await world.until(lambda: world.accepted == [True])
        others: list[socket.socket] = []
        world.client.is_accepted_changed = lambda _: others.append(socket.socket())
        world.client.publish("t", b"x", 0)
        first.end()
        time.sleep(0.01)  # the connection has ended when the event loop looks again  # noqa: ASYNC251
        await world.until(lambda: bool(others))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with others[0] as other:
            assert not asyncio.get_running_loop().remove_writer(other)  # nobody waits until it can be written to
        world.client.is_accepted_changed = None

    play(story)


@pytest.mark.parametrize(("key", "kind"), [("", StockClient), ("peers: stock", StockClient), ("peers: light", Client)])
def test_peers_are_stock_clients_unless_the_scenario_says_light(key: str, kind: type, tmp_path: Path) -> None:
    file = tmp_path / "peers.yaml"
    file.write_text(
        "scenario: 1\nname: peers\nclock: {measure: 1s}\ntopology: {tree: line, brokers: 1}\n"
        f"publishers: [{{id: p, broker: b0, topic: t, rate: 1/s}}]\n{key}\n"
    )
    (scenario,) = load(file).points

    async def peers() -> list[object]:
        return [peer.client for peer in Clients(scenario, 0, 1).crowd.peers]

    assert [type(it) for it in asyncio.run(peers())] == [kind]


def test_client_that_moves_connects_elsewhere_with_the_same_id_and_without_a_clean_start() -> None:
    async def story(world: World) -> None:
        world.client.connect()
        first = await world.connection()
        await world.until(lambda: world.accepted == [True])
        world.client.disconnect()
        await first.ended()
        world.client.move_to("b1")
        world.client.connect()
        await world.connection()
        await world.until(lambda: world.accepted == [True, False, True])
        assert world.hosts == ["127.0.0.1", "127.0.0.2"]
        assert world.connects[0] == world.connects[1]  # client id, session expiry and flags

    play(story)


def test_attempt_at_the_broker_that_was_left_is_given_up() -> None:
    async def story(world: World) -> None:
        world.client.connect()
        first = await world.connection(answer=b"")
        world.client.disconnect()
        world.client.move_to("b1")
        world.client.connect()
        with suppress(ConnectionError):
            first.say(ACCEPTED)
        await world.connection()
        await world.until(lambda: world.accepted == [True])
        assert world.hosts == ["127.0.0.1", "127.0.0.2"]

    play(story)


def test_new_session_gets_no_qos_2_message_that_an_earlier_one_may_have_taken() -> None:
    async def story(world: World) -> None:
        world.client.connect()
        first = await world.connection()
        await world.until(lambda: world.accepted == [True])
        for qos, payload in ((1, b"one"), (2, b"two")):
            world.client.publish("t", payload, qos)
        assert len(await first.packets(PUBLISH, 2)) == 2
        first.reset()
        second = await world.connection(ACCEPTED_ANEW)
        world.client.publish("t", b"three", 2)
        found = await second.packets(PUBLISH, 2)
        assert [payload_of(body, 1) for _, body in found] == [b"one", b"three"]
        await world.until(lambda: world.client.under_way == 2)  # what was given up is no longer under way
        assert world.acknowledged == []

    play(story)

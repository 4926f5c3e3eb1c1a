"""A listener for links: it finds out who dials, and gives the connection to the relay of the two brokers."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import mqtt5
import pytest

from brokerbed.orchestrator.grounds.link_listener import START_BYTES_MAX, WAITING_MAX, LinkListener
from brokerbed.orchestrator.grounds.relay import Relay

WAIT_S = 10.0
CONNECT = mqtt5.ConnectPacket("$link/b", user_properties=[("overlay-name", "b")]).write()


@contextmanager
def listener() -> Iterator[tuple[LinkListener, socket.socket, Relay]]:
    """For links from b; the socket is where its parent listens."""
    parent = socket.create_server(("127.0.0.1", 0))
    parent.setblocking(False)
    relay = Relay(parent.getsockname())
    relay.attach()
    made = LinkListener(lambda name: relay if name == "b" else None, "127.0.0.1")
    made.open()
    try:
        yield made, parent, relay
    finally:
        made.close()
        relay.close()
        parent.close()


async def _ends(reader: asyncio.StreamReader) -> bool:
    """Whether the other end has closed the connection."""
    try:
        return not await asyncio.wait_for(reader.read(1), WAIT_S)
    except ConnectionError:
        return True


@pytest.mark.parametrize("pieces", [[CONNECT], [CONNECT + b"more"], [bytes([byte]) for byte in CONNECT]])
def test_a_link_is_passed_on_whole(pieces: list[bytes]) -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        with listener() as (made, parent, _):
            reader, writer = await asyncio.open_connection(*made.address)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(0)
            end, _ = await asyncio.wait_for(loop.sock_accept(parent), WAIT_S)
            with closing(end):
                wanted, got = b"".join(pieces), b""
                while len(got) < len(wanted):
                    got += await asyncio.wait_for(loop.sock_recv(end, 1000), WAIT_S)
                assert got == wanted
                await loop.sock_sendall(end, b"answer")
                assert await asyncio.wait_for(reader.readexactly(6), WAIT_S) == b"answer"
            writer.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "start",
    [
        mqtt5.ConnectPacket("$link/x").write(), mqtt5.ConnectPacket("b").write(), b"GET / HTTP/1.1\r\n" * 300,
        b"\x10\xff\xff\xff\x7f\x00\x04MQTT\x05" + bytes(START_BYTES_MAX),
    ],
)  # fmt: skip
def test_who_is_no_link_of_a_known_broker_is_sent_away(start: bytes) -> None:
    async def scenario() -> None:
        with listener() as (made, parent, _):
            reader, writer = await asyncio.open_connection(*made.address)
            writer.write(start)
            assert await _ends(reader)
            with pytest.raises(BlockingIOError):
                parent.accept()
            writer.close()

    asyncio.run(scenario())


def test_those_who_say_nothing_make_room_for_others() -> None:
    async def scenario() -> None:
        with listener() as (made, _, _):
            silent = [await asyncio.open_connection(*made.address) for _ in range(WAITING_MAX + 1)]
            assert await _ends(silent[0][0])
            for _, writer in silent:
                writer.close()

    asyncio.run(scenario())


def test_a_link_that_is_held_is_passed_on_when_it_is_released() -> None:
    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        with listener() as (made, parent, relay):
            relay.hold()
            _, writer = await asyncio.open_connection(*made.address)
            writer.write(CONNECT)
            accepting = asyncio.ensure_future(loop.sock_accept(parent))
            assert not (await asyncio.wait([accepting], timeout=0.2))[0]
            relay.release()
            end, _ = await asyncio.wait_for(accepting, WAIT_S)
            with closing(end):
                assert await asyncio.wait_for(loop.sock_recv(end, 1000), WAIT_S) == CONNECT
            writer.close()

    asyncio.run(scenario())

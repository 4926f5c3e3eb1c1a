"""Connections that are broken on purpose, a relay that refuses for a while, and whose connection it is."""

import asyncio

import mqtt5
import pytest

from brokerbed.orchestrator.grounds.client_proxy import ClientProxy
from brokerbed.orchestrator.grounds.connect_start import client_id_of
from brokerbed.orchestrator.grounds.relay import Relay
from tests.local.ends import Ends, story
from tests.mqtt.client311 import Will, connect


@story
async def test_reset_ends_both_ends_of_wanted_connections_only() -> None:
    async with Ends() as ends:
        ends.relay.close()
        ends.relay = Relay(ends.listener.getsockname(), keeps_start=True)
        ends.port = await ends.relay.open()
        pairs = [await ends.connect() for _ in range(2)]
        for (child, parent), word in zip(pairs, (b"one", b"two"), strict=True):
            await ends.send(child, word)
            assert await ends.receive(parent, 3) == word
        (parents_end,) = ends.relay.reset(lambda start: start == b"two")
        with pytest.raises(ConnectionResetError):
            await ends.receive(pairs[1][0], 1)
        assert await asyncio.get_running_loop().sock_recv(pairs[1][1], 1) == b""
        parents_end.close()
        await ends.send(pairs[0][1], b"on")
        assert await ends.receive(pairs[0][0], 2) == b"on"
        (parents_end,) = ends.relay.reset(lambda _: True)
        parents_end.close()


@story
async def test_disconnection_is_over_when_the_broker_has_ended_just_these_connections() -> None:
    """The broker takes its time with the client that is disconnected; that another client leaves meanwhile is no sign."""
    loop = asyncio.get_running_loop()
    async with Ends() as ends:
        proxy = ClientProxy(ends.listener.getsockname())
        await proxy.open()
        ends.relay.close()
        ends.port = proxy.address[1]
        pairs = {}
        for name in ("stays", "leaves", "broken"):
            pairs[name] = child, parent = await ends.connect()
            await ends.send(child, connect(name))
            assert client_id_of(await loop.sock_recv(parent, 100)) == name
        disconnecting = asyncio.create_task(proxy.disconnect("broken", 10.0))
        assert await loop.sock_recv(pairs["broken"][1], 1) == b""  # the broker hears of it
        pairs["leaves"][0].close()
        assert await loop.sock_recv(pairs["leaves"][1], 1) == b""
        pairs["leaves"][1].close()
        await asyncio.sleep(0.2)
        assert not disconnecting.done()
        pairs["broken"][1].close()
        assert await disconnecting == 1
        await ends.send(pairs["stays"][1], b"on")
        assert await ends.receive(pairs["stays"][0], 2) == b"on"
        with pytest.raises(TimeoutError):
            await proxy.disconnect("stays", 0.1)
        proxy.close()


@story
async def test_reset_is_told_even_if_the_ways_are_held() -> None:
    async with Ends() as ends:
        child, parent = await ends.connect()
        ends.relay.hold("up", "down")
        await ends.send(child, b"lost")
        (parents_end,) = ends.relay.reset(lambda _: True)
        with pytest.raises(ConnectionResetError):
            await ends.receive(child, 1)
        assert await asyncio.get_running_loop().sock_recv(parent, 1) == b""
        parents_end.close()


@story
async def test_refusing_relay_keeps_connections_and_opens_again_on_its_port() -> None:
    async with Ends() as ends:
        child, parent = await ends.connect()
        ends.relay.refuse()
        with pytest.raises(ConnectionRefusedError):
            await ends.dial()
        await ends.send(child, b"still")
        assert await ends.receive(parent, 5) == b"still"
        assert await ends.relay.open(ends.port) == ends.port
        again, accepted = await ends.connect()
        await ends.send(again, b"anew")
        assert await ends.receive(accepted, 4) == b"anew"


LONG_ID = "x" * 300
CONNECTS = [
    (connect("sensor", will=Will("t", b"gone"), username="u"), "sensor"),
    (connect("old", name="MQIsdp", level=3), "old"),
    (connect("bridge", level=0x84), "bridge"),
    (connect(""), ""),
    (mqtt5.ConnectPacket("phone", clean_start=True).write(), "phone"),
    (mqtt5.ConnectPacket(LONG_ID, clean_start=True, user_properties=[("k", "v" * 200)]).write(), LONG_ID),
]


@pytest.mark.parametrize(("packet", "client_id"), CONNECTS)
def test_client_id_is_read_from_the_first_bytes(packet: bytes, client_id: str) -> None:
    assert client_id_of(packet) == client_id
    assert client_id_of(packet + b"\x30\x03\x00\x01t") == client_id
    at = packet.index(client_id.encode() or b"\x00\x00", 12)
    end = at + max(len(client_id), 2)
    assert client_id_of(packet[:end]) == client_id
    assert {client_id_of(packet[:size]) for size in range(end)} <= {None}


@pytest.mark.parametrize("start", [b"", b"GET / HTTP/1.1\r\n", b"\xff" * 100, b"\x10\xff\xff\xff\xff\xff"])
def test_what_is_no_connect_has_no_client_id(start: bytes) -> None:
    assert client_id_of(start) is None

"""aiomqtt against the server: asyncio, both versions."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import aiomqtt
import pytest
from aiomqtt import Client, ProtocolVersion, Will

from tests.mqtt.dial import unique
from tests.mqtt.paho_properties import of_connect, of_publish
from tests.mqtt.raw import WAIT_S
from tests.mqtt.servers import HOST, Server

EACH_VERSION = pytest.mark.parametrize("version", [ProtocolVersion.V311, ProtocolVersion.V5], ids=["3.1.1", "5"])


def run(test: Coroutine[Any, Any, None]) -> None:
    """Runs a test of coroutines, for a bounded time."""

    async def bounded() -> None:
        async with asyncio.timeout(2 * WAIT_S):
            await test

    asyncio.run(bounded())


async def take(client: Client, count: int) -> list[aiomqtt.Message]:
    return [await anext(client.messages) for _ in range(count)]


@EACH_VERSION
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_message_passes(broker: Server, topic: str, version: ProtocolVersion, qos: int) -> None:
    async def test() -> None:
        async with Client(HOST, broker.port, protocol=version) as client:
            await client.subscribe(topic + "/#", qos=qos)
            await client.publish(topic, "hello", qos=qos)
            (message,) = await take(client, 1)
            assert (message.topic.value, message.payload, message.qos) == (topic, b"hello", qos)

    run(test())


@EACH_VERSION
def test_publishers_together_keep_their_order(broker: Server, topic: str, version: ProtocolVersion) -> None:
    async def publish(name: int) -> None:
        async with Client(HOST, broker.port, protocol=version, identifier=unique()) as client:
            for number in range(50):
                await client.publish(f"{topic}/{name}", str(number), qos=2)

    async def test() -> None:
        async with Client(HOST, broker.port, protocol=version, identifier=unique()) as client:
            await client.subscribe(topic + "/+", qos=2)
            publishers = asyncio.gather(*(publish(name) for name in range(4)))
            messages = await take(client, 200)
            await publishers
        for name in range(4):
            mine = [message.payload for message in messages if message.topic.value == f"{topic}/{name}"]
            assert mine == [b"%d" % number for number in range(50)]

    run(test())


@EACH_VERSION
def test_retained_message_is_kept(broker: Server, topic: str, version: ProtocolVersion) -> None:
    async def test() -> None:
        async with Client(HOST, broker.port, protocol=version) as client:
            await client.publish(topic, "kept", qos=1, retain=True)
            await client.subscribe(topic)
            (message,) = await take(client, 1)
            assert (message.payload, message.retain) == (b"kept", True)

    run(test())


@EACH_VERSION
def test_take_over_ends_the_first_and_publishes_its_will(broker: Server, topic: str, version: ProtocolVersion) -> None:
    identifier = unique()

    async def first(ready: asyncio.Event) -> None:
        will = Will(topic, "gone", qos=1)
        async with Client(HOST, broker.port, protocol=version, identifier=identifier, will=will) as client:
            ready.set()
            await anext(client.messages)

    async def test() -> None:
        ready = asyncio.Event()
        async with Client(HOST, broker.port, protocol=version) as watching:
            await watching.subscribe(topic, qos=1)
            task = asyncio.create_task(first(ready))
            await ready.wait()
            async with Client(HOST, broker.port, protocol=version, identifier=identifier):
                with pytest.raises(aiomqtt.MqttError):
                    await task
                (message,) = await take(watching, 1)
                assert message.payload == b"gone"

    run(test())


def test_session_goes_on(broker: Server, topic: str) -> None:
    identifier = unique()

    async def test() -> None:
        options: dict[str, Any] = {
            "protocol": ProtocolVersion.V5, "identifier": identifier, "clean_start": False, "properties": of_connect(SessionExpiryInterval=60),
        }  # fmt: skip
        async with Client(HOST, broker.port, **options) as client:
            await client.subscribe(topic, qos=1)
        async with Client(HOST, broker.port) as other:
            for number in range(5):
                await other.publish(topic, str(number), qos=1)
        async with Client(HOST, broker.port, **options) as client:
            assert [message.payload for message in await take(client, 5)] == [b"0", b"1", b"2", b"3", b"4"]

    run(test())


def test_user_properties_pass(broker: Server, topic: str) -> None:
    async def test() -> None:
        pairs = [("z", "1"), ("a", "2"), ("z", "1")]
        async with Client(HOST, broker.port, protocol=ProtocolVersion.V5) as client:
            await client.subscribe(topic)
            await client.publish(topic, "x", properties=of_publish(UserProperty=pairs))
            (message,) = await take(client, 1)
            received: Any = message.properties
            assert received.UserProperty == pairs

    run(test())

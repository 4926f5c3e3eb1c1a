"""The network of brokers for tests that are coroutines: what waits in BrokerNetwork is awaited here.

Each call runs in a thread, so it works under pytest-asyncio, anyio and asyncio.run alike. A call that is cancelled goes
on in its thread until it is done or the network is closed.
"""

import asyncio
import socket
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import aiomqtt

from brokerbed.orchestrator.grounds.testing import BrokerNetwork

P = ParamSpec("P")
T = TypeVar("T")


def _awaited(
    verb: Callable[Concatenate[BrokerNetwork, P], T],
) -> Callable[Concatenate["AsyncBrokerNetwork", P], Coroutine[Any, Any, T]]:
    @wraps(verb)
    async def call(network: "AsyncBrokerNetwork", /, *arguments: P.args, **options: P.kwargs) -> T:
        __tracebackhide__ = True
        return await asyncio.to_thread(verb, network.plain, *arguments, **options)

    return call


class AsyncBrokerNetwork:
    """A BrokerNetwork (`plain`) whose verbs are coroutines."""

    def __init__(self, plain: BrokerNetwork) -> None:
        self.plain = plain

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    start = _awaited(BrokerNetwork.start)
    close = _awaited(BrokerNetwork.close)
    check = _awaited(BrokerNetwork.check)
    crash = _awaited(BrokerNetwork.crash)
    restart = _awaited(BrokerNetwork.restart)
    pause = _awaited(BrokerNetwork.pause)
    resume = _awaited(BrokerNetwork.resume)
    cut = _awaited(BrokerNetwork.cut)
    repair = _awaited(BrokerNetwork.repair)
    heal = _awaited(BrokerNetwork.heal)
    move = _awaited(BrokerNetwork.move)
    disconnect = _awaited(BrokerNetwork.disconnect)
    under_way = _awaited(BrokerNetwork.under_way)
    wait_until_calm = _awaited(BrokerNetwork.wait_until_calm)
    assert_nothing_lost = _awaited(BrokerNetwork.assert_nothing_lost)

    # -- what does not wait -----------------------------------------------------------------------------------

    @property
    def names(self) -> tuple[str, ...]:
        return self.plain.names

    @property
    def history(self) -> list[tuple[float, str]]:
        return self.plain.history

    @property
    def folder(self) -> Path:
        return self.plain.folder

    def address(self, broker: str) -> tuple[str, int]:
        return self.plain.address(broker)

    def state(self, broker: str) -> str:
        return self.plain.state(broker)

    def parents(self) -> dict[str, str | None]:
        return self.plain.parents()

    def is_running(self) -> bool:
        return self.plain.is_running()

    def told(self) -> str:
        return self.plain.told()

    def client(self, broker: str, **options: Any) -> aiomqtt.Client:
        """An aiomqtt client of this broker, connected inside `async with`; `options` are those of aiomqtt.Client."""
        host, port = self.address(broker)
        defaults: dict[str, Any] = {
            "protocol": aiomqtt.ProtocolVersion.V5,
            "socket_options": [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)],
        }
        return aiomqtt.Client(host, port, **{**defaults, **options})

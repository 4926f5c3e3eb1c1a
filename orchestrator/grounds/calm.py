"""Waiting until a network of real brokers is at rest, and what keeps it from coming to rest."""

import asyncio
import time
from collections.abc import Iterable
from typing import Protocol

from brokerbed.orchestrator.grounds.base import GroundError
from brokerbed.orchestrator.grounds.network import LOOK_S
from brokerbed.orchestrator.grounds.relay import Relay
from brokerbed.orchestrator.grounds.watch import BrokerState

CALM_LOOKS = 3  # so many times in a row nothing is under way
STOP_S_MAX = 10.0


class CalmHost(Protocol):
    is_up: bool
    is_paused: bool

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> BrokerState | None: ...
    @property
    def is_stopped(self) -> bool: ...


class CalmLink(Protocol):
    @property
    def child(self) -> CalmHost: ...
    @property
    def parent(self) -> CalmHost: ...
    @property
    def relay(self) -> Relay | None: ...
    @property
    def is_cut(self) -> bool: ...
    @property
    def is_confirmed(self) -> bool: ...


class CalmNetwork(Protocol):
    def check(self) -> None: ...
    async def look(self) -> None: ...


def obstacles(hosts: Iterable[CalmHost], links: Iterable[CalmLink]) -> list[str]:
    """What keeps them from being linked."""
    crashed = [f"broker {it.name} is crashed" for it in hosts if not it.is_up]
    paused = [f"broker {it.name} is paused" for it in hosts if it.is_paused]
    return crashed + paused + [f"the link {it.child.name}-{it.parent.name} is cut" for it in links if it.is_cut]


async def wait_until_calm(network: CalmNetwork, hosts: list[CalmHost], links: list[CalmLink], timeout_s: float) -> None:
    """Raises GroundError if messages are still under way after that time, or if the network cannot come to rest."""
    if found := obstacles(hosts, links):
        raise GroundError(f"the network cannot come to rest: {', '.join(found)}")
    end_s, calm, busy = time.monotonic() + timeout_s, 0, list[str]()
    while calm < CALM_LOOKS:
        if time.monotonic() > end_s:
            raise GroundError(f"the network did not come to rest within {timeout_s:g} s: {', '.join(busy)}")
        network.check()
        await network.look()
        busy = [f"{it.child.name}-{it.parent.name} is not connected" for it in links if not it.is_confirmed]
        busy += [f"{left:.0f} under way at {it.name}" for it in hosts if (left := _under_way(it))]
        slow = [(link, relay.size_bytes) for link in links if (relay := link.relay) is not None]
        busy += [f"{size} bytes on {it.child.name}-{it.parent.name}" for it, size in slow if size]
        calm = 0 if busy else calm + 1
        await asyncio.sleep(LOOK_S)


def _under_way(host: CalmHost) -> float:
    return 1.0 if host.state is None else host.state.under_way - host.state.offline


async def until_stopped(host: CalmHost) -> None:
    """It cannot be asked, but the system knows."""
    try:
        async with asyncio.timeout(STOP_S_MAX):
            while not host.is_stopped:  # noqa: ASYNC110 - only /proc knows
                await asyncio.sleep(LOOK_S / 10)
    except TimeoutError:
        raise GroundError(f"broker {host.name} was not stopped within {STOP_S_MAX:.0f} s") from None

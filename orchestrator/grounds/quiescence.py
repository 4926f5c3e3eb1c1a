"""Waits until nothing is under way in a network of real brokers, or reports what prevents that."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Protocol

from brokerbed.orchestrator.grounds.base import GroundError
from brokerbed.orchestrator.grounds.network import LOOK_S
from brokerbed.orchestrator.grounds.relay import Relay
from brokerbed.orchestrator.grounds.watch import BrokerState

QUIET_LOOKS = 3  # how often in a row nothing may be under way before we believe it
STOP_S_MAX = 10.0


class QuietHost(Protocol):
    is_up: bool
    is_paused: bool

    @property
    def name(self) -> str: ...
    @property
    def state(self) -> BrokerState | None: ...
    @property
    def is_stopped(self) -> bool: ...


class QuietLink(Protocol):
    @property
    def child(self) -> QuietHost: ...
    @property
    def parent(self) -> QuietHost: ...
    @property
    def relay(self) -> Relay | None: ...
    @property
    def is_cut(self) -> bool: ...
    @property
    def is_confirmed(self) -> bool: ...


class QuietNetwork(Protocol):
    @property
    def hosts(self) -> Mapping[str, QuietHost]: ...
    @property
    def links(self) -> Mapping[str, QuietLink]: ...
    def check(self) -> None: ...
    async def look(self) -> None: ...


def obstacles(hosts: Iterable[QuietHost], links: Iterable[QuietLink]) -> list[str]:
    """What prevents the links from being connected, one phrase each."""
    crashed = [f"broker {host.name} is crashed" for host in hosts if not host.is_up]
    paused = [f"broker {host.name} is paused" for host in hosts if host.is_paused]
    return crashed + paused + [f"the link {link.child.name}-{link.parent.name} is cut" for link in links if link.is_cut]


async def wait_until_quiet(network: QuietNetwork, timeout_s: float) -> None:
    """Raises GroundError if messages are still under way after that time, or if the network cannot come to rest."""
    hosts = [*network.hosts.values()]
    if reasons := obstacles(hosts, network.links.values()):
        raise GroundError(f"the network cannot come to rest: {', '.join(reasons)}")
    end_s, quiet_looks, busy = time.monotonic() + timeout_s, 0, list[str]()
    while quiet_looks < QUIET_LOOKS:
        if time.monotonic() > end_s:
            raise GroundError(f"the network did not come to rest within {timeout_s:g} s: {', '.join(busy)}")
        network.check()
        await network.look()
        links = [*network.links.values()]  # which may have moved
        busy = [f"{link.child.name}-{link.parent.name} is not connected" for link in links if not link.is_confirmed]
        busy += [f"{left:.0f} under way at {host.name}" for host in hosts if (left := _under_way(host))]
        slow = [(link, relay.size_bytes) for link in links if (relay := link.relay) is not None]
        busy += [f"{size} bytes on {link.child.name}-{link.parent.name}" for link, size in slow if size]
        quiet_looks = 0 if busy else quiet_looks + 1
        await asyncio.sleep(LOOK_S)


def _under_way(host: QuietHost) -> float:
    return 1.0 if host.state is None else host.state.under_way - host.state.offline


async def until_stopped(host: QuietHost) -> None:
    """Waits until a paused broker is suspended. The broker cannot be asked, but the operating system knows."""
    try:
        async with asyncio.timeout(STOP_S_MAX):
            while not host.is_stopped:  # noqa: ASYNC110 - only /proc knows
                await asyncio.sleep(LOOK_S / 10)
    except TimeoutError:
        raise GroundError(f"broker {host.name} was not stopped within {STOP_S_MAX:.0f} s") from None

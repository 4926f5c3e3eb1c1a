"""What tests do to the links between real brokers; each returns when its effect was observed."""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Protocol

from brokerbed.orchestrator.grounds.base import GroundError
from brokerbed.orchestrator.grounds.network import Watchable, look_until
from brokerbed.orchestrator.grounds.quiescence import QuietHost, QuietLink, obstacles
from brokerbed.orchestrator.grounds.relay import DOWN, UP

ANSWER_S_MAX = 10.0  # how long a broker may take to answer an instruction


class LinkedHost(QuietHost, Watchable, Protocol):
    @property
    def serving(self) -> int: ...
    async def instruct(self, line: str, /) -> str: ...


class CutLink(QuietLink, Protocol):
    def cut(self, *ways: str) -> None: ...
    def repair(self, *ways: str) -> None: ...
    async def done(self) -> None: ...
    def is_held(self, way: str, /) -> bool: ...


class LinkedNetwork(Protocol):
    @property
    def hosts(self) -> Mapping[str, LinkedHost]: ...
    @property
    def links(self) -> Mapping[str, QuietLink]:
        """The links as they are at the moment, by child."""


async def until_linked(network: LinkedNetwork, what: str) -> None:
    """Waits for all links that are not cut and whose brokers run."""

    def free_links() -> list[QuietLink]:
        return [link for link in network.links.values() if not obstacles([link.child, link.parent], [link])]

    hosts = [host for host in network.hosts.values() if host.is_up and not host.is_paused]
    await look_until(
        network.hosts,
        lambda: all(host.serving for host in hosts) and all(link.is_confirmed for link in free_links()),
        what,
    )


async def cut(link: CutLink, ways: Iterable[str]) -> None:
    link.cut(*ways)
    await link.done()
    if not all(map(link.is_held, ways)):
        raise GroundError(f"the link of {link.child.name} to {link.parent.name} was not cut")


async def repair(network: LinkedNetwork, link: CutLink) -> None:
    link.repair(UP, DOWN)
    await link.done()
    await until_linked(network, f"linked after the repair of {link.child.name}-{link.parent.name}")


async def move(network: LinkedNetwork, child: str, parent: str) -> None:
    """Has a broker get another parent. Returns when the new link is connected."""
    old = network.hosts[network.links[child].parent.name]
    answer = await asyncio.wait_for(old.instruct(f"move {child} {parent}"), ANSWER_S_MAX)
    if not answer.startswith("moving "):
        raise GroundError(f"{child} does not move to {parent}: {answer.removeprefix('refused: ')}")
    await look_until(
        network.hosts,
        lambda: network.links[child].parent.name == parent and network.links[child].is_confirmed,
        f"linked after {child} was moved to {parent}",
    )

"""What networks of real brokers have in common: which links are special, waiting until all are linked."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from brokerbed.broker.laws import sampler
from brokerbed.clients.workload import stream
from brokerbed.orchestrator.grounds.base import GroundError
from brokerbed.orchestrator.grounds.clients import ClientProcess
from brokerbed.orchestrator.grounds.processes import Said
from brokerbed.orchestrator.grounds.relay import Quality
from brokerbed.orchestrator.grounds.watch import BrokerState
from brokerbed.scenario import Scenario

READY_S_MAX = 60.0
LOOK_S = 0.02  # between two looks at all brokers


class Looked(Protocol):
    async def look(self) -> None: ...
    def check(self) -> None: ...


def has_quality(scenario: Scenario, child: str, parent: str) -> bool:
    """Whether the link is slow or narrow."""
    return any(set(it.between) == {child, parent} for it in scenario.links)


def is_cut(scenario: Scenario, child: str, parent: str) -> bool:
    """Whether a fault of the scenario may cut the link."""
    cuts = [fault.cut for fault in scenario.faults if fault.cut is not None]
    return any(cut == "any" or set(cut) == {child, parent} for cut in cuts)


def qualities(scenario: Scenario, child: str, parent: str) -> tuple[Quality, Quality]:
    """Of the way up and of the way down, in wall time."""
    up, down = (_quality(scenario, *ends) for ends in ((child, parent), (parent, child)))
    return up, down


def _quality(scenario: Scenario, *ends: str) -> Quality:
    link = next((it for it in scenario.links if set(it.between) == set(ends)), None)
    if link is None:
        return Quality()
    speedup, delay = scenario.clock.speedup, None
    if link.delay is not None:
        law, draws = link.delay, stream(scenario.seed, "delay", *ends)
        delay = sampler(law.law, round(law.mean / speedup), draws, law.cv if law.cv is not None else 1.0)
    return Quality(delay, None if link.bandwidth is None else link.bandwidth * speedup)


class Watched(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def state(self) -> BrokerState | None: ...
    @property
    def changed_s(self) -> float: ...


def is_linked(one: Watched, other: Watched, changed_s: float) -> bool:
    """As the one said after the last thing that was done to either, or to their link."""
    return one.state is not None and one.state.is_linked(other.name, max(one.changed_s, other.changed_s, changed_s))


class Speaks(Protocol):
    @property
    def said(self) -> Said: ...


def said_by(hosts: Mapping[str, Speaks], clients: Iterable[ClientProcess]) -> dict[str, Said]:
    """What brokers and clients wrote to stderr."""
    brokers = {f"broker {name}": host.said for name, host in hosts.items()}
    return brokers | {process.name: process.said for process in clients}


async def look_until(hosts: Mapping[str, Looked], holds: Callable[[], bool], what: str) -> None:
    """All brokers are asked again and again until it holds."""
    now = asyncio.get_running_loop().time
    end_s = now() + READY_S_MAX
    while not holds():
        for host in hosts.values():
            host.check()
        if now() > end_s:
            raise GroundError(f"the brokers were not {what} within {READY_S_MAX:.0f} s")
        await all_of(host.look() for host in hosts.values())
        await asyncio.sleep(LOOK_S)


async def end_all(tasks: Iterable["asyncio.Task[None]"]) -> None:
    """Whatever they would still do or say."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def all_of(work: Iterable[Awaitable[None]]) -> None:
    """The first error ends the rest."""
    try:
        async with asyncio.TaskGroup() as group:
            for it in work:
                group.create_task(_of(it))
    except* (GroundError, OSError) as errors:
        raise errors.exceptions[0] from None


async def _of(work: Awaitable[None]) -> None:
    await work

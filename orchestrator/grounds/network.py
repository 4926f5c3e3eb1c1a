"""Functions that networks of real brokers share: properties of links, and waiting until all links are connected."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Protocol

from brokerbed.broker.laws import sampler
from brokerbed.clients.workload import stream
from brokerbed.orchestrator.grounds.base import GroundError
from brokerbed.orchestrator.grounds.clients import ClientProcess
from brokerbed.orchestrator.grounds.processes import StderrLines
from brokerbed.orchestrator.grounds.relay import Quality
from brokerbed.orchestrator.grounds.watch import BrokerState
from brokerbed.scenario import Scenario

READY_S_MAX = 60.0
LOOK_S = 0.02  # how often all brokers are queried


class Watchable(Protocol):
    async def look(self) -> None: ...
    def check(self) -> None: ...


def has_quality(scenario: Scenario, child: str, parent: str) -> bool:
    """Whether the scenario gives the link a delay or a bandwidth."""
    return any(set(link.between) == {child, parent} for link in scenario.links)


def is_cut(scenario: Scenario, child: str, parent: str) -> bool:
    """Whether a fault of the scenario may cut the link."""
    return any(
        fault.kind.cuts_links and fault.kind.target.is_near_link(fault.target, (child, parent))
        for fault in scenario.faults
    )


def qualities(scenario: Scenario, child: str, parent: str) -> tuple[Quality, Quality]:
    """The qualities of the directions up and down, in wall time."""
    up, down = (_quality(scenario, *ends) for ends in ((child, parent), (parent, child)))
    return up, down


def _quality(scenario: Scenario, *ends: str) -> Quality:
    link = next((link for link in scenario.links if set(link.between) == set(ends)), None)
    if link is None:
        return Quality()
    speedup, delay = scenario.clock.speedup, None
    if link.delay is not None:
        law, draws = link.delay, stream(scenario.seed, "delay", *ends)
        delay = sampler(law.law, round(law.mean / speedup), draws, law.cv if law.cv is not None else 1.0)
    return Quality(delay, None if link.bandwidth is None else link.bandwidth * speedup)


def depth_first(scenario: Scenario) -> list[str]:
    """The brokers in depth-first order, so that linked brokers are close to each other."""
    children: dict[str | None, list[str]] = {}
    parents = dict(scenario.tree.links)
    for name in scenario.tree.names:
        children.setdefault(parents.get(name), []).append(name)
    ordered, left = list[str](), list(reversed(children[None]))
    while left:
        ordered.append(left.pop())
        left += reversed(children.get(ordered[-1], []))
    return ordered


class Watched(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def state(self) -> BrokerState | None: ...
    @property
    def changed_s(self) -> float: ...


def is_linked(one: Watched, other: Watched, changed_s: float) -> bool:
    """Whether one broker has reported the link as connected since the last change to either broker or to the link."""
    return one.state is not None and one.state.is_linked(other.name, max(one.changed_s, other.changed_s, changed_s))


class HasStderr(Protocol):
    @property
    def stderr(self) -> StderrLines: ...


def stderr_by_source(hosts: Mapping[str, HasStderr], clients: Iterable[ClientProcess]) -> dict[str, StderrLines]:
    """The stderr of all brokers and clients, by the name of the process."""
    brokers = {f"broker {name}": host.stderr for name, host in hosts.items()}
    return brokers | {process.name: process.stderr for process in clients}


async def look_until(hosts: Mapping[str, Watchable], holds: Callable[[], bool], what: str) -> None:
    """Queries all brokers repeatedly until the condition holds."""
    now = asyncio.get_running_loop().time
    end_s = now() + READY_S_MAX
    while not holds():
        for host in hosts.values():
            host.check()
        if now() > end_s:
            raise GroundError(f"the brokers were not {what} within {READY_S_MAX:.0f} s")
        await all_of(host.look() for host in hosts.values())
        await asyncio.sleep(LOOK_S)


async def cancel_all(tasks: Iterable["asyncio.Task[None]"]) -> None:
    """Cancels the tasks and ignores their results."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def all_of(work: Iterable[Awaitable[None]]) -> None:
    """Awaits all; the first error cancels the others."""
    try:
        async with asyncio.TaskGroup() as group:
            for awaitable in work:
                group.create_task(_of(awaitable))
    except* (GroundError, OSError) as errors:
        raise errors.exceptions[0] from None


async def _of(work: Awaitable[None]) -> None:
    await work

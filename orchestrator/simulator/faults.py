"""The faults of a scenario on the virtual ground: when they strike, what they do, how they heal."""

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Protocol

from broker.config import Demand
from broker.laws import sampler
from clients.workload import stream
from orchestrator.scenario.format import Fault, Peer
from orchestrator.scenario.model import Scenario
from orchestrator.simulator.loop import Loop
from orchestrator.simulator.network import Host, Uplink


class Disconnectable(Protocol):
    """A peer that can be kept from being connected."""

    @property
    def peer(self) -> Peer: ...
    def keep_off(self, is_kept_off: bool) -> None: ...


class Faults:
    """The scenario's faults, each for its time."""

    def __init__(
        self,
        scenario: Scenario,
        loop: Loop,
        end_ns: int,
        hosts: Mapping[str, Host],
        links: Mapping[str, Uplink],
        peers: Sequence[Disconnectable],
    ) -> None:
        self._scenario = scenario
        self._loop = loop
        self._end_ns = end_ns
        self._hosts = list(hosts.values())
        self._links = list(links.values())
        self._peers = peers
        self._heals: dict[int, Callable[[], None]] = {}  # of those that are not healed yet
        self._number = count(1)

    def begin(self) -> None:
        for position, fault in enumerate(self._scenario.faults):
            draws = stream(self._scenario.seed, "fault", position)
            lasts = sampler(fault.for_.law, fault.for_.mean, draws, fault.for_.cv or 1.0)
            if fault.at is not None:
                self._loop.at(fault.at, self._strike, (fault, draws, lasts, None))
            elif fault.every is not None:
                every = sampler(fault.every.law, fault.every.mean, draws, fault.every.cv or 1.0)
                self._loop.at(every(), self._strike, (fault, draws, lasts, every))

    def _strike(self, strike: tuple[Fault, Any, Demand, Demand | None]) -> None:
        fault, draws, lasts, every = strike
        loop = self._loop
        if loop.now_ns >= self._end_ns:
            return
        if every is not None:
            loop.at(loop.now_ns + every(), self._strike, strike)
        heal = getattr(self, f"_{fault.verb}")(fault, draws)
        if heal is not None:
            number = next(self._number)
            self._heals[number] = heal
            loop.at(loop.now_ns + lasts(), self._heal, number)

    def _heal(self, number: int) -> None:
        heal = self._heals.pop(number, None)
        if heal is not None:
            heal()

    def heal(self) -> None:
        """All at once."""
        for number in list(self._heals):
            self._heal(number)

    def _crash(self, fault: Fault, draws: Any) -> Callable[[], None] | None:
        hosts = [it for it in self._hosts if it.is_up and fault.crash in (it.name, "any")]
        if not hosts:
            return None
        host = draws.choice(hosts)
        host.crash()
        return host.start  # type: ignore[no-any-return]

    def _pause(self, fault: Fault, draws: Any) -> Callable[[], None] | None:
        hosts = [it for it in self._hosts if not it.is_paused and fault.pause in (it.name, "any")]
        if not hosts:
            return None
        host = draws.choice(hosts)
        host.pause(True)
        return lambda: host.pause(False)

    def _cut(self, fault: Fault, draws: Any) -> Callable[[], None] | None:
        links = [it for it in self._links if fault.cut == "any" or _is_between(it, fault.cut)]
        link = draws.choice(links)
        ways: tuple[str, ...] = ("up", "down")
        if fault.way is not None:
            ways = ("up",) if fault.way == f"{link.child.name}>{link.parent.name}" else ("down",)
        link.cut(*ways)
        return lambda: link.repair(*ways)

    def _disconnect(self, fault: Fault, draws: Any) -> Callable[[], None] | None:
        peers = [it for it in self._peers if fault.disconnect in ("any", it.peer.id, it.peer.id.rsplit(".", 1)[0])]
        if fault.disconnect == "any" and peers:
            peers = [draws.choice(peers)]
        for peer in peers:
            peer.keep_off(True)

        def heal() -> None:
            for peer in peers:
                peer.keep_off(False)

        return heal


def _is_between(link: Uplink, ends: object) -> bool:
    return isinstance(ends, tuple) and set(ends) == {link.child.name, link.parent.name}

"""The faults of a scenario on the virtual ground: when they strike, what they do, how they heal.

Each is noted in the log when it strikes and when it heals, and each time a probe that looks at its effect confirms it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from broker.config import Demand
from broker.laws import sampler
from broker.log_record import Kind, Log
from clients.workload import stream
from orchestrator.scenario.format import Fault, Peer
from orchestrator.scenario.model import Scenario
from orchestrator.simulator.clients import Client
from orchestrator.simulator.loop import Loop
from orchestrator.simulator.network import Host, Uplink

PROBE_NS = 1_000_000  # between two looks whether a fault has taken effect, or is over
PROBES_MAX = 120_000  # two minutes


class Disconnectable(Protocol):
    """A peer that can be kept from being connected."""

    @property
    def peer(self) -> Peer: ...
    @property
    def client(self) -> Client: ...
    def keep_off(self, is_kept_off: bool) -> None: ...


class Network(Protocol):
    """What faults strike."""

    scenario: Scenario
    loop: Loop
    end_ns: int
    hosts: dict[str, Host]
    links: dict[str, Uplink]
    client_log: Log | None

    def clients_at(self, host: Host) -> list[Client]: ...


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault that has struck: how it heals, and what a probe would see."""

    what: str
    heal: Callable[[], None]
    has_effect: Callable[[], bool]
    is_over: Callable[[], bool]


class Faults:
    """The scenario's faults, each for its time."""

    def __init__(self, network: Network, peers: Sequence[Disconnectable]) -> None:
        self._network = network
        self._scenario = network.scenario
        self._loop = network.loop
        self._end_ns = network.end_ns
        self._hosts = list(network.hosts.values())
        self._links = list(network.links.values())
        self._peers = peers
        self._open: dict[int, Strike] = {}  # those that are not healed yet
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
        struck: Strike | None = getattr(self, f"_{fault.verb}")(fault, draws)
        if struck is not None:
            number = next(self._number)
            self._open[number] = struck
            self._note(Kind.FAULT, number, struck)
            self._probe((Kind.FAULT_CONFIRMED, number, struck, PROBES_MAX))
            loop.at(loop.now_ns + lasts(), self._heal, number)

    def _heal(self, number: int) -> None:
        struck = self._open.pop(number, None)
        if struck is not None:
            struck.heal()
            self._note(Kind.HEALED, number, struck)
            self._probe((Kind.HEAL_CONFIRMED, number, struck, PROBES_MAX))

    def heal(self) -> None:
        """All at once."""
        for number in list(self._open):
            self._heal(number)

    def _probe(self, look: tuple[Kind, int, Strike, int]) -> None:
        """Again and again, until what was to be seen is seen."""
        kind, number, struck, left = look
        if kind == Kind.FAULT_CONFIRMED:
            if number not in self._open:
                return  # it healed before it was seen
            is_seen = struck.has_effect()
        else:
            is_seen = struck.is_over()
        if is_seen:
            self._note(kind, number, struck)
        elif left > 0:
            self._loop.at(self._loop.now_ns + PROBE_NS, self._probe, (kind, number, struck, left - 1))

    def _note(self, kind: Kind, number: int, struck: Strike) -> None:
        log = self._network.client_log
        if log is not None:
            log.add(self._loop.now_ns, kind, log.number(struck.what), sequence=number)

    def _is_well(self, host: Host) -> bool:
        """It serves, its links are up, and its clients have what they want."""
        links = [it for it in self._links if host in (it.child, it.parent)]
        return (
            bool(host.serving)
            and all(it.is_connected for it in links)
            and all(client.is_settled for client in self._network.clients_at(host))
        )

    def _crash(self, fault: Fault, draws: Any) -> Strike | None:
        hosts = [it for it in self._hosts if it.is_up and fault.crash in (it.name, "any")]
        if not hosts:
            return None
        host: Host = draws.choice(hosts)
        host.crash()
        return Strike(f"crash {host.name}", host.start, lambda: not host.is_up, lambda: self._is_well(host))

    def _pause(self, fault: Fault, draws: Any) -> Strike | None:
        hosts = [it for it in self._hosts if not it.is_paused and fault.pause in (it.name, "any")]
        if not hosts:
            return None
        host: Host = draws.choice(hosts)
        host.pause(True)
        return Strike(
            f"pause {host.name}", lambda: host.pause(False), lambda: not host.serving, lambda: self._is_well(host)
        )

    def _cut(self, fault: Fault, draws: Any) -> Strike | None:
        links = [it for it in self._links if fault.cut == "any" or _is_between(it, fault.cut)]
        link: Uplink = draws.choice(links)
        ways: tuple[str, ...] = ("up", "down")
        if fault.way is not None:
            ways = ("up",) if fault.way == f"{link.child.name}>{link.parent.name}" else ("down",)
        link.cut(*ways)
        name = fault.way or f"{link.child.name}-{link.parent.name}"
        return Strike(
            f"cut {name}",
            lambda: link.repair(*ways),
            lambda: all(map(link.is_held, ways)),
            lambda: link.is_connected and not any(map(link.is_held, ways)),
        )

    def _disconnect(self, fault: Fault, draws: Any) -> Strike | None:
        peers = [it for it in self._peers if fault.disconnect in ("any", it.peer.id, it.peer.id.rsplit(".", 1)[0])]
        if fault.disconnect == "any" and peers:
            peers = [draws.choice(peers)]
        if not peers:
            return None
        for peer in peers:
            peer.keep_off(True)

        def heal() -> None:
            for peer in peers:
                peer.keep_off(False)

        what = f"disconnect {peers[0].peer.id if fault.disconnect == 'any' else fault.disconnect}"
        return Strike(
            what,
            heal,
            lambda: not any(peer.client.is_connected for peer in peers),
            lambda: all(peer.client.is_settled for peer in peers),
        )


def _is_between(link: Uplink, ends: object) -> bool:
    return isinstance(ends, tuple) and set(ends) == {link.child.name, link.parent.name}

"""The faults of a scenario, on any ground: when they strike, what they do, how they heal.

Each is noted in the log when it strikes and when it heals, and each time a probe that looks at its effect confirms it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, Protocol

from brokerbed.broker.config import Demand
from brokerbed.broker.laws import sampler
from brokerbed.broker.values import NS_PER_S
from brokerbed.clients.session import Clock
from brokerbed.clients.workload import stream
from brokerbed.log.record import Kind, Log
from brokerbed.scenario.format import Fault, Peer
from brokerbed.scenario.model import Scenario

PROBE_NS = 1_000_000  # of model time between two looks whether a fault has taken effect, or is over
PROBE_NS_MAX, PROBES_MIN = 120 * NS_PER_S, 6000  # how long a probe looks, and how often at least


class Host(Protocol):
    """What runs one broker."""

    @property
    def name(self) -> str: ...
    @property
    def is_up(self) -> bool: ...
    @property
    def is_dead(self) -> bool:
        """Nothing of it is left that could run, and nothing is about to start."""

    @property
    def is_stopped(self) -> bool:
        """It is dead, or it exists and is suspended."""

    @property
    def serving(self) -> int:
        """0 while it answers nobody."""

    def crash(self) -> None: ...
    def start(self) -> None: ...
    def pause(self, is_paused: bool, /) -> None: ...


class Link(Protocol):
    """Between a broker and its parent."""

    @property
    def child(self) -> Host: ...
    @property
    def parent(self) -> Host: ...
    @property
    def is_connected(self) -> bool: ...
    def cut(self, *ways: str) -> None: ...
    def repair(self, *ways: str) -> None: ...
    def is_held(self, way: str, /) -> bool: ...


class Session(Protocol):
    """What a client knows of its connection."""

    @property
    def is_connected(self) -> bool: ...
    @property
    def is_settled(self) -> bool: ...


class Disconnectable(Protocol):
    """A peer that can be kept from being connected."""

    @property
    def peer(self) -> Peer: ...
    @property
    def client(self) -> Session: ...
    def keep_off(self, is_kept_off: bool) -> None: ...


class Network(Protocol):
    """What faults strike."""

    @property
    def scenario(self) -> Scenario: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def end_ns(self) -> int: ...
    @property
    def hosts(self) -> Mapping[str, Host]: ...
    @property
    def links(self) -> Mapping[str, Link]: ...
    @property
    def client_log(self) -> Log | None: ...
    def clients_at(self, broker: str, /) -> Iterable[Session]: ...


class Holds:
    """Counts the faults that hold each target (of one kind), so that the last fault to end releases the target."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], int] = {}

    def has(self, *target: str) -> bool:
        return target in self._counts

    def take(self, *target: str) -> bool:
        """Whether this is the first fault that holds the target."""
        count_before = self._counts.get(target, 0)
        self._counts[target] = count_before + 1
        return count_before == 0

    def release(self, *target: str) -> bool:
        """Whether no fault holds the target any more."""
        self._counts[target] -= 1
        if self._counts[target] == 0:
            del self._counts[target]
        return target not in self._counts


@dataclass(frozen=True, slots=True)
class Strike:
    """One fault that has struck: how it heals, and what a probe would see."""

    what: str
    brokers: frozenset[str]  # that it has to do with
    heal: Callable[[], None]
    has_effect: Callable[[], bool]
    is_over: Callable[[], bool]


class Faults:
    """The scenario's faults, each for its time."""

    def __init__(self, network: Network, peers: Sequence[Disconnectable], probe_ns: int = PROBE_NS) -> None:
        self._network = network
        self._probe_ns = probe_ns
        self._scenario = network.scenario
        self._clock = network.clock
        self._end_ns = network.end_ns
        self._hosts = list(network.hosts.values())
        self._links = list(network.links.values())
        self._peers = peers
        self._open: dict[int, Strike] = {}  # those that are not healed yet
        self._lasts_ns: dict[int, int] = {}  # of those whose effect was not seen yet
        self._holds = Holds()
        self._number = count(1)
        self._looks: dict[tuple[Kind, int], Strike] = {}  # probes under way
        self._history: dict[int, dict[str, Any]] = {}  # what is noted, by the fault's number

    def begin(self) -> None:
        for position, fault in enumerate(self._scenario.faults):
            draws = stream(self._scenario.seed, "fault", position)
            lasts = sampler(fault.for_.law, fault.for_.mean, draws, fault.for_.cv or 1.0)
            if fault.at is not None:
                self._clock.at(fault.at, self._strike, (fault, draws, lasts, None))
            elif fault.every is not None:
                every = sampler(fault.every.law, fault.every.mean, draws, fault.every.cv or 1.0)
                self._clock.at(every(), self._strike, (fault, draws, lasts, every))

    def _strike(self, strike: tuple[Fault, Any, Demand, Demand | None]) -> None:
        fault, draws, lasts, every = strike
        clock = self._clock
        if clock.now_ns >= self._end_ns:
            return
        if every is not None:
            clock.at(clock.now_ns + every(), self._strike, strike)
        self._begin(fault, draws, lasts)

    def _begin(self, fault: Fault, draws: Any, lasts: Demand | None = None) -> int | None:
        """Its number; None if there is nothing that it could strike. It lasts from when its effect is seen."""
        struck_ns = self._clock.now_ns
        struck: Strike | None = getattr(self, f"_{fault.verb}")(fault, draws)
        if struck is None:
            return None
        number = next(self._number)
        self._open[number] = struck
        if lasts is not None:
            self._lasts_ns[number] = lasts()
        self._note(Kind.FAULT, number, struck, struck_ns)
        self._look(Kind.FAULT_CONFIRMED, number, struck)
        return number

    def strike(self, verb: str, target: object) -> int | None:
        """On somebody's behalf, until he has it healed; None if there is nothing to strike now.

        `target` is a broker's name, a peer's id, or for a cut the two ends of a link; ValueError if there is no such.
        """
        brokers, peers = {it.name for it in self._hosts}, {it.peer.id.rsplit(".", 1)[0] for it in self._peers}
        known = peers | {it.peer.id for it in self._peers} if verb == "disconnect" else brokers
        wanted = tuple(target) if isinstance(target, list) else (target,)
        for name in wanted:
            if name not in known:
                raise ValueError(f"there is no {name} to {verb}")
        if verb == "cut" and not any(_is_between(link, wanted) for link in self._links):
            raise ValueError(f"there is no link between {' and '.join(map(str, wanted))}")
        name = list(wanted) if verb == "cut" else str(wanted[0]).partition(".")[0]  # copies have no names of their own
        fault = Fault.model_validate({"at": "0s", verb: name, "for": "1s"})
        if verb == "disconnect":
            fault = fault.model_copy(update={"disconnect": wanted[0]})
        return self._begin(fault, stream(self._scenario.seed, "live"))

    def heal_one(self, number: int) -> bool:
        """Whether there was something to heal."""
        is_open = number in self._open
        self._heal(number)
        return is_open

    def history_as_json(self) -> list[dict[str, Any]]:
        """Every fault so far, with the seconds of model time of what happened to it."""
        return [dict(it) for it in self._history.values()]

    def _heal(self, number: int) -> None:
        struck = self._open.pop(number, None)
        if struck is not None:
            struck.heal()
            self._note(Kind.HEALED, number, struck, self._clock.now_ns)
            self._look(Kind.HEAL_CONFIRMED, number, struck)

    def heal(self) -> None:
        """All at once."""
        for number in list(self._open):
            self._heal(number)

    @property
    def is_quiet(self) -> bool:
        """Nothing is struck, and what was is known to be healed."""
        return not self._open and not self._looks

    @property
    def is_probing(self) -> bool:
        """Something is to be seen that was not seen yet."""
        return bool(self._looks)

    @property
    def concerned(self) -> set[str]:
        """Brokers that probes are interested in."""
        return {name for struck in self._looks.values() for name in struck.brokers}

    def _look(self, kind: Kind, number: int, struck: Strike) -> None:
        self._looks[kind, number] = struck
        self._probe((kind, number, struck, max(PROBE_NS_MAX // self._probe_ns, PROBES_MIN)))

    def _probe(self, look: tuple[Kind, int, Strike, int]) -> None:
        """Again and again, until what was to be seen is seen."""
        kind, number, struck, left = look
        if kind == Kind.FAULT_CONFIRMED:
            if number not in self._open:
                del self._looks[kind, number]
                return  # it healed before it was seen
            is_seen = struck.has_effect()
        else:
            is_seen = struck.is_over()
        if is_seen:
            self._note(kind, number, struck, self._clock.now_ns)
        elif kind == Kind.HEAL_CONFIRMED and self._open:
            left += 1  # another fault may be in the way for as long as it lasts
        if is_seen or left == 0:
            del self._looks[kind, number]
            lasts_ns = self._lasts_ns.pop(number, None)
            if lasts_ns is not None:
                self._clock.at(self._clock.now_ns + lasts_ns, self._heal, number)
        else:
            self._clock.at(self._clock.now_ns + self._probe_ns, self._probe, (kind, number, struck, left - 1))

    def _note(self, kind: Kind, number: int, struck: Strike, time_ns: int) -> None:
        noted = self._history.setdefault(number, {"number": number, "what": struck.what})
        noted[kind.name.lower()] = time_ns / NS_PER_S
        log = self._network.client_log
        if log is not None:
            log.add(time_ns, kind, log.number(struck.what), sequence=number)

    def _is_well(self, host: Host) -> bool:
        """It serves, its links are up, and its clients have what they want."""
        links = [it for it in self._links if host in (it.child, it.parent)]
        return (
            bool(host.serving)
            and all(it.is_connected for it in links)
            and all(client.is_settled for client in self._network.clients_at(host.name))
        )

    def _around(self, host: Host) -> frozenset[str]:
        """It and its neighbours."""
        links = [it for it in self._links if host.name in (it.child.name, it.parent.name)]
        return frozenset({host.name, *(it.child.name for it in links), *(it.parent.name for it in links)})

    def _crash(self, fault: Fault, draws: Any) -> Strike | None:
        host: Host = draws.choice([it for it in self._hosts if fault.crash in (it.name, "any")])
        if self._holds.take("crash", host.name):
            host.crash()

        def heal() -> None:
            if self._holds.release("crash", host.name):
                self._start_if_free(host)

        return Strike(f"crash {host.name}", self._around(host), heal, lambda: host.is_dead, lambda: self._is_well(host))

    def _pause(self, fault: Fault, draws: Any) -> Strike | None:
        host: Host = draws.choice([it for it in self._hosts if fault.pause in (it.name, "any")])
        if self._holds.take("pause", host.name):
            host.pause(True)

        def heal() -> None:
            if self._holds.release("pause", host.name):
                host.pause(False)
                self._start_if_free(host)

        return Strike(
            f"pause {host.name}", self._around(host), heal, lambda: host.is_stopped, lambda: self._is_well(host)
        )

    def _start_if_free(self, host: Host) -> None:
        """A crashed broker is started when no crash and no pause holds it any more."""
        if not host.is_up and not self._holds.has("crash", host.name) and not self._holds.has("pause", host.name):
            host.start()

    def _cut(self, fault: Fault, draws: Any) -> Strike | None:
        link: Link = draws.choice([it for it in self._links if fault.cut == "any" or _is_between(it, fault.cut)])
        ways: tuple[str, ...] = ("up", "down")
        if fault.way is not None:
            ways = ("up",) if fault.way == f"{link.child.name}>{link.parent.name}" else ("down",)
        if first := [way for way in ways if self._holds.take("cut", link.child.name, way)]:
            link.cut(*first)

        def heal() -> None:
            if free := [way for way in ways if self._holds.release("cut", link.child.name, way)]:
                link.repair(*free)

        return Strike(
            f"cut {fault.way or f'{link.child.name}-{link.parent.name}'}",
            frozenset({link.child.name}),
            heal,
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
            if self._holds.take("disconnect", peer.peer.id):
                peer.keep_off(True)

        def heal() -> None:
            for peer in peers:
                if self._holds.release("disconnect", peer.peer.id):
                    peer.keep_off(False)

        what = f"disconnect {peers[0].peer.id if fault.disconnect == 'any' else fault.disconnect}"
        return Strike(
            what,
            frozenset(),
            heal,
            lambda: not any(peer.client.is_connected for peer in peers),
            lambda: all(peer.client.is_settled and not self._is_kept_off(peer) for peer in peers),
        )

    def _is_kept_off(self, peer: Disconnectable) -> bool:
        return self._holds.has("disconnect", peer.peer.id)


def _is_between(link: Link, ends: object) -> bool:
    return isinstance(ends, tuple) and set(ends) == {link.child.name, link.parent.name}

"""The schedule of a scenario's faults on any ground. What faults do is in brokerbed/scenario/faults.

The log notes when a fault strikes and when it heals, and each time also when a probe has confirmed the effect.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import count
from random import Random
from typing import Any, Protocol

from brokerbed.broker.config import Demand
from brokerbed.broker.laws import sampler
from brokerbed.broker.values import NS_PER_S
from brokerbed.clients.session import Clock
from brokerbed.clients.workload import stream
from brokerbed.log.record import Kind, Log
from brokerbed.scenario.faults.contract import FaultKind, Strike
from brokerbed.scenario.faults.network import ConnectedPeer, Host, Link, Session, StruckNetwork
from brokerbed.scenario.faults.registry import FAULTS
from brokerbed.scenario.format import Fault
from brokerbed.scenario.model import Scenario

PROBE_NS = 1_000_000  # model time between two probes of whether a fault has taken effect, or is over
PROBE_NS_MAX, PROBES_MIN = 120 * NS_PER_S, 6000  # how long we probe, and how often at least


class Network(Protocol):
    """The network that the faults of a scenario strike, as a ground provides it."""

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


SKIPPED_SHOWN_MAX = 5  # faults that one warning names


def skipped_warnings(skipped: Sequence[str]) -> list[str]:
    """A sentence about faults that had nothing to strike, if there were any."""
    if not skipped:
        return []
    more = f" and {len(skipped) - SKIPPED_SHOWN_MAX} more" if len(skipped) > SKIPPED_SHOWN_MAX else ""
    return [f"nothing was there to strike at the time of {', '.join(skipped[:SKIPPED_SHOWN_MAX])}{more}"]


class Faults:
    """Strikes and heals the faults of a scenario at their times."""

    def __init__(self, network: Network, peers: Sequence[ConnectedPeer], probe_ns: int = PROBE_NS) -> None:
        self._network = network
        self._probe_ns = probe_ns
        self._scenario = network.scenario
        self._clock = network.clock
        self._struck = StruckNetwork(network.hosts.values(), network.links, peers, network.clients_at)
        self._open: dict[int, Strike] = {}  # faults that are not healed yet
        self._lasts_ns: dict[int, int] = {}  # the durations of faults whose effect was not confirmed yet
        self._number = count(1)
        self._probes: dict[tuple[Kind, int], Strike] = {}  # confirmations that we still probe for
        self.skipped: list[str] = []  # faults that had nothing to strike, such as the cut of a link that has moved
        self._history: dict[int, dict[str, Any]] = {}  # the times of its events, by the number of the fault

    def begin(self) -> None:
        for position, fault in enumerate(self._scenario.faults):
            draws = stream(self._scenario.seed, "fault", position)
            lasts = sampler(fault.for_.law, fault.for_.mean, draws, fault.for_.cv or 1.0)
            if fault.at is not None:
                self._clock.at(fault.at, self._strike, (fault, draws, lasts, None))
            elif fault.every is not None:
                every = sampler(fault.every.law, fault.every.mean, draws, fault.every.cv or 1.0)
                self._clock.at(every(), self._strike, (fault, draws, lasts, every))

    def _strike(self, scheduled: tuple[Fault, Random, Demand, Demand | None]) -> None:
        fault, draws, lasts, every = scheduled
        clock = self._clock
        if clock.now_ns >= self._network.end_ns:
            return
        if every is not None:
            clock.at(clock.now_ns + every(), self._strike, scheduled)
        struck_ns = clock.now_ns
        if self._begin(fault.kind, fault.target, fault.options, draws, lasts) is None:
            target = "-".join(fault.target) if isinstance(fault.target, tuple) else fault.target
            self.skipped.append(f"{fault.kind.name} {target} at {struck_ns / NS_PER_S:g} s")

    def _begin(
        self, kind: FaultKind, target: Any, options: Mapping[str, Any], draws: Random, lasts: Demand | None = None
    ) -> int | None:
        """The number of the fault; None if there is nothing to strike. It lasts from when its effect is seen."""
        struck_ns = self._clock.now_ns
        chosen = kind.target.choose(target, self._struck, draws)
        strike = None if chosen is None else kind.strike(self._struck, chosen, **options)
        if strike is None:
            return None
        number = next(self._number)
        self._open[number] = strike
        if lasts is not None:
            self._lasts_ns[number] = lasts()
        self._note(Kind.FAULT, number, strike, struck_ns)
        self._begin_probes(Kind.FAULT_CONFIRMED, number, strike)
        return number

    def strike(self, verb: str, target: object) -> int | None:
        """Strikes now, until `heal_one`, whatever the scenario says; None if there is nothing to strike.

        `target` is a broker's name, a peer's id, or a list of the two ends of a link. ValueError if there is no such
        broker, peer or link.
        """
        kind = FAULTS[verb]
        value = kind.target.parse_json(target)
        kind.target.check_present(verb, value, self._struck)
        return self._begin(kind, value, {}, stream(self._scenario.seed, "live"))

    def heal_one(self, number: int) -> bool:
        """Heals this fault. Returns False if there is no such fault, or if it is healed already."""
        is_open = number in self._open
        self._heal(number)
        return is_open

    def history_as_json(self) -> list[dict[str, Any]]:
        """Every fault so far, with the model times in seconds at which it struck, healed and was confirmed."""
        return [dict(events) for events in self._history.values()]

    def _heal(self, number: int) -> None:
        strike = self._open.pop(number, None)
        if strike is not None:
            strike.heal()
            self._note(Kind.HEALED, number, strike, self._clock.now_ns)
            self._begin_probes(Kind.HEAL_CONFIRMED, number, strike)

    def heal(self) -> None:
        """Heals all faults."""
        for number in list(self._open):
            self._heal(number)

    @property
    def is_quiet(self) -> bool:
        """Whether no fault lasts, and the end of every earlier fault is confirmed."""
        return not self._open and not self._probes

    @property
    def is_probing(self) -> bool:
        """Whether some effect, or the end of one, is not confirmed yet."""
        return bool(self._probes)

    @property
    def probed_brokers(self) -> set[str]:
        """The brokers whose state the probes need."""
        return {name for strike in self._probes.values() for name in strike.brokers}

    def _begin_probes(self, kind: Kind, number: int, strike: Strike) -> None:
        self._probes[kind, number] = strike
        self._probe((kind, number, strike, max(PROBE_NS_MAX // self._probe_ns, PROBES_MIN)))

    def _probe(self, probe: tuple[Kind, int, Strike, int]) -> None:
        """Probes repeatedly until the effect, or its end, is observed."""
        kind, number, strike, probes_left = probe
        if kind == Kind.FAULT_CONFIRMED:
            if number not in self._open:
                del self._probes[kind, number]
                return  # the fault healed before its effect was confirmed
            is_observed = strike.has_effect()
        else:
            is_observed = strike.is_over()
        if is_observed:
            self._note(kind, number, strike, self._clock.now_ns)
        elif kind == Kind.HEAL_CONFIRMED and self._open:
            probes_left += 1  # another fault may delay the recovery as long as it lasts
        if is_observed or probes_left == 0:
            del self._probes[kind, number]
            lasts_ns = self._lasts_ns.pop(number, None)
            if lasts_ns is not None:
                self._clock.at(self._clock.now_ns + lasts_ns, self._heal, number)
        else:
            self._clock.at(self._clock.now_ns + self._probe_ns, self._probe, (kind, number, strike, probes_left - 1))

    def _note(self, kind: Kind, number: int, strike: Strike, time_ns: int) -> None:
        events = self._history.setdefault(number, {"number": number, "what": strike.what})
        events[kind.name.lower()] = time_ns / NS_PER_S
        log = self._network.client_log
        if log is not None:
            log.add(time_ns, kind, log.number(strike.what), sequence=number)

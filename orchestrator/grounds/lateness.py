"""How late the testbed itself is, and what a run then warns of, as its figures may be wrong."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any

from brokerbed.broker.values import NS_PER_S
from brokerbed.scenario import Scenario

LATE_PART, LATE_MEAN_S = 0.01, 0.02  # more than so many things done late, or so late on average, is too much
LAG_MEAN_S = 0.02  # of an event loop, or of a relay
CONNECTING_SHARE_MAX = 0.05  # of a mean ON period, until half of the peers that come on are accepted by their broker
LOOP_POLL_S = 0.02  # how often the orchestrator's own event loop is looked at
DEMAND_S_MIN = 0.0005  # of wall time, on average: shorter services come out too long (bench/short_services.py)
ADVICE = "clock.speedup is too high for this machine, or the rates are"


class Lateness:
    """By how much things were done later than they were due."""

    __slots__ = ("_max_ns", "_sum_ns", "count")

    def __init__(self) -> None:
        self.count = 0
        self._sum_ns = 0
        self._max_ns = 0

    def add(self, late_ns: int) -> None:
        self.count += 1
        self._sum_ns += late_ns
        if late_ns > self._max_ns:
            self._max_ns = late_ns

    def merge(self, other: "Lateness") -> None:
        self.count += other.count
        self._sum_ns += other._sum_ns
        self._max_ns = max(self._max_ns, other._max_ns)

    @property
    def mean_s(self) -> float:
        return self._sum_ns / NS_PER_S / max(1, self.count)

    def as_json(self) -> dict[str, float]:
        return {"count": self.count, "mean_s": self.mean_s, "max_s": self._max_ns / NS_PER_S}


async def watch_loop(lateness: Lateness) -> None:
    """Adds how late this event loop is, until it is cancelled."""
    while True:
        due_ns = time.monotonic_ns() + round(LOOP_POLL_S * NS_PER_S)
        await asyncio.sleep(LOOP_POLL_S)
        lateness.add(max(0, time.monotonic_ns() - due_ns))  # timers have whole milliseconds: it may be early


def short_demands(scenario: Scenario) -> Iterable[str]:
    """A warning if services of this scenario are too short for its speed-up."""
    laws = {"broker_in": scenario.service.broker_in, "link": scenario.service.link}
    laws |= {f"publisher {it.id}": it.service for it in scenario.publishers}
    laws |= {f"session of {it.id}": it.session_service for it in scenario.subscribers}
    laws |= {f"subscriber {it.id}": it.service for it in scenario.subscribers}
    speedup = scenario.clock.speedup
    wall_s = {name: it.mean / NS_PER_S / speedup for name, it in laws.items() if it is not None}
    short = {name: it for name, it in wall_s.items() if it < DEMAND_S_MIN}
    if short:
        name = min(short, key=lambda it: short[it])
        yield (
            f"{len(short)} of {len(wall_s)} services are too short for clock.speedup {speedup:g} ({name} takes"
            f" {short[name] * 1000:.2g} ms of wall time on average, and {DEMAND_S_MIN * 1000:g} ms is the least that"
            " this ground carries), so delays there are longer than predicted: lower clock.speedup, or lengthen them"
        )


def warnings_of(
    clients: list[dict[str, Any]],
    held: int,
    lags: Mapping[str, float],
    orchestrator: Lateness,
    relays: Lateness,
    is_drained: bool = True,
) -> Iterable[str]:
    """`clients`: what their processes said; `held`: publications that brokers had not taken; `lags`: of brokers."""
    done = max(1, sum(it["done"] for it in clients))
    part = sum(it["done_late"] for it in clients) / done
    mean_s = sum(it["mean_s"] * it["done"] for it in clients) / done
    if part > LATE_PART or mean_s > LATE_MEAN_S:
        yield f"the clients could not keep up: what they did was {mean_s * 1000:.0f} ms late on average ({ADVICE})"
    connecting = max((it["connecting_share"] for it in clients), default=0.0)
    if connecting > CONNECTING_SHARE_MAX:
        yield (
            f"peers that come and go were connected only after {connecting:.0%} of a mean ON period, so their messages"
            f" took longer than predicted ({ADVICE})"
        )
    if held > LATE_PART * done:
        yield (
            f"the brokers could not keep up: {held} publications of the clients waited for them when the measured time"
            f" was over ({ADVICE})"
        )
    slow = {name: lag for name, lag in lags.items() if lag > LAG_MEAN_S}
    if slow:
        worst = max(slow, key=lambda name: slow[name])
        yield (
            f"{len(slow)} of {len(lags)} brokers could not keep model time ({worst} was late by"
            f" {slow[worst] * 1000:.0f} ms on average): lower clock.speedup, or the rates"
        )
    for who, lateness in (("orchestrator", orchestrator), ("relays of links", relays)):
        if lateness.mean_s > LAG_MEAN_S:
            yield (
                f"the {who} could not keep up: {lateness.mean_s * 1000:.0f} ms late on average, so faults and links"
                f" that go through relays were, too ({ADVICE})"
            )
    if not is_drained:
        yield "not everything had arrived when the run ended, some time after the measured time"

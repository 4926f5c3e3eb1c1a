"""Measures how late the testbed itself is, and warns if the results of a run may be wrong because of that."""

import asyncio
import time
from collections.abc import Iterable, Mapping
from typing import Any

from brokerbed.broker.values import NS_PER_S
from brokerbed.scenario import Scenario

LATE_PART, LATE_MEAN_S = 0.01, 0.02  # if more actions are late, or they are later on average, the run warns
LAG_MEAN_S = 0.02  # mean lateness of an event loop or a relay that is tolerated
CONNECTING_SHARE_MAX = 0.05  # fraction of a mean ON period within which half of the peers must be accepted
LOOP_POLL_S = 0.02  # how often the event loop of the orchestrator is measured
DEMAND_S_MIN = 0.0005  # mean wall time; shorter services take too long (bench/short_services.py)
ADVICE = "clock.speedup is too high for this machine, or the rates are"


class Lateness:
    """How much later than due things were done: count, mean and maximum."""

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
    """Measures how late this event loop is, until the task is cancelled."""
    while True:
        due_ns = time.monotonic_ns() + round(LOOP_POLL_S * NS_PER_S)
        await asyncio.sleep(LOOP_POLL_S)
        lateness.add(max(0, time.monotonic_ns() - due_ns))  # timers have a resolution of 1 ms, so it may be early


def short_demands(scenario: Scenario) -> Iterable[str]:
    """Yields a warning if services of this scenario are too short for its speed-up."""
    laws = {"broker_in": scenario.service.broker_in, "link": scenario.service.link}
    laws |= {f"publisher {publisher.id}": publisher.service for publisher in scenario.publishers}
    laws |= {f"session of {subscriber.id}": subscriber.session_service for subscriber in scenario.subscribers}
    laws |= {f"subscriber {subscriber.id}": subscriber.service for subscriber in scenario.subscribers}
    laws |= {f"responder {responder.id}": responder.service for responder in scenario.responders}
    speedup = scenario.clock.speedup
    wall_s = {name: law.mean / NS_PER_S / speedup for name, law in laws.items() if law is not None}
    short = {name: mean_s for name, mean_s in wall_s.items() if mean_s < DEMAND_S_MIN}
    if short:
        name = min(short, key=lambda stage: short[stage])
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
    """`clients` are the reports of their processes, `held` is the number of publications that brokers had not accepted,
    and `lags` is the mean lag of each broker."""
    done = max(1, sum(process["done"] for process in clients))
    part = sum(process["done_late"] for process in clients) / done
    mean_s = sum(process["mean_s"] * process["done"] for process in clients) / done
    if part > LATE_PART or mean_s > LATE_MEAN_S:
        yield f"the clients could not keep up: what they did was {mean_s * 1000:.0f} ms late on average ({ADVICE})"
    connecting = max((process["connecting_share"] for process in clients), default=0.0)
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
    for culprit, lateness in (("orchestrator", orchestrator), ("relays of links", relays)):
        if lateness.mean_s > LAG_MEAN_S:
            yield (
                f"the {culprit} could not keep up: {lateness.mean_s * 1000:.0f} ms late on average, so faults and links"
                f" that go through relays were, too ({ADVICE})"
            )
    if not is_drained:
        yield "not everything had arrived when the run ended, some time after the measured time"

"""The formulas of single queues, against SimPy: a simulator that nobody here wrote.

A queue is a resource that is granted to one process at a time. OFF periods are processes that take it away from a message,
which waits with the rest of its service and is the first to be served again.
"""

from collections.abc import Callable, Generator
from itertools import count
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest
import simpy

from brokerbed.analysis.models.intermittent import Centre

OUTAGE, RESUMED, NEW = range(3)  # priorities, the most urgent first
MESSAGES, WARMUP, BATCHES = 40_000, 1000, 30
Draw = Callable[[Random], float]


class Case(NamedTuple):
    """A queue with the formula for it, and the laws from which a simulation draws."""

    rate_per_s: float
    centre: Centre
    service: Draw
    on: Draw | None = None
    off: Draw | None = None


def exponential(mean_s: float) -> Draw:
    return lambda draws: draws.expovariate(1 / mean_s)


def uniform(mean_s: float) -> Draw:
    return lambda draws: draws.uniform(0, 2 * mean_s)


def constant(seconds: float) -> Draw:
    return lambda _: seconds


CASES = {
    "M/M/1": Case(3, Centre(0.2, 2 * 0.2**2), exponential(0.2)),
    "M/D/1": Case(3, Centre(0.2, 0.2**2), constant(0.2)),
    "M/U/1": Case(2, Centre(0.3, 4 / 3 * 0.3**2), uniform(0.3)),
    "ON/OFF": Case(2, Centre(0.1, 2 * 0.1**2, 1, 0.5, 2 * 0.5**2), exponential(0.1), exponential(1), exponential(0.5)),
    "ON/OFF, fixed OFF periods": Case(2, Centre(0.1, 2 * 0.1**2, 1, 1, 1), exponential(0.1), exponential(1), constant(1)),
    "ON/OFF, uniform service": Case(1, Centre(0.2, 4 / 3 * 0.2**2, 2, 1, 2), uniform(0.2), exponential(2), exponential(1)),
}  # fmt: skip


class Simulated:
    def __init__(self, case: Case) -> None:
        self._case, self._draws, self.delays_s = case, Random(25), list[float]()
        self._environment = simpy.Environment()
        self._server = simpy.PreemptiveResource(self._environment)
        self._environment.process(self._arrivals())
        if case.on is not None and case.off is not None:
            self._environment.process(self._outages(case.on, case.off))
        self._all_served = self._environment.event()
        self._environment.run(until=self._all_served)

    def _arrivals(self) -> Generator[simpy.Event, Any, None]:
        for _ in count():
            yield self._environment.timeout(self._draws.expovariate(self._case.rate_per_s))
            self._environment.process(self._message())

    def _message(self) -> Generator[simpy.Event, Any, None]:
        arrived_s, left_s, priority = self._environment.now, self._case.service(self._draws), NEW
        while left_s > 0:
            with self._server.request(priority, preempt=False) as granted:
                yield granted
                begun_s = self._environment.now
                try:
                    yield self._environment.timeout(left_s)
                    left_s = 0.0
                except simpy.Interrupt:
                    left_s -= self._environment.now - begun_s
                    priority = RESUMED
        self.delays_s.append(self._environment.now - arrived_s)
        if len(self.delays_s) == WARMUP + MESSAGES:
            self._all_served.succeed()

    def _outages(self, on: Draw, off: Draw) -> Generator[simpy.Event, Any, None]:
        while True:
            yield self._environment.timeout(on(self._draws))
            with self._server.request(OUTAGE) as granted:
                yield granted
                yield self._environment.timeout(off(self._draws))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_mean_time_in_a_queue(case: Case) -> None:
    """Within 3.5 standard errors, which are at most 3% here."""
    delays_s = Simulated(case).delays_s[WARMUP:]
    batches = np.array([part.mean() for part in np.array_split(delays_s, BATCHES)])
    mean_s, error_s = batches.mean(), batches.std(ddof=1) / BATCHES**0.5
    assert error_s < 0.03 * mean_s
    assert float(case.centre.response_s(case.rate_per_s)) == pytest.approx(mean_s, abs=3.5 * error_s)

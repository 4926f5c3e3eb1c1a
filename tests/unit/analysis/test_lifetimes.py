"""Message lifetimes at one server: known values, special cases solved by hand, and an independent simulation."""

import heapq
import random
from itertools import count
from math import exp
from typing import NamedTuple

import numpy as np
import pytest

from brokerbed.analysis.models.exponential_lifetime import exponential_lifetime
from brokerbed.analysis.models.fixed_lifetime import fixed_lifetime
from brokerbed.analysis.models.intermittent import Centre
from brokerbed.analysis.models.server import Server

MODELS = {"fixed": fixed_lifetime, "exponential": exponential_lifetime}


class Case(NamedTuple):
    server: Server
    law: str
    lifetime_s: float


class Simulation:
    """A simulation of single events, one after the other."""

    def __init__(self, case: Case, messages: int, seed: int) -> None:
        self.case, self.messages, self.rng, self.order = case, messages, random.Random(seed), count()
        self.delays: list[float | None] = [None] * messages  # of those that are served
        self.arrived, self.left_s = [0.0] * messages, [0.0] * messages
        self.queue: list[int] = []
        self.events: list[tuple[float, int, str, int]] = []
        self.is_on, self.since, self.epoch, self.now = True, 0.0, 0, 0.0

    def run(self) -> list[float | None]:
        self.plan(self.drawn(1 / self.case.server.rate_per_s), "arrival")
        if self.case.server.off_s:
            self.plan(self.drawn(self.case.server.on_s), "off")
        gone = 0
        while gone < self.messages:
            self.now, _, event, what = heapq.heappop(self.events)
            if event == "served" and what != self.epoch:
                continue  # that service was interrupted
            if self.is_on and self.queue:
                self.left_s[self.queue[0]] -= self.now - self.since
            if event == "arrival":
                self.arrive(what)
            elif event in ("on", "off"):
                self.toggle(event)
            elif event == "served" or what in self.queue:
                number = self.queue[0] if event == "served" else what
                self.delays[number] = self.now - self.arrived[number] if event == "served" else None
                self.queue.remove(number)
                gone += 1
            self.serve()
        return self.delays

    def arrive(self, number: int) -> None:
        case = self.case
        self.queue.append(number)
        self.arrived[number], self.left_s[number] = self.now, self.drawn(case.server.demand_s)
        self.plan(case.lifetime_s if case.law == "fixed" else self.drawn(case.lifetime_s), "death", number)
        if number + 1 < self.messages:
            self.plan(self.drawn(1 / case.server.rate_per_s), "arrival", number + 1)

    def toggle(self, event: str) -> None:
        self.is_on = event == "on"
        server = self.case.server
        self.plan(self.drawn(server.on_s if self.is_on else server.off_s), "off" if self.is_on else "on")

    def serve(self) -> None:
        """The first message is in service from now on; services planned earlier are void."""
        self.since, self.epoch = self.now, self.epoch + 1
        if self.is_on and self.queue:
            self.plan(self.left_s[self.queue[0]], "served", self.epoch)

    def drawn(self, mean: float) -> float:
        return self.rng.expovariate(1 / mean)

    def plan(self, delay_s: float, event: str, what: int = 0) -> None:
        heapq.heappush(self.events, (self.now + delay_s, next(self.order), event, what))


@pytest.mark.parametrize(
    ("law", "lifetime_s", "ratio", "delay_s"),
    [
        ("fixed", 5, 0.5998, 0.707),
        ("fixed", 20, 0.7889, 4.533),
        ("fixed", 80, 0.9753, 15.947),
        ("exponential", 5, 0.5642, 0.899),
        ("exponential", 20, 0.7060, 4.199),
        ("exponential", 80, 0.8564, 10.455),
    ],
)
def test_values_of_an_independent_solution(law: str, lifetime_s: float, ratio: float, delay_s: float) -> None:
    found = MODELS[law](Server(2, 0.125, 20, 20), lifetime_s)
    assert found is not None
    assert found.ratio == pytest.approx(ratio, abs=6e-5)
    assert found.delay_s == pytest.approx(delay_s, abs=6e-4)


SIMULATED = [
    Case(Server(3, 0.2, 2, 1), "fixed", 1.5),
    Case(Server(3, 0.2, 2, 1), "exponential", 1.5),
    Case(Server(8, 0.2, 1, 2), "fixed", 2),  # overloaded more than four times
    Case(Server(8, 0.2, 1, 2), "exponential", 2),
    Case(Server(4, 0.2), "fixed", 1),  # never OFF
    Case(Server(4, 0.2), "exponential", 1),
]


@pytest.mark.parametrize("case", SIMULATED, ids=str)
def test_simulation_of_single_events(case: Case) -> None:
    """Within 4.5 standard errors, from 40 batches, for the share served, the mean delay and its distribution."""
    delays = Simulation(case, messages=20_000, seed=5).run()[500:]
    batches = np.array_split(np.array([np.nan if delay is None else delay for delay in delays]), 40)
    found = MODELS[case.law](case.server, case.lifetime_s)
    assert found is not None
    times_s = np.array([0.1, 0.5, 1.0])
    expected = [found.ratio, found.delay_s, *found.longer(times_s)]
    measured = np.array([
        [np.mean(~np.isnan(batch)), np.nanmean(batch), *((batch > t).sum() / (~np.isnan(batch)).sum() for t in times_s)]
        for batch in batches
    ])  # fmt: skip
    error = measured.std(axis=0, ddof=1) / len(batches) ** 0.5
    assert np.all(error < 0.05 * np.maximum(expected, 0.1))  # otherwise the test could hardly fail
    assert np.all(np.abs(measured.mean(axis=0) - expected) < 4.5 * error + 1e-3)


@pytest.mark.parametrize("law", MODELS)
@pytest.mark.parametrize("server", [Server(2, 0.125, 20, 20), Server(3, 0.25)], ids=str)
def test_long_lifetimes_change_nothing(law: str, server: Server) -> None:
    found = MODELS[law](server, 1e6)
    assert found is not None
    centre = Centre(server.demand_s, 2 * server.demand_s**2, server.on_s, server.off_s, 2 * server.off_s**2)
    assert found.ratio == pytest.approx(1, abs=1e-4)
    assert found.delay_s == pytest.approx(float(centre.response_s(server.rate_per_s)), rel=1e-3)


def test_fixed_lifetimes_without_outages_by_hand() -> None:
    """While the server is busy the age of the message in service has the density exp((l - m) y), up to a factor."""
    rate, demand_s, lifetime_s = 3.0, 0.25, 2.0
    found = fixed_lifetime(Server(rate, demand_s), lifetime_s)
    slope = 1 / demand_s - rate
    busy = (1 - exp(-slope * lifetime_s)) / slope
    empty = 1 / (1 + rate * busy)
    assert found.ratio == pytest.approx(empty * busy / demand_s, rel=1e-9)
    beyond = (exp(-slope * 0.5) - exp(-slope * lifetime_s)) / slope / busy
    assert found.longer(np.array([0.0, 0.5, 2.0, 9.0])) == pytest.approx([1, beyond, 0, 0], abs=1e-9)


def test_exponential_lifetimes_without_waiting_by_hand() -> None:
    """Messages that are rare are alone: served with the probability m / (m + t), after the mean time 1 / (m + t)."""
    found = exponential_lifetime(Server(1e-6, 0.5), lifetime_s=2.0)
    assert found is not None
    assert found.ratio == pytest.approx(2 / 2.5, rel=1e-5)
    assert found.delay_s == pytest.approx(1 / 2.5, rel=1e-5)
    assert found.longer(np.array([0.3])) == pytest.approx([exp(-2.5 * 0.3)], rel=1e-5)


@pytest.mark.parametrize("law", MODELS)
def test_overloaded_servers_serve_what_they_can(law: str) -> None:
    found = MODELS[law](Server(400, 0.1, 1, 3), 20)
    assert found is not None
    assert found.ratio * 400 == pytest.approx(10 / 4, rel=1e-3)


@pytest.mark.parametrize("law", MODELS)
def test_no_service_is_the_limit_of_short_service(law: str) -> None:
    gate, short = (MODELS[law](Server(2, demand_s, 5, 10), 7.0) for demand_s in (0.0, 1e-7))
    assert gate is not None
    assert short is not None
    assert gate.ratio == pytest.approx(short.ratio, rel=1e-5)
    assert gate.delay_s == pytest.approx(short.delay_s, rel=1e-5)
    times_s = np.array([1.0, 4.0, 6.9])
    assert gate.longer(times_s) == pytest.approx(short.longer(times_s), rel=1e-4)


def test_a_gate_that_is_never_off_holds_back_nothing() -> None:
    for model in MODELS.values():
        found = model(Server(2, 0.0), 3.0)
        assert found is not None
        assert (found.ratio, found.delay_s) == (1, 0)


@pytest.mark.parametrize("lifetime_s", [0.05, 5, 500])
def test_fixed_lifetimes_are_smooth_where_exponents_coincide(lifetime_s: float) -> None:
    """At a utilisation of exactly 1 the general solution has another form."""
    at, below, above = (fixed_lifetime(Server(4 * factor, 0.125, 20, 20), lifetime_s) for factor in (1, 0.997, 1.003))
    assert at.ratio == pytest.approx((below.ratio + above.ratio) / 2, rel=1e-4)
    assert at.delay_s == pytest.approx((below.delay_s + above.delay_s) / 2, rel=1e-3)


@pytest.mark.parametrize("law", MODELS)
def test_the_mean_is_that_of_the_distribution(law: str) -> None:
    found = MODELS[law](Server(2, 0.125, 20, 20), 10.0)
    assert found is not None
    times_s = np.linspace(0, 80, 4_001)
    shares = found.longer(times_s)
    shares[0] = 1  # the inversion of a transform has no value at 0
    assert np.trapezoid(shares, times_s) == pytest.approx(found.delay_s, rel=1e-3)


def test_queues_that_are_too_long_are_not_computed() -> None:
    assert exponential_lifetime(Server(1e6, 1e-3), 10.0) is None
    assert fixed_lifetime(Server(1e6, 1e-3), 10.0).ratio == pytest.approx(1e-3, rel=1e-3)

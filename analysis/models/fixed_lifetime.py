"""A server that is ON and OFF, for messages that all live equally long: solved exactly through the age of the oldest.

All messages have the lifetime L, so they leave in the order of their arrival, served or dead. The age of the first
message of the queue grows with time. When that message is served (at rate m while ON) or dies (at the age L), the next
one takes its place, whose age is less by the time between their arrivals, which is exponential; if that is more than
the age, the queue is empty. So age and server (ON or OFF) are a Markov process, and the densities f(y) and g(y) of the
age while ON and OFF satisfy

    f' = -(m + a) f + b g + F       F' = l F - l m f,  F(L) = l f(L)
    g' = a f - b g + G              G' = l G,          G(L) = l g(L)

where F(y) and G(y) are the rates at which the age jumps down to y; l is the rate of arrivals, and ON and OFF periods
end at the rates a and b. The queue is empty with probabilities e (ON) and h (OFF), where

    f(0) = l e,   g(0) = l h,   (l + a) e = b h + F(0) / l,   (l + b) h = a e + G(0) / l,   e + h + integral f + g = 1.

These are linear equations with constant coefficients, so each solution is a sum of four exponentials. Messages of age
y are served at the rate m f(y): its integral over the rate of arrivals is the share that is served, and its shape the
distribution of their delay.

Assumptions: those of server.py, and one lifetime for all messages. No paper; the method is that of Barrer 1957 for a
queue with a fixed patience until the end of service, with an environment.
"""

from dataclasses import dataclass, replace
from math import factorial

import numpy as np

from brokerbed.analysis.models.distribution import Complexes
from brokerbed.analysis.models.server import Delivered, Server
from brokerbed.scenario.topology import Floats

NEAR = 1e-6  # two exponents this close (times the lifetime) are no longer told apart; see `fixed_lifetime`
APART = 1e-3  # relative change of the rate that separates them
SMALL = 0.05  # exponents (times the lifetime) below which a series is more accurate than the closed form


def fixed_lifetime(server: Server, lifetime_s: float) -> Delivered:
    """Exponents coincide at few rates only, and results are smooth: there they are the mean of those beside them."""
    if server.demand_s == 0:
        return _gate(server, lifetime_s)
    solution = _solve(server, lifetime_s)
    if solution is not None:
        return solution.delivered()
    beside = [replace(server, rate_per_s=server.rate_per_s * factor) for factor in (1 - APART, 1 + APART)]
    low, high = (solution.delivered() for each in beside if (solution := _solve(each, lifetime_s)) is not None)
    return Delivered(
        (low.ratio + high.ratio) / 2,
        (low.delay_s + high.delay_s) / 2,
        lambda times_s: (low.longer(times_s) + high.longer(times_s)) / 2,
    )


@dataclass(frozen=True, slots=True)
class _Solution:
    """The density f of the age while ON, as a sum of exponentials, each with its largest value at 0 or at L."""

    server: Server
    lifetime_s: float
    exponents: Complexes
    weights: Complexes  # each is the value of its exponential where that is largest
    whole: float  # the total probability, to which the weights are not normalised

    def delivered(self) -> Delivered:
        served = self._served_beyond(np.zeros(1))[0]
        ages = _moments(self.exponents, self.lifetime_s)
        mean = float(np.real(self.weights @ ages)) / self.server.demand_s / self.whole
        ratio = served / self.server.rate_per_s
        return Delivered(float(ratio), mean / served, lambda times_s: self._served_beyond(times_s) / served)

    def _served_beyond(self, times_s: Floats) -> Floats:
        """The rate at which messages are served that are older."""
        ages = np.clip(times_s, 0.0, self.lifetime_s)
        parts = _integrals(self.exponents, ages, self.lifetime_s)
        beyond: Floats = np.real(parts @ self.weights) / self.server.demand_s / self.whole
        return np.maximum(beyond, 0.0)


def _solve(server: Server, lifetime_s: float) -> _Solution | None:
    """None if two exponents practically coincide."""
    rate, serving = server.rate_per_s, 1 / server.demand_s
    ending, returning = (1 / server.on_s, 1 / server.off_s) if server.off_s else (0.0, rate + serving)
    # The unknowns are f, g, F and G.
    change = np.array([
        [-(serving + ending), returning, 1, 0],
        [ending, -returning, 0, 1],
        [-rate * serving, 0, rate, 0],
        [0, 0, 0, rate],
    ])  # fmt: skip
    exponents, shapes = np.linalg.eig(change.astype(np.complex128))
    gaps = np.abs(exponents[:, None] - exponents) * lifetime_s + np.eye(4)
    if gaps.min() < NEAR:
        return None
    is_growing = exponents.real > 0
    at_start = np.where(is_growing, np.exp(-exponents * lifetime_s * is_growing), 1)
    at_end = np.where(is_growing, 1, np.exp(exponents * lifetime_s * ~is_growing))
    start, end = shapes * at_start, shapes * at_end
    empty_on, empty_off = rate + ending, rate + returning
    # One of the equations follows from the others; the sum of all probabilities takes its place.
    total = (shapes[0] + shapes[1]) * _integrals(exponents, np.zeros(1), lifetime_s)[0]
    equations = np.array([
        [*(end[2] - rate * end[0]), 0, 0],
        [*(end[3] - rate * end[1]), 0, 0],
        [*start[0], -rate, 0],
        [*start[1], 0, -rate],
        [*(start[2] / rate), -empty_on, returning],
        [*(start[3] / rate), ending, -empty_off],
        [*total, 1, 1],
    ])  # fmt: skip
    scale = np.abs(equations).max(axis=1, keepdims=True)
    right = np.zeros(7)
    right[6] = 1 / scale[6, 0]
    found = np.linalg.lstsq(equations / scale, right.astype(np.complex128), rcond=None)[0]
    whole = float(np.real(total @ found[:4] + found[4] + found[5]))
    return _Solution(server, lifetime_s, exponents, shapes[0] * found[:4], whole)


def _integrals(exponents: Complexes, from_s: Floats, to_s: float) -> Complexes:
    """The integral of each exponential (columns) from each age (rows) to the lifetime."""
    lengths = (to_s - from_s)[:, None]
    is_growing = exponents.real > 0
    steps = exponents * lengths
    backwards = np.where(is_growing, -steps, steps)  # never grows
    safe = np.where(np.abs(backwards) > 1e-8, backwards, 1)
    share = np.where(np.abs(backwards) > 1e-8, np.expm1(safe) / safe, 1 + backwards / 2)
    begin = np.where(is_growing, 1, np.exp(np.where(is_growing, 0, exponents) * from_s[:, None]))
    return np.asarray(lengths * share * begin, np.complex128)


def _moments(exponents: Complexes, lifetime_s: float) -> Complexes:
    """The integral of the age times each exponential, over all ages."""
    steps = exponents * lifetime_s
    is_small = np.abs(steps) < SMALL
    safe = np.where(is_small, 1, steps)
    backwards = np.exp(np.where(safe.real > 0, -safe, safe))
    closed = np.where(safe.real > 0, safe - 1 + backwards, (safe - 1) * backwards + 1) / safe**2
    coefficients = np.array([1 / (factorial(power) * (power + 2)) for power in range(8)])
    series = steps[:, None] ** np.arange(8) @ coefficients * np.exp(np.where(steps.real > 0, -steps, 0) * is_small)
    return np.asarray(lifetime_s**2 * np.where(is_small, series, closed), np.complex128)


def _gate(server: Server, lifetime_s: float) -> Delivered:
    """Without service a message waits for the rest of an OFF period only, if it comes in one and lives so long."""
    if server.off_s == 0:
        return Delivered(1.0, 0.0, lambda times_s: np.zeros(len(times_s)))
    off = 1 - server.availability
    dead = np.exp(-lifetime_s / server.off_s)
    ratio = server.availability + off * (1 - dead)
    late_s = off * (server.off_s * (1 - dead) - lifetime_s * dead)
    return Delivered(
        float(ratio),
        float(late_s / ratio),
        lambda times_s: off * np.maximum(np.exp(-times_s / server.off_s) - dead, 0.0) / ratio,
    )

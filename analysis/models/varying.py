"""Subscriptions whose arrival rate varies periodically: an M_t/G/infinity system in its periodic steady state.

Paper: Eick, Massey, Whitt, "The Physics of the M_t/G/infinity Queue", Operations Research 41 (1993). Van Vliet 2007
(see covering.py) has the case of exponential lifetimes, d(rho)/dt = lambda(t) - mu rho. With arrivals at the rate
lambda f(t) and lifetimes L, the number of active subscriptions is a Poisson number at each instant, with the mean
lambda r(t), and subscriptions end at the rate lambda d(t):

    r(t) = E[integral of f from t - L to t]        d(t) = E[f(t - L)]

Unlike the equilibrium, both depend on the whole law of L. Here f is the sum of a sine and of a function with jumps D_j
at the times t_j of a period P. With S(x) = P(L > x) and R(x) = E[max(L - x, 0)], their sums S_P(x) = S(x) + S(x + P) +
... and R_P, the time a_j since the last jump j, and phi = E[exp(-i w L)], where w = 2 pi / P:

    r(t) = E[L] f(t) - sum of D_j R_P(a_j)         d(t) = f(t) - sum of D_j S_P(a_j)                 (jumps)
    r(t) = Im[exp(i w t) (1 - phi) / (i w)]        d(t) = Im[exp(i w t) phi]                         (sine)

Assumptions: arrivals are a Poisson process, and lifetimes are independent of it and of one another.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, exp, log1p, pi, sqrt, tau

import numpy as np

from brokerbed.scenario.topology import Floats

CELLS_MAX = 1_000_000  # moments x jumps processed at a time
TERMS = 256  # of sums over periods, before Euler and Maclaurin's formula takes over; more for narrow laws
NORMAL_MAX = 9.0  # standard deviations beyond which a normal density adds nothing to a double
STEPS_OF_NORMAL = 0.005  # the width of the trapezoids, in standard deviations
SHIFT_MAX = 2.0  # of the path of integration from the real axis
LEVELS = (-4.0, -3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0)  # standard deviations between which a lognormal law changes
SHARES = (0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # of the mean, between which an exponential law changes


@dataclass(frozen=True)
class Lifetime:
    """A law of lifetimes: one of the four that scenarios can name."""

    law: str
    mean_s: float
    cv: float = 1.0  # of the lognormal law

    def sums(self, ages_s: Floats, period_s: float) -> tuple[Floats, Floats]:
        """S_P and R_P at these ages, which are from 0 to the period."""
        mean = self.mean_s
        if self.law == "exponential":
            survival = np.exp(-ages_s / mean) / -np.expm1(-period_s / mean)
            return survival, mean * survival
        if self.law == "lognormal":
            return self._lognormal_sums(ages_s, period_s)
        longest = mean if self.law == "deterministic" else 2 * mean
        left = np.maximum(longest - ages_s, 0.0)
        terms = np.ceil(left / period_s)  # left, left - P, left - 2 P, ... as long as they are above 0
        ones, firsts = terms * left - period_s * terms * (terms - 1) / 2, terms
        if self.law == "deterministic":
            return firsts, ones
        squares = terms * left**2 - left * period_s * terms * (terms - 1)
        squares += period_s**2 * terms * (terms - 1) * (2 * terms - 1) / 6
        return ones / longest, squares / (2 * longest)

    def transform(self, frequency: float) -> complex:
        """phi = E[exp(-i w L)]"""
        turn = 1j * frequency * self.mean_s
        if self.law == "exponential":
            return 1 / (1 + turn)
        if self.law == "deterministic":
            return complex(np.exp(-turn))
        if self.law == "uniform":
            return complex(-np.expm1(-2 * turn) / (2 * turn))
        return self._lognormal_transform(frequency)

    def breaks_s(self) -> list[float]:
        """Ages between which S and R are smooth."""
        if self.law == "exponential":
            return [share * self.mean_s for share in SHARES]
        if self.law == "lognormal":
            sigma = self._sigma
            return [self.mean_s * exp(level * sigma - sigma**2 / 2) for level in LEVELS]
        return [self.mean_s if self.law == "deterministic" else 2 * self.mean_s]

    @property
    def _sigma(self) -> float:
        return sqrt(log1p(self.cv**2))

    def _lognormal_sums(self, ages_s: Floats, period_s: float) -> tuple[Floats, Floats]:
        longest = self.mean_s * exp(min(8 * self._sigma, 700.0))
        terms = ceil(min(longest / period_s, max(TERMS, 20 / self._sigma)))
        survival, excess = np.zeros_like(ages_s), np.zeros_like(ages_s)
        for term in range(terms):
            parts = self._lognormal(ages_s + term * period_s)
            survival += parts[1]
            excess += parts[2]
        density, beyond, rest, squares = self._lognormal(ages_s + terms * period_s)
        survival += rest / period_s + beyond / 2 + density * period_s / 12  # Euler and Maclaurin
        excess += squares / period_s + rest / 2 + beyond * period_s / 12
        return survival, excess

    def _lognormal(self, ages_s: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        """The density, S, R, and E[max(L - x, 0)^2] / 2."""
        from scipy.special import ndtr  # other models do without it, and it takes a while to import

        sigma, mean = self._sigma, self.mean_s
        x = np.maximum(ages_s, 1e-300)
        z = np.log(x / mean) / sigma + sigma / 2
        beyond, first, second = ndtr(-z), mean * ndtr(sigma - z), mean**2 * exp(sigma**2) * ndtr(2 * sigma - z)
        density = np.exp(-z * z / 2) / (x * sigma * sqrt(tau))
        return density, beyond, first - x * beyond, (second - 2 * x * first + x * x * beyond) / 2

    def _lognormal_transform(self, frequency: float) -> complex:
        """An integral over a normal density, along a line beside the real axis, where the integrand decays."""
        sigma = self._sigma
        shift = min(SHIFT_MAX, pi / 2 / sigma)
        z = np.arange(-NORMAL_MAX, NORMAL_MAX, STEPS_OF_NORMAL) - 1j * shift
        lifetimes = self.mean_s * np.exp(sigma * z - sigma**2 / 2)
        integrand = np.exp(-1j * frequency * lifetimes - z * z / 2)
        return complex(integrand.sum() * STEPS_OF_NORMAL / sqrt(tau))


@dataclass(frozen=True)
class Variation:
    """The factor f of a rate: a level at each time that jumps, and a sine around it."""

    period_s: float
    jumps: Sequence[tuple[float, float]]  # times within the period, and by how much the level changes
    amplitude: float  # of the sine


@dataclass(frozen=True)
class Response:
    """What follows from arrivals at rate f, at some moments."""

    active_s: Floats  # r
    departures: Floats  # d


def response(variation: Variation, levels: Floats, lifetime: Lifetime, times_s: Floats) -> Response:
    """r and d at these times of a period; `levels` are those of f at these times, without the sine."""
    active, departures = lifetime.mean_s * levels, levels.copy()
    if variation.jumps:
        times, changes = (np.array(column) for column in zip(*variation.jumps, strict=True))
        rows = max(1, CELLS_MAX // len(times))
        for first in range(0, len(times_s), rows):
            part = slice(first, first + rows)
            ages = np.mod(times_s[part, None] - times, variation.period_s)
            survival, excess = lifetime.sums(ages, variation.period_s)
            active[part] -= excess @ changes
            departures[part] -= survival @ changes
    if variation.amplitude:
        frequency = tau / variation.period_s
        phi, wave = lifetime.transform(frequency), variation.amplitude * np.exp(1j * frequency * times_s)
        active = active + (wave * (1 - phi) / (1j * frequency)).imag
        departures = departures + (wave * phi).imag
    return Response(active, departures)

"""The distribution of the time in queues, where it is known: the share of messages that take longer than t.

The time in one queue is given by its Laplace transform, without OFF periods by that of Pollaczek and Khinchine. With
exponential ON periods (rate a) and any OFF law (transform O) the work found by an arrival during ON is that of an M/G/1
queue to which every OFF period adds the work that arrived in it; an arrival during OFF also finds the work that arrived
since the period began, and waits for the rest of the period. Service of x takes x and the OFF periods within it,
exp(-x (s + a (1 - O(s)))). The mean is `Centre.response_s`; a test compares them.

The times in the queues of a path are added as if they were independent and every queue had Poisson arrivals. That is
exact for queues with exponential service in tandem (Burke, Reich). Elsewhere it is an assumption, as for the predicted
mean; behind an ON/OFF queue messages arrive in bursts, and take longer than predicted. Transforms are inverted by the
method EULER of Abate and Whitt (1995). Pure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from brokerbed.analysis.models.intermittent import Centre
from brokerbed.scenario.topology import Floats

Complexes = NDArray[np.complex128]
Transform = Callable[[Complexes], Complexes]
DISCRETISATION = 18.4  # A of Abate and Whitt: an error of exp(-A) = 1e-8
TERMS, AVERAGED = 40, 11  # the number of terms of the series, and of partial sums that are averaged
OCTAVES = 20  # a quantile is looked for between its scale divided and multiplied by 2 to this power
ZOOM, ROUNDS = 24, 5  # the bracket of a quantile is divided into so many parts, so often: to about 1e-6 of it
CACHED = 4096  # quantiles


class Distribution(Protocol):
    """The distribution of the time on a whole path."""

    def share_longer(self, times_s: Floats) -> Floats:
        """The share of messages that take longer than each time; nan where it is unknown."""
        ...

    def quantile_s(self, share: float) -> float:
        """The time that this share of messages takes at most; nan where it is unknown."""
        ...


@dataclass(frozen=True, slots=True)
class Times:
    """The time in one queue: its minimum `least_s`, and the transform of the time beyond it."""

    least_s: float
    beyond: Transform


def times_of(
    centre: Centre, rate: float, demand: tuple[str, float] | None, off: tuple[str, float] | None
) -> Times | None:
    """The time in a stable queue, given names and means of its laws; None if a law has no transform in closed form."""
    service, outage = _transform(demand), _transform(off)
    if service is None or outage is None:
        return None
    is_constant = demand is None or demand[0] == "deterministic"
    least_s = centre.demand_s if is_constant else 0.0
    idle = 1 - float(centre.utilisation(rate))

    def beyond(s: Complexes) -> Complexes:
        stretched = s + (1 - outage(s)) / centre.on_s  # per second of service
        served = service(stretched)
        arriving = rate * (1 - served)
        free = stretched - arriving - (1 - outage(arriving)) / centre.on_s
        own = np.exp(-least_s * (stretched - s)) if is_constant else served
        transform: Complexes = idle * stretched / free * own
        if centre.off_s == 0:
            return transform
        rest = (outage(arriving) - outage(s)) / ((s - arriving) * centre.off_s)
        transform *= centre.availability + (1 - centre.availability) * rest
        return transform

    return Times(least_s, beyond)


def _transform(law: tuple[str, float] | None) -> Transform | None:
    """The transform E exp(-s X) of a law; without a law X is 0."""
    name, mean = law or ("deterministic", 0.0)
    match name:
        case "exponential":
            return lambda s: 1 / (1 + mean * s)
        case "deterministic":
            return lambda s: np.exp(-mean * s)
        case "uniform":
            return lambda s: _uniform(2 * mean * s)
    return None


def _uniform(s: Complexes) -> Complexes:
    """The transform of the uniform distribution from 0 to 1."""
    return np.where(s == 0, 1, -np.expm1(-s) / np.where(s == 0, 1, s))


def share_longer(queues: Sequence[Times], constant_s: float, times_s: Floats) -> Floats:
    """The share of messages that take longer than each time to pass the queues and a constant delay."""
    least_s = constant_s + sum(queue.least_s for queue in queues)
    later = times_s > least_s
    shares = np.ones(len(times_s))
    if later.any():
        shares[later] = _inverted(queues, times_s[later] - least_s)
    return shares


def _inverted(queues: Sequence[Times], times_s: Floats) -> Floats:
    count = TERMS + AVERAGED
    nodes: Complexes = np.array([DISCRETISATION + 2j * np.pi * at for at in range(count + 1)], dtype=np.complex128)
    s: Complexes = nodes / (2 * times_s[:, np.newaxis])
    whole: Complexes = np.ones(s.shape, dtype=np.complex128)
    for queue in queues:
        whole = whole * queue.beyond(s)
    terms = np.real((1 - whole) / s) * (-1.0) ** np.arange(count + 1)
    terms[:, 0] /= 2
    partial = np.cumsum(terms, axis=1)[:, TERMS:]
    weights = np.array([comb(AVERAGED, at) for at in range(AVERAGED + 1)]) / 2**AVERAGED
    shares: Floats = np.exp(DISCRETISATION / 2) / times_s * (partial @ weights)
    return np.clip(shares, 0.0, 1.0)


@dataclass(frozen=True, eq=False)
class Known:
    """A distribution that is known as a function."""

    longer: Callable[[Floats], Floats]
    scale_s: float  # some typical time, from which quantiles are looked for; 0 if no message takes any time

    def share_longer(self, times_s: Floats) -> Floats:
        return self.longer(times_s)

    @lru_cache(maxsize=CACHED)  # noqa: B019  # paths that are alike share one object, and the cache has a limit
    def quantile_s(self, share: float) -> float:
        """Divides the bracket of the quantile into parts, again and again."""
        if self.scale_s == 0:
            return 0.0
        times_s = np.concatenate(([0.0], self.scale_s * 2.0 ** np.arange(-OCTAVES, OCTAVES + 1)))
        for _ in range(ROUNDS):
            shares = np.concatenate(([1.0], self.longer(times_s[1:]))) if times_s[0] == 0 else self.longer(times_s)
            reached = np.flatnonzero(shares <= 1 - share)
            if not len(reached):
                return float("nan")
            place = int(reached[0])
            times_s = np.linspace(times_s[max(place - 1, 0)], times_s[place], ZOOM + 1)
        return float(times_s.mean())

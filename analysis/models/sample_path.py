"""Queues as sample paths: departures computed from arrivals, for hundreds of thousands of messages at once.

A queue with one server, first come first served, follows Lindley's recursion, which for all messages together is a
cumulative sum and a running maximum. For a server with outages (preemptive resume) the recursion holds in ON time,
which stands still while the server is OFF. Random numbers come from a generator that is passed in. Pure.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import log1p, sqrt

import numpy as np
from numpy.typing import NDArray

from brokerbed.scenario.topology import Floats

Integers = NDArray[np.int64]
CYCLES_LEAST = 1000  # drawn at a time, so that a path that turns out longer costs few extensions


@dataclass(frozen=True, slots=True)
class Variable:
    """A random duration: the name of its law, its mean, and the coefficient of variation of a lognormal one."""

    law: str
    mean_s: float
    cv: float = 1.0

    @property
    def variance_s2(self) -> float:
        squared_cv = {"exponential": 1.0, "deterministic": 0.0, "uniform": 1 / 3, "lognormal": self.cv**2}[self.law]
        return squared_cv * self.mean_s**2

    def draw(self, shape: tuple[int, ...], generator: np.random.Generator) -> Floats:
        match self.law:
            case "exponential":
                return generator.standard_exponential(shape) * self.mean_s
            case "deterministic":
                return np.full(shape, self.mean_s)
            case "uniform":
                return generator.random(shape) * (2 * self.mean_s)
            case "lognormal":
                spread = sqrt(log1p(self.cv**2))
                return generator.lognormal(-(spread**2) / 2, spread, shape) * self.mean_s
        raise AssertionError(f"{self.law} is no law of durations")

    def sums(self, count: int, group: int, generator: np.random.Generator) -> Floats:
        """As many sums of `group` independent durations each."""
        if group == 1:
            return self.draw((count,), generator)
        if self.law == "exponential":
            return generator.standard_gamma(group, count) * self.mean_s
        if self.law == "deterministic":
            return np.full(count, group * self.mean_s)
        return np.asarray(self.draw((count, group), generator).sum(axis=1))


Periods = Callable[[int], tuple[Floats, Floats]]  # at least so many of the next ON and OFF periods


def drawn(on: Variable, off: Variable, generator: np.random.Generator) -> Periods:
    """Independent periods."""
    return lambda count: (on.sums(count, 1, generator), off.sums(count, 1, generator))


def repeated(on_s: Floats, off_s: Floats, is_shuffled: bool, generator: np.random.Generator) -> Periods:
    """Passes through recorded periods: from a random one on, or ON and OFF each in a new order in every pass."""
    first = int(generator.integers(len(on_s)))

    def more(count: int) -> tuple[Floats, Floats]:
        passes = -(-count // len(on_s))
        on, off = (np.tile(np.roll(each, -first), (passes, 1)) for each in (on_s, off_s))
        if is_shuffled:
            on, off = generator.permuted(on, axis=1), generator.permuted(off, axis=1)
        return on.ravel(), off.ravel()

    return more


class Outages:
    """The ON and OFF periods of one server, as far as they are needed."""

    def __init__(self, periods: Periods) -> None:
        self._periods = periods
        self._on_ends: Floats = np.zeros(0)  # of ON periods, in ON time
        self._off_sums: Floats = np.zeros(0)  # of all OFF periods up to each one

    def _extend(self) -> None:
        on_s, off_s = self._periods(max(CYCLES_LEAST, len(self._on_ends) // 4))
        self._on_ends = _continued(self._on_ends, on_s)
        self._off_sums = _continued(self._off_sums, off_s)

    def draw_until(self, time_s: float) -> None:
        """Draws enough at once if one knows beforehand how long a path will be."""
        while not len(self._on_ends) or self._on_ends[-1] + self._off_sums[-1] <= time_s:
            self._extend()

    def on_time(self, times_s: Floats) -> Floats:
        """How long the server has been ON at each of these times, which increase."""
        self.draw_until(float(times_s[-1]))
        passed = np.searchsorted(times_s, self._on_ends + self._off_sums)
        counts = np.diff(passed, prepend=0)
        before = np.concatenate(([0.0], self._off_sums[:-1]))
        begins: Floats = np.minimum(times_s - np.repeat(before, counts), np.repeat(self._on_ends, counts))
        return begins

    def real_time(self, on_times_s: Floats) -> Floats:
        """The opposite; a moment at which an OFF period begins becomes the one at which it ends."""
        while self._on_ends[-1] <= on_times_s[-1]:
            self._extend()
        first = np.searchsorted(on_times_s, self._on_ends)
        counts = np.diff(first, prepend=0, append=len(on_times_s))
        times_s: Floats = on_times_s + np.repeat(np.concatenate(([0.0], self._off_sums)), counts)
        return times_s


def _continued(sums: Floats, more: Floats) -> Floats:
    return np.concatenate((sums, np.cumsum(more) + (sums[-1] if len(sums) else 0.0)))


@dataclass(frozen=True, slots=True)
class Passage:
    """All messages that pass one stage, in the order of their arrival."""

    arrivals_s: Floats
    departures_s: Floats
    served_s: Floats  # the part of the time in the stage during which its server is ON

    def seen(self) -> Integers:
        """How many messages each one finds in the stage."""
        earlier = np.searchsorted(self.departures_s, self.arrivals_s)
        return np.arange(len(earlier), dtype=np.int64) - earlier


def serve(arrivals_s: Floats, services_s: Floats | None, outages: Outages | None) -> Passage:
    """Lets messages pass a stage; arrivals increase. Without service times messages wait for outages only."""
    begins = arrivals_s if outages is None else outages.on_time(arrivals_s)
    ends = begins if services_s is None else _lindley(begins, services_s)
    departures_s = ends if outages is None else outages.real_time(ends)
    return Passage(arrivals_s, departures_s, ends - begins)


def _lindley(arrivals_s: Floats, services_s: Floats) -> Floats:
    """Each service begins at the arrival, or when the one before it ends."""
    ends = np.cumsum(services_s)
    waits = arrivals_s - ends
    waits += services_s
    np.maximum.accumulate(waits, out=waits)
    ends += waits
    return ends


@dataclass(frozen=True, slots=True)
class Order:
    """The order in which messages of several flows arrive at a stage."""

    places: Integers | None  # None: there is only one flow
    lengths: tuple[int, ...]

    def merged(self, parts: Sequence[Floats]) -> Floats:
        return parts[0] if self.places is None else np.concatenate(parts)[self.places]

    def split(self, merged: Floats) -> list[Floats]:
        if self.places is None:
            return [merged]
        whole = np.empty_like(merged)
        whole[self.places] = merged
        return np.split(whole, np.cumsum(self.lengths)[:-1])


def order_of(arrivals_s: Sequence[Floats]) -> Order:
    lengths = tuple(len(part) for part in arrivals_s)
    if len(arrivals_s) == 1:
        return Order(None, lengths)
    return Order(np.argsort(np.concatenate(arrivals_s), kind="stable"), lengths)

"""The `profile` of subscriptions or publications: a factor of their rates that repeats with a period.

Profile is what a scenario file says. Sine and Steps are what a Scenario has of it: all that generators and models need
to know, including the contents of a trace.
"""

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from brokerbed.scenario.document import shown
from brokerbed.scenario.part import Part, problem
from brokerbed.scenario.trace_file import TraceError, TraceName, numbers, read
from brokerbed.scenario.units import NS_PER_S, DurationNs, parse_duration_ns

POINTS_MAX = 10_000  # steps; models look at every pair of a step and a moment
FACTOR_MAX = 1e6
COLUMNS = ("at_s", "factor")  # of a trace


class Factor(ABC):
    """The factor of a rate as a function of model time, which is the time since the start of a run."""

    period_ns: int
    amplitude: float = 0.0  # of the sine, if it has one
    trace: str | None = None  # the name of the file from which it was read

    @property
    def jumps(self) -> list[tuple[int, float]]:
        """The times of one period at which the factor jumps, and by how much."""
        return []

    @abstractmethod
    def at(self, time_ns: float) -> float: ...

    @abstractmethod
    def bounds(self) -> Iterator[tuple[float, float]]:
        """Intervals from time zero on without gaps: the end of each, and the largest factor until then."""

    @abstractmethod
    def integral_ns(self, time_ns: float) -> float:
        """The integral from time zero to this time."""

    @property
    @abstractmethod
    def largest(self) -> float: ...

    @property
    def mean(self) -> float:
        return self.integral_ns(self.period_ns) / self.period_ns


@dataclass(frozen=True)
class Sine(Factor):
    """1 + amplitude sin(2 pi t / period)"""

    period_ns: int
    amplitude: float

    def at(self, time_ns: float) -> float:
        return 1 + self.amplitude * math.sin(math.tau * (time_ns % self.period_ns) / self.period_ns)

    def bounds(self) -> Iterator[tuple[float, float]]:
        yield math.inf, self.largest

    def integral_ns(self, time_ns: float) -> float:
        turn = self.period_ns / math.tau
        return time_ns + self.amplitude * turn * (1 - math.cos((time_ns % self.period_ns) / turn))

    @property
    def largest(self) -> float:
        return 1 + self.amplitude


@dataclass(frozen=True)
class Steps(Factor):
    """Each factor holds from its time until the next one, and the last one until the first of the next period."""

    period_ns: int
    times_ns: tuple[int, ...]  # in order, within one period
    factors: tuple[float, ...]
    trace: str | None = None

    def at(self, time_ns: float) -> float:
        return self.factors[bisect_right(self.times_ns, time_ns % self.period_ns) - 1]

    def bounds(self) -> Iterator[tuple[float, float]]:
        begin_ns = 0
        while True:
            for end_ns, factor in self._pieces:
                yield begin_ns + end_ns, factor
            begin_ns += self.period_ns

    def integral_ns(self, time_ns: float) -> float:
        periods, rest_ns = divmod(time_ns, self.period_ns)
        return periods * self._integral_within(self.period_ns) + self._integral_within(rest_ns)

    def _integral_within(self, limit_ns: float) -> float:
        begin_ns, total = 0.0, 0.0
        for end_ns, factor in self._pieces:
            total += factor * max(0.0, min(end_ns, limit_ns) - begin_ns)
            begin_ns = end_ns
        return total

    @property
    def jumps(self) -> list[tuple[int, float]]:
        before = (self.factors[-1], *self.factors[:-1])
        changes = [(time_ns, new - old) for time_ns, old, new in zip(self.times_ns, before, self.factors, strict=True)]
        return [(time_ns, change) for time_ns, change in changes if change]

    @property
    def largest(self) -> float:
        return max(self.factors)

    @cached_property
    def _pieces(self) -> list[tuple[int, float]]:
        """The end and the factor of each piece of one period."""
        before = [] if self.times_ns[0] == 0 else [(self.times_ns[0], self.factors[-1])]
        return [*before, *zip((*self.times_ns[1:], self.period_ns), self.factors, strict=True)]


class SineKeys(Part):
    example = "{period: 120s, amplitude: 0.8}"
    period: DurationNs
    amplitude: Annotated[float, Field(strict=True, ge=0, le=1)]


def _points(value: Any) -> tuple[tuple[int, float], ...]:
    if not isinstance(value, list | tuple) or not value:
        raise problem(f"must be a list of times and factors, like [[0s, 1], [60s, 3]], not {shown(value)}")
    if len(value) > POINTS_MAX:
        raise problem(f"has {len(value)} steps; at most {POINTS_MAX} are allowed")
    points = []
    for step in value:
        if not isinstance(step, list | tuple) or len(step) != 2:
            raise problem(f"each step must be a time and a factor, like [60s, 3], not {shown(step)}")
        factor = step[1]
        if isinstance(factor, bool) or not isinstance(factor, int | float) or not 0 <= factor <= FACTOR_MAX:
            raise problem(f"a factor must be a number from 0 to {FACTOR_MAX:.0f}, not {shown(factor)}")
        points.append((parse_duration_ns(step[0]), float(factor)))
    return tuple(points)


_STEPS_SCHEMA = {
    "type": "array", "minItems": 1, "examples": [[["0s", 1], ["60s", 3]]],
    "items": {"type": "array", "minItems": 2, "maxItems": 2},
}  # fmt: skip
StepPoints = Annotated[tuple[tuple[int, float], ...], BeforeValidator(_points), WithJsonSchema(_STEPS_SCHEMA)]


class Profile(Part):
    """How a rate varies over time: by a sine, by steps, or as a trace says."""

    example = "{sine: {period: 120s, amplitude: 0.8}}"
    sine: SineKeys | None = None
    steps: StepPoints | None = None
    trace: TraceName | None = None
    period: DurationNs | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(kind is not None for kind in (self.sine, self.steps, self.trace)) != 1:
            raise problem(
                "a profile is exactly one of sine, steps and trace, as in {sine: {period: 120s, amplitude: 0.8}}"
            )
        if self.sine is not None and self.period is not None:
            raise problem("of a sine is given in it, as in sine: {period: 120s, amplitude: 0.8}", "period")
        if self.sine is None and self.period is None:
            raise problem("is required with steps or a trace, as in period: 120s", "period")
        if self.steps is not None and self.period is not None and (text := order_problem(self.steps, self.period)):
            raise problem(text, "steps")
        return self

    def resolved(self, folder: Path) -> Factor:
        """The factor. Raises TraceError if it is in a file in this folder that cannot be used."""
        if self.sine is not None:
            return Sine(self.sine.period, self.sine.amplitude)
        assert self.period is not None
        points = self.steps if self.trace is None else _read(folder, self.trace, self.period)
        assert points is not None
        return Steps(self.period, tuple(time for time, _ in points), tuple(factor for _, factor in points), self.trace)


def order_problem(points: tuple[tuple[int, float], ...], period_ns: int) -> str | None:
    """What is wrong with these times and factors as a whole, if anything."""
    for (before_ns, _), (time_ns, _) in pairwise(points):
        if time_ns <= before_ns:
            return f"must be in order of time; {time_ns / NS_PER_S:g}s comes after {before_ns / NS_PER_S:g}s"
    if points[-1][0] >= period_ns:
        last, period = points[-1][0] / NS_PER_S, period_ns / NS_PER_S
        return f"has a point at {last:g}s, which is not before the end of the period ({period:g}s)"
    return None if any(factor for _, factor in points) else "needs a factor above 0"


def _read(folder: Path, name: str, period_ns: int) -> tuple[tuple[int, float], ...]:
    _, rows = read(folder, name, [COLUMNS])
    meanings = "a time in seconds", "a factor"
    points = tuple(_point(name, line, *pair) for line, pair in numbers(name, rows, meanings))
    if text := order_problem(points, period_ns):
        raise TraceError(f"{name} {text}")
    return points


def _point(name: str, line: int, at_s: float, factor: float) -> tuple[int, float]:
    if not (0 <= at_s < math.inf and 0 <= factor <= FACTOR_MAX):
        raise TraceError(
            f"{name}, line {line}: times must not be negative, and factors must be from 0 to {FACTOR_MAX:.0f}"
        )
    return round(at_s * NS_PER_S), factor

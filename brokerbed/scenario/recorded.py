"""What was recorded of a peer and is played again: when it was connected (`connectivity`), or sent (`arrivals`).

The keys as a scenario file has them. A Scenario also has the contents of the files in them, which `resolved` reads.
"""

import math
from bisect import bisect_left
from pathlib import Path
from typing import Literal, Self

from pydantic import PrivateAttr

from brokerbed.scenario.part import Part
from brokerbed.scenario.trace_file import Row, TraceError, TraceName, numbers, read
from brokerbed.scenario.units import DURATION_NS_MAX, NS_PER_S

CYCLE_COLUMNS = ("on_s", "off_s")
STATE_COLUMNS = ("duration_s", "state")
ARRIVAL_COLUMNS = ("at_s",)
ON, OFF = "on", "off"

Cycle = tuple[int, int]  # nanoseconds ON, and then OFF


class Connectivity(Part):
    """Recorded ON and OFF periods, repeated for ever. Every peer and copy starts at a random place of the trace."""

    example = "{trace: metro1.csv, order: recorded}"
    trace: TraceName
    order: Literal["recorded", "shuffled"] = "recorded"
    _cycles_ns: tuple[Cycle, ...] = PrivateAttr(())

    def resolved(self, folder: Path) -> Self:
        """The same with the contents of the file in this folder. Raises TraceError if it cannot be used."""
        copy = self.model_copy()
        copy._cycles_ns = _cycles(folder, self.trace)
        return copy

    @property
    def cycles_ns(self) -> tuple[Cycle, ...]:
        """One pass through the trace."""
        assert self._cycles_ns
        return self._cycles_ns

    @property
    def is_shuffled(self) -> bool:
        return self.order == "shuffled"

    @property
    def pass_ns(self) -> int:
        return sum(on_ns + off_ns for on_ns, off_ns in self.cycles_ns)

    @property
    def on_mean_ns(self) -> float:
        return sum(on_ns for on_ns, _ in self.cycles_ns) / len(self.cycles_ns)

    @property
    def share_on(self) -> float:
        return sum(on_ns for on_ns, _ in self.cycles_ns) / self.pass_ns


class Arrivals(Part):
    """Recorded times of messages, repeated for ever with the last time as the period."""

    example = "{trace: calls.csv}"
    trace: TraceName
    _times_ns: tuple[int, ...] = PrivateAttr(())

    def resolved(self, folder: Path) -> Self:
        """The same with the contents of the file in this folder. Raises TraceError if it cannot be used."""
        copy = self.model_copy()
        copy._times_ns = _times(folder, self.trace)
        return copy

    @property
    def times_ns(self) -> tuple[int, ...]:
        """Of one pass, in order; the last one is the end of the pass."""
        assert self._times_ns
        return self._times_ns

    @property
    def pass_ns(self) -> int:
        return self.times_ns[-1]

    @property
    def rate_per_s(self) -> float:
        return len(self.times_ns) * NS_PER_S / self.pass_ns

    def fewest_within(self, duration_ns: int) -> int:
        """The smallest number of messages in any time of this length."""
        passes, rest_ns = divmod(duration_ns, self.pass_ns)
        twice = [*self.times_ns, *(time_ns + self.pass_ns for time_ns in self.times_ns)]
        # the fewest are in times that begin just after a message
        within = (bisect_left(twice, begin_ns + rest_ns) - place for place, begin_ns in enumerate(self.times_ns, 1))
        return passes * len(self.times_ns) + max(0, min(within))


def _cycles(folder: Path, name: str) -> tuple[Cycle, ...]:
    columns, rows = read(folder, name, (CYCLE_COLUMNS, STATE_COLUMNS))
    if columns == CYCLE_COLUMNS:
        cycles = []
        for line, (on_s, off_s) in numbers(name, rows, ("the seconds of an ON period", "those of an OFF period")):
            cycles.append((_duration_ns(name, line, on_s), _duration_ns(name, line, off_s)))
    else:
        cycles = _paired(name, [_period(name, row) for row in rows])
    if sum(on_ns + off_ns for on_ns, off_ns in cycles) > DURATION_NS_MAX:
        raise TraceError(f"{name}: all periods together must be less than 146 years")
    return tuple(cycles)


def _period(name: str, row: Row) -> tuple[bool, int]:
    """Whether it is an ON period, and how long it is."""
    line, cells = row
    if len(cells) != len(STATE_COLUMNS):
        raise TraceError(f"{name}, line {line}: must be a duration in seconds and a state, {ON} or {OFF}")
    if cells[1] not in (ON, OFF):
        raise TraceError(f"{name}, line {line}: the state must be {ON} or {OFF}, not {cells[1][:20] or 'empty'}")
    try:
        seconds = float(cells[0])
    except ValueError:
        raise TraceError(f"{name}, line {line}: must be a duration in seconds and a state, {ON} or {OFF}") from None
    return cells[1] == ON, _duration_ns(name, line, seconds)


def _paired(name: str, periods: list[tuple[bool, int]]) -> list[Cycle]:
    """Cycles of ON and OFF. Neighbours of one state are one period, also the last and the first row."""
    for state, is_on in ((ON, True), (OFF, False)):
        if all(it != is_on for it, _ in periods):
            raise TraceError(f"{name} has no {state} period; it needs at least one {ON} and one {OFF}")
    states = [is_on for is_on, _ in periods]
    first = next(place for place in range(len(states)) if states[place] and not states[place - 1])
    cycles: list[list[int]] = []
    was_on = False
    for is_on, duration_ns in periods[first:] + periods[:first]:  # begins with ON after OFF
        if is_on and not was_on:
            cycles.append([0, 0])
        cycles[-1][0 if is_on else 1] += duration_ns
        was_on = is_on
    return [(on_ns, off_ns) for on_ns, off_ns in cycles]


def _duration_ns(name: str, line: int, seconds: float) -> int:
    duration_ns = round(seconds * NS_PER_S) if math.isfinite(seconds) and abs(seconds) < DURATION_NS_MAX else 0
    if not 1 <= duration_ns <= DURATION_NS_MAX:
        raise TraceError(f"{name}, line {line}: durations must be more than 0 and less than 146 years")
    return duration_ns


def _times(folder: Path, name: str) -> tuple[int, ...]:
    _, rows = read(folder, name, (ARRIVAL_COLUMNS,))
    times_ns: list[int] = []
    for line, (at_s,) in numbers(name, rows, ("a time in seconds",)):
        if not 0 <= at_s < DURATION_NS_MAX / NS_PER_S:
            raise TraceError(f"{name}, line {line}: times must not be negative, and less than 146 years")
        times_ns.append(round(at_s * NS_PER_S))
        if len(times_ns) > 1 and times_ns[-1] <= times_ns[-2]:
            before_s = times_ns[-2] / NS_PER_S
            raise TraceError(f"{name}, line {line}: times must increase; {at_s:g} comes after {before_s:g}")
    if times_ns[-1] == 0:
        raise TraceError(f"{name} must have a time above 0, as the last time is the period with which it repeats")
    return tuple(times_ns)

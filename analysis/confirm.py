"""Whether runs confirm a crossing: which scenarios to run on both sides of it, and what their measurements say.

On each side both algorithms run with the same seeds. Clients draw from streams that are named after the seed, the
broker and the kind of draw, and not after the routing, so both algorithms meet the same arrivals, lifetimes and
publications. What differs between two such runs is the algorithm, so few pairs show the sign of the difference.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isnan, sqrt
from statistics import fmean, stdev
from typing import Any

from brokerbed.analysis.advise import Advice, Along, Candidate, Crossing, Curves
from brokerbed.analysis.axis import ROUTING, Axis
from brokerbed.analysis.envelope import TIED
from brokerbed.analysis.totals import DELAY, mean_delay
from brokerbed.analysis.verdicts import Compared
from brokerbed.metrics import ALL_MESSAGES, END_TO_END_DELAY, TOTAL
from brokerbed.scenario.document import read_document
from brokerbed.scenario.units import NS_PER_S

SEEDS = 5  # pairs of runs on each side
MESSAGES = 5_000  # over links, about, in the first runs
LONGER = 4  # how many times longer the next ones are, where these do not show the order
CONFIDENCE = 0.95
APART = 0.1  # how far the two algorithms should be apart, relatively, where they run beside a crossing
STEPS = 40  # of the search for a value on one side of a crossing
HOLDS, REVERSED, UNCLEAR = "holds", "reversed", "cannot tell"


@dataclass(frozen=True, slots=True)
class Side:
    """Two algorithms at one value of the key (None: the scenario as it is); the first one should be cheaper."""

    crossing: float | None
    at: float | None
    routings: tuple[str, str]
    seeds: tuple[int, ...]
    measure_ns: int  # how long each of them runs, after the warm-up

    def points(self, advice: Advice) -> Iterator[dict[str, Any]]:
        """As the points of a sweep, pair by pair."""
        axis = None if advice.along is None else advice.along.axis
        for seed in self.seeds:
            for routing in self.routings:
                point = _point(_candidate(advice, routing), axis, self.at)
                yield {"seed": seed, "clock.measure": f"{self.measure_ns}ns", **point}

    def longer(self, advice: Advice) -> "Side | None":
        """The same for longer runs; None if these are as long as the scenario says."""
        longest_ns = advice.candidates[0].scenario.clock.measure
        is_longest = self.measure_ns >= longest_ns
        return None if is_longest else replace(self, measure_ns=min(LONGER * self.measure_ns, longest_ns))


@dataclass(frozen=True, slots=True)
class Confirmed:
    """What the runs of one side show."""

    side: Side
    difference: float | None  # of the second algorithm from the first one, on average over the pairs
    half_width: float | None  # of its 95% interval

    @property
    def interval(self) -> tuple[float, float] | None:
        if self.difference is None or self.half_width is None:
            return None
        return self.difference - self.half_width, self.difference + self.half_width

    @property
    def verdict(self) -> str:
        if self.interval is None or self.interval[0] <= 0 <= self.interval[1]:
            return UNCLEAR
        return HOLDS if self.interval[0] > 0 else REVERSED

    def as_json(self) -> dict[str, Any]:
        low, high = self.interval or (None, None)
        return {
            "crossing": self.side.crossing, "at": self.side.at, "cheaper": self.side.routings[0],
            "than": self.side.routings[1], "pairs": len(self.side.seeds),
            "measured_seconds": self.side.measure_ns / NS_PER_S, "difference": self.difference,
            "ci_low": low, "ci_high": high, "verdict": self.verdict,
        }  # fmt: skip


def sides(advice: Advice) -> list[Side]:
    """Both sides of every crossing; without a range, or where nothing changes in it, the scenario as it is."""
    first = advice.candidates[0].scenario.seed
    seeds = tuple(range(first, first + SEEDS))
    if advice.along is None or not advice.along.crossings:
        pair = _two_cheapest(advice)
        if pair is None:
            return []
        rates = [it.predicted.get(ALL_MESSAGES.name) or 0.0 for it in pair]
        return [Side(None, None, (pair[0].routing, pair[1].routing), seeds, _measure_ns(advice, max(rates)))]
    curves = Curves(advice.file, advice.along.axis, ALL_MESSAGES.name, advice.candidates)
    numbers = {candidate.routing: number for number, candidate in enumerate(curves.candidates)}
    found = []
    for crossing, (left, right) in _beside(advice, advice.along):
        assert crossing.before is not None
        assert crossing.after is not None
        order = crossing.before, crossing.after
        rates = curves.at([left, right], [numbers[name] for name in order]).max(axis=1).tolist()
        for at, routings, rate in ((left, order, rates[0]), (right, order[::-1], rates[1])):
            found.append(Side(crossing.at, at, routings, seeds, _measure_ns(advice, rate)))
    return found


def _two_cheapest(advice: Advice) -> tuple[Candidate, Candidate] | None:
    """The cheapest algorithm, and the cheapest of those that cost more; None if all cost the same."""
    best = advice.best
    if best is None or best.total is None:
        return None
    dearer = (it for it in advice.candidates if it.total is not None and it.total > (1 + TIED) * best.total)
    other = next(dearer, None)
    return None if other is None else (best, other)


def _measure_ns(advice: Advice, rate_per_s: float) -> int:
    """Long enough for some messages, but not longer than the scenario says; whole periods if rates vary."""
    scenario = advice.candidates[0].scenario
    if scenario.faults or not 0 < rate_per_s < inf:
        return scenario.clock.measure
    wanted_ns = max(round(MESSAGES / rate_per_s * NS_PER_S), scenario.clock.warmup)
    if (period_ns := scenario.period_ns) is not None:
        wanted_ns = -(-wanted_ns // period_ns) * period_ns
    return min(wanted_ns, scenario.clock.measure)


def judged(all_sides: Sequence[Side], advice: Advice, points: Sequence[Sequence[Compared]]) -> list[Confirmed]:
    """From the rows of the points in their order: two for each seed of each side."""
    values = iter([_measured(advice, rows) for rows in points])
    found = []
    for side in all_sides:
        pairs = [(next(values), next(values)) for _ in side.seeds]
        differences = [second - first for first, second in pairs if first is not None and second is not None]
        found.append(Confirmed(side, *_interval(differences, len(pairs))))
    return found


def holds(confirmed: Sequence[Confirmed]) -> bool | None:
    """Whether the order holds everywhere; None if that cannot be told."""
    verdicts = {each.verdict for each in confirmed}
    return False if REVERSED in verdicts else None if UNCLEAR in verdicts or not verdicts else True


def _interval(differences: Sequence[float], expected: int) -> tuple[float | None, float | None]:
    """The mean and the half-width of its interval; nothing unless all pairs were measured."""
    from scipy.special import stdtrit

    if len(differences) < expected:
        return None, None
    quantile = float(stdtrit(len(differences) - 1, (1 + CONFIDENCE) / 2))
    return fmean(differences), quantile * stdev(differences) / sqrt(len(differences))


def _measured(advice: Advice, rows: Sequence[Compared]) -> float | None:
    if advice.by != DELAY:
        return next((it.measured for it in rows if it.metric == advice.by and tuple(it.labels) == TOTAL), None)
    delays = {tuple(it.labels.values()): it.measured for it in rows if it.metric == END_TO_END_DELAY.name}
    return mean_delay(advice.candidates[0].scenario, delays) if delays else None


def _candidate(advice: Advice, routing: str) -> Candidate:
    return next(it for it in advice.candidates if it.routing == routing)


def _point(candidate: Candidate, axis: Axis | None, at: float | None) -> dict[str, Any]:
    """What a sweep sets to make the scenario this one."""
    parameters: Mapping[str, int] = candidate.scenario.routing_parameters
    own: dict[str, Any] = {}
    if axis is not None and at is not None:
        parameters = axis.parameters(parameters, at)
        own = {} if axis.parameter is not None else {axis.key: axis.written(at)}
    routing = {"algorithm": candidate.routing, **parameters} if parameters else candidate.routing
    return {ROUTING: routing, **own}


def _beside(advice: Advice, along: Along) -> Iterator[tuple[Crossing, tuple[float, float]]]:
    """The crossings between two algorithms, with a value on either side of each.

    There the algorithms are APART, unless that is nearer to the next crossing or to the end of the range.
    """
    curves, axis = Curves(advice.file, along.axis, advice.by, advice.candidates), along.axis
    numbers = {candidate.routing: number for number, candidate in enumerate(curves.candidates)}
    limits = [axis.low, *(crossing.at for crossing in along.crossings), axis.high]
    for place, crossing in enumerate(along.crossings, 1):
        if crossing.before is None or crossing.after is None:
            continue
        pair = numbers[crossing.before], numbers[crossing.after]
        if axis.is_whole:
            yield crossing, (crossing.at - 1, crossing.at)
            continue
        before = limits[place - 1] if place > 1 else None
        after = limits[place + 1] if place + 2 < len(limits) else None
        left = _apart(curves, pair, crossing.at, axis.low, before)
        yield crossing, (left, _apart(curves, pair, crossing.at, axis.high, after))


def _apart(curves: Curves, pair: tuple[int, int], crossing: float, end: float, neighbour: float | None) -> float:
    axis = curves.axis
    near = axis.place(crossing)
    far = axis.place(end) if neighbour is None else (near + axis.place(neighbour)) / 2
    places = [near + (far - near) * step / STEPS for step in range(1, STEPS + 1)]
    for place, (one, other) in zip(
        places, curves.at([axis.value(each) for each in places], pair).tolist(), strict=True
    ):
        if isnan(one - other) or abs(one - other) >= APART * min(one, other):
            return axis.value(place)
    return axis.value(places[-1])


def experiment(advice: Advice, every: Sequence[Side]) -> str:
    """A scenario file with all runs as the points of a sweep."""
    document = read_document(advice.file).plain()
    assert isinstance(document, dict)
    lines = [f"{key}: {json.dumps(value)}" for key, value in document.items() if key not in ("sweep", "seed")]
    points = [f"  - {json.dumps(point)}" for side in every for point in side.points(advice)]
    return "\n".join([f"# The two cheapest algorithms of {advice.name}, side by side.", *lines, "sweep:", *points, ""])

"""Where the smallest of several functions changes: all crossings of their lower envelope in an interval.

The functions are positive. Their shares (1 / value, as a part of the sum of all) are interpolated by polynomials at
Chebyshev points, and an interval is halved until the polynomials agree with the shares wherever that matters: closely
for the smallest functions, roughly for those far above. The roots of the differences then lead to every crossing, which
is found exactly on the functions themselves. This module knows nothing of brokers.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from math import isfinite

import numpy as np
from numpy.polynomial import chebyshev

from brokerbed.scenario.topology import Floats

Evaluate = Callable[[Sequence[float], Sequence[int]], Floats]
# (places, numbers of functions) -> a row per place and a column per function; inf where a function has no value

TIED = 1e-9  # relative; functions that differ by less are equal, and the first of them counts as the smallest
CLOSE = 1e-5  # relative to the largest share; with twice the degree, the error is about the square of this
ROUGH = 0.1  # relative to how far the share of a function is below the largest one
DEGREES = (8, 16, 32)  # the points of each are among those of the next
HALVINGS_MAX = 8  # then there is a jump or a bend, and only the points themselves count
TWINS = 1e-6  # of an interval from -1 to 1; roots that are closer are one
EPSILON = 2.0**-51  # of floating-point numbers, relatively
ROOT_WIDTH = 1e-14  # of the interval in which a root is searched
LARGE = 1e100
NEXT_TO_NOTHING = 1e-12  # values below this are as good as 0; none is negative
NONE = -1  # instead of the number of a function: none has a value


@dataclass(frozen=True, slots=True)
class Change:
    """At this place another function becomes the smallest. NONE: no function has a value there."""

    at: float
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class _Probe:
    at: float
    smallest: int


def changes(evaluate: Evaluate, functions: int, low: float, high: float, close: float = CLOSE) -> list[Change]:
    """In the order of their places. `close`: relative; the functions are known no better than that."""
    search = _Search(evaluate, functions, close)
    return _chained(list(search.between(list(search.probes(low, high, 0)))))


def changes_of_whole(evaluate: Evaluate, functions: int, values: Sequence[int]) -> list[Change]:
    """The same where only whole numbers have values: the first number at which another function is the smallest.

    It is certain about `values` and finds, between two of them at which different functions are the smallest, where.
    """
    search = _Search(evaluate, functions)
    search.values(values)  # all at once, which is faster
    return [
        change
        for first, second in pairwise([_Probe(value, search.smallest(value)) for value in values])
        for change in search.whole(first, second)
    ]


def smallest(values: Floats) -> int:
    """The number of the smallest value; of equal ones the first."""
    least = float(values.min())
    return int(np.flatnonzero(values <= least + TIED * abs(least))[0]) if isfinite(least) else NONE


class _Search:
    def __init__(self, evaluate: Evaluate, functions: int, close: float = CLOSE) -> None:
        self._close = close
        self._evaluate = evaluate
        self._all = range(functions)
        self._known: dict[float, Floats] = {}

    def values(self, places: Sequence[float]) -> Floats:
        """Of all functions."""
        new = [place for place in dict.fromkeys(places) if place not in self._known]
        if new:
            self._known.update(zip(new, self._evaluate(new, self._all), strict=True))
        return np.array([self._known[place] for place in places])

    def smallest(self, place: float) -> int:
        return smallest(self.values([place])[0])

    # -- an interval ------------------------------------------------------------------------------------------

    def probes(self, low: float, high: float, halvings: int) -> Iterator[_Probe]:
        """Places between which the smallest function changes at most once."""
        places = _points(low, high, DEGREES[0])
        values = self.values(places)
        for degree in DEGREES[1:]:
            is_known = np.isfinite(values)
            if not is_known.any() or (is_known.any(axis=0) & ~is_known.all(axis=0)).any():
                break  # something begins or ends here
            rough = _interpolated(_shares(values))
            places = _points(low, high, degree)
            values = self.values(places)
            if np.isfinite(values).any(axis=1).all() and _is_close(rough, _shares(values), self._close):
                yield from _by_roots(low, high, _interpolated(_shares(values)))
                return
        if halvings == HALVINGS_MAX or not np.isfinite(values).any():
            yield from (_Probe(place, smallest(row)) for place, row in zip(places, values, strict=True))
            return
        middle = (low + high) / 2
        yield from self.probes(low, middle, halvings + 1)
        yield from self.probes(middle, high, halvings + 1)

    # -- where exactly ----------------------------------------------------------------------------------------

    def between(self, probes: Sequence[_Probe]) -> Iterator[Change]:
        current = probes[0]
        for probe in probes[1:]:
            if probe.smallest == current.smallest:
                current = probe
                continue
            at_current, at_probe = (self._difference(current, probe, place) for place in (current.at, probe.at))
            if at_probe <= TIED:
                continue  # they are equal but for rounding
            if at_current < -TIED:
                yield from self._located(current, probe)
            current = probe

    def _difference(self, first: _Probe, second: _Probe, place: float) -> float:
        """How much larger the first one's function is than the second one's, relatively; infinite if it has no value.

        With NONE, only the signs count.
        """
        if NONE in (first.smallest, second.smallest):
            return -1.0 if self.smallest(place) == first.smallest else 1.0
        one, other = self._evaluate([place], (first.smallest, second.smallest))[0].tolist()
        if one == other or not isfinite(one + other):
            return 0.0 if one == other else one - other
        return float((one - other) / max(min(one, other), NEXT_TO_NOTHING))

    def _located(self, first: _Probe, second: _Probe) -> Iterator[Change]:
        """The changes between two probes; the function that is the smallest at each is larger at the other."""
        at = _root(lambda place: self._difference(first, second, place), first.at, second.at)
        values = self.values([at])[0]
        third = smallest(values)
        pair = first.smallest, second.smallest
        is_lower = NONE not in (third, *pair) and values[third] < (1 - 2 * TIED) * values[list(pair)].min()
        if is_lower and first.at < at < second.at:
            yield from self.between([first, _Probe(at, third), second])
        else:
            yield Change(at, *pair)

    def whole(self, first: _Probe, second: _Probe) -> Iterator[Change]:
        if first.smallest == second.smallest:
            return
        if second.at - first.at <= 1:
            yield Change(second.at, first.smallest, second.smallest)
            return
        at = int(first.at + second.at) // 2
        middle = _Probe(at, self.smallest(at))
        yield from self.whole(first, middle)
        yield from self.whole(middle, second)


def _by_roots(low: float, high: float, coefficients: Floats) -> Iterator[_Probe]:
    """One place between any two roots of differences, with the largest share there."""
    roots: list[float] = [-1.0, 1.0]
    for one, other in combinations(range(coefficients.shape[1]), 2):
        difference = coefficients[:, one] - coefficients[:, other]
        largest = np.abs(difference).max()
        if largest > TIED:
            found = chebyshev.chebroots(chebyshev.chebtrim(difference, largest * 1e-15))
            real = found.real[np.abs(found.imag) < 1e-6]
            roots += real[np.abs(real) < 1].tolist()
    for before, after in pairwise(sorted(roots)):
        if after - before < TWINS:
            continue
        at = float(before + after) / 2
        shares = np.asarray(chebyshev.chebval(at, coefficients), dtype=np.float64)
        yield _Probe(low + (at + 1) / 2 * (high - low), smallest(-shares))


def _shares(values: Floats) -> Floats:
    """1 / value as a part of their sum, for each place: smooth, and large for the smallest function only."""
    inverse = 1 / np.maximum(values, NEXT_TO_NOTHING)
    shares: Floats = inverse / inverse.sum(axis=1, keepdims=True)
    return shares


def _points(low: float, high: float, degree: int) -> list[float]:
    """In ascending order; those of half the degree are every other one."""
    places: list[float] = (low + (high - low) * (1 + _nodes(degree)) / 2).tolist()
    return places


def _nodes(degree: int) -> Floats:
    return -np.cos(np.pi * np.arange(degree + 1) / degree)


def _interpolated(values: Floats) -> Floats:
    """The coefficients of the polynomials with these values at the points, on [-1, 1]."""
    degree = len(values) - 1
    return np.asarray(np.linalg.solve(chebyshev.chebvander(_nodes(degree), degree), values), dtype=np.float64)


def _is_close(coefficients: Floats, shares: Floats, close: float) -> bool:
    """Whether the polynomials of half the degree agree with these shares wherever it matters."""
    errors = np.abs(chebyshev.chebval(_nodes(len(shares) - 1), coefficients).T - shares)
    largest = shares.max(axis=1, keepdims=True)
    return bool((errors <= np.maximum(close * largest, ROUGH * (largest - shares))).all())


def _root(function: Callable[[float], float], low: float, high: float) -> float:
    """Where the sign changes, which may be a jump, by Chandrupatla's method: inverse quadratic steps, or halving."""
    width = ROOT_WIDTH * abs(high - low)
    near, far, share = high, low, 0.5
    at_near, at_far = _limited(function(near)), _limited(function(far))
    while True:
        at = near + share * (far - near)
        value = _limited(function(at))
        if (value > 0) == (at_near > 0):
            last, at_last = near, at_near
        else:
            last, at_last, far, at_far = far, at_far, near, at_near
        near, at_near = at, value
        best, at_best = (near, at_near) if abs(at_near) < abs(at_far) else (far, at_far)
        least_share = (EPSILON * abs(best) + width) / abs(far - near)
        if at_best == 0 or least_share > 0.5:
            return best
        part, value_part = (near - far) / (last - far), (at_near - at_far) / (at_last - at_far)
        share = 0.5
        if value_part**2 < part and (1 - value_part) ** 2 < 1 - part:
            share = at_near / (at_far - at_near) * at_last / (at_far - at_last)
            share += (last - near) / (far - near) * at_near / (at_last - at_near) * at_far / (at_last - at_far)
        share = min(max(share, least_share), 1 - least_share)


def _limited(value: float) -> float:
    """A value that can be squared: unknown ones are infinite."""
    return min(max(value, -LARGE), LARGE)


def _chained(found: list[Change]) -> list[Change]:
    """One chain of changes, also where functions are equal between two of them."""
    chain: list[Change] = []
    for change in found:
        if chain and chain[-1].after != change.before:
            chain[-1] = Change(chain[-1].at, chain[-1].before, change.before)
        chain.append(change)
    return [change for change in chain if change.before != change.after]

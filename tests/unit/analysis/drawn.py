"""Batches drawn from processes whose mean is known, some of which remember for long: how often intervals hold the mean.

`python -m tests.unit.analysis.drawn` draws thousands of runs of each (part of `make coverage-campaign`). Times are in units of
what the process remembers (the lifetime of an entry, the relaxation time of a queue, the cycle of a peer).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from brokerbed.analysis.estimates import Estimates, Numbers, estimates, rates, shares
from brokerbed.analysis.verdicts import AGREES, DIFFERS, INCONCLUSIVE, verdict_of
from brokerbed.analysis.windows import BATCHES

DRAWN = 4000
TOLERANCE = 0.05
WIDTHS = (0.2, 0.4, 0.7, 0.95, 1.5)  # half an interval, in tolerances
WRONG_MAX = 0.025
Batches = tuple[Numbers, Numbers, float]  # x and n of runs, series, batches; the true value


class Cover(NamedTuple):
    covered: float  # part of the intervals that hold the true value
    without_interval: float


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    draw: Callable[[np.random.Generator, int], Batches]
    estimate: Callable[[Numbers, Numbers], Estimates] = estimates

    def __str__(self) -> str:
        return self.name

    def cover(self, number: int, seed: int = 1) -> Cover:
        x, n, true = self.draw(np.random.default_rng(seed), number)
        _, low, high = self.estimate(x, n)
        has = ~np.isnan(low)
        return Cover(float(((low <= true) & (true <= high))[has].mean()), 1 - float(has.mean()))


def table(times: float) -> Callable[[np.random.Generator, int], Batches]:
    """The size of a table whose entries live for 1, as a process that forgets exponentially; measured for `times`."""

    def draw(rng: np.random.Generator, number: int) -> Batches:
        steps = max(4, int(np.ceil(times / BATCHES / 0.1)))
        keeps = np.exp(-times / BATCHES / steps)
        values = np.empty((number, BATCHES * steps))
        values[:, 0] = rng.normal(size=number)
        for step in range(1, BATCHES * steps):
            noise = rng.normal(0, (1 - keeps**2) ** 0.5, number)
            values[:, step] = keeps * values[:, step - 1] + noise
        x = 10 + values.reshape(number, 1, BATCHES, steps).mean(3)
        return x, np.ones_like(x), 10.0

    return draw


def queue(load: float, times: float) -> Callable[[np.random.Generator, int], Batches]:
    """Sojourn times in an M/M/1 queue, which forgets in 1 / (1 - sqrt(load))^2 services."""

    def draw(rng: np.random.Generator, number: int) -> Batches:
        services = times / (1 - load**0.5) ** 2
        warmup, messages = services / 10, int(1.2 * services * load * 1.1) + 100
        arrives = rng.exponential(1 / load, (number, messages)).cumsum(1)
        takes = rng.exponential(1, (number, messages))
        leaves = np.empty_like(arrives)
        free = np.zeros(number)
        for message in range(messages):
            free = leaves[:, message] = np.maximum(free, arrives[:, message]) + takes[:, message]
        return *_binned(leaves, leaves - arrives, warmup, services), 1 / (1 - load)

    return draw


def peer(times: float, copies: int) -> Callable[[np.random.Generator, int], Batches]:
    """A subscriber that is ON and OFF for exponential times of the same mean: who comes while it is OFF waits."""

    def draw(rng: np.random.Generator, number: int) -> Batches:
        cycles = int(1.4 * times) + 80
        on, off = rng.exponential(0.5, (2, number * copies, cycles))
        ends = (on + off).cumsum(1)
        waiting = rng.poisson(10 * off)  # 20 messages per cycle
        waited = off * (waiting / 2 + rng.normal(size=off.shape) * np.sqrt(waiting / 12))
        x, n = _binned(ends, waited, 20, times, waiting)
        n += _binned(ends - off - on / 2, waited, 20, times, rng.poisson(10 * on))[1]
        return x.reshape(number, copies, BATCHES), n.reshape(number, copies, BATCHES), 0.25

    return draw


def counts(mean: float, together: int = 1) -> Callable[[np.random.Generator, int], Batches]:
    """Poisson events, so many on average in the whole run; each may be several."""

    def draw(rng: np.random.Generator, number: int) -> Batches:
        x = rng.poisson(mean / together / BATCHES, (number, 1, BATCHES)) * float(together)
        return x.astype(np.float64), np.ones(x.shape), mean / BATCHES

    return draw


def losses(mean: float) -> Callable[[np.random.Generator, int], Batches]:
    """Of 6400 messages so many are lost on average."""

    def draw(rng: np.random.Generator, number: int) -> Batches:
        n = np.full((number, 1, BATCHES), 6400 / BATCHES)
        lost = rng.poisson(mean / BATCHES, n.shape).astype(np.float64)
        return n - lost, n, 1 - mean / 6400

    return draw


def _binned(
    moments: Numbers, values: Numbers, warmup: float, measured: float, weights: Numbers | None = None
) -> tuple[Numbers, Numbers]:
    """Sums of values and of weights, per row and batch of time."""
    rows = np.arange(len(moments))[:, None]
    batch = np.floor((moments - warmup) / measured * BATCHES).astype(int)
    is_in = (batch >= 0) & (batch < BATCHES)
    place, size = (rows * BATCHES + batch)[is_in], len(moments) * BATCHES
    ones = np.ones_like(values) if weights is None else weights
    x, n = (np.bincount(place, it[is_in], size).astype(np.float64) for it in (values, ones))
    return x.reshape(-1, 1, BATCHES), n.reshape(-1, 1, BATCHES)


CASES = [
    Case("entries that live for a batch", table(64)),
    Case("entries that live for a tenth of a batch", table(200)),  # of the twenty batches that there are at least
    Case("entries that live for a hundredth of a batch", table(2000)),
    Case("half loaded queue that remembers a tenth of a batch", queue(0.5, 200)),
    Case("half loaded queue that remembers a hundredth of a batch", queue(0.5, 2000)),
    Case("peer with a cycle of a tenth of a batch", peer(200, 1)),
    Case("five peers with a cycle of a tenth of a batch", peer(200, 5)),
    Case("twenty peers with a cycle of a batch", peer(20, 20)),
    Case("20 events", counts(20), rates),
    Case("200 events", counts(200), rates),
    Case("60 events in threes", counts(60, 3), rates),
    Case("20 losses", losses(20), shares),
    Case("200 losses", losses(200), shares),
]


def verdicts(error: float, width: float, number: int = 1000, seed: int = 2) -> dict[str | None, float]:
    """How often each verdict is given where the prediction is wrong by a part, with half-widths of `width` tolerances."""
    x, n, true = counts(2000)(np.random.default_rng(seed), number)
    _, low, high = estimates(x, n)
    x = true + (x - true) * width * TOLERANCE * true / np.nanmean((high - low) / 2)
    given = [
        verdict_of(true / (1 + error), value, low, high, TOLERANCE)
        for value, low, high in zip(*(it.tolist() for it in estimates(x, n)), strict=True)
    ]
    return {verdict: given.count(verdict) / number for verdict in {*given, AGREES, DIFFERS, INCONCLUSIVE}}


def main() -> int:
    is_right = True
    for case in CASES:
        found = case.cover(DRAWN if "loaded" not in case.name else DRAWN // 8)
        is_right &= 0.92 <= found.covered <= 0.98
        print(f"{case.name:<60} {found.covered:.1%} (no interval {found.without_interval:.1%})", flush=True)
    for width in WIDTHS:
        wrong, right = verdicts(2 * TOLERANCE, width), verdicts(0.0, width)
        is_right &= wrong[AGREES] <= WRONG_MAX and right[DIFFERS] <= WRONG_MAX
        told = f"half-width of {width} tolerances"
        print(
            f"{told:<30} agrees though wrong by two tolerances {wrong[AGREES]:.1%}, differs though right {right[DIFFERS]:.1%}"
        )
    return 0 if is_right else 1


if __name__ == "__main__":
    raise SystemExit(main())

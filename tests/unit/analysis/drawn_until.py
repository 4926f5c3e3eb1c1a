"""Runs that end when their interval is short enough, drawn from processes whose mean is known: how often such intervals
hold the mean, and how long the runs are. `python -m tests.unit.analysis.drawn_until` (part of `make coverage-campaign`).

All looks use the lengths and the estimators of analysis/sequential.py. Times are in units of what the process remembers.
"""

import argparse
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from brokerbed.analysis.estimates import Numbers
from brokerbed.analysis.sequential import estimated, half_widths, looks_ns
from brokerbed.metrics import Statistic

BINS = 1 << 13  # of the longest run
DRAWN = 1000
BETWEEN = (0.92, 0.98)
Draw = Callable[[np.random.Generator, int], tuple[Numbers, Numbers, float]]  # x and n by run and bin; the true mean


@dataclass(frozen=True, slots=True)
class Stopped:
    covered: float  # part of the runs whose interval holds the true value
    too_long: float  # part of the runs that were still uncertain at the longest length
    lengths: Numbers  # as parts of the longest

    def __str__(self) -> str:
        low, middle, high = np.quantile(self.lengths, [0.05, 0.5, 0.95])
        return (
            f"{self.covered:.1%} (uncertain at the end {self.too_long:.1%}; length {low:.3f} {middle:.3f} {high:.3f})"
        )


def stopped(draw: Draw, statistic: Statistic, until: float, memory: float, number: int, seed: int = 1) -> Stopped:
    x, n, true = draw(np.random.default_rng(seed), number)
    length, covered, too_long = np.full(number, np.nan), np.zeros(number, bool), 0
    for look in (*looks_ns(BINS, memory), BINS):
        left = np.flatnonzero(np.isnan(length))
        if not len(left):
            break
        found = estimated(statistic, x[left, None, :look], n[left, None, :look])
        is_known = half_widths(found, true) <= until
        too_long += int(look == BINS) * int((~is_known).sum())
        is_over = is_known | (look == BINS)
        length[left[is_over]] = look / BINS
        covered[left[is_over]] = ((found.low <= true) & (true <= found.high))[is_over]
    return Stopped(float(covered.mean()), too_long / number, length)


def counts(per_bin: float) -> Draw:
    """Poisson events."""

    def draw(rng: np.random.Generator, number: int) -> tuple[Numbers, Numbers, float]:
        x = rng.poisson(per_bin, (number, BINS)).astype(float)
        return x, np.ones_like(x), per_bin

    return draw


def table(remembers_bins: float) -> Draw:
    """The size of a table of ten entries whose entries live for so many bins, as a process that forgets exponentially."""

    def draw(rng: np.random.Generator, number: int) -> tuple[Numbers, Numbers, float]:
        keeps = np.exp(-1 / remembers_bins)
        values = np.empty((number, BINS))
        values[:, 0] = rng.normal(size=number)
        noise = rng.normal(0, (1 - keeps**2) ** 0.5, (number, BINS))
        for step in range(1, BINS):
            values[:, step] = keeps * values[:, step - 1] + noise[:, step]
        return 10 + 10**0.5 * values, np.ones_like(values), 10.0

    return draw


def peer(cycles_per_bin: float) -> Draw:
    """A subscriber that is ON and OFF for exponential times of the same mean: who comes while it is OFF waits."""

    def draw(rng: np.random.Generator, number: int) -> tuple[Numbers, Numbers, float]:
        cycles = int(1.2 * cycles_per_bin * BINS) + 40
        on, off = rng.exponential(0.5, (2, number, cycles))
        ends = (on + off).cumsum(1) * (1 / cycles_per_bin)
        waiting, others = rng.poisson(10 * off), rng.poisson(10 * on)
        waited = off * (waiting / 2 + rng.normal(size=off.shape) * np.sqrt(waiting / 12))
        bins = ends.astype(int)
        is_in = bins < BINS
        place = (np.arange(number)[:, None] * BINS + bins)[is_in]
        x, n = (
            np.bincount(place, it[is_in], number * BINS).astype(np.float64).reshape(number, BINS)
            for it in (waited, waiting + others)
        )
        return x, n, 0.25

    return draw


CASES: dict[str, tuple[Draw, Statistic, float, float]] = {
    "events, 1 per bin, to 6%": (counts(1.0), Statistic.RATE, 0.06, 0),
    "events, 20 per bin, to 1.5%": (counts(20.0), Statistic.RATE, 0.015, 0),
    "table that remembers half a bin, to 1.5%": (table(0.5), Statistic.SIZE, 0.015, 0.5),
    "table that remembers 8 bins, to 4%": (table(8.0), Statistic.SIZE, 0.04, 8),
    "table that remembers 32 bins, to 8%": (table(32.0), Statistic.SIZE, 0.08, 32),
    "peer with 2 cycles per bin, to 5%": (peer(2.0), Statistic.MEAN, 0.05, 0.25),
    "peer with a cycle of 4 bins, to 15%": (peer(0.25), Statistic.MEAN, 0.15, 2),
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.unit.analysis.drawn_until", description=__doc__)
    parser.add_argument("--runs", type=int, default=DRAWN)
    runs, is_right = parser.parse_args().runs, True
    for name, case in CASES.items():
        found = stopped(*case, runs)
        is_right &= BETWEEN[0] <= found.covered <= BETWEEN[1]
        print(f"{name:<44} {found}", flush=True)
    return 0 if is_right else 1


if __name__ == "__main__":
    raise SystemExit(main())

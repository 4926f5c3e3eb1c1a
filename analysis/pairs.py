"""The difference between two variants of a scenario that ran with the same random numbers. Pure.

Both variants have the same subscriptions, lifetimes and publications, so what one batch of time has by chance, the same
batch of the other one has, too. The interval of a difference comes from the differences of batches, in which that
cancels out. It is compared with the interval that two independent runs of the same length would give: the square of
the ratio of their widths is how many times longer these would have to be.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from math import isnan
from typing import Any

import numpy as np
import pandas as pd

from brokerbed.analysis.estimates import (
    COUNT_SMALL,
    Numbers,
    deviations,
    estimates,
    limits_of_difference,
    with_fewer_batches,
)
from brokerbed.analysis.measured import KEY
from brokerbed.analysis.metrics.registry import metrics
from brokerbed.analysis.verdicts import Compared
from brokerbed.metrics import Statistic, labels_text

ROUNDING = 1e-9  # relative; two sums of the same numbers in another order differ by less
Interval = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Difference:
    """How much larger a headline row of the second variant is than that of the first one."""

    metric: str
    labels: dict[str, str]
    unit: str
    values: tuple[float, float]
    paired: Interval | None  # 95% interval of the difference; None if batches are too few or depend on one another
    unpaired: Interval | None  # the same, if the runs were independent

    @property
    def value(self) -> float:
        return self.values[1] - self.values[0]

    @property
    def is_shown(self) -> bool | None:
        """Whether the interval excludes 0; None without an interval."""
        return None if self.paired is None else excludes_zero(self.paired)

    @property
    def times_shorter(self) -> float | None:
        """How many times longer independent runs must be for such an interval; None if that is unknown or infinite."""
        if self.paired is None or self.unpaired is None or self.paired[0] == self.paired[1]:
            return None
        return ((self.unpaired[1] - self.unpaired[0]) / (self.paired[1] - self.paired[0])) ** 2

    @property
    def title(self) -> str:
        return f"{self.metric} {labels_text(self.labels)}".strip()

    def as_json(self) -> dict[str, Any]:
        low, high = self.paired or (None, None)
        return {
            "metric": self.metric, "labels": self.labels, "unit": self.unit, "measured": list(self.values),
            "difference": self.value, "ci_low": low, "ci_high": high,
            "ci_unpaired": None if self.unpaired is None else list(self.unpaired),
            "times_shorter": self.times_shorter, "shown": self.is_shown,
        }  # fmt: skip


@dataclass(frozen=True, slots=True)
class Pair:
    key: str
    variants: tuple[str, str]
    differences: tuple[Difference, ...]

    def as_json(self) -> dict[str, Any]:
        return {
            "key": self.key,
            "values": list(self.variants),
            "differences": [difference.as_json() for difference in self.differences],
        }


@dataclass(frozen=True, slots=True)
class Variant:
    """What is known of one variant. Its runs are in the order of their seeds."""

    rows: Sequence[Compared]  # the headline rows
    cells: pd.DataFrame
    batch_s: Mapping[int, Numbers]  # the lengths of the batches of each run


def excludes_zero(interval: Interval) -> bool:
    return interval[0] > 0 or interval[1] < 0


def differences(first: Variant, second: Variant, phases: int, batches_max: int | None) -> Iterator[Difference]:
    """The differences of all headline rows that both variants have."""
    others = {(row.metric, *row.labels.items()): row for row in second.rows}
    for row in first.rows:
        other = others.get((row.metric, *row.labels.items()))
        if other is None or row.measured is None or other.measured is None:
            continue
        independent = None
        limits = [(it.measured, it.ci_low, it.ci_high) for it in (row, other)]
        if all(each is not None for it in limits for each in it):
            independent = limits_of_difference(*limits)  # type: ignore[arg-type]
        batches = _batches_of(row, (first, second), phases, batches_max)
        paired = independent if batches is None else _interval(*batches)
        yield Difference(row.metric, row.labels, row.unit, (row.measured, other.measured), paired, independent)


def _interval(first: tuple[Numbers, Numbers], second: tuple[Numbers, Numbers]) -> Interval | None:
    """Each batch has a share of the deviation of either value; the interval comes from the differences of shares."""
    shares1, shares2 = deviations(*first), deviations(*second)
    value1, value2 = (float(x.sum() / n.sum()) for x, n in (first, second))
    noise = ROUNDING * max(abs(value1), abs(value2))
    if abs(shares2 - shares1).max() * shares1.size <= noise and abs(value2 - value1) <= noise:
        return 0.0, 0.0
    z = (shares2 - shares1) * shares1.size + (value2 - value1)
    _, low, high = (float(each[0]) for each in estimates(z[None], np.ones((1, *z.shape))))
    return None if isnan(low) or isnan(high) else (low, high)


def _batches_of(
    row: Compared, variants: Sequence[Variant], phases: int, batches_max: int | None
) -> list[tuple[Numbers, Numbers]] | None:
    """The x and n of a row in both variants, by series and batch; None if it counts so few events that their scatter
    says little. A series is a copy of the peers in a run with one seed, and both variants have the same ones."""
    statistic = metrics()[row.metric].statistic
    labels = [*row.labels.values(), "", ""][: len(KEY) - 1]
    found = []
    for variant in variants:
        cells = variant.cells
        is_row = (cells[KEY] == [row.metric, *labels]).all(axis=1)
        seeds = {run: place for place, run in enumerate(variant.batch_s)}
        of_row = cells[is_row]
        found.append((of_row, list(zip(of_row["run"].map(seeds), of_row["copy"], strict=True))))
    known = [(seed, -1) for seed in range(len(variants[0].batch_s))] if statistic.is_over_time else []
    series = {key: place for place, key in enumerate(dict.fromkeys([*known, *chain(*(keys for _, keys in found))]))}
    count = max(len(batch_s) for variant in variants for batch_s in variant.batch_s.values()) // phases
    batches = []
    for variant, (cells, keys) in zip(variants, found, strict=True):
        x, n = np.zeros((2, len(series), count))
        if statistic.is_over_time:  # a batch in which nothing happened has no cell
            lengths = list(variant.batch_s.values())
            for (seed, _), place in series.items():
                n[place, : len(lengths[seed]) // phases] = lengths[seed].reshape(-1, phases).sum(1)
        places = np.array([series[key] for key in keys], int), cells["batch"].to_numpy(int) // phases
        np.add.at(x, places, cells["x"].to_numpy(float))
        if not statistic.is_over_time:
            np.add.at(n, places, cells["n"].to_numpy(float))
            x, n = with_fewer_batches(x, n, batches_max)
        batches.append((x, n))
    events = {
        Statistic.RATE: [x.sum() for x, _ in batches],
        Statistic.SHARE: [(n - x).sum() for x, n in batches],
        Statistic.SIZE: [np.inf if x.any() else 0.0 for x, _ in batches],
    }.get(statistic, [np.inf])
    return batches if max(events) >= COUNT_SMALL and all(n.any() for _, n in batches) else None

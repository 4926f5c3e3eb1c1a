"""When a run knows enough: looks at geometrically growing lengths, and the rows that are still too uncertain. Pure.

A run that may end as soon as an interval is short ends more often when the interval is too short by chance, and the
more often the more often one looks. So looks are few: the measured time grows by half from one to the next. And nobody
looks before the run is long beside what the slowest part of it remembers: within a shorter time no estimator can see
that its batches depend on one another. `make coverage-campaign` shows how often such intervals contain the true value.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from brokerbed.analysis.estimates import ESTIMATES, Estimates, Numbers, with_fewer_batches
from brokerbed.analysis.windows import BATCHES
from brokerbed.metrics import Row, Statistic, labels_text
from brokerbed.scenario.units import NS_PER_S

GROWTH = 1.5  # of the measured time from one look to the next
SHORTEST_PART = 1 / 512  # of the longest measured time: nobody looks before that
MEMORIES_MIN = 40  # how many times longer than the slowest part remembers a run is before anybody looks
LONGER_UNKNOWN = 4.0  # where there is no interval yet


@dataclass(frozen=True, slots=True)
class Uncertain:
    """A row that cannot be judged yet."""

    title: str
    half_width: float | None  # relative to the value; None without an interval
    needs_s: float  # the measured time that it takes, as intervals shrink with its square root

    def as_json(self) -> dict[str, Any]:
        return {"row": self.title, "half_width": self.half_width, "needs_seconds": self.needs_s}


def looks_ns(at_most_ns: int, memory_ns: float, unit_ns: int | None = None) -> list[int]:
    """The measured times after which to look, but for the longest. `unit_ns`: only whole periods."""
    shortest_ns = max(at_most_ns * SHORTEST_PART, MEMORIES_MIN * memory_ns, 1)
    lengths, length_ns = [], at_most_ns / GROWTH
    while length_ns >= shortest_ns:
        lengths.append(round(length_ns) if unit_ns is None else int(length_ns // unit_ns) * unit_ns)
        length_ns /= GROWTH
    return sorted({it for it in lengths if it > 0})


def estimated(statistic: Statistic, x: Numbers, n: Numbers) -> Estimates:
    """Estimates from sums by row, series and bin, made as the analysis makes them."""
    shape = len(x) * x.shape[1], x.shape[2]
    merged = with_fewer_batches(x.reshape(shape), n.reshape(shape), BATCHES)
    return ESTIMATES[statistic](*(it.reshape(*x.shape[:2], -1) for it in merged))


def half_widths(found: Estimates, predicted: float) -> Numbers:
    """Half the width of each interval, relative to the value. It is infinite without an interval, and 0 where nothing
    happens and nothing should."""
    scale = np.maximum(np.abs(found.value), abs(predicted))
    half = np.where(np.isnan(found.low) | np.isnan(found.high), inf, (found.high - found.low) / 2)
    return np.divide(half, scale, out=np.zeros_like(half), where=scale > 0)


def uncertain(
    rows: Iterable[Row], sums: Mapping[str, tuple[Numbers, Numbers]], until: float, measured_s: float
) -> list[Uncertain]:
    """The rows whose half-width is above `until` times their value. `sums` are those of rows by title."""
    found = []
    for row in rows:
        title = title_of(row)
        if row.predicted == 0:  # it agrees if nothing happened at all, so an interval does not matter
            continue
        x, n = sums[title]
        if not n.any():  # nothing was observed
            found.append(Uncertain(title, None, LONGER_UNKNOWN * measured_s))
            continue
        half_width = float(half_widths(estimated(row.kind.statistic, x[None], n[None]), row.predicted or 0.0)[0])
        if half_width > until:
            times = LONGER_UNKNOWN if half_width == inf else (half_width / until) ** 2
            found.append(Uncertain(title, None if half_width == inf else half_width, times * measured_s))
    return found


def title_of(row: Row) -> str:
    return f"{row.metric} {labels_text(row.labels)}".strip()


class Bins:
    """Sums of one series by bins of equal length, which grow with the run."""

    def __init__(self) -> None:
        self._sums = np.zeros(0)

    def add(self, bins: "np.ndarray[Any, Any]", amounts: "np.ndarray[Any, Any] | float" = 1.0) -> None:
        """Adds amounts to bins. Negative bins are before the measured time."""
        is_in = bins >= 0
        bins = bins[is_in]
        if not len(bins):
            return
        weights = None if np.isscalar(amounts) else np.asarray(amounts, float)[is_in]
        added = np.bincount(bins, weights, len(self._sums)).astype(float)
        if np.isscalar(amounts):
            added *= float(amounts)  # type: ignore[arg-type]
        added[: len(self._sums)] += self._sums
        self._sums = added

    def first(self, count: int) -> Numbers:
        return np.pad(self._sums, (0, max(0, count - len(self._sums))))[:count]


class Sizes:
    """The size of a table as a function of time, from its changes."""

    def __init__(self, bin_ns: int) -> None:
        self._bin_ns = bin_ns
        self._before = 0  # the size at the beginning of the measured time
        self._net, self._area_ns = Bins(), Bins()

    def add(self, since_begin_ns: "np.ndarray[Any, Any]", signs: "np.ndarray[Any, Any]") -> None:
        bins = since_begin_ns // self._bin_ns
        self._before += int(signs[bins < 0].sum())
        self._net.add(bins, signs)
        self._area_ns.add(bins, signs * ((bins + 1) * self._bin_ns - since_begin_ns))

    def first(self, count: int) -> Numbers:
        """Entry-seconds by bin."""
        net = self._net.first(count)
        sizes = self._before + np.cumsum(net) - net
        entry_seconds: Numbers = (sizes * self._bin_ns + self._area_ns.first(count)) / NS_PER_S
        return entry_seconds

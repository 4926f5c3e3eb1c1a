"""Decides while a run goes when it knows enough (`clock.until`), and where its warm-up ends (`clock.warmup: auto`)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from itertools import chain
from math import isnan
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from brokerbed.analysis.queues import Queue
from brokerbed.analysis.running import Array, RunningMeasurement
from brokerbed.analysis.sequential import MEMORIES_MIN, Uncertain, looks_ns, title_of, uncertain
from brokerbed.analysis.transient import transient_end
from brokerbed.metrics import Row
from brokerbed.scenario import Law, Scenario
from brokerbed.scenario.recorded import Connectivity
from brokerbed.scenario.units import NS_PER_S, duration_text

LAG_NS = NS_PER_S  # what processes wrote in the last second of wall time may not be in their files yet
BINS_OF_FIRST_LOOK = 64
BINS_WITHOUT_LOOKS = 512  # of clock.measure
LOOKS_FOR_TRANSIENT = 8  # within clock.measure, while the transient has not ended
REDRAWS = ("redraw", "redraw_ns")  # durations that are no laws
Sums = dict[str, tuple[Array, Array]]


class Pacer:
    """Looks at a run now and then, and ends it when the half-width of every headline row is small enough."""

    def __init__(self, scenario: Scenario, rows: Sequence[Row], memory_ns: float, raw: Path) -> None:
        """`memory_ns`: how long the slowest part of the scenario remembers."""
        clock = self._clock = scenario.clock
        first_ns = 0 if clock.finds_warmup else clock.warmup
        unit_ns = max((it for it in (scenario.period_ns, scenario.longest_pass_ns) if it is not None), default=None)
        if clock.until is None:
            lengths, parts = [clock.measure], BINS_WITHOUT_LOOKS
        else:
            lengths, parts = looks_ns(clock.measure, memory_ns, unit_ns) or [clock.measure], BINS_OF_FIRST_LOOK
        self._looks = [first_ns + length for length in lengths]
        self.bin_ns = unit_ns or max(1, lengths[0] // parts)
        self._first_ns = first_ns
        self.measurement = RunningMeasurement(scenario, raw, first_ns, self.bin_ns)
        is_watched = [self.measurement.sums(row, 1) is not None for row in rows]
        self.rows = [row for row, it in zip(rows, is_watched, strict=True) if it]
        self._others = [row.metric for row, it in zip(rows, is_watched, strict=True) if not it and row.predicted != 0]
        self._found_ns: int | None = None  # the end of the transient
        self._measured_s = 0.0
        self._open: list[Uncertain] = []
        self._is_known = False

    @property
    def next_ns(self) -> int | None:
        end_ns = self._clock.warmup + self._clock.measure
        return self._looks[0] if self._looks and self._looks[0] < end_ns else None

    @property
    def begin_ns(self) -> int:
        """The beginning of the measured time."""
        return self._clock.warmup if self._found_ns is None else self._found_ns

    def is_over(self, now_ns: int, start_ns: int | None, is_final: bool = False) -> bool:
        def to_model(times_ns: Array) -> Array:
            since_start = (times_ns - (start_ns or 0)) * self._clock.speedup
            return times_ns if start_ns is None else np.rint(since_start).astype(np.int64)

        self._looks = [look for look in self._looks if look > now_ns]
        self.measurement.read(to_model)
        lag_ns = 0 if start_ns is None or is_final else round(LAG_NS * self._clock.speedup)
        count = max(0, now_ns - self._first_ns - lag_ns) // self.bin_ns
        sums: Sums = {}
        for row in self.rows:
            found = self.measurement.sums(row, count)
            assert found is not None, "it was there before"
            sums[title_of(row)] = found
        has_begun = not self._clock.finds_warmup or self._finds_transient(sums)
        cut = min(count, max(0, self.begin_ns - self._first_ns) // self.bin_ns)
        self._measured_s = max(0, now_ns - self.begin_ns) / NS_PER_S
        if self._clock.until is not None:
            of_rest = {title: (x[:, cut:], n[:, cut:]) for title, (x, n) in sums.items()}
            self._open = uncertain(self.rows, of_rest, self._clock.until, self._measured_s)
            self._is_known = has_begun and not self._open and self.measurement.has_all_logs
        last_ns = self.begin_ns + self._clock.measure
        if not self._looks and now_ns < last_ns:
            self._looks = [last_ns if has_begun else min(last_ns, now_ns + self._clock.measure // LOOKS_FOR_TRANSIENT)]
        return self._is_known or (has_begun and now_ns >= last_ns)

    def _finds_transient(self, sums: Sums) -> bool:
        """Whether the transients of all rows have ended; the last one counts."""
        ends = [transient_end(x.sum(0), n.sum(0)) for x, n in sums.values()]
        known = [end for end in ends if end is not None]
        if len(known) == len(ends):
            self._found_ns = self._first_ns + max(known, default=0) * self.bin_ns
        return self._found_ns is not None

    def as_json(self) -> dict[str, Any]:
        described: dict[str, Any] = {"said": list(self._said())}
        if self._clock.finds_warmup:
            found_s = None if self._found_ns is None else self._found_ns / NS_PER_S
            described["transient"] = {"ended": self._found_ns is not None, "seconds": found_s}
        if self._clock.until is not None:
            described["until"] = {
                "half_width": self._clock.until, "reached": self._is_known, "measured_seconds": self._measured_s,
                "open": [row.as_json() for row in self._open], "not_watched": sorted(set(self._others)),
            }  # fmt: skip
        return described

    def _said(self) -> Iterator[str]:
        length, until = duration_text(self._measured_s), self._clock.until
        if self._clock.finds_warmup and self._found_ns is None:
            left_out = duration_text(self._clock.warmup / NS_PER_S)
            yield f"the transient had not ended by the end of the run; its first {left_out} are left out"
        elif self._found_ns is not None:
            yield f"the transient ended after {self._found_ns / NS_PER_S:.4g} s of model time, which are left out"
        if until is None:
            return
        if self._is_known:
            yield f"every row that is watched is known to {until:.3%} after {length} of model time"
        for row in self._open:
            known = "has no interval yet" if row.half_width is None else f"is known to {row.half_width:.2%}"
            needs = duration_text(row.needs_s)
            yield f"{row.title} {known} after {length}; {until:.3%} would take about {needs} of model time"
        if self._others:
            names = ", ".join(sorted(set(self._others)))
            yield f"{names}: not watched while the run goes, as this needs the whole log; the analysis judges it"


def pacer_of(scenario: Scenario, raw: Path) -> Pacer:
    from brokerbed.analysis.predict import predict

    prediction = predict(scenario, detail=False)
    queues = [relaxation_ns(queue) for way in prediction.ways for queue in way.queues if queue.utilisation < 1]
    known = [it for it in queues if not isnan(it)]
    memory_ns = max([scenario.clock.warmup / MEMORIES_MIN, *slow_ns(scenario), *known])
    return Pacer(scenario, [row for row in prediction.rows if row.is_headline], memory_ns, raw)


def slow_ns(scenario: Scenario) -> Iterator[float]:
    """The durations in which parts of the workload forget their state: those of its laws, and between redraws."""
    yield from _durations(
        (scenario.subscriptions, scenario.publications, scenario.publishers, scenario.subscribers, scenario.parts)
    )


def _durations(value: Any) -> Iterator[float]:
    if isinstance(value, Law):
        yield value.mean
    elif isinstance(value, Connectivity):
        yield value.pass_ns / len(value.cycles_ns)
    elif isinstance(value, Mapping):
        yield from chain(*map(_durations, value.values()))
    elif isinstance(value, list | tuple):
        yield from chain(*map(_durations, value))
    elif is_dataclass(value) or isinstance(value, BaseModel):
        names = type(value).model_fields if isinstance(value, BaseModel) else [it.name for it in fields(value)]
        yield from (getattr(value, name) or 0 for name in names if name in REDRAWS)
        yield from chain(*(_durations(getattr(value, name)) for name in names if name not in REDRAWS))


def relaxation_ns(queue: Queue) -> float:
    """The relaxation time of an M/M/1 queue."""
    return float(NS_PER_S * queue.effective_demand_s / (1 - queue.utilisation**0.5) ** 2)

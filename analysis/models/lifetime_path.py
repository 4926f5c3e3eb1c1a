"""Messages with a lifetime on a path of several queues: sample paths of many independent copies, message by message.

The server of a queue serves a message from its arrival on, or from when it is free of those before;
service takes its time in ON periods only. If the lifetime of the message ends before its service, it dies: in service
the server is free from then on, and before service nothing changes for those behind it. Messages do not overtake, so
one after the other can pass all stages; the copies of the path are the elements of vectors. Any laws of service, ON and
OFF times and lifetimes are possible. Means are ratios of sums over the copies, whose scatter gives the standard errors.

Assumptions: Poisson arrivals, first come first served, interrupted service resumes where it stopped, independent times,
and no other messages in these queues. Random numbers have a fixed seed: the same path always has the same estimate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray

from brokerbed.analysis.models.distribution import Distribution
from brokerbed.analysis.models.regression import Estimate
from brokerbed.analysis.models.sample_path import Variable
from brokerbed.analysis.models.sampled import sampled_times
from brokerbed.scenario.topology import Floats

Integers = NDArray[np.int64]
COPIES = 1000
MESSAGES = 1000  # of each copy that count ...
CYCLES_LEAST = 10  # ... and more, if they do not last for so many ON/OFF cycles ...
MESSAGES_MAX = 6000  # ... but not more than so many, with those of the warm-up
WARM_UP = 4  # times the longest lifetime or cycle
PERIODS = 64  # drawn at a time
SEED = 2017
CACHED = 64  # paths


@dataclass(frozen=True, slots=True)
class Stage:
    """A queue with one server; without service times messages wait for OFF periods only."""

    service: Variable | None
    on: Variable | None = None
    off: Variable | None = None

    @property
    def cycle_s(self) -> float:
        return self.on.mean_s + self.off.mean_s if self.on and self.off else 0.0


@dataclass(frozen=True, slots=True)
class PathSample:
    """Estimates for a path. nan if too few messages arrive, or too many would be needed."""

    ratio: Estimate
    delay_s: Estimate  # of the messages that arrive
    stages_s: tuple[Estimate, ...]  # the mean time in each stage, of the messages that pass it
    dying: tuple[Estimate, ...]  # the share of all messages that dies in each stage
    distribution: Distribution | None


@lru_cache(maxsize=CACHED)
def path_sample(rate_per_s: float, stages: tuple[Stage, ...], lifetime: Variable) -> PathSample:
    longest_s = max(lifetime.mean_s, *(stage.cycle_s for stage in stages))
    warm_up = ceil(WARM_UP * longest_s * rate_per_s)
    counted = max(MESSAGES, ceil(CYCLES_LEAST * max(stage.cycle_s for stage in stages) * rate_per_s))
    if warm_up + counted > MESSAGES_MAX:
        unknown = Estimate(float("nan"), float("nan"))
        unknowns = (unknown,) * len(stages)
        return PathSample(unknown, unknown, unknowns, unknowns, None)
    return _played(rate_per_s, stages, lifetime, warm_up, counted)


def _played(rate_per_s: float, stages: Sequence[Stage], lifetime: Variable, warm_up: int, counted: int) -> PathSample:
    generator = np.random.default_rng(SEED)
    servers = [_Server(stage, generator) for stage in stages]
    published = np.zeros(COPIES)
    passed, stage_s = (np.zeros((len(stages), COPIES)) for _ in range(2))  # counts and sums for each copy
    arrived, time_s = np.zeros(COPIES), np.zeros(COPIES)
    delays = []
    for number in range(warm_up + counted):
        published = published + generator.standard_exponential(COPIES) / rate_per_s
        deadline = published + lifetime.draw((COPIES,), generator)
        at, lives = published, np.ones(COPIES, bool)
        for place, server in enumerate(servers):
            left = server.serve(at, deadline, lives)
            lives = lives & (left < deadline)
            if number >= warm_up:
                passed[place] += lives
                stage_s[place] += np.where(lives, left - at, 0.0)
            at = left
        if number >= warm_up:
            arrived += lives
            time_s += np.where(lives, at - published, 0.0)
            delays.append((at - published)[lives])
    published_times = np.full((1, COPIES), float(counted))
    died = -np.diff(passed, axis=0, prepend=published_times)
    delay_s = _ratio(time_s, arrived)
    return PathSample(
        _ratio(arrived, published_times[0]),
        delay_s,
        tuple(map(_ratio, stage_s, passed)),
        tuple(_ratio(each, published_times[0]) for each in died),
        sampled_times([np.concatenate(delays)], delay_s.mean) if arrived.any() else None,
    )


def _ratio(sums: Floats, counts: Floats) -> Estimate:
    """The mean of what was summed, from sums and counts of independent copies."""
    if not counts.any():
        return Estimate(float("nan"), float("nan"))
    mean = float(sums.sum() / counts.sum())
    scatter = sums - mean * counts
    return Estimate(mean, float(scatter.std(ddof=1)) / sqrt(COPIES) / float(counts.mean()))


class _Server:
    """A stage in all copies of the path at once."""

    def __init__(self, stage: Stage, generator: np.random.Generator) -> None:
        self._stage, self._generator = stage, generator
        self._free = np.zeros(COPIES)
        self._rows = np.arange(COPIES)
        self._period = np.zeros(COPIES, np.int64)  # the first ON period that ends after the server was last free
        self._begins, self._ends = np.zeros((COPIES, 0)), np.zeros((COPIES, 0))  # of ON periods
        if stage.on is not None:
            self._extend()

    def serve(self, arrivals: Floats, deadlines: Floats, lives: NDArray[np.bool_]) -> Floats:
        """When the messages leave, served or (at the deadline) dead; those that do not live leave no trace."""
        begins = np.maximum(arrivals, self._free)
        is_served = lives & (begins < deadlines)
        service = self._stage.service
        service_s = np.zeros(COPIES) if service is None else service.draw((COPIES,), self._generator)
        ends = begins + service_s if self._stage.on is None else self._interrupted(begins, service_s, deadlines)
        left = np.minimum(ends, deadlines)
        self._free = np.where(is_served, left, self._free)
        return np.where(is_served, left, deadlines)

    def _interrupted(self, begins: Floats, service_s: Floats, deadlines: Floats) -> Floats:
        """When service ends; infinite if it does not end before the deadline."""
        is_live = begins < deadlines
        while (self._take(self._ends, self._period) <= begins)[is_live].any():
            self._period += is_live & (self._take(self._ends, self._period) <= begins)
            self._extend_if_needed(self._period)
        period, work = self._period.copy(), service_s.copy()
        now = np.maximum(begins, self._take(self._begins, period))
        while True:
            room = self._take(self._ends, period) - now
            goes_on = (work > room) & (now < deadlines)
            if not goes_on.any():
                return np.where(now < deadlines, now + work, np.inf)
            work = np.where(goes_on, work - room, work)
            period += goes_on
            self._extend_if_needed(period)
            now = np.where(goes_on, self._take(self._begins, period), now)

    def _take(self, of_periods: Floats, periods: Integers) -> Floats:
        taken: Floats = of_periods[self._rows, periods]
        return taken

    def _extend_if_needed(self, periods: Integers) -> None:
        if periods.max() >= self._begins.shape[1]:
            self._extend()

    def _extend(self) -> None:
        """Draws more periods. A copy begins with ON or OFF, as likely as each is."""
        on, off = self._stage.on, self._stage.off
        assert on is not None
        assert off is not None
        on_s, off_s = (law.draw((COPIES, PERIODS), self._generator) for law in (on, off))
        if not self._begins.shape[1]:
            share_on = on.mean_s / (on.mean_s + off.mean_s)
            off_s[:, 0] = np.where(self._generator.random(COPIES) < share_on, 0.0, off_s[:, 0])
            before: Floats = np.zeros((COPIES, 1))
        else:
            before = self._ends[:, -1:]
        ends = before + np.cumsum(on_s + off_s, axis=1)
        self._begins = np.concatenate((self._begins, ends - on_s), axis=1)
        self._ends = np.concatenate((self._ends, ends), axis=1)

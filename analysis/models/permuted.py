"""Mean time in a queue whose recorded ON and OFF periods come in another order in every pass through the trace.

Assumptions: Poisson arrivals, exponential service that is interrupted at OFF and resumed where it stopped, first come
first served. In every pass the ON periods and the OFF periods are permuted each by themselves, or the cycles as a
whole. A permutation draws without replacement, so that the sums of several periods vary less than those of independent
periods with the same laws, and the delay is smaller than theirs.

Method: simulation of all that the formula of analysis/models/recorded.py needs, the queue lengths at the beginning of
OFF periods, in many independent systems at once. It does not look at single messages: the queue length at the end of a
period is drawn from its exact law, given the length at the beginning. In an OFF period a Poisson number is added. In an
ON period A messages arrive and B could be served, with Poisson numbers. Of the walk Z of these A + B steps in random
order, the queue becomes max(n + A - B, A - B - min Z), where by reflection, for m from max(0, B - A) to B,

    P(min Z <= -m | A, B) = (A + B choose A + m) / (A + B choose A)

Random numbers come from a generator with a fixed seed, so that a prediction is always the same. It shares no code with
the simulator of the virtual ground.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from scipy.special import gammaln

from brokerbed.analysis.models.recorded import RecordedCentre
from brokerbed.scenario.topology import Floats

NAN = float("nan")
SYSTEMS = 1000  # simulated at once
CYCLES_COUNTED = 1000  # of every system, at least, in whole passes; a million give an error of about one part in 1000
CYCLES_WARM = 50  # before they count, at load 0; in proportion to 1 / (1 - load)^2, as the memory of a queue is
CYCLES_MAX = 20_000  # of every system, together; with more the load is too close to 1
NEWTON_STEPS = 3
SEED = 2017


class PermutedCentre(RecordedCentre):
    """A queue whose recorded ON and OFF periods are permuted each by themselves in every pass."""

    def response_s(self, rate: float) -> float:
        if self.demand_s == 0 or rate == 0 or len(self.cycles_s) == 1 or self.utilisation(rate) >= 1:
            return super().response_s(rate)
        return permuted(self, rate).response_s


@dataclass(frozen=True, slots=True)
class Estimate:
    response_s: float
    standard_error_s: float


@lru_cache(maxsize=256)
def permuted(centre: RecordedCentre, rate: float, are_cycles_whole: bool = False) -> Estimate:
    """The mean delay. With `are_cycles_whole` an OFF period follows the ON period after which it was recorded."""
    load = centre.utilisation(rate)
    assert load < 1
    cycles = len(centre.cycles_s)
    warm = -(-int(CYCLES_WARM / (1 - load) ** 2) // cycles)
    passes = -(-CYCLES_COUNTED // cycles)
    if (warm + passes) * cycles > CYCLES_MAX + CYCLES_COUNTED:
        return Estimate(NAN, NAN)
    draws = np.random.default_rng(SEED)
    systems = _Systems(draws, rate, 1 / centre.demand_s)
    off_weighted = np.zeros(SYSTEMS)
    for number in range(warm + passes):
        on_order = draws.permuted(np.tile(np.arange(cycles), (SYSTEMS, 1)), axis=1)
        off_order = on_order if are_cycles_whole else draws.permuted(on_order, axis=1)
        for place in range(cycles):
            off_s = centre.off_s[off_order[:, place]]
            systems.on(centre.on_s[on_order[:, place]])
            if number >= warm:
                off_weighted += off_s * systems.lengths
            systems.off(off_s)
    return Estimate(
        centre.response_of_queue_s(rate, float(off_weighted.mean()) / passes),
        # the formula is linear in the queue lengths
        float(off_weighted.std(ddof=1)) / passes / SYSTEMS**0.5 / centre.demand_s
        / (rate * centre.pass_s) / (1 / centre.demand_s - rate),
    )  # fmt: skip


class _Systems:
    """The lengths of the queues of all systems."""

    def __init__(self, draws: np.random.Generator, rate: float, service_rate: float) -> None:
        self._draws, self._rate, self._service_rate = draws, rate, service_rate
        self.lengths = np.zeros(SYSTEMS)

    def off(self, seconds: Floats) -> None:
        self.lengths += self._draws.poisson(self._rate * seconds)

    def on(self, seconds: Floats) -> None:
        arrived = self._draws.poisson(self._rate * seconds).astype(float)
        served = self._draws.poisson(self._service_rate * seconds).astype(float)
        log_u = -self._draws.exponential(size=SYSTEMS)
        lowest = np.maximum(self.lengths + 1, served - arrived)  # the smallest -min Z with which the queue was empty
        was_empty = _log_probability(lowest, arrived, served) > log_u
        self.lengths += arrived - served
        if was_empty.any():
            given = arrived[was_empty], served[was_empty]
            depth = _depth(lowest[was_empty], log_u[was_empty], *given)
            self.lengths[was_empty] = given[0] - given[1] + depth


def _log_probability(depth: Floats, arrived: Floats, served: Floats) -> Floats:
    """The logarithm of P(min Z <= -depth)."""
    above = gammaln(arrived + 1) + gammaln(served + 1)
    left = np.maximum(served - depth, -1)  # -1: the walk cannot get so deep, and gammaln(0) is infinite
    result: Floats = above - gammaln(arrived + depth + 1) - gammaln(left + 1)
    return result


def _depth(lowest: Floats, log_u: Floats, arrived: Floats, served: Floats) -> Floats:
    """The largest -min Z whose probability is above u; at least `lowest`, whose is."""
    drift = arrived - served
    depth = (-drift + np.sqrt(drift**2 - 2 * (arrived + served) * log_u)) / 2  # of a Brownian bridge
    for _ in range(NEWTON_STEPS):
        depth = np.clip(depth, lowest, served)
        slope = np.log((served - depth + 0.5) / (arrived + depth + 0.5))
        excess = _log_probability(depth, arrived, served) - log_u
        depth = depth - np.divide(excess, slope, out=np.zeros_like(excess), where=slope < 0)
    depth = np.floor(np.clip(depth, lowest, served))
    while True:
        is_too_deep = (depth > lowest) & (_log_probability(depth, arrived, served) <= log_u)
        is_too_high = _log_probability(depth + 1, arrived, served) > log_u
        if not (is_too_deep | is_too_high).any():
            return depth
        depth = depth - is_too_deep + is_too_high

"""Mean time in a queue whose server is ON and OFF as it was recorded: the periods of a trace, repeated for ever.

Assumptions: Poisson arrivals, exponential service that is interrupted at OFF and resumed where it stopped, first come
first served. The periods are known; nothing is assumed of their laws or of how they depend on one another.

Recorded order. The number of messages in the queue is a Markov chain whose rates are known at every moment, so its
distribution is computed from period to period. In an OFF period of length t a Poisson number of messages with mean
lambda t is added. In an ON period the queue is an M/M/1 queue. Its transient distribution is usually computed by
uniformisation; here it follows from the walk without a boundary, Z = n + Poisson(lambda t) - Poisson(mu t), by
reflection (rho = lambda / mu; a test holds it against uniformisation):

    P(n(t) >= k) = P(Z >= k) + rho^k P(Z <= -k - 1)

Both are convolutions, and therefore products of Fourier transforms. The distribution at the beginning of a pass is the
fixed point of one pass, found by iteration with reduced rank extrapolation (Sidi, 1991). Queue lengths are truncated
where less than TAIL_MAX of the probability lies.

The mean delay. With m the mean number of messages at the beginning of an OFF period of length t, the balances of the
first and second moments of the queue length over one pass of length T (ON: dE[n]/dt = lambda - mu P(n > 0) and
dE[n^2]/dt = 2 (lambda - mu) E[n] + lambda + mu P(n > 0)) and Little's law give

    R = (mu S / (lambda T) + 1) / (mu - lambda),    S = sum over the OFF periods of t (m + lambda t / 2)

Permuted order: analysis/models/permuted.py.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft

from brokerbed.scenario.topology import Floats

NAN = float("nan")
TAIL_MAX = 1e-9  # of the probability; queue lengths beyond the truncation have less
STATES_MIN, STATES_MAX = 64, 2**16  # queue lengths that are told apart; more would take minutes
CONVERGED = 1e-6  # relative change of the mean delay from pass to pass, as extrapolated
PERIODS_MAX = 40_000  # that are computed for one fixed point; beyond that the load is too close to 1
EXTRAPOLATED = 6  # successive passes from which the fixed point is extrapolated
RELAXED = 40.0  # relaxation times after which an M/M/1 queue has forgotten its state: exp(-40)
CACHE_BYTES_MAX = 2**27

Cycles = tuple[tuple[float, float], ...]  # seconds ON and OFF


@dataclass(frozen=True)
class RecordedCentre:
    """A queue with one server that is ON and OFF as recorded. A centre that serves at once has `demand_s` 0."""

    cycles_s: Cycles
    demand_s: float = 0.0

    @cached_property
    def on_s(self) -> Floats:
        return np.array([on for on, _ in self.cycles_s])

    @cached_property
    def off_s(self) -> Floats:
        return np.array([off for _, off in self.cycles_s])

    @property
    def pass_s(self) -> float:
        return float(self.on_s.sum() + self.off_s.sum())

    @property
    def availability(self) -> float:
        return float(self.on_s.sum()) / self.pass_s

    def utilisation(self, rate: float) -> float:
        """The share of ON time that the server is busy; the queue is stable if it is below 1."""
        return rate * self.demand_s / self.availability

    def response_s(self, rate: float) -> float:
        """Mean time from arrival to the end of service in recorded order; nan where it cannot be computed."""
        if self.utilisation(rate) >= 1:
            return NAN
        if self.demand_s == 0 or rate == 0:
            # an arrival waits for the rest of the OFF period; one that meets nobody is also served
            service_s = self.demand_s / self.availability
            return float((self.off_s**2).sum()) / 2 / self.pass_s + service_s if rate > 0 else NAN
        return _recorded_response_s(self, rate)

    def response_of_queue_s(self, rate: float, off_weighted: float) -> float:
        """R by the formula above. `off_weighted` is the sum over OFF periods of t m."""
        service_rate = 1 / self.demand_s
        off_area = off_weighted + rate * float((self.off_s**2).sum()) / 2
        return (service_rate * off_area / (rate * self.pass_s) + 1) / (service_rate - rate)


@lru_cache(maxsize=256)
def _recorded_response_s(centre: RecordedCentre, rate: float) -> float:
    longest = rate * float(centre.off_s.max())
    states = STATES_MIN
    while states < 1.5 * longest + 10 * longest**0.5:
        states *= 2
    while states <= STATES_MAX:
        solved = _Passes(centre, rate, states).solved()
        if solved is None:
            return NAN
        response_s, tail = solved
        if tail < TAIL_MAX:
            return response_s
        states *= 2
    return NAN


class _Passes:
    """Passes through the trace with a limited number of queue lengths."""

    def __init__(self, centre: RecordedCentre, rate: float, states: int) -> None:
        self._centre, self._rate, self._states = centre, rate, states
        self._service_rate = 1 / centre.demand_s
        self._size = next_fast_len(4 * states, real=True)  # room for Z from -3 to 1 times the states
        turn = np.exp(-2j * np.pi * np.arange(self._size // 2 + 1) / self._size)
        self._arriving = rate * (turn - 1)
        self._served = self._arriving + self._service_rate * (turn.conj() - 1)
        self._rho_powers = np.exp(np.arange(states) * np.log(rate / self._service_rate))
        self._factors: dict[tuple[bool, float], Floats] = {}
        self._tail = 0.0

    def solved(self) -> tuple[float, float] | None:
        """The mean delay, and the largest probability of the longest queues; None if it does not converge."""
        centre = self._centre
        state = np.zeros(self._states)
        state[0] = 1.0
        passes_max = max(2 * EXTRAPOLATED, PERIODS_MAX // (2 * len(centre.cycles_s)))
        history, before = [state], NAN
        for _ in range(passes_max):
            self._tail = 0.0
            state, off_weighted = self._pass(state)
            if self._tail > 1e-3:
                return NAN, self._tail  # hopeless with so few states
            response_s = centre.response_of_queue_s(self._rate, off_weighted)
            history.append(state)
            if abs(response_s - before) < CONVERGED * response_s and len(history) > 2:
                return response_s, self._tail
            before = response_s
            if len(history) == EXTRAPOLATED:
                state = extrapolated(history)
                history, before = [state], NAN
        return None

    def _pass(self, state: Floats) -> tuple[Floats, float]:
        off_weighted, lengths = 0.0, np.arange(self._states)
        for on_s, off_s in self._centre.cycles_s:
            state = self._on(state, on_s)
            off_weighted += off_s * float(lengths @ state)
            state = self._off(state, off_s)
        return state, off_weighted

    def _off(self, state: Floats, seconds: float) -> Floats:
        moved = self._convolved(state, False, seconds)
        self._tail = max(self._tail, float(moved[self._states - self._states // 16 :].sum()))
        return _normalised(moved[: self._states])

    def _on(self, state: Floats, seconds: float) -> Floats:
        """M/M/1 for this time, in steps that are so short that Z stays within the transform."""
        rate, service_rate = self._rate, self._service_rate
        relaxation_s = 1 / (service_rate**0.5 - rate**0.5) ** 2
        seconds = min(seconds, 1.5 * self._states / (service_rate - rate) + RELAXED * relaxation_s)
        steps = 1
        while self._reach(seconds / steps) > 2.5 * self._states:
            steps += 1
        for _ in range(steps):
            state = self._reflected(self._convolved(state, True, seconds / steps))
        return state

    def _reach(self, seconds: float) -> float:
        """How far Z can be below the state, but for a probability of less than 1e-15."""
        rate, service_rate = self._rate, self._service_rate
        reach: float = (service_rate - rate) * seconds + 8 * ((rate + service_rate) * seconds) ** 0.5
        return reach

    def _reflected(self, free: Floats) -> Floats:
        """P(n = k) from the distribution of Z: P(Z = k) + rho^k P(Z = -k-1) + rho^k (1 - rho) P(Z <= -k-2)."""
        below = free[: self._states - 1 : -1]  # P(Z = -1), P(Z = -2), ...
        at_most = np.cumsum(below[::-1])[::-1]
        rho_powers, states = self._rho_powers, self._states
        reflected = rho_powers * (below[:states] + (1 - rho_powers[1]) * at_most[1 : states + 1])
        return _normalised(free[:states] + reflected)

    def _convolved(self, state: Floats, is_on: bool, seconds: float) -> Floats:
        factor = self._factors.get((is_on, seconds))
        if factor is None:
            factor = np.exp((self._served if is_on else self._arriving) * seconds)
            if (len(self._factors) + 1) * factor.nbytes < CACHE_BYTES_MAX:
                self._factors[is_on, seconds] = factor
        result: Floats = irfft(rfft(state, self._size) * factor, self._size)
        return result


def extrapolated(history: list[Floats]) -> Floats:
    """The limit of a sequence of distributions by reduced rank extrapolation: the smallest residual that they allow."""
    vectors = np.array(history)
    steps = np.diff(vectors, axis=0)
    second = np.diff(steps, axis=0)
    weights, *_ = np.linalg.lstsq(second.T, -steps[0], rcond=1e-12)
    return _normalised(vectors[0] + weights @ steps[:-1])


def _normalised(probabilities: Floats) -> Floats:
    """A distribution, without the rounding errors of the transforms below 0."""
    positive = np.maximum(probabilities, 0)
    result: Floats = positive / positive.sum()
    return result

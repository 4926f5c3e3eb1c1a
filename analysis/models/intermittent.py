"""Mean times in queues with an intermittent server: the ON/OFF queueing centre, M/M/1 and M/G/1.

Paper: Bouloukakis, Georgantas, Kattepur, Issarny, "Timeliness Evaluation of Intermittent Mobile Connectivity over
Pub/Sub Systems", ICPE 2017; its equation 5 is the exponential case of `response_s`. General service and OFF laws: the
M/G/1 queue with breakdowns and preemptive resume; without OFF periods it is the formula of Pollaczek and Khinchine.

Assumptions: Poisson arrivals, first come first served, exponential ON periods, service interrupted at OFF and resumed
where it stopped, independent times. In a tandem the output of one centre is assumed to be a Poisson process; behind an
ON/OFF centre messages arrive in bursts, so the true mean is larger than predicted there.
"""

from dataclasses import dataclass

import numpy as np

from brokerbed.scenario.topology import Floats

Number = float | Floats


@dataclass(frozen=True)
class Centre:
    """A queue with one server. Without outages `off_s` is 0; a centre that serves at once has `demand_s` 0."""

    demand_s: float = 0.0
    demand_second_moment_s2: float = 0.0
    on_s: float = 1.0
    off_s: float = 0.0
    off_second_moment_s2: float = 0.0

    @property
    def _stretch(self) -> float:
        """How much longer service takes because of the outages within it."""
        return (self.on_s + self.off_s) / self.on_s

    @property
    def availability(self) -> float:
        return 1 / self._stretch

    @property
    def residual_off_s(self) -> float:
        """The mean time that an arrival waits for the server: P(OFF) times the residual OFF period."""
        if self.off_s == 0:
            return 0.0
        return self.off_s / (self.on_s + self.off_s) * self.off_second_moment_s2 / (2 * self.off_s)

    def utilisation(self, rate: Number) -> Number:
        """The share of ON time that the server is busy; the queue is stable if it is below 1."""
        return rate * self.demand_s * self._stretch

    def response_s(self, rate: Number) -> Floats:
        """Mean time from arrival to the end of service; nan where the queue is unstable."""
        rates = np.asarray(rate, dtype=np.float64)
        load = np.asarray(self.utilisation(rates))
        backlog = rates * self.demand_s * self.residual_off_s
        backlog = backlog + rates * self._stretch * self.demand_second_moment_s2 / 2
        idle = np.where(load < 1, 1 - load, np.nan)
        return (backlog / idle + self.demand_s) * self._stretch + self.residual_off_s

    def effective_demand_s(self, flow_rate: Number, other_rate: Number) -> Floats:
        """The demand at which the flow alone would see the same response time (eq. 15 and 16; exponential laws)."""
        response = self.response_s(np.asarray(flow_rate) + other_rate)
        return (response - self.residual_off_s) / (self._stretch * (1 + flow_rate * response))

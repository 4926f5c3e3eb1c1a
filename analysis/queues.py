"""The records of predicted queues and ways, and the formulas for one queue (`models/intermittent.py`)."""

from dataclasses import dataclass, replace
from math import isnan

from brokerbed.analysis.models.distribution import Distribution, Times, times_of
from brokerbed.analysis.models.intermittent import Centre
from brokerbed.analysis.models.regression import Estimate
from brokerbed.scenario import Law

NAN = float("nan")  # no prediction
Laws = tuple[Law | None, Law | None, Law | None]  # the laws of service times, ON periods and OFF periods


@dataclass(frozen=True, slots=True)
class Queue:
    """One queue, from the point of view of one flow or of all flows together."""

    stage: str
    at: str
    rate_per_s: float
    utilisation: float
    response_s: float  # nan: no prediction
    effective_demand_s: float = NAN  # only for a single flow
    times: Times | None = None  # only for a single flow; None if the distribution is unknown
    has_outages: bool = False
    laws: Laws | None = None  # only for a single flow; None if it is no queue of service, ON and OFF times
    expires: bool = False  # whether all of its messages have a lifetime, which keeps an overloaded queue stable
    is_transmission: bool = False  # waits for the bandwidth of a link
    standard_error_s: float | None = None  # of a response time that was simulated (recursion.py)
    expired_per_s: float | Estimate = 0.0  # messages that die here because their time is over

    @property
    def response(self) -> float | Estimate:
        return _estimate(self.response_s, self.standard_error_s)

    def simulated(self, found: Estimate) -> "Queue":
        """With the result of the recursion instead of the formula's."""
        return replace(self, response_s=found.mean, times=None, standard_error_s=found.standard_error)


@dataclass(frozen=True, slots=True)
class Way:
    """The predicted path from one publisher to one subscriber."""

    publisher: str
    subscriber: str
    queues: tuple[Queue, ...]
    links_s: float  # the sum of the constant delays of the links
    end_to_end_s: float
    delivery_ratio: float
    distribution: Distribution | None = None  # of the delay, where it is exact, or a sample
    standard_error_s: float | None = None  # of a delay that is estimated from sample paths
    ratio_error: float | None = None  # of a delivery ratio that is

    @property
    def end_to_end(self) -> float | Estimate:
        return _estimate(self.end_to_end_s, self.standard_error_s)

    @property
    def delivery(self) -> float | Estimate:
        return _estimate(self.delivery_ratio, self.ratio_error)


def _estimate(mean: float, standard_error: float | None) -> float | Estimate:
    return mean if standard_error is None else Estimate(mean, standard_error)


def together(first: float | Estimate, second: float | Estimate) -> float | Estimate:
    """The sum of two means, which may have been estimated from the same simulation."""
    known = [each if isinstance(each, Estimate) else Estimate(each, 0.0) for each in (first, second)]
    error = sum(each.standard_error for each in known)
    mean = known[0].mean + known[1].mean
    return Estimate(mean, error) if error else mean


def centre_of(service: Law | None, on: Law | None = None, off: Law | None = None) -> Centre:
    demand = (service.mean_s, service.second_moment_s2) if service else (0.0, 0.0)
    return Centre(*demand, on.mean_s, off.mean_s, off.second_moment_s2) if on and off else Centre(*demand)


def queue_of(stage: str, at: str, laws: Laws, rate: float, flow: float, is_known: bool = True) -> Queue:
    centre = centre_of(*laws)
    response_s = float(centre.response_s(rate)) if is_known else NAN
    effective_demand_s = float(centre.effective_demand_s(flow, rate - flow))
    service, _, off = laws
    times = None if isnan(response_s) else times_of(centre, rate, _named(service), _named(off))
    utilisation = float(centre.utilisation(rate))
    return Queue(stage, at, rate, utilisation, response_s, effective_demand_s, times, off is not None, laws)


def _named(law: Law | None) -> tuple[str, float] | None:
    return (law.law, law.mean_s) if law else None

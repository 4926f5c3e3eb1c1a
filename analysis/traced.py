"""The queue of a peer whose connectivity was recorded, as the models take it."""

from collections.abc import Callable
from dataclasses import dataclass

from brokerbed.analysis.estimates import UNITS_MIN
from brokerbed.analysis.models.recorded import RecordedCentre
from brokerbed.analysis.models.stages import Recorded
from brokerbed.scenario import Law, Scenario
from brokerbed.scenario.recorded import Connectivity
from brokerbed.scenario.units import NS_PER_S

NAN = float("nan")
Note = Callable[[str], None]  # takes a reason why a prediction is missing


@dataclass(frozen=True, slots=True)
class TracedQueue:
    centre: RecordedCentre
    utilisation: float
    response_s: float  # nan: no prediction


def recorded(connectivity: Connectivity) -> Recorded:
    cycles_s = tuple((on_ns / NS_PER_S, off_ns / NS_PER_S) for on_ns, off_ns in connectivity.cycles_ns)
    return Recorded(cycles_s, connectivity.is_shuffled)


def traced_queue(
    peer: str, connectivity: Connectivity, service: Law | None, rate: float, note: Note, is_poisson: bool = True
) -> TracedQueue:
    """The queue of this peer with messages that arrive at this rate, and as a Poisson process or not."""
    centre = recorded(connectivity).centre(service.mean_s if service else 0.0)
    utilisation = centre.utilisation(rate)
    if service is not None and not is_poisson:
        note(
            f"there is no model of a queue that takes time, has recorded periods ({peer}), and gets messages that come"
            " in bursts which the recursion cannot follow"
        )
        return TracedQueue(centre, utilisation, NAN)
    if service is not None and service.law != "exponential":
        note(f"there is no model of recorded periods with service times that are {service.law} ({peer})")
        return TracedQueue(centre, utilisation, NAN)
    if utilisation >= 1 or rate == 0:
        return TracedQueue(centre, utilisation, NAN)
    response_s = centre.response_s(rate)
    if response_s != response_s:
        note(f"the queue of {peer} with recorded periods is too close to saturation for its numerical solution")
    return TracedQueue(centre, utilisation, response_s)


def notes(scenario: Scenario) -> list[str]:
    """What to know about intervals of delays: parts of one pass in recorded order are no independent batches."""
    pass_ns = scenario.longest_pass_ns
    if pass_ns is None or scenario.copies * max(1, scenario.clock.measure // pass_ns) >= UNITS_MIN:
        return []
    text = (
        f"one pass of the recorded traces takes {pass_ns / NS_PER_S:g}s; delays have an interval if clock.measure is at"
        f" least {UNITS_MIN} times as long, or if there are {UNITS_MIN} copies, which start at places of their own"
    )
    return [text]

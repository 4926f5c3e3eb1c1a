"""Queues whose server is ON and OFF as a trace says, message by message: it shares no code with brokerbed.

Time is counted in ON time only, in which the server never stops: a message that comes during OFF comes at the end of
the ON time before it. There the queue is an ordinary one (Lindley), and the end of service is turned into time again.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def mean_delay_s(on_s: Floats, off_s: Floats, rate: float, demand_s: float, draws: np.random.Generator) -> float:
    """The mean delay over these periods, which follow one another as they are, from an empty queue."""
    total_s = float((on_s + off_s).sum())
    arrivals = np.sort(draws.uniform(0, total_s, draws.poisson(rate * total_s)))
    ended = departures(arrivals, on_s, off_s, demand_s, draws)
    return float(np.mean(ended - arrivals[: len(ended)]))


def departures(arrivals: Floats, on_s: Floats, off_s: Floats, demand_s: float, draws: np.random.Generator) -> Floats:
    """When messages leave such a queue, as far as the periods last."""
    ends_of_on = np.cumsum(on_s)  # in ON time
    begins = np.concatenate(([0.0], np.cumsum(on_s + off_s)[:-1]))  # of the ON periods, in time
    cycle = np.searchsorted(begins, arrivals, side="right") - 1
    on_before = ends_of_on[cycle] - on_s[cycle]
    ready = on_before + np.minimum(arrivals - begins[cycle], on_s[cycle])
    work = np.cumsum(draws.exponential(demand_s, len(arrivals)))
    idle = np.maximum.accumulate(ready - np.concatenate(([0.0], work[:-1])))
    done = work + idle
    kept = done < ends_of_on[-1]
    last = np.searchsorted(ends_of_on, done[kept], side="left")
    ended: Floats = begins[last] + done[kept] - (ends_of_on[last] - on_s[last])
    return ended


def shuffled(periods: Floats, passes: int, draws: np.random.Generator) -> Floats:
    """Every period once in every pass, in an order that is drawn anew."""
    return draws.permuted(np.tile(periods, (passes, 1)), axis=1).ravel()

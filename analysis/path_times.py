"""The distribution of end-to-end delays, where it is exact: M/M/1 queues one after the other, and any queue at the end.

The times of a message in successive queues with exponential service are independent, and what leaves them is a Poisson
process (Burke 1956, Reich 1957). So their transforms multiply, up to and including the first queue of another kind,
behind which nothing may follow.
"""

from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from math import isnan

from brokerbed.analysis.models.distribution import Known, Times, share_longer
from brokerbed.analysis.queues import Queue, Way

CACHED = 1024  # paths that differ


def with_distribution(way: Way) -> Way:
    """The path with the distribution of its delay, if that is exact and not known from elsewhere."""
    times = times_on(way)
    if way.distribution is not None or times is None or isnan(way.end_to_end_s):
        return way
    waiting = [queue for queue in way.queues if queue.utilisation > 0 or queue.has_outages]
    if not all(_passes_poisson(queue) for queue in waiting[:-1]):
        return way
    key = tuple((queue.laws, queue.rate_per_s) for queue in way.queues)
    return replace(way, distribution=_known(key, way.links_s, way.end_to_end_s, _Uncompared(times)))


@dataclass(frozen=True)
class _Uncompared:
    """The times in the queues, which the key of a path determines."""

    times: list[Times] = field(compare=False)


@lru_cache(maxsize=CACHED)
def _known(_: tuple[object, ...], links_s: float, mean_s: float, of_queues: _Uncompared) -> Known:
    return Known(partial(share_longer, of_queues.times, links_s), mean_s)


def times_on(way: Way) -> list[Times] | None:
    """The times in the queues of the path, with Poisson arrivals at each; None if one is unknown."""
    times = [queue.times for queue in way.queues if queue.times is not None]
    return None if len(times) < len(way.queues) or not times or isnan(way.links_s) else times


def _passes_poisson(queue: Queue) -> bool:
    if queue.laws is None or queue.has_outages:
        return False
    service, _, _ = queue.laws
    return service is not None and service.law == "exponential"

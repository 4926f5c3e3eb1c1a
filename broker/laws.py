"""Random durations, drawn from the caller's random stream by one of the four laws that a scenario can name."""

import math
from collections.abc import Callable
from typing import Protocol

LAWS = ("exponential", "deterministic", "uniform", "lognormal")


class Stream(Protocol):
    """The part of random.Random that a source of random numbers must provide."""

    def expovariate(self, lambd: float, /) -> float: ...
    def uniform(self, a: float, b: float, /) -> float: ...
    def lognormvariate(self, mu: float, sigma: float, /) -> float: ...


def sampler(law: str, mean_ns: int, stream: Stream, cv: float = 1.0) -> Callable[[], int]:
    """Return a function that draws the next duration in nanoseconds."""
    match law:
        case "exponential":
            rate = 1 / mean_ns
            return lambda: round(stream.expovariate(rate))
        case "deterministic":
            return lambda: mean_ns
        case "uniform":
            return lambda: round(stream.uniform(0, 2 * mean_ns))
        case "lognormal":
            sigma2 = math.log1p(cv * cv)
            mu, sigma = math.log(mean_ns) - sigma2 / 2, math.sqrt(sigma2)
            return lambda: round(stream.lognormvariate(mu, sigma))
    raise ValueError(f"law must be one of {', '.join(LAWS)}, not {law}")

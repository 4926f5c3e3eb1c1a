"""What clients do, and when: pure generators, shared by all grounds. Times are model nanoseconds from the run's start.

Every process (the subscriptions at a broker, a publisher's messages, a peer's ON and OFF periods) draws from a stream
of its own, named after it and derived from the one seed: another broker in the scenario changes nothing for the others.
What is there at time zero is drawn from the stationary law, with residual lifetimes.
"""

import heapq
import math
from bisect import bisect
from collections.abc import Iterator, Mapping
from itertools import accumulate, count
from random import Random
from typing import NamedTuple, Protocol

from brokerbed.broker.laws import sampler
from brokerbed.broker.values import NS_PER_S


class Law(Protocol):
    """A distribution of durations, as a scenario gives it."""

    @property
    def mean(self) -> int: ...
    @property
    def law(self) -> str: ...
    @property
    def cv(self) -> float | None: ...


def stream(seed: int, *name: object) -> Random:
    """Text as a seed is hashed by its content, so this is the same in every process."""
    return Random("/".join(map(str, (seed, *name))))  # noqa: S311  # an experiment, not a secret


class Duration:
    """Draws durations of a law, and what is left of one that is under way at a moment looked at from outside."""

    def __init__(self, law: Law, draws: Random) -> None:
        self._law = law
        self._draws = draws
        self.next_ns = sampler(law.law, law.mean, draws, law.cv if law.cv is not None else 1.0)

    def residual_ns(self) -> int:
        """Of a renewal process in equilibrium: a uniform part of a duration drawn by its length."""
        law, draws = self._law, self._draws
        if law.law == "exponential":
            return self.next_ns()
        if law.law == "deterministic":
            whole = float(law.mean)
        elif law.law == "uniform":
            whole = 2 * law.mean * math.sqrt(draws.random())  # density proportional to x on [0, 2 mean]
        else:
            cv = law.cv if law.cv is not None else 1.0
            sigma2 = math.log1p(cv * cv)
            whole = draws.lognormvariate(math.log(law.mean) + sigma2 / 2, math.sqrt(sigma2))
        return round(whole * draws.random())


class Change(NamedTuple):
    """A subscription appears or goes. Equal filters at one broker have different slots: each is another client's."""

    time_ns: int
    is_subscribed: bool
    class_number: int
    slot: int


class Share(NamedTuple):
    """The classes of a process that are alike: each has the same rate (and the same lifetime)."""

    rate_per_s: float  # of one class
    classes: range | tuple[int, ...]
    lifetime: Law | None = None


def churn(shares: list[Share], draws: Random) -> Iterator[Change]:
    """The subscriptions at one broker, in order of time; those of time zero first."""
    lifetimes = [Duration(share.lifetime, draws) for share in shares if share.lifetime is not None]
    slots: dict[int, list[int]] = {}  # per class: free ones below the highest in use
    used: dict[int, int] = {}
    ends: list[tuple[int, int, int, int]] = []  # when, tie, class, slot
    ties = count()

    def begin(class_number: int, end_ns: int) -> int:
        free = slots.get(class_number)
        slot = heapq.heappop(free) if free else used.setdefault(class_number, 0)
        if slot == used[class_number]:
            used[class_number] += 1
        heapq.heappush(ends, (end_ns, next(ties), class_number, slot))
        return slot

    for share, lifetime in zip(shares, lifetimes, strict=True):
        assert share.lifetime is not None
        for _ in range(_poisson(share.rate_per_s * len(share.classes) * share.lifetime.mean / NS_PER_S, draws)):
            class_number = _one_of(share.classes, draws)
            yield Change(0, True, class_number, begin(class_number, lifetime.residual_ns()))
    new = arrivals([share.rate_per_s * len(share.classes) for share in shares], draws)
    next_ns, which = next(new, (None, 0))
    while ends or next_ns is not None:
        if next_ns is None or (ends and ends[0][0] <= next_ns):
            end_ns, _, class_number, slot = heapq.heappop(ends)
            heapq.heappush(slots.setdefault(class_number, []), slot)
            yield Change(end_ns, False, class_number, slot)
            continue
        class_number = _one_of(shares[which].classes, draws)
        yield Change(next_ns, True, class_number, begin(class_number, next_ns + lifetimes[which].next_ns()))
        next_ns, which = next(new, (None, 0))


def publications(shares: list[Share], draws: Random) -> Iterator[tuple[int, int]]:
    """What is published at one broker: when, and to which class."""
    for time_ns, which in arrivals([share.rate_per_s * len(share.classes) for share in shares], draws):
        yield time_ns, _one_of(shares[which].classes, draws)


def on_off(on: Law, off: Law, draws: Random) -> Iterator[tuple[int, bool]]:
    """Whether a peer is on at time zero, then each change."""
    ons, offs = Duration(on, draws), Duration(off, draws)
    is_on = draws.random() * (on.mean + off.mean) < on.mean
    yield 0, is_on
    time_ns = (ons if is_on else offs).residual_ns()
    while True:
        is_on = not is_on
        yield time_ns, is_on
        time_ns += (ons if is_on else offs).next_ns()


def arrivals(rates_per_s: list[float], draws: Random) -> Iterator[tuple[int, int]]:
    """Several Poisson processes as one: when, and which of them."""
    total = sum(rates_per_s)
    if total <= 0:
        return
    sums = list(accumulate(rates_per_s))
    rate_per_ns = total / NS_PER_S
    time = 0.0
    while True:
        time += draws.expovariate(rate_per_ns)
        which = 0 if len(sums) == 1 else min(bisect(sums, draws.random() * total), len(sums) - 1)
        yield round(time), which


def messages(seed: int, publisher: str, rate_per_s: float) -> Iterator[tuple[int, int]]:
    """When a publishing peer makes its messages."""
    return arrivals([rate_per_s], stream(seed, "messages", publisher))


def _one_of(classes: "range | tuple[int, ...]", draws: Random) -> int:
    return classes[int(draws.random() * len(classes))]


def _poisson(mean: float, draws: Random) -> int:
    """A Poisson number, as the arrivals of a process of rate 1 within `mean`."""
    number, time = 0, draws.expovariate(1.0)
    while time < mean:
        number += 1
        time += draws.expovariate(1.0)
    return number


def shares_of(everywhere: "Share | None", overrides: Mapping[int, Share], classes: int) -> list[Share]:
    """The processes at one broker: the classes that are alike, and those that were given one by one."""
    shares = [share for _, share in sorted(overrides.items()) if share.rate_per_s > 0]
    if everywhere is not None and everywhere.rate_per_s > 0:
        rest = range(classes) if not overrides else tuple(it for it in range(classes) if it not in overrides)
        if rest:
            shares.insert(0, everywhere._replace(classes=rest))
    return shares

"""What clients do, and when: pure generators that all grounds share. Times are model nanoseconds since the start.

Every process (the subscriptions at a broker, a publisher's messages, a peer's ON and OFF periods) draws from a stream
of its own, named after it and derived from the one seed. Another broker in the scenario changes nothing for the others.
The state at time zero is drawn from the stationary law, with residual lifetimes.
"""

import heapq
import math
from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
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
    """A stream of random numbers. Text as a seed is hashed by its content, so every process gets the same stream."""
    return Random("/".join(map(str, (seed, *name))))  # noqa: S311  # an experiment, not a secret


class Duration:
    """Draws durations of a law, and residual durations of a renewal process in equilibrium."""

    def __init__(self, law: Law, draws: Random) -> None:
        self._law = law
        self._draws = draws
        self.next_ns = sampler(law.law, law.mean, draws, law.cv if law.cv is not None else 1.0)

    def residual_ns(self) -> int:
        """The rest of the current duration: a uniform part of a duration that is drawn with a weight of its length."""
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
    """A subscription appears or disappears. Equal filters at one broker have different slots, one for each client."""

    time_ns: int
    is_subscribed: bool
    class_number: int
    slot: int


class Share(NamedTuple):
    """Classes of a process that have the same rate and the same lifetime."""

    rate_per_s: float  # of one class
    classes: range | tuple[int, ...]
    lifetime: Law | None = None


def churn(shares: list[Share], draws: Random) -> Iterator[Change]:
    """The changes of subscriptions at one broker in order of time, beginning with the subscriptions of time zero."""
    lifetimes = [Duration(share.lifetime, draws) for share in shares if share.lifetime is not None]
    free_slots: dict[int, list[int]] = {}  # per class: below the highest slot in use
    slot_counts: dict[int, int] = {}  # per class
    ends: list[tuple[int, int, int, int]] = []  # time, tie, class, slot
    ties = count()

    def begin(class_number: int, end_ns: int) -> int:
        free = free_slots.get(class_number)
        slot = heapq.heappop(free) if free else slot_counts.setdefault(class_number, 0)
        if slot == slot_counts[class_number]:
            slot_counts[class_number] += 1
        heapq.heappush(ends, (end_ns, next(ties), class_number, slot))
        return slot

    for share, lifetime in zip(shares, lifetimes, strict=True):
        assert share.lifetime is not None
        for _ in range(_poisson(share.rate_per_s * len(share.classes) * share.lifetime.mean / NS_PER_S, draws)):
            class_number = _one_of(share.classes, draws)
            yield Change(0, True, class_number, begin(class_number, lifetime.residual_ns()))
    arriving = arrivals([share.rate_per_s * len(share.classes) for share in shares], draws)
    next_ns, which = next(arriving, (None, 0))
    while ends or next_ns is not None:
        if next_ns is None or (ends and ends[0][0] <= next_ns):
            end_ns, _, class_number, slot = heapq.heappop(ends)
            heapq.heappush(free_slots.setdefault(class_number, []), slot)
            yield Change(end_ns, False, class_number, slot)
            continue
        class_number = _one_of(shares[which].classes, draws)
        yield Change(next_ns, True, class_number, begin(class_number, next_ns + lifetimes[which].next_ns()))
        next_ns, which = next(arriving, (None, 0))


def publications(shares: list[Share], draws: Random) -> Iterator[tuple[int, int]]:
    """The publications at one broker: time and class."""
    for time_ns, which in arrivals([share.rate_per_s * len(share.classes) for share in shares], draws):
        yield time_ns, _one_of(shares[which].classes, draws)


def on_off(on: Law, off: Law, draws: Random) -> Iterator[tuple[int, bool]]:
    """Whether a peer is ON at time zero, followed by each change with its time."""
    on_periods, off_periods = Duration(on, draws), Duration(off, draws)
    is_on = draws.random() * (on.mean + off.mean) < on.mean
    yield 0, is_on
    time_ns = (on_periods if is_on else off_periods).residual_ns()
    while True:
        is_on = not is_on
        yield time_ns, is_on
        time_ns += (on_periods if is_on else off_periods).next_ns()


class Switch(NamedTuple):
    """The source of a class comes or goes."""

    time_ns: int
    is_on: bool
    class_number: int


def sources(on: Law, off: Law, classes: Sequence[int], draws: Random) -> Iterator[Switch]:
    """The sources at one broker: those that are ON at time zero, followed by all changes in order of time."""
    on_periods, off_periods = Duration(on, draws), Duration(off, draws)
    changes: list[tuple[int, int, bool]] = []  # time, class, and whether the source is ON until then
    for class_number in classes:
        is_on = draws.random() * (on.mean + off.mean) < on.mean
        if is_on:
            yield Switch(0, True, class_number)
        changes.append(((on_periods if is_on else off_periods).residual_ns(), class_number, is_on))
    heapq.heapify(changes)
    while changes:
        time_ns, class_number, was_on = changes[0]
        yield Switch(time_ns, not was_on, class_number)
        period_ns = (off_periods if was_on else on_periods).next_ns()
        heapq.heapreplace(changes, (time_ns + period_ns, class_number, not was_on))


def arrivals(rates_per_s: list[float], draws: Random) -> Iterator[tuple[int, int]]:
    """Several Poisson processes merged into one: the time, and the index of the process."""
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
    """The times at which a publisher publishes."""
    return arrivals([rate_per_s], stream(seed, "messages", publisher))


def _one_of(classes: "range | tuple[int, ...]", draws: Random) -> int:
    return classes[int(draws.random() * len(classes))]


def _poisson(mean: float, draws: Random) -> int:
    """A Poisson number, drawn as the number of arrivals of a process of rate 1 within `mean`."""
    number, time = 0, draws.expovariate(1.0)
    while time < mean:
        number += 1
        time += draws.expovariate(1.0)
    return number


def shares_of(everywhere: "Share | None", overrides: Mapping[int, Share], classes: int) -> list[Share]:
    """The processes at one broker: the classes that share a rate, and those with a rate of their own."""
    shares = [share for _, share in sorted(overrides.items()) if share.rate_per_s > 0]
    if everywhere is not None and everywhere.rate_per_s > 0:
        rest = (
            range(classes) if not overrides else tuple(number for number in range(classes) if number not in overrides)
        )
        if rest:
            shares.insert(0, everywhere._replace(classes=rest))
    return shares

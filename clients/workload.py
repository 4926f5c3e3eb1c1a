"""What clients do, and when: pure generators that all grounds share. Times are model nanoseconds since the start.

Every process (the subscriptions at a broker, a publisher's messages, a peer's ON and OFF periods) draws from a stream
of its own, named after it and derived from the one seed. Another broker in the scenario changes nothing for the others.
The state at time zero is drawn from the stationary law, with residual lifetimes; with a profile, from its periodic one.
"""

import heapq
import math
from bisect import bisect
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
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


class Profile(Protocol):
    """A factor of rates that varies over time, as a scenario gives it."""

    def at(self, time_ns: float) -> float: ...
    def bounds(self) -> Iterator[tuple[float, float]]: ...
    @property
    def largest(self) -> float: ...


class Duration:
    """Draws durations of a law, and residual durations of a renewal process in equilibrium."""

    def __init__(self, law: Law, draws: Random) -> None:
        self._law = law
        self._draws = draws
        self.next_ns = sampler(law.law, law.mean, draws, law.cv if law.cv is not None else 1.0)

    def residual_ns(self) -> int:
        """The rest of the current duration."""
        return self.next_ns() if self._law.law == "exponential" else self._divided_ns()[1]

    def current_ns(self) -> tuple[int, int]:
        """What has passed of the current duration, and the rest of it."""
        return (self.next_ns(), self.next_ns()) if self._law.law == "exponential" else self._divided_ns()

    def _divided_ns(self) -> tuple[int, int]:
        """A duration that is drawn with a weight of its length, divided at a uniform place."""
        law, draws = self._law, self._draws
        if law.law == "deterministic":
            whole = float(law.mean)
        elif law.law == "uniform":
            whole = 2 * law.mean * math.sqrt(draws.random())  # density proportional to x on [0, 2 mean]
        else:
            cv = law.cv if law.cv is not None else 1.0
            sigma2 = math.log1p(cv * cv)
            whole = draws.lognormvariate(math.log(law.mean) + sigma2 / 2, math.sqrt(sigma2))
        rest_ns = round(whole * draws.random())
        return max(0, round(whole) - rest_ns), rest_ns


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


class Slots:
    """Gives out the lowest free slot for each key, which is a class, or a broker with a class."""

    def __init__(self) -> None:
        self._free: dict[Hashable, list[int]] = {}  # below the highest slot in use
        self._counts: dict[Hashable, int] = {}

    def take(self, key: Hashable) -> int:
        free = self._free.get(key)
        slot = heapq.heappop(free) if free else self._counts.setdefault(key, 0)
        if slot == self._counts[key]:
            self._counts[key] += 1
        return slot

    def free(self, key: Hashable, slot: int) -> None:
        heapq.heappush(self._free.setdefault(key, []), slot)


def churn(shares: list[Share], draws: Random, profile: Profile | None = None) -> Iterator[Change]:
    """The changes of subscriptions at one broker in order of time, beginning with the subscriptions of time zero."""
    lifetimes = [Duration(share.lifetime, draws) for share in shares if share.lifetime is not None]
    slots = Slots()
    ends: list[tuple[int, int, int, int]] = []  # time, tie, class, slot
    ties = count()

    def begin(class_number: int, end_ns: int) -> int:
        slot = slots.take(class_number)
        heapq.heappush(ends, (end_ns, next(ties), class_number, slot))
        return slot

    for share, lifetime in zip(shares, lifetimes, strict=True):
        assert share.lifetime is not None
        mean_active = share.rate_per_s * len(share.classes) * share.lifetime.mean / NS_PER_S
        for _ in range(poisson(mean_active * (1.0 if profile is None else profile.largest), draws)):
            class_number = _one_of(share.classes, draws)
            rest_ns = lifetime.residual_ns() if profile is None else _thinned_ns(lifetime, profile, draws)
            if rest_ns is not None:
                yield Change(0, True, class_number, begin(class_number, rest_ns))
    arriving = arrivals([share.rate_per_s * len(share.classes) for share in shares], draws, profile)
    next_ns, which = next(arriving, (None, 0))
    while ends or next_ns is not None:
        if next_ns is None or (ends and ends[0][0] <= next_ns):
            end_ns, _, class_number, slot = heapq.heappop(ends)
            slots.free(class_number, slot)
            yield Change(end_ns, False, class_number, slot)
            continue
        class_number = _one_of(shares[which].classes, draws)
        yield Change(next_ns, True, class_number, begin(class_number, next_ns + lifetimes[which].next_ns()))
        next_ns, which = next(arriving, (None, 0))


def _thinned_ns(lifetime: Duration, profile: Profile, draws: Random) -> int | None:
    """The rest of a lifetime at time zero, drawn as if the rate were always the largest one; None leaves it out."""
    age_ns, rest_ns = lifetime.current_ns()
    return rest_ns if draws.random() * profile.largest < profile.at(-age_ns) else None


class Clients(NamedTuple):
    """The clients of one class at one broker that come and go."""

    class_number: int
    size: int
    on: Law
    off: Law


def population(members: Iterable[Clients], draws: Random) -> Iterator[Change]:
    """The changes of the subscriptions of clients that come and go at one broker; each client has a slot of its own."""
    changes: list[tuple[int, int, int, bool, Duration, Duration]] = []  # time, class, slot, and whether it is on before
    for class_number, size, on, off in members:
        on_periods, off_periods = Duration(on, draws), Duration(off, draws)
        for slot in range(size):
            is_on = draws.random() * (on.mean + off.mean) < on.mean
            if is_on:
                yield Change(0, True, class_number, slot)
            first_ns = (on_periods if is_on else off_periods).residual_ns()
            changes.append((first_ns, class_number, slot, is_on, on_periods, off_periods))
    heapq.heapify(changes)
    while changes:
        time_ns, class_number, slot, was_on, on_periods, off_periods = changes[0]
        yield Change(time_ns, not was_on, class_number, slot)
        period_ns = (off_periods if was_on else on_periods).next_ns()
        heapq.heapreplace(changes, (time_ns + period_ns, class_number, slot, not was_on, on_periods, off_periods))


def publications(shares: list[Share], draws: Random, profile: Profile | None = None) -> Iterator[tuple[int, int]]:
    """The publications at one broker: time and class."""
    for time_ns, which in arrivals([share.rate_per_s * len(share.classes) for share in shares], draws, profile):
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


def places(brokers: Sequence[str], draws: Random) -> Iterator[str]:
    """Where a peer that roams is at first, and where it comes back each time: at any other broker, equally likely."""
    here = draws.randrange(len(brokers))
    while True:
        yield brokers[here]
        here = (here + draws.randrange(1, len(brokers))) % len(brokers)


class Recorded(Protocol):
    """Recorded ON and OFF periods, as a scenario gives them."""

    @property
    def cycles_ns(self) -> Sequence[tuple[int, int]]: ...
    @property
    def is_shuffled(self) -> bool: ...
    @property
    def pass_ns(self) -> int: ...


def recorded_on_off(recorded: Recorded, draws: Random) -> Iterator[tuple[int, bool]]:
    """The same for recorded periods, pass after pass, from a place of the first pass that is uniform in time.

    Shuffled, the ON periods and the OFF periods of every pass are permuted each by themselves. As all passes are
    equally long, the process is stationary in both orders.
    """
    on_ns, off_ns = (list(periods) for periods in zip(*recorded.cycles_ns, strict=True))
    time_ns = -int(draws.random() * recorded.pass_ns)
    while True:
        if recorded.is_shuffled:
            draws.shuffle(on_ns)
            draws.shuffle(off_ns)
        for cycle_ns in zip(on_ns, off_ns, strict=True):
            for is_on, period_ns in zip((True, False), cycle_ns, strict=True):
                end_ns = time_ns + period_ns
                if end_ns > 0:
                    yield max(0, time_ns), is_on
                time_ns = end_ns


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


def arrivals(rates_per_s: list[float], draws: Random, profile: Profile | None = None) -> Iterator[tuple[int, int]]:
    """Several Poisson processes merged into one: the time, and the index of the process."""
    total = sum(rates_per_s)
    if total <= 0:
        return
    sums = list(accumulate(rates_per_s))
    rate_per_ns = total / NS_PER_S
    for time in _poisson_times(rate_per_ns, draws) if profile is None else _thinned_times(rate_per_ns, draws, profile):
        which = 0 if len(sums) == 1 else min(bisect(sums, draws.random() * total), len(sums) - 1)
        yield round(time), which


def _poisson_times(rate_per_ns: float, draws: Random) -> Iterator[float]:
    time = 0.0
    while True:
        time += draws.expovariate(rate_per_ns)
        yield time


def _thinned_times(rate_per_ns: float, draws: Random, profile: Profile) -> Iterator[float]:
    """A Poisson process of varying rate: candidates come at the largest rate of an interval, and some are left out."""
    time = 0.0
    for end, bound in profile.bounds():
        while bound > 0 and (time := time + draws.expovariate(rate_per_ns * bound)) < end:
            if draws.random() * bound < profile.at(time):
                yield time
        time = end


class RecordedTimes(Protocol):
    """Recorded times of messages, as a scenario gives them."""

    @property
    def times_ns(self) -> Sequence[int]: ...
    @property
    def pass_ns(self) -> int: ...


def messages(
    seed: int, publisher: str, rate_per_s: float, recorded: RecordedTimes | None = None
) -> Iterator[tuple[int, int]]:
    """The times at which a publisher publishes."""
    draws = stream(seed, "messages", publisher)
    return arrivals([rate_per_s], draws) if recorded is None else _recorded_times(recorded, draws)


def _recorded_times(recorded: RecordedTimes, draws: Random) -> Iterator[tuple[int, int]]:
    """Pass after pass, from a place of the first one that is uniform in time."""
    begin_ns = -int(draws.random() * recorded.pass_ns)
    while True:
        for at_ns in recorded.times_ns:
            if begin_ns + at_ns >= 0:
                yield begin_ns + at_ns, 0
        begin_ns += recorded.pass_ns


def _one_of(classes: "range | tuple[int, ...]", draws: Random) -> int:
    return classes[int(draws.random() * len(classes))]


def poisson(mean: float, draws: Random) -> int:
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

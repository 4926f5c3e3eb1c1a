"""Subscriptions that appear at one broker after the other: those that roam, and those whose brokers are drawn anew.

These are pure generators like those of workload.py, for all brokers together. Between the two halves of a move there
is a gap, long enough for the first half to have spread through the network and too short to matter otherwise.
"""

import heapq
from collections.abc import Iterator, Sequence
from itertools import count
from random import Random
from typing import NamedTuple

from brokerbed.clients.workload import Change, Duration, Slots, arrivals, poisson, stream
from brokerbed.scenario.model import Scenario
from brokerbed.scenario.subscriptions import Churn, Placement

GAPS = 1000  # a gap is this part of a mean lifetime, or of the time between two redraws


class Move(NamedTuple):
    """A change of the subscriptions at the broker with this position."""

    time_ns: int
    broker: int
    change: Change


class Stream(NamedTuple):
    """Subscriptions to some classes that arrive at a broker from outside, and all that are there at time zero."""

    broker: int
    classes: Sequence[int]
    new: Churn | None
    there: Churn


def placed(scenario: Scenario) -> Iterator[Move]:
    """Subscribers at leaves of the tree. The classes are redrawn at different times, at equal distances."""
    placement = scenario.subscriptions.placement
    assert placement is not None
    return heapq.merge(*(_placed(scenario, placement, number) for number in range(scenario.classes)))


def _placed(scenario: Scenario, placement: Placement, number: int) -> Iterator[Move]:
    """The subscribers of one class. At a redraw the new ones subscribe first, and then the old ones leave."""
    draws = stream(scenario.seed, "static", number)

    def drawn() -> list[int]:
        return sorted(draws.sample(placement.brokers, placement.count)) if placement.is_random else [*placement.brokers]

    there = drawn()
    for broker in there:
        yield Move(0, broker, Change(0, True, number, 0))
    period_ns = placement.redraw_ns
    if period_ns is None or placement.count == len(placement.brokers):  # every draw is the same
        return
    for time_ns in count(period_ns * (number + 1) // scenario.classes, period_ns):
        old, there = there, drawn()
        for broker in there:
            if broker not in old:
                yield Move(time_ns, broker, Change(time_ns, True, number, 0))
        end_ns = time_ns + period_ns // GAPS
        for broker in old:
            if broker not in there:
                yield Move(end_ns, broker, Change(end_ns, False, number, 0))


def roaming(scenario: Scenario) -> Iterator[Move]:
    """Subscriptions to classes that move to another broker when they end, or leave."""
    subscriptions = scenario.subscriptions
    special = sorted({number for _, number in subscriptions.overrides})
    ordinary = [number for number in range(scenario.classes) if number not in set(special)]
    streams = []
    for classes in [ordinary] * bool(ordinary) + [[number] for number in special]:
        new = subscriptions.arriving(classes[0])
        for broker, churn in subscriptions.with_moves(new).items():
            streams.append(Stream(broker, classes, new.get(broker), churn))
    return _roaming(scenario, streams, stream(scenario.seed, "roaming"))


def roaming_wide(scenario: Scenario) -> Iterator[Move]:
    """The same for subscriptions to whole groups of classes."""
    subscriptions = scenario.subscriptions
    assert subscriptions.wide is not None
    new = dict.fromkeys(sorted(subscriptions.places), subscriptions.wide)
    classes = range(scenario.groups or 0)
    streams = [Stream(broker, classes, new[broker], churn) for broker, churn in subscriptions.with_moves(new).items()]
    return _roaming(scenario, streams, stream(scenario.seed, "wide roaming"))


def _roaming(scenario: Scenario, streams: Sequence[Stream], draws: Random) -> Iterator[Move]:
    places, roam = sorted(scenario.subscriptions.places), scenario.subscriptions.roam
    lifetimes = _Lifetimes(streams, draws)
    slots = Slots()
    due: list[tuple[int, int, bool, int, int, int]] = []  # time, tie, whether it begins, broker, class, slot
    ties = count()

    def begin(time_ns: int, broker: int, number: int, stay_ns: int) -> Move:
        slot = slots.take((broker, number))
        heapq.heappush(due, (time_ns + stay_ns, next(ties), False, broker, number, slot))
        return Move(time_ns, broker, Change(time_ns, True, number, slot))

    for broker, classes, _, there in streams:
        for _ in range(poisson(there.mean_active * len(classes), draws)):
            number = classes[int(draws.random() * len(classes))]
            yield begin(0, broker, number, lifetimes.of(broker, number).residual_ns())
    new_per_s = [0.0 if it.new is None else it.new.arrival_rate_per_s * len(it.classes) for it in streams]
    arriving = arrivals(new_per_s, draws)
    next_ns, which = next(arriving, (None, 0))
    while due or next_ns is not None:
        if next_ns is not None and not (due and due[0][0] <= next_ns):
            broker, classes = streams[which].broker, streams[which].classes
            number = classes[int(draws.random() * len(classes))]
            yield begin(next_ns, broker, number, lifetimes.of(broker, number).next_ns())
            next_ns, which = next(arriving, (None, 0))
            continue
        time_ns, _, begins, broker, number, slot = heapq.heappop(due)
        if begins:
            yield begin(time_ns, broker, number, lifetimes.of(broker, number).next_ns())
            continue
        slots.free((broker, number), slot)
        yield Move(time_ns, broker, Change(time_ns, False, number, slot))
        if draws.random() < roam:
            place = broker
            while place == broker:
                place = places[int(draws.random() * len(places))]
            heapq.heappush(due, (time_ns + lifetimes.gap_ns, next(ties), True, place, number, 0))


class _Lifetimes:
    """How long a subscription stays at a broker."""

    def __init__(self, streams: Sequence[Stream], draws: Random) -> None:
        self._of_broker: dict[int, Duration] = {}  # for classes without a lifetime of their own
        self._of_class: dict[tuple[int, int], Duration] = {}
        self.gap_ns = min((it.there.lifetime.mean for it in streams), default=GAPS) // GAPS
        for it in streams:
            duration = Duration(it.there.lifetime, draws)
            if len(it.classes) == 1:
                self._of_class[it.broker, it.classes[0]] = duration
            else:
                self._of_broker[it.broker] = duration

    def of(self, broker: int, number: int) -> Duration:
        return self._of_class.get((broker, number)) or self._of_broker[broker]

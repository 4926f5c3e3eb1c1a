"""The subscriptions to classes as they are run and predicted: per broker and class, and those that move.

Four workloads share one description: subscriptions that arrive in a Poisson process (Churn), a fixed number of clients
that come and go (Population), subscribers that were placed at leaves of the tree (Placement), and subscriptions that
move to another broker when they end (`roam`).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from brokerbed.scenario.law import Law
from brokerbed.scenario.profile import Factor
from brokerbed.scenario.units import NS_PER_S

Cell = tuple[int, int]  # position of the broker in the tree, number of the class


@dataclass(frozen=True, slots=True)
class Churn:
    """Subscriptions to one class at one broker: Poisson arrivals that each stay for a lifetime.

    If subscriptions roam, these are the new ones, beside those that come from other brokers.
    """

    arrival_rate_per_s: float
    lifetime: Law

    @property
    def mean_active(self) -> float:
        return self.arrival_rate_per_s * self.lifetime.mean_s

    @property
    def strength(self) -> float:
        """-ln P(nobody subscribes): the number of subscriptions has a Poisson distribution."""
        return self.mean_active

    @property
    def appearing_per_s(self) -> float:
        """How often the first subscription arrives per second, divided by P(nobody subscribes)."""
        return self.arrival_rate_per_s


@dataclass(frozen=True, slots=True)
class Population:
    """Clients of one class at one broker, each of which subscribes while it is on."""

    size: int
    on: Law
    off: Law

    @property
    def mean_active(self) -> float:
        return self.size * self.on.mean / (self.on.mean + self.off.mean)

    @property
    def arrival_rate_per_s(self) -> float:
        return self.size / (self.on.mean_s + self.off.mean_s)

    @property
    def strength(self) -> float:
        return self.size * math.log1p(self.on.mean / self.off.mean)

    @property
    def appearing_per_s(self) -> float:
        return self.size / self.off.mean_s

    @property
    def forgets(self) -> bool:
        """Whether a long run shows the mean over all phases; clients with fixed periods keep theirs for ever."""
        return self.size == 0 or not (self.on.law == self.off.law == "deterministic")


@dataclass(frozen=True, slots=True)
class Placement:
    """Subscribers at `count` of these brokers, one at each, for every class: all of them, or some drawn at random."""

    count: int
    brokers: tuple[int, ...]  # positions in the tree, in its order
    is_random: bool
    redraw_ns: int | None = None  # how often other brokers are drawn; None: never

    @property
    def share(self) -> float:
        """The probability that a broker has the subscriber of a class."""
        return self.count / len(self.brokers)

    @property
    def redraws_per_s(self) -> float:
        return 0.0 if self.redraw_ns is None else NS_PER_S / self.redraw_ns

    @property
    def arrival_rate_per_s(self) -> float:
        """At one broker, for one class. A broker that is drawn again keeps its subscriber."""
        return self.share * (1 - self.share) * self.redraws_per_s

    @property
    def forgets(self) -> bool:
        """Whether a long run shows the mean over all draws."""
        return not self.is_random or self.redraw_ns is not None or self.count == len(self.brokers)


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """Subscriptions that come and go; those given for one broker and class replace the even spread there."""

    spread: Churn | Population | None  # at each of the `places`, to each class
    places: frozenset[int]  # positions of brokers in the tree
    overrides: Mapping[Cell, Churn | Population]
    wide: Churn | None  # at each of the `places`, to all classes of each group
    qos: int
    placement: Placement | None = None  # beside those above, for every class
    roam: float = 0.0  # the probability that a subscription that ends moves to another one of the `places`
    lifetime: Law | None = None  # of subscriptions that come from another broker, where nothing else is given
    profile: Factor | None = None  # of all arrival rates, which are those of factor 1

    def of(self, broker: int, class_number: int) -> Churn | Population | None:
        return self.overrides.get((broker, class_number), self.spread if broker in self.places else None)

    def mean_active(self, classes: range) -> float:
        """How many subscriptions to just these classes there are on average, at all brokers."""
        own = [(broker, churn) for (broker, number), churn in self.overrides.items() if number in classes]
        spread = len(self.places) * len(classes) - sum(broker in self.places for broker, _ in own)
        active = 0.0 if self.spread is None else self.spread.mean_active
        placed = 0 if self.placement is None else self.placement.count * len(classes)
        return self.mean_factor * (active * spread + sum(churn.mean_active for _, churn in own)) + placed

    @property
    def mean_factor(self) -> float:
        return 1.0 if self.profile is None else self.profile.mean

    def arriving(self, class_number: int) -> dict[int, Churn]:
        """The new subscriptions to a class, by broker; for scenarios in which they roam, without populations."""
        found = dict.fromkeys(sorted(self.places), self.spread) if self.spread is not None else {}
        found |= {broker: churn for (broker, number), churn in self.overrides.items() if number == class_number}
        return {broker: churn for broker, churn in found.items() if isinstance(churn, Churn)}

    def with_moves(self, new: Mapping[int, Churn]) -> dict[int, Churn]:
        """All arrivals at each broker, of one class: new ones, and those that come from other brokers.

        Lambda = lambda + Lambda P (van Vliet 2007, eq. 2.50 in equilibrium), where P moves what ends to each of the
        other `places` with equal probability.
        """
        if not self.roam or not new:
            return dict(new)
        assert self.lifetime is not None
        new_per_s = {broker: churn.arrival_rate_per_s for broker, churn in new.items()}
        others = len(self.places) - 1
        outside = sum(rate for broker, rate in new_per_s.items() if broker not in self.places)
        arriving = sum(rate for broker, rate in new_per_s.items() if broker in self.places)
        inside = (arriving + self.roam * outside) / (1 - self.roam)
        coming = self.roam * (inside / others + outside / len(self.places))
        flows = dict(new)
        for broker in sorted(self.places):
            flow_per_s = (new_per_s.get(broker, 0.0) + coming) / (1 + self.roam / others)
            flows[broker] = Churn(flow_per_s, new[broker].lifetime if broker in new else self.lifetime)
        return flows

    def is_poisson_at(self, broker: int) -> bool:
        """Whether subscriptions arrive at this broker in a Poisson process. Those that return to it do not."""
        placed = self.placement is not None and self.placement.is_random and broker in self.placement.brokers
        of_broker = [it for (position, _), it in self.overrides.items() if position == broker]
        of_broker += [self.spread] if self.spread is not None and broker in self.places else []
        return not self.roam and not placed and not any(isinstance(it, Population) for it in of_broker)

    @property
    def forgets(self) -> bool:
        """Whether one long run shows what is predicted, which is a mean over all phases and draws."""
        populations = [it for it in (self.spread, *self.overrides.values()) if isinstance(it, Population)]
        return (self.placement is None or self.placement.forgets) and all(it.forgets for it in populations)

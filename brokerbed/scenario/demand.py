"""What a part of a workload tells the models of routing, so that a scenario with the part has predictions."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from brokerbed.scenario.topology import Floats


@dataclass(frozen=True)
class SideInterest:
    """Interest in a topic on one side of each link, by the child of the link; the value of the root is ignored."""

    absent: Floats  # the probability that nobody there subscribes
    appearing_odds: Floats  # how often the first one there appears, and the last one leaves, per second over `absent`
    crossings: Floats | None = None  # subscriptions that come to this side, and as many leave it, if they move over it

    @cached_property
    def crossing(self) -> Floats:
        return np.zeros_like(self.absent) if self.crossings is None else self.crossings

    def joined_by(self, other: "SideInterest") -> "SideInterest":
        """With further subscribers, who are independent of these."""
        odds, crossing = self.appearing_odds + other.appearing_odds, self.crossing + other.crossing
        return SideInterest(self.absent * other.absent, odds, crossing)


@dataclass(frozen=True, slots=True)
class Demand:
    """Topics with the same workload, as the models of routing need it. Arrays are in the order of the tree.

    If brokers do not subscribe independently of one another, or not as Poisson processes, the part knows the interest
    `below` each link and `above` it. Otherwise it follows from `arrival_rate` and `mean_active`.
    """

    topics: tuple[str, ...]
    publication_rate: Floats  # at each broker to each of the topics, per second; whoever publishes also advertises
    arrival_rate: Floats  # subscriptions that appear at each broker, per second and topic
    mean_active: Floats  # the average number of subscriptions at each broker, per topic
    below: SideInterest | None = None
    above: SideInterest | None = None

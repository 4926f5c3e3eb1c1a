"""The settings of adaptive placement: how often brokers measure, how they search, and what traffic costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

Item = TypeVar("Item")


class Draw(Protocol):
    """A stream of random numbers, such as `random.Random`, which the driver creates."""

    def randrange(self, stop: int, /) -> int: ...
    def sample(self, population: Sequence[Item], k: int) -> list[Item]: ...


@dataclass(frozen=True)
class PlacementConfig:
    """After Migliavacca and Cugola 2007. Costs are those of one message, without `alpha` and `beta`."""

    draw: Draw  # for the search
    period_ns: int  # how long traffic is measured before a broker looks for a cheaper tree
    alpha: float = 1.0  # weight of the costs of links
    beta: float = 1.0  # weight of the costs of brokers
    moves: int = 100  # candidates that an iteration of the search tries at most
    iterations: int = 50
    tenure: int = 2  # iterations for which a link that was added or removed stays so
    gain: float = 0.05  # the part of its cost that a neighbourhood must save, or nothing is changed
    link_cost: float = 1.0  # between brokers that are not in `link_costs`
    link_costs: Mapping[frozenset[str], float] = field(default_factory=dict)  # by the names of both brokers
    broker_cost: float = 1.0  # of brokers that are not in `broker_costs`
    broker_costs: Mapping[str, float] = field(default_factory=dict)

    def of_link(self, one: str, other: str) -> float:
        return self.alpha * self.link_costs.get(frozenset((one, other)), self.link_cost)

    def of_broker(self, name: str) -> float:
        return self.beta * self.broker_costs.get(name, self.broker_cost)

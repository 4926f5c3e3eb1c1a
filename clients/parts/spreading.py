"""The workload of JEDI: every broker publishes events of several types, and interest in them decreases with distance.

Paper: Bricconi, Di Nitto, Tracanella, "Issues in Analyzing the Behavior of Event Dispatching Systems", 2000. For each
type and each distance d from its source, one broker at that distance, drawn uniformly, listens with probability
R(d) = coefficient^d (eq. 1 and 3). The listeners of each type are drawn anew every so often, one type after the other:
new listeners subscribe, then the old ones leave; who is drawn again stays.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import count
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from brokerbed.clients.actor import Actor
from brokerbed.clients.parts.classes import Publishing
from brokerbed.clients.session import Client
from brokerbed.clients.workload import Share, stream
from brokerbed.scenario.checks import Path, Report
from brokerbed.scenario.classes import CLASSES_MAX
from brokerbed.scenario.demand import Demand, SideInterest
from brokerbed.scenario.model import Scenario
from brokerbed.scenario.part import Count, Part, Qos
from brokerbed.scenario.topology import Tree
from brokerbed.scenario.units import NS_PER_S, DurationNs, RatePerS
from brokerbed.scenario.workload import WorkloadPart

if TYPE_CHECKING:
    from brokerbed.clients.crowd import Crowd

LEAVING = 400  # old listeners leave this fraction of `redraw` after the new ones joined, who must be known by then
NO_TOPIC = -1


class Spreading(Part):
    example = "{coefficient: 0.5, rate: 6.5/s, types: 10, redraw: 30s}"
    coefficient: Annotated[float, Field(strict=True, ge=0, le=1)]
    rate: RatePerS  # of each broker, for all of its types together
    types: Count  # of events, at each broker
    redraw: DurationNs
    qos: Qos = 0


class Draws:
    """Who listens to what, from one redraw to the next. Every process draws the same."""

    def __init__(self, scenario: Scenario, spreading: Spreading) -> None:
        self._seed, self._spreading = scenario.seed, spreading
        self._rings = [_rings(scenario.tree, source) for source in range(len(scenario.tree))]
        self.listening = lru_cache(maxsize=2)(self._listening)  # all brokers ask for the same period in turn

    def _listening(self, period: int) -> list[frozenset[int]]:
        """By broker: the numbers of the topics that it listens to."""
        draw = stream(self._seed, "spreading", period).random
        heard: list[set[int]] = [set() for _ in self._rings]
        for source, rings in enumerate(self._rings):
            for number in _numbers(source, self._spreading):
                probability = 1.0
                for ring in rings:
                    probability *= self._spreading.coefficient
                    if draw() < probability:
                        heard[ring[int(draw() * len(ring))]].add(number)
        return [*map(frozenset, heard)]


class Listening(Actor):
    """The client that listens at one broker."""

    def __init__(
        self, crowd: "Crowd", broker: str, position: int, spreading: Spreading, topics: Sequence[str], draws: Draws
    ) -> None:
        self._crowd = crowd
        self._position = position
        self._spreading = spreading
        self._topics = topics
        self._draws = draws
        self._client = crowd.new_client(broker, f"{broker}/listener", spreading.qos == 0)

    def connect(self) -> None:
        self._client.connect()

    def populate(self) -> None:
        for number in sorted(self._draws.listening(0)[self._position]):
            self._client.subscribe(self._topics[number], self._spreading.qos)

    def begin(self) -> None:
        self._crowd.each(self._changes(), self._change)

    def _changes(self) -> Iterator[tuple[int, int, bool]]:
        """The time, the number of a topic, and whether the client begins to listen to it or leaves.

        Every period has at least one item, which may be no topic, so that nobody draws far ahead of the others.
        """
        redraw_ns, topics = self._spreading.redraw, len(self._topics)
        leaving_ns = redraw_ns // LEAVING
        for period in count(1):
            before, after = (self._draws.listening(it)[self._position] for it in (period - 1, period))
            changes = [(period * redraw_ns, NO_TOPIC, False)]
            for number in sorted(before ^ after):
                redrawn_ns = period * redraw_ns + number * (redraw_ns - leaving_ns) // topics
                is_new = number in after
                changes.append((redrawn_ns if is_new else redrawn_ns + leaving_ns, number, is_new))
            yield from sorted(changes)

    def _change(self, change: tuple[int, int, bool]) -> None:
        _, number, is_new = change
        if number == NO_TOPIC:
            return
        if is_new:
            self._client.subscribe(self._topics[number], self._spreading.qos)
        else:
            self._client.unsubscribe(self._topics[number])

    @property
    def clients(self) -> list[Client]:
        return [self._client]


def _actors(scenario: Scenario, spreading: Spreading) -> list[Callable[..., Any]]:
    topics, draws = _topics(scenario, spreading), Draws(scenario, spreading)
    shares = [Share(spreading.rate / spreading.types, range(spreading.types))]
    actors: list[Callable[..., Any]] = []
    for position, name in enumerate(scenario.tree.names):
        numbers = _numbers(position, spreading)
        own = topics[numbers.start : numbers.stop]
        actors += [
            partial(Listening, broker=name, position=position, spreading=spreading, topics=topics, draws=draws),
            partial(Publishing, broker=name, name="source", shares=shares, topics=own, qos=spreading.qos),
        ]
    return actors


def _topics(scenario: Scenario, spreading: Spreading) -> list[str]:
    """By number: those of the first broker, then those of the next."""
    return [f"spread/{broker}/{number}" for broker in scenario.tree.names for number in range(spreading.types)]


def _numbers(source: int, spreading: Spreading) -> range:
    return range(source * spreading.types, (source + 1) * spreading.types)


def _rings(tree: Tree, source: int) -> list[list[int]]:
    """The brokers at each distance from 1 on."""
    distances = _distances(tree, source)
    return [np.flatnonzero(distances == far).tolist() for far in range(1, int(distances.max()) + 1)]


def _distances(tree: Tree, source: int) -> NDArray[np.int64]:
    distances = np.full(len(tree), -1)
    above, far = source, 0
    while above >= 0:  # up to the root
        distances[above] = far
        above, far = int(tree.parents[above]), far + 1
    for broker in range(1, len(tree)):  # parents come before their children
        if distances[broker] < 0:
            distances[broker] = distances[tree.parents[broker]] + 1
    return distances


def _demand(scenario: Scenario, spreading: Spreading) -> Iterator[Demand]:
    """The types of one source are alike. Draws are independent from one redraw to the next and between distances, so
    interest is absent on a side of a link with q = the product over distances of 1 - R * (the share of the brokers at
    that distance which are there), and it appears at a redraw with q (1 - q)."""
    tree, redraw_s = scenario.tree, spreading.redraw / NS_PER_S
    for source, broker in enumerate(tree.names):
        distances = _distances(tree, source)
        far = np.arange(1, int(distances.max()) + 1)
        is_at = (distances[:, None] == far).astype(np.float64)
        chances = np.float64(spreading.coefficient) ** far / is_at.sum(axis=0)
        listens = is_at @ chances  # at most one of the distances is that of a broker
        below, above = ((1 - there * chances).clip(0.0).prod(axis=1) for there in tree.sums_inside_and_outside(is_at))
        rate = np.zeros(len(tree))
        rate[source] = spreading.rate / spreading.types
        yield Demand(
            tuple(f"spread/{broker}/{number}" for number in range(spreading.types)),
            publication_rate=rate,
            arrival_rate=listens * (1 - listens) / redraw_s,
            mean_active=listens,
            below=SideInterest(below, (1 - below) / redraw_s),
            above=SideInterest(above, (1 - above) / redraw_s),
        )


def _check(spreading: Spreading, scenario: Scenario, path: Path, report: Report) -> None:
    number = len(scenario.tree) * spreading.types
    if number > CLASSES_MAX:
        report(
            (*path, "types"),
            f"makes {number} topics at {len(scenario.tree)} brokers; at most {CLASSES_MAX} are allowed",
        )


PART = WorkloadPart(
    "spreading", "Events of several types at every broker, with fewer listeners farther away.", _actors, Spreading,
    _check, topics=_topics, filters=_topics, demand=_demand, qos=lambda spreading: int(spreading.qos),
    excludes=("classes", "subscriptions", "publications"), depends_on_tree=True,
    publications_are_poisson=True,
)  # fmt: skip

"""How much traffic each flow and each traffic class sends through this broker, as the broker sees it.

A flow is what one broker publishes to one topic. A traffic class is here a set of brokers: this one, if its own clients
publish or receive, and the neighbours from which messages come or to which they go. Counting is one addition to a
dictionary; what the counts mean is found out when somebody asks.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Generic, NamedTuple, TypeVar

COUNTS_MAX = 20_000  # counts that are kept before they are summed up by class; each takes some 300 bytes
COUNTS_REPORTED_MAX = 1000  # counts of flows that a neighbour is told; each takes some 100 bytes of its report
CLASSES_MAX = 1000  # traffic classes; the rarest ones beyond that become one class of all brokers

Source = TypeVar("Source", bound=Hashable)
Receivers = TypeVar("Receivers", bound=Hashable)
Members = frozenset[str]


class Flow(NamedTuple):
    origin: str  # the broker at which messages enter, with its incarnation
    topic: str


class Demand(Generic[Source, Receivers]):
    def __init__(self, members_of: Callable[[Source, Receivers], Members]) -> None:
        """`members_of`: the traffic class of what comes from a source and goes to these receivers."""
        self._members_of = members_of
        self._counts: dict[tuple[Source, Receivers, str, str], int] = {}  # the last two are origin and topic of a Flow
        self._classes: dict[Members, int] = {}  # what was counted before, by class
        self._others = 0  # messages of classes that were too rare
        self.since_ns = 0

    def count(self, source: Source, receivers: Receivers, origin: str, topic: str, messages: int) -> None:
        counted = source, receivers, origin, topic
        try:
            self._counts[counted] += messages
        except KeyError:
            self._counts[counted] = messages
            if len(self._counts) > COUNTS_MAX:
                self._sum_up()

    def restart(self, now_ns: int) -> None:
        """Forget what was counted: the neighbours are others from now on, or a new period begins."""
        self._counts.clear()
        self._classes.clear()
        self._others = 0
        self.since_ns = now_ns

    def by_flow(self) -> dict[Flow, tuple[Members, int]]:
        """The traffic class and the messages of all flows, since the last restart; none if there are too many flows.

        With some of them only, two brokers would not know what another tree costs.
        """
        flows: dict[Flow, tuple[Members, int]] = {}
        if self._classes or len(self._counts) > COUNTS_REPORTED_MAX:
            return flows
        for (source, receivers, *of), count in self._counts.items():
            flow = Flow(*of)
            members, before = flows.get(flow, (frozenset(), 0))
            flows[flow] = members | self._members_of(source, receivers), before + count
        return flows

    def by_class(self, everybody: Members) -> Mapping[Members, int]:
        """Messages by traffic class, since the last restart."""
        classes = self._summed_up()
        if self._others:
            classes[everybody] = classes.get(everybody, 0) + self._others
        return {members: count for members, count in classes.items() if len(members) > 1}

    def _summed_up(self) -> dict[Members, int]:
        classes = dict(self._classes)
        for (source, receivers, _, _), count in self._counts.items():
            members = self._members_of(source, receivers)
            classes[members] = classes.get(members, 0) + count
        return classes

    def _sum_up(self) -> None:
        classes = self._summed_up()
        self._counts.clear()
        in_order = sorted(classes.items(), key=lambda item: (-item[1], sorted(item[0])))
        self._classes = dict(in_order[:CLASSES_MAX])
        self._others += sum(count for _, count in in_order[CLASSES_MAX:])

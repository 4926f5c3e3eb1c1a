"""What a broker knows of the tree around it when it looks for a cheaper one: who is linked with whom, and the traffic.

A broker sees itself and its neighbours, and everybody else as the neighbour behind which they are. With the report of
one neighbour it sees that neighbour's neighbours, too. Both know the same flows, and so they know together which
brokers around them take part in each.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from brokerbed.broker.placement.demand import Flow, Members
from brokerbed.broker.placement.plan import Parents
from brokerbed.broker.placement.search import Brokers, Link, link


@dataclass(frozen=True)
class Report:
    """One broker's links, and its traffic per second."""

    name: str
    parent: str  # empty: it is the root
    children: tuple[str, ...]
    flows: Mapping[Flow, tuple[Members, float]]

    @property
    def neighbours(self) -> tuple[str, ...]:
        return (self.parent, *self.children) if self.parent else self.children

    def written(self) -> dict[str, Any]:
        flows = [[*flow, sorted(members), rate] for flow, (members, rate) in self.flows.items()]
        return {"name": self.name, "parent": self.parent, "children": self.children, "flows": flows}

    @staticmethod
    def read(written: Mapping[str, Any]) -> "Report":
        flows = {
            Flow(origin, topic): (frozenset(members), float(rate)) for origin, topic, members, rate in written["flows"]
        }
        return Report(written["name"], written["parent"], tuple(written["children"]), flows)


@dataclass(frozen=True)
class View:
    """Brokers have numbers; the one that looks has 0."""

    names: list[str]
    parents: Parents
    demands: Mapping[Brokers, float]  # per second, by set of brokers
    known: Mapping[str, tuple[str, ...]]  # the neighbours of those of whom all neighbours are here

    @property
    def tree(self) -> frozenset[Link]:
        return frozenset(link(child, parent) for child, parent in self.parents.items() if parent is not None)


def own_view(own: Report, classes: Mapping[Members, float]) -> View:
    """The broker and its neighbours."""
    return _view([own], classes.items())


def joint_view(own: Report, neighbour: Report) -> View:
    """The broker, one of its neighbours, and the neighbours of both."""
    classes = []
    for flow, (members, rate) in own.flows.items():
        beyond = neighbour.flows[flow][0] if neighbour.name in members and flow in neighbour.flows else None
        everybody = members if beyond is None else (members - {neighbour.name}) | (beyond - {own.name})
        classes.append((everybody, rate))
    classes += [(members, rate) for members, rate in neighbour.flows.values() if own.name not in members]
    return _view([own, neighbour], classes)


def _view(reports: list[Report], classes: Iterable[tuple[Members, float]]) -> View:
    names = list(dict.fromkeys([reports[0].name, *(name for report in reports for name in report.neighbours)]))
    number = {name: index for index, name in enumerate(names)}
    parents: dict[int, int | None] = dict.fromkeys(range(len(names)))
    for report in reports:
        if report.parent:
            parents[number[report.name]] = number[report.parent]
        for child in report.children:
            parents[number[child]] = number[report.name]
    demands: dict[Brokers, float] = {}
    for members, rate in classes:
        if len(members) > 1 and members <= number.keys():
            brokers = sum(1 << number[name] for name in members)
            demands[brokers] = demands.get(brokers, 0.0) + rate
    return View(names, parents, demands, {report.name: report.neighbours for report in reports})

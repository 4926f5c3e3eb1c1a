"""What it costs to send a message over a link and to process it in a broker (`costs`), after Migliavacca and Cugola."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from brokerbed.scenario.adaptive import PlacementSection
from brokerbed.scenario.checks import Path, Report, broker_exists
from brokerbed.scenario.document import shown
from brokerbed.scenario.part import Part
from brokerbed.scenario.topology import Tree

Cost = Annotated[float, Field(strict=True, ge=0, le=1e9)]


class CostsSection(Part):
    example = "{link: 1, links: {b1-b3: 4}, broker: 1, brokers: {b2: 3}}"
    link: Cost = 1.0
    links: Annotated[dict[str, Cost], Field(default_factory=dict)]
    broker: Cost = 1.0
    brokers: Annotated[dict[str, Cost], Field(default_factory=dict)]


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of one message. Any two brokers have a cost, whether or not there is a link between them."""

    link: float  # of those that are not among the following ones
    links: Mapping[frozenset[str], float]  # by the names of both brokers
    broker: float
    brokers: Mapping[str, float]
    alpha: float = 1.0  # weight of the costs of links
    beta: float = 1.0  # weight of the costs of brokers

    def of_link(self, one: str, other: str) -> float:
        return self.alpha * self.links.get(frozenset((one, other)), self.link)

    def of_broker(self, name: str) -> float:
        return self.beta * self.brokers.get(name, self.broker)


def resolved(
    section: CostsSection | None, placement: PlacementSection | None, tree: Tree, report: Report
) -> Costs | None:
    """With `placement`, traffic always has costs."""
    if section is None and placement is None:
        return None
    section = section or CostsSection.model_validate({})
    links: dict[frozenset[str], float] = {}
    for key, cost in section.links.items():
        path: Path = ("costs", "links", key)
        ends = _ends(key, path, tree, report)
        if ends is not None and ends in links:
            report(path, f"the cost between {' and '.join(sorted(ends))} was given before")
        if ends is not None:
            links[ends] = cost
    for name in section.brokers:
        broker_exists(name, ("costs", "brokers", name), tree, report)
    weights = (1.0, 1.0) if placement is None else (placement.alpha, placement.beta)
    return Costs(section.link, links, section.broker, dict(section.brokers), *weights)


def _ends(key: str, path: Path, tree: Tree, report: Report) -> frozenset[str] | None:
    """The two brokers in `b1-b3`. Names can contain dashes, so there may be several ways to read it."""
    dashes = [place for place, character in enumerate(key) if character == "-"]
    pairs = [(key[:place], key[place + 1 :]) for place in dashes]
    known = [pair for pair in pairs if pair[0] in tree.index and pair[1] in tree.index and pair[0] != pair[1]]
    if len(known) > 1:
        readings = " or ".join(f"{one} and {other}" for one, other in known)
        report(path, f"{shown(key)} can be read as {readings}; rename a broker")
    elif not known:
        report(path, f"must be the names of two brokers, joined by a dash, like b1-b3; not {shown(key)}")
    return frozenset(known[0]) if len(known) == 1 else None

"""The same scenario on another tree of its brokers, as after links have moved. Who publishes and subscribes stays."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from brokerbed.scenario.model import Publications, Scenario
from brokerbed.scenario.subscriptions import Cell, Subscriptions
from brokerbed.scenario.topology import Tree, explicit

T = TypeVar("T")


def parents_of(tree: Tree) -> dict[str, str | None]:
    return {tree.names[0]: None, **dict(tree.links)}


def with_parents(scenario: Scenario, parents: Mapping[str, str | None]) -> Scenario:
    """TopologyError if these parents are those of no tree."""
    if parents_of(scenario.tree) == dict(parents):
        return scenario
    tree = explicit({name: parents[name] for name in scenario.tree.names})
    place = [tree.index[name] for name in scenario.tree.names]  # the order of brokers follows from the tree
    return replace(
        scenario, tree=tree, subscriptions=_subscriptions(scenario.subscriptions, place),
        publications=_publications(scenario.publications, place),
    )  # fmt: skip


def _subscriptions(given: Subscriptions, place: Sequence[int]) -> Subscriptions:
    placement = given.placement
    if placement is not None:
        placement = replace(placement, brokers=tuple(sorted(place[broker] for broker in placement.brokers)))
    return replace(
        given, places=_places(given.places, place), overrides=_cells(given.overrides, place), placement=placement
    )


def _publications(given: Publications, place: Sequence[int]) -> Publications:
    return replace(given, places=_places(given.places, place), overrides_per_s=_cells(given.overrides_per_s, place))


def _places(places: frozenset[int], place: Sequence[int]) -> frozenset[int]:
    return frozenset(place[broker] for broker in places)


def _cells(cells: Mapping[Cell, T], place: Sequence[int]) -> dict[Cell, T]:
    return {(place[broker], number): value for (broker, number), value in cells.items()}

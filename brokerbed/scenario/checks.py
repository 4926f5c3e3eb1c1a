"""Checks that several parts of a scenario need: whether a broker or a link that it names exists."""

from collections.abc import Callable

from brokerbed.scenario.document import shown
from brokerbed.scenario.topology import Tree

Path = tuple[str | int, ...]
Report = Callable[[Path, str], None]  # takes note of a problem at a place in the file


def broker_exists(broker: str, path: Path, tree: Tree, report: Report) -> bool:
    if broker in tree.index:
        return True
    names = tree.names
    known = ", ".join(names) if len(names) <= 8 else f"{names[0]}, {names[1]} ... {names[-1]}"
    report(path, f"there is no broker {shown(broker)}; brokers are {known}")
    return False


def pair_exists(ends: tuple[str, str], path: Path, tree: Tree, report: Report) -> bool:
    """Whether there may be a link between these two at some time, if links move."""
    if not all(broker_exists(end, path, tree, report) for end in ends):
        return False
    if ends[0] == ends[1]:
        report(path, f"must name two brokers, not {ends[0]} twice")
        return False
    return True


def link_exists(ends: tuple[str, str], path: Path, tree: Tree, report: Report) -> bool:
    if not all(broker_exists(end, path, tree, report) for end in ends):
        return False
    if not tree.are_neighbours(*ends):
        report(path, f"there is no link between {ends[0]} and {ends[1]}; neither is the parent of the other")
        return False
    return True

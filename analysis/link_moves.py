"""The moves of links in a run, according to its log: what tree there was at the end, and which messages waited for it.

Pure. A move is over for the analysis when the child has its next parent (`link_moved`); its steps before and after that
are handovers, in which the link that a message belongs over is not the one over which it goes.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from brokerbed.analysis.faults import FOREVER_NS, Mark
from brokerbed.scenario.moved import parents_of
from brokerbed.scenario.topology import Tree

EVENTS = ("link_leaves", "link_adopted", "link_switched", "link_moved")


@dataclass(frozen=True, slots=True)
class Move:
    """A broker has another parent from now on."""

    time_ns: int
    child: str
    parent_before: str
    parent: str


class Handover(NamedTuple):
    """A part of the log of one broker, by positions, in which a link stands for another one.

    At a child that leaves its parent, what it routes to `link` waits for the next parent, and would go to `instead_of`
    otherwise. At a parent that adopts a child, what comes from `instead_of` does not go to `link`: the child has it.
    """

    run: int
    broker: str
    link: str
    instead_of: str
    from_position: int
    to_position: int
    is_leaving: bool


def moves_of(marks: Iterable[Mark]) -> list[Move]:
    """Of one run, in the order of time."""
    moved = sorted(
        (mark for mark in marks if mark.event == "link_moved"), key=lambda mark: (mark.time_ns, mark.position)
    )
    return [Move(mark.time_ns, *_ends(mark)) for mark in moved]


def _ends(mark: Mark) -> tuple[str, str, str]:
    child, _, parent = (mark.client or "").partition(">")
    return child, mark.topic or "", parent


def parents_after(tree: Tree, moves: Iterable[Move]) -> dict[str, str | None]:
    parents = parents_of(tree)
    for move in moves:
        parents[move.child] = move.parent
    return parents


def parents_over_time(tree: Tree, moves: Iterable[Move]) -> list[dict[str, str | None]]:
    """At the beginning, and after each move."""
    found = [parents_of(tree)]
    for move in moves:
        found.append({**found[-1], move.child: move.parent})
    return found


def links_ever(tree: Tree, moves: Iterable[Move]) -> list[tuple[str, str]]:
    """Child and parent of every link that there was at some time."""
    return list(dict.fromkeys((*tree.links, *((move.child, move.parent) for move in moves))))


def handovers_of(marks: Iterable[Mark]) -> list[Handover]:
    """Of all runs. What begins with one event in the log of a broker ends with another one about the same link."""
    ends = {"link_moved": "link_leaves", "link_switched": "link_adopted"}
    found: list[Handover] = []
    begun: dict[tuple[int, str, str, str], Mark] = {}
    for mark in sorted(marks, key=lambda mark: (mark.run, mark.broker, mark.position)):
        assert mark.client is not None or mark.event not in EVENTS
        key = mark.run, mark.broker, mark.client or ""
        if mark.event in ends.values():
            begun[*key, mark.event] = mark
        elif mark.event in ends and (first := begun.pop((*key, ends[mark.event]), None)) is not None:
            found.append(_handover(first, mark.position))
    return [*found, *(_handover(first, FOREVER_NS) for first in begun.values())]


def _handover(first: Mark, to_position: int) -> Handover:
    link = first.client or ""
    instead_of = f"{first.broker}>{first.topic}"
    return Handover(
        first.run, first.broker, link, instead_of, first.position, to_position, first.event == "link_leaves"
    )  # fmt: skip

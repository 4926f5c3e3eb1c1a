"""A link is cut, both ways or one way only."""

from typing import Annotated, Any

from pydantic import Field

from brokerbed.scenario.document import shown
from brokerbed.scenario.faults.contract import FaultKind, Strike
from brokerbed.scenario.faults.network import Link, StruckNetwork
from brokerbed.scenario.faults.targets import LINK
from brokerbed.scenario.part import problem


def strike(network: StruckNetwork, link: Link, way: str | None = None) -> Strike:
    link = link.of_both()  # its child may get another parent while it is cut
    child, parent = link.child.name, link.parent.name
    ways: tuple[str, ...] = ("up", "down")
    if way is not None:
        ways = ("up",) if way == f"{child}>{parent}" else ("down",)
    network.cut(link, *ways)
    return Strike(
        f"cut {way or f'{child}-{parent}'}",
        frozenset({child}),
        heal=lambda: network.repair(link, *ways),
        has_effect=lambda: all(map(link.is_held, ways)),
        is_over=lambda: (link.is_connected or not link.is_present) and not any(map(link.is_held, ways)),
    )


def check_way(ends: Any, way: str) -> None:
    if not isinstance(ends, tuple):
        raise problem("way goes with the cut of a named link only", "way")
    one, other = ">".join(ends), ">".join(ends[::-1])
    if way not in (one, other):
        raise problem(f"must be {one} or {other}, not {shown(way)}", "way")


KIND = FaultKind(
    "cut",
    "The link is cut both ways; with `way: b1>b3` one way only.",
    LINK,
    strike,
    options={"way": Annotated[str, Field(strict=True)]},
    check_options=check_way,
    cuts_links=True,
)

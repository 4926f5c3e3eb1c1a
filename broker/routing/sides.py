"""Counts on which sides of a broker there is a filter. A side is a link, or None for the broker's own clients."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from brokerbed.broker.routing.strategy import Neighbour

Side = Neighbour | None


class SideChange(NamedTuple):
    """The first entry with a filter has appeared on a side, or the last one has disappeared; or neither."""

    side: Side
    is_change: bool
    others: tuple[Side, ...]  # the other sides with the filter; only the first two, if it is a change

    def affected(self, links: Iterable[Neighbour]) -> list[Neighbour]:
        """The links for which it now matters: no side but this one, and the link itself, has the filter."""
        if not self.is_change or len(self.others) > 1:
            return []
        return [link for link in links if link is not self.side and (not self.others or self.others[0] is link)]


class Sides:
    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[str, dict[Side, int]] = {}  # filter -> how many entries there are on each side

    def changed(self, side: Side, topic_filter: str, is_added: bool) -> SideChange:
        """Count an entry with the filter that has appeared or disappeared on a side."""
        counts = self._counts.get(topic_filter)
        if is_added:
            if counts is None:
                counts = self._counts[topic_filter] = {}
            count = counts[side] = counts.get(side, 0) + 1
            is_change = count == 1
        else:
            count = 0 if counts is None else counts.get(side, 0)
            is_change = count == 1
            if counts is None or count == 0:
                return SideChange(side, False, ())
            if count > 1:
                counts[side] = count - 1
            else:
                del counts[side]
                if not counts:
                    del self._counts[topic_filter]
        others = list[Side]()
        if is_change:
            for other in counts:
                if other is not side:
                    others.append(other)
                    if len(others) == 2:
                        break
        return SideChange(side, is_change, tuple(others))

    def sides(self, topic_filter: str) -> list[Side]:
        return list(self._counts.get(topic_filter, ()))

    def is_beside(self, link: Neighbour, topic_filter: str) -> bool:
        """Whether there is such an entry on a side other than the link."""
        return any(side is not link for side in self._counts.get(topic_filter, ()))

    def beside(self, link: Neighbour) -> Iterator[str]:
        """The filters of entries on sides other than the link."""
        return (it for it, counts in self._counts.items() if len(counts) > 1 or link not in counts)

    def of(self, side: Side) -> Iterator[str]:
        """The filters of entries on this side."""
        return (it for it, counts in self._counts.items() if side in counts)

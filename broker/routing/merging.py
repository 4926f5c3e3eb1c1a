"""Merging-based routing: covering, and filters that differ only in their last level are announced as one.

Once `threshold` or more wanted filters have the same levels except the last one, `prefix/+` is announced in their
place: a cover that nobody asked for. Below the threshold again, the filters are announced first, and then `prefix/+` is
withdrawn, as for any other cover. The price is that notifications come down which nobody below wants.
"""

from collections.abc import Iterable

from brokerbed.broker.routing.covering import Covering
from brokerbed.broker.routing.strategy import Algorithm, Announcement, Neighbour, Parameter
from brokerbed.broker.values import Entry


class Merging(Covering):
    def __init__(self, threshold: int) -> None:
        super().__init__()
        self._threshold = threshold
        self._siblings: dict[str, int] = {}  # merged filter -> number of wanted filters in whose place it would be

    def heard(self, source: Neighbour | None, entry: Entry, is_added: bool) -> Iterable[Announcement]:
        del source
        topic_filter = entry.filter
        merged = _merged(topic_filter)
        if merged is None:
            return self._added(topic_filter) if is_added else self._removed(topic_filter)
        if is_added:
            announcements = list[Announcement]()
            if topic_filter not in self._counts:
                siblings = self._siblings[merged] = self._siblings.get(merged, 0) + 1
                if siblings == self._threshold:  # first, because it covers the new filter, too
                    announcements += self._added(merged)
            return announcements + self._added(topic_filter)
        is_last = self._counts.get(topic_filter) == 1
        announcements = self._removed(topic_filter)
        if is_last:
            siblings = self._siblings.pop(merged) - 1
            if siblings:
                self._siblings[merged] = siblings
            if siblings == self._threshold - 1:
                announcements += self._removed(merged)
        return announcements


def _merged(topic_filter: str) -> str | None:
    """The filter that can stand for this one and others like it; None if there is no such filter."""
    prefix, slash, last = topic_filter.rpartition("/")
    return f"{prefix}/+" if slash and last not in ("+", "#") else None


ALGORITHM = Algorithm(
    "merging",
    "As covering; many filters that differ only in their last level travel up as one.",
    Merging,
    covers=True,
    merges=True,
    parameters=(
        Parameter("threshold", 3, 2, "how many filters that differ only in their last level are announced as one"),
    ),
)

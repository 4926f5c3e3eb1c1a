"""A routing algorithm without a root, for the tests of what only such an algorithm uses: announcements downward, and
notifications that climb only where somebody above wants them.

A broker announces over each link every filter that somebody on its own side of the link wants, once.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from brokerbed.broker.routing.registry import ALGORITHMS
from brokerbed.broker.routing.strategy import Algorithm, Announcement, Neighbour
from brokerbed.broker.values import Entry


class Peer:
    def __init__(self) -> None:
        self._links: list[Neighbour] = []
        self._sides: dict[str, dict[Neighbour | None, int]] = {}  # filter -> how many want it on each side

    def joined(self, link: Neighbour) -> None:
        self._links.append(link)

    def left(self, link: Neighbour) -> None:
        self._links.remove(link)

    def heard(self, source: Neighbour | None, entry: Entry, is_added: bool) -> Iterable[Announcement]:
        wanted_before = {id(link): self._is_wanted(link, entry.filter) for link in self._links}
        sides = self._sides.setdefault(entry.filter, {})
        sides[source] = sides.get(source, 0) + (1 if is_added else -1)
        if sides[source] <= 0:
            del sides[source]
        if not sides:
            del self._sides[entry.filter]
        return [
            Announcement(link, Entry(entry.filter), is_added)
            for link in self._links
            if self._is_wanted(link, entry.filter) != wanted_before[id(link)]
        ]

    def wanted(self, link: Neighbour) -> Iterable[Entry]:
        return [Entry(topic_filter) for topic_filter in self._sides if self._is_wanted(link, topic_filter)]

    def _is_wanted(self, link: Neighbour, topic_filter: str) -> bool:
        return any(side is not link for side in self._sides.get(topic_filter, ()))


PEER = Algorithm(
    "peer-in-tests", "Notifications cross only links behind which somebody wants them.", Peer, climbs=False
)


@contextmanager
def registered() -> Iterator[None]:
    """As if it had come from another package."""
    records = ALGORITHMS.all
    ALGORITHMS.all = {**records, PEER.name: PEER}
    try:
        yield
    finally:
        ALGORITHMS.all = records

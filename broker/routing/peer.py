"""Peer-to-peer routing: there is no root, and a notification crosses a link only if somebody behind the link wants it.

A broker announces over each link every filter that somebody on its own side of the link wants, once: its clients and
its other neighbours. So notifications follow the smallest subtree that contains the publisher and all subscribers.
"""

from collections.abc import Iterable

from brokerbed.broker.routing.sides import Sides
from brokerbed.broker.routing.strategy import Algorithm, Announcement, Neighbour
from brokerbed.broker.values import Entry


class Peer:
    def __init__(self) -> None:
        self._links: dict[Neighbour, None] = {}
        self._interest = Sides()

    def joined(self, link: Neighbour) -> None:
        self._links[link] = None

    def left(self, link: Neighbour) -> Iterable[Announcement]:
        self._links.pop(link, None)
        return ()

    def heard(self, source: Neighbour | None, entry: Entry, is_added: bool) -> Iterable[Announcement]:
        changed = self._interest.changed(source, entry.filter, is_added)
        return [Announcement(link, Entry(entry.filter), is_added) for link in changed.affected(self._links)]

    def wanted(self, link: Neighbour) -> Iterable[Entry]:
        return map(Entry, self._interest.beside(link))


ALGORITHM = Algorithm(
    "peer",
    "Notifications cross only links behind which somebody wants them; there is no root.",
    Peer,
    climbs=False,
    speaks_downward=True,
    lets_links_move=True,
)

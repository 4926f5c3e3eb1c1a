"""Covering-based routing: a filter is announced only while no filter that strictly covers it is wanted, too.

When a cover comes, it is announced, and the parent drops the entries that it covers by itself. When a cover goes, what
it covered and nothing else covers is announced first, and then the cover is withdrawn, so that there is an entry for
every wanted filter, or for a cover of it, at any time.

Each filter that is not announced has a witness: a wanted filter that strictly covers it. When a filter goes, only those
whose witness it was need another one, so a change costs what it changes and not what is there.
"""

from collections.abc import Iterable

from brokerbed.broker.routing.filters import FilterIndex
from brokerbed.broker.routing.strategy import Algorithm, Announcement, Neighbour, UpwardStrategy
from brokerbed.broker.values import Entry


class Covering(UpwardStrategy):
    def __init__(self) -> None:
        super().__init__()
        self._counts: dict[str, int] = {}  # filter -> number of local subscriptions and entries from children
        self._wanted = FilterIndex()  # the filters in `_counts`
        self._announced: dict[str, None] = {}  # those of them that nothing wanted strictly covers
        self._announced_index = FilterIndex()
        self._witnesses: dict[str, str] = {}  # each of the others -> a wanted filter that strictly covers it
        self._covered: dict[str, dict[str, None]] = {}  # witness -> those that it is the witness of

    def heard(self, source: Neighbour | None, entry: Entry, is_added: bool) -> Iterable[Announcement]:
        del source
        return self._added(entry.filter) if is_added else self._removed(entry.filter)

    def _wanted_by_parent(self) -> Iterable[Entry]:
        return map(Entry, self._announced)

    def _added(self, topic_filter: str) -> list[Announcement]:
        count = self._counts[topic_filter] = self._counts.get(topic_filter, 0) + 1
        if count > 1:
            return []
        cover = self._wanted.cover_of(topic_filter)
        self._wanted.add(topic_filter)
        if cover is not None:
            self._cover(topic_filter, cover)
            return []
        for narrow in self._announced_index.covered_by(topic_filter):
            del self._announced[narrow]
            self._announced_index.discard(narrow)
            self._cover(narrow, topic_filter)
        return list(self._uncover(topic_filter))

    def _removed(self, topic_filter: str) -> list[Announcement]:
        count = self._counts.pop(topic_filter, 0) - 1
        if count > 0:
            self._counts[topic_filter] = count
        if count != 0:
            return []
        self._wanted.discard(topic_filter)
        witness = self._witnesses.pop(topic_filter, None)
        if witness is not None:
            del self._covered[witness][topic_filter]
            if not self._covered[witness]:
                del self._covered[witness]
        announcements = list[Announcement]()
        for narrow in self._covered.pop(topic_filter, ()):
            cover = self._wanted.cover_of(narrow)
            if cover is not None:
                self._cover(narrow, cover)
            else:
                del self._witnesses[narrow]
                announcements += self._uncover(narrow)
        if witness is None:
            del self._announced[topic_filter]
            self._announced_index.discard(topic_filter)
            announcements += self._announce(Entry(topic_filter), False)
        return announcements

    def _cover(self, topic_filter: str, cover: str) -> None:
        self._witnesses[topic_filter] = cover
        self._covered.setdefault(cover, {})[topic_filter] = None

    def _uncover(self, topic_filter: str) -> tuple[Announcement, ...]:
        self._announced[topic_filter] = None
        self._announced_index.add(topic_filter)
        return self._announce(Entry(topic_filter), True)


ALGORITHM = Algorithm(
    "covering", "A filter travels up only while no wider filter is wanted that covers it.", Covering, covers=True
)

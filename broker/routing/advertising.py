"""What the algorithms with advertisements have in common.

Advertisements are announced like filters: over each link those of all other sides, equal ones once. A neighbour that
advertises is answered with the interest that overlaps its advertisement, and at the end with an entry which says that
the answer is complete. A broker can give that answer only when the links over which it passed the advertisement on have
answered, too; so the answer means that all interest in the whole network is known.

An algorithm says over which links advertisements go, and over which links interest goes unasked.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable

from brokerbed.broker.routing.filters import FilterIndex
from brokerbed.broker.routing.sides import Side, Sides
from brokerbed.broker.routing.strategy import Announcement, Neighbour
from brokerbed.broker.values import Entry, advertisement, answer


class Advertised(ABC):
    def __init__(self) -> None:
        self._advertised_by: dict[Neighbour, FilterIndex] = {}  # for every link, what the neighbour advertises
        self._advertisements = Sides()
        self._answers: dict[str, dict[Neighbour, None]] = {}  # filter of an advertisement -> links that have answered
        self._interest = Sides()
        self._interest_index = FilterIndex()

    @abstractmethod
    def _gets_advertisements(self, link: Neighbour) -> bool:
        """Whether advertisements are announced over the link."""

    @abstractmethod
    def _gets_all_interest(self, link: Neighbour) -> bool:
        """Whether interest is announced over the link without an advertisement from there."""

    def joined(self, link: Neighbour) -> None:
        self._advertised_by[link] = FilterIndex()

    def left(self, link: Neighbour) -> Iterable[Announcement]:
        """Advertisements that had been answered over all other links are now answered."""
        self._advertised_by.pop(link, None)
        return [
            Announcement(other, answer(topics), True)
            for other in self._advertised_by
            for topics in self._advertisements.of(other)
            if self._gets_advertisements(link) and self._is_answered_beside(other, topics)
        ]

    def heard(self, source: Neighbour | None, entry: Entry, is_added: bool) -> Iterable[Announcement]:
        if entry.is_advertisement:
            return self._heard_advertisement(source, entry.topics, is_added)
        if entry.is_answer:
            return self._heard_answer(source, entry.topics, is_added)
        topic_filter = entry.filter
        changed = self._interest.changed(source, topic_filter, is_added)
        if changed.is_change and not changed.others:
            (self._interest_index.add if is_added else self._interest_index.discard)(topic_filter)
        return [
            Announcement(link, Entry(topic_filter), is_added)
            for link in changed.affected(self._advertised_by)
            if self._is_called_for(link, topic_filter)
        ]

    def wanted(self, link: Neighbour) -> Iterable[Entry]:
        """Answers come last: each is true only after the interest."""
        if self._gets_advertisements(link):
            yield from map(advertisement, self._advertisements.beside(link))
        for topic_filter in self._interest.beside(link):
            if self._is_called_for(link, topic_filter):
                yield Entry(topic_filter)
        for topics in self._advertisements.of(link):
            if self._is_answered_beside(link, topics):
                yield answer(topics)

    def is_answered(self, topics: str) -> bool:
        return self._is_answered_beside(None, topics)

    def _is_answered_beside(self, side: Side, topics: str) -> bool:
        """Whether all links other than this side have answered the advertisement, as far as they get it."""
        answers = self._answers.get(topics, ())
        return all(
            link in answers for link in self._advertised_by if link is not side and self._gets_advertisements(link)
        )

    def _is_called_for(self, link: Neighbour, topic_filter: str) -> bool:
        return self._gets_all_interest(link) or self._advertised_by[link].overlaps(topic_filter)

    def _heard_advertisement(self, source: Neighbour | None, topics: str, is_added: bool) -> Iterable[Announcement]:
        changed = self._advertisements.changed(source, topics, is_added)
        announcements = [
            Announcement(link, advertisement(topics), is_added)
            for link in changed.affected(self._advertised_by)
            if self._gets_advertisements(link)
        ]
        if source is None or not changed.is_change:
            return announcements
        advertised = self._advertised_by[source]
        if not is_added:
            advertised.discard(topics)  # the entries that it called for disappear at both ends without a message
            return announcements
        announcements += [
            Announcement(source, Entry(topic_filter), True)
            for topic_filter in self._interest_index.overlapping(topics)
            if self._interest.is_beside(source, topic_filter) and not self._is_called_for(source, topic_filter)
        ]
        advertised.add(topics)
        if self._is_answered_beside(source, topics):
            announcements.append(Announcement(source, answer(topics), True))
        return announcements

    def _heard_answer(self, source: Neighbour | None, topics: str, is_added: bool) -> Iterable[Announcement]:
        assert source is not None
        others = [side for side in self._advertisements.sides(topics) if side is not None and side is not source]
        if is_added:
            self._answers.setdefault(topics, {})[source] = None
        answered = [side for side in others if self._is_answered_beside(side, topics)]
        if not is_added:
            answers = self._answers.get(topics, {})
            answers.pop(source, None)
            if not answers:
                self._answers.pop(topics, None)
        return [Announcement(side, answer(topics), is_added) for side in answered]

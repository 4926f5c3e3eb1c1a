"""How many sources of classes, and which peers, advertise topics that a filter matches, per broker."""

import numpy as np

from brokerbed.scenario import Scenario, matches
from brokerbed.scenario.topology import Floats
from brokerbed.topics import REPLIES, overlap


class SourceCounts:
    """The advertisers that stay at a broker; roaming.py has the others. Every broker-class rate above 0 is a source."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        publications, brokers = scenario.publications, len(scenario.tree)
        self._spread = np.zeros(brokers)
        if publications.spread_per_s > 0:
            self._spread[sorted(publications.places)] = 1.0
        self._changes: dict[int, list[tuple[int, float]]] = {}  # by class: brokers where it differs from the spread
        for (broker, number), rate in publications.overrides_per_s.items():
            change = float(rate > 0) - float(self._spread[broker])
            if change:
                self._changes.setdefault(number, []).append((broker, change))

    def of(self, topic_filter: str) -> tuple[Floats, Floats]:
        """The number of sources of classes, which may come and go, and of peers, whose advertisements stay."""
        scenario = self._scenario
        numbers = scenario.classes_matching(topic_filter)
        counts = self._spread * len(numbers)
        changed = self._changes if len(numbers) == scenario.classes else [n for n in numbers if n in self._changes]
        for number in changed:
            for broker, change in self._changes[number]:
                counts[broker] += change
        publishers = np.zeros(len(scenario.tree))
        for publisher in scenario.generators:
            if matches(topic_filter, publisher.topic) and not publisher.roams:
                publishers[scenario.tree.index[publisher.broker]] += 1
        if overlap(topic_filter, REPLIES):
            for responder in scenario.responders:
                publishers[scenario.tree.index[responder.broker]] += 1
        return counts, publishers

"""The workload of a scenario as columns for the models of routing.

Classes that nothing sets apart share one column, so 1000 uniform classes cost as much as one. For the models a peer's
topic is one more class: its publishers' rates, and its subscribers as subscriptions that never end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from brokerbed.analysis.models.hierarchical import Classes
from brokerbed.scenario import Scenario, class_topic, is_wildcard, matches
from brokerbed.scenario.topology import Floats

CELLS_MAX = 1_000_000  # brokers x columns worked on at a time: a dozen arrays of 8 MB


@dataclass(frozen=True, slots=True)
class _Column:
    topic: str
    class_number: int | None = None  # None for a topic that is no class
    multiplicity: int = 1  # classes that are exactly like this one, itself included


def class_columns(scenario: Scenario) -> Iterator[Classes]:
    """The filter classes, as many columns at a time as memory allows."""
    apart = {number for _, number in scenario.subscriptions.overrides}
    apart.update(number for _, number in scenario.publications.overrides_per_s)
    apart.update(_classes_of_peers(scenario))
    columns = [_Column(class_topic(number), number) for number in sorted(apart)]
    if len(apart) < scenario.classes:
        first = next(number for number in range(scenario.classes) if number not in apart)
        columns.append(_Column(class_topic(first), first, scenario.classes - len(apart)))
    return _chunks(scenario, columns)


def peer_columns(scenario: Scenario) -> Iterator[Classes]:
    """The topics of one copy of the peers, but for those that are classes."""
    topics = dict.fromkeys(peer.topic for peer in (*scenario.publishers, *scenario.subscribers))
    classes = {class_topic(number) for number in _classes_of_peers(scenario)}
    return _chunks(scenario, [_Column(topic) for topic in topics if topic not in classes])


def _classes_of_peers(scenario: Scenario) -> set[int]:
    """The classes that some peer singles out."""
    matched = [scenario.classes_matching(peer.topic) for peer in (*scenario.publishers, *scenario.subscribers)]
    return {numbers[0] for numbers in matched if len(numbers) == 1}


def _chunks(scenario: Scenario, columns: Sequence[_Column]) -> Iterator[Classes]:
    size = max(1, CELLS_MAX // len(scenario.tree))
    for start in range(0, len(columns), size):
        yield _classes(scenario, columns[start : start + size])


def _classes(scenario: Scenario, columns: Sequence[_Column]) -> Classes:
    shape = (len(scenario.tree), len(columns))
    arrival_rate, mean_active, publication_rate = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    at = {column.class_number: position for position, column in enumerate(columns) if column.class_number is not None}
    of_classes = list(at.values())
    if (everywhere := scenario.subscriptions.everywhere) is not None:
        arrival_rate[:, of_classes] = everywhere.arrival_rate_per_s
        mean_active[:, of_classes] = everywhere.mean_active
    publication_rate[:, of_classes] = scenario.publications.everywhere_per_s
    for (broker, number), churn in scenario.subscriptions.overrides.items():
        if number in at:
            arrival_rate[broker, at[number]] = churn.arrival_rate_per_s
            mean_active[broker, at[number]] = churn.mean_active
    for (broker, number), rate_per_s in scenario.publications.overrides_per_s.items():
        if number in at:
            publication_rate[broker, at[number]] = rate_per_s
    permanent, wanted_anyway = _peers(scenario, columns, publication_rate)
    multiplicity = np.array([float(column.multiplicity) for column in columns])
    return Classes(multiplicity, arrival_rate, mean_active, permanent, wanted_anyway, publication_rate)


def _peers(scenario: Scenario, columns: Sequence[_Column], publication_rate: Floats) -> tuple[Floats, Floats]:
    """Adds what peers publish; returns where they subscribe to exactly a column's topic, and where by a wildcard."""
    permanent, wanted_anyway = np.zeros_like(publication_rate), np.zeros_like(publication_rate)
    positions = {column.topic: position for position, column in enumerate(columns)}
    for publisher in scenario.publishers:
        if publisher.topic in positions:
            publication_rate[scenario.tree.index[publisher.broker], positions[publisher.topic]] += publisher.rate
    for subscriber in scenario.subscribers:
        broker = scenario.tree.index[subscriber.broker]
        if subscriber.topic in positions:
            permanent[broker, positions[subscriber.topic]] += 1
        if is_wildcard(subscriber.topic):
            for topic, position in positions.items():
                if topic != subscriber.topic and matches(subscriber.topic, topic):
                    wanted_anyway[broker, position] = 1
    return permanent, wanted_anyway

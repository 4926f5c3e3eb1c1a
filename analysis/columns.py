"""The workload of a scenario as columns for the models of routing.

Classes with identical workloads share one column, so 1000 uniform classes cost as much as one. The models treat the
topic of a peer as one more class, with the rates of its publishers and with subscriptions that never end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from brokerbed.analysis.models.contract import Classes
from brokerbed.scenario import Scenario, class_topic, is_wildcard, matches
from brokerbed.scenario.topology import Floats

CELLS_MAX = 1_000_000  # brokers x columns processed at a time: a dozen arrays of 8 MB


@dataclass(frozen=True, slots=True)
class _Column:
    topic: str
    class_number: int | None = None  # None for a topic that belongs to no class
    multiplicity: int = 1  # the number of classes that this column stands for


def class_columns(scenario: Scenario) -> Iterator[Classes]:
    """The columns of the filter classes, in chunks that fit into memory."""
    distinct = {number for _, number in scenario.subscriptions.overrides}
    distinct.update(number for _, number in scenario.publications.overrides_per_s)
    distinct.update(_classes_of_peers(scenario))
    columns = [_Column(class_topic(number), number) for number in sorted(distinct)]
    if len(distinct) < scenario.classes:
        first = next(number for number in range(scenario.classes) if number not in distinct)
        columns.append(_Column(class_topic(first), first, scenario.classes - len(distinct)))
    return _chunks(scenario, columns)


def peer_columns(scenario: Scenario) -> Iterator[Classes]:
    """The columns of the topics of one copy of the peers, except topics that are classes."""
    topics = dict.fromkeys(peer.topic for peer in (*scenario.publishers, *scenario.subscribers))
    classes = {class_topic(number) for number in _classes_of_peers(scenario)}
    return _chunks(scenario, [_Column(topic) for topic in topics if topic not in classes])


def _classes_of_peers(scenario: Scenario) -> set[int]:
    """The classes whose topic is exactly that of some peer."""
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
    """Adds the peers' publication rates; returns their exact subscriptions and their wildcard subscriptions."""
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

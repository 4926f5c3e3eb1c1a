"""The workload of a scenario as columns for the models of routing.

A column is a filter: a class, the topic of a peer, or a filter with wildcards. Classes with identical workloads share
one column, and so do identical groups of classes, so 1000 uniform classes cost as much as one. The models treat the
topic of a peer as one more class, with the rates of its publishers and with subscriptions that never end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from brokerbed.analysis.models.contract import Advertisers, Classes, Group, Interest, Model, NotPredictedError
from brokerbed.analysis.sources import SourceCounts
from brokerbed.scenario import Scenario, is_wildcard
from brokerbed.scenario.topology import Floats
from brokerbed.topics import covers_strictly

CELLS_MAX = 1_000_000  # brokers x columns processed at a time: a dozen arrays of 8 MB


@dataclass(frozen=True, slots=True)
class _Column:
    filter: str
    class_number: int | None = None  # None for a filter that is no class
    multiplicity: int = 1  # the number of filters that this column stands for
    group: int | None = None  # the group of classes whose filter `group/<g>/+` strictly covers this filter
    wide_group: int | None = None  # the group of classes whose filter this is


@dataclass(slots=True)
class _Unit:
    """Columns that belong together: filters that differ only in their last level, with the filter for all of them."""

    multiplicity: int = 1  # the number of identical groups that it stands for
    members: list[_Column] = field(default_factory=list)
    wide: _Column | None = None

    @property
    def columns(self) -> list[_Column]:
        return self.members if self.wide is None else [*self.members, self.wide]


def class_columns(scenario: Scenario, model: Model) -> Iterator[Classes]:
    """The columns of the classes, in chunks that fit into memory, with those of the peers if they have no copies."""
    builder = _Builder(scenario, model)
    builder.add_classes()
    if scenario.copies == 1:
        builder.add_peers()
    return builder.chunks()


def peer_columns(scenario: Scenario, model: Model) -> Iterator[Classes]:
    """The columns of the topics of one copy of the peers, if there are several: their topics match no class."""
    builder = _Builder(scenario, model)
    if scenario.copies > 1:
        builder.add_peers()
    return builder.chunks()


class _Builder:
    def __init__(self, scenario: Scenario, model: Model) -> None:
        self._scenario = scenario
        self._model = model
        self._units: list[_Unit] = []
        self._by_prefix: dict[str, _Unit] = {}  # of groups of filters, by what their filters have in common
        self._topics = dict.fromkeys(peer.topic for peer in (*scenario.publishers, *scenario.subscribers))

    # -- which columns there are --------------------------------------------------------------------------------

    def add_classes(self) -> None:
        scenario = self._scenario
        distinct = {number for _, number in scenario.subscriptions.overrides}
        distinct.update(number for _, number in scenario.publications.overrides_per_s)
        matched = [scenario.classes_matching(topic) for topic in self._topics]
        distinct.update(numbers[0] for numbers in matched if len(numbers) == 1)
        if scenario.groups is None:
            self._add_group(None, range(scenario.classes), sorted(distinct), 1)
            return
        special = {number % scenario.groups for number in distinct}
        special.update(numbers[0] % scenario.groups for numbers in matched if 0 < len(numbers) < scenario.classes)
        special.update(group for topic in self._topics if (group := scenario.group_above(topic)) is not None)
        distinct_of: dict[int, list[int]] = {group: [] for group in sorted(special)}
        for number in sorted(distinct):
            distinct_of[number % scenario.groups].append(number)
        for group, numbers in distinct_of.items():
            self._add_group(group, range(group, scenario.classes, scenario.groups), numbers, 1)
        larger = scenario.classes % scenario.groups  # the first groups have one class more than the others
        for groups in (range(larger), range(larger, scenario.groups)):
            count = len(groups) - sum(group in groups for group in distinct_of)
            if count:
                group = next(group for group in groups if group not in special)
                self._add_group(group, range(group, scenario.classes, scenario.groups), [], count)

    def _add_group(self, group: int | None, numbers: range, distinct: list[int], multiplicity: int) -> None:
        """A group of classes: a column for each class that is unlike the others, and one for the rest."""
        topic = self._scenario.class_topic
        unit = _Unit(multiplicity)
        unit.members = [_Column(topic(number), number, multiplicity, group) for number in distinct]
        if len(distinct) < len(numbers):
            seen = set(distinct)
            first = next(number for number in numbers if number not in seen)
            unit.members.append(_Column(topic(first), first, (len(numbers) - len(distinct)) * multiplicity, group))
        if group is None and not self._model.uses_groups:
            self._units += [_Unit(members=[column]) for column in unit.members]  # they have nothing in common
            return
        prefix = unit.members[0].filter.rpartition("/")[0]
        if self._model.uses_groups or self._scenario.subscriptions.wide is not None or f"{prefix}/+" in self._topics:
            unit.wide = _Column(f"{prefix}/+", None, multiplicity, None, group)
        self._units.append(unit)
        self._by_prefix[prefix] = unit

    def add_peers(self) -> None:
        there = {column.filter for unit in self._units for column in unit.columns}
        is_alone = self._scenario.copies == 1
        for topic in self._topics:
            if topic in there:
                continue
            prefix, slash, last = (topic if is_alone else f"copy/{topic}").rpartition("/")
            column = _Column(topic, group=self._scenario.group_above(topic) if is_alone else None)
            if not self._model.uses_groups or not slash or last == "#":
                self._units.append(_Unit(members=[column]))
                continue
            unit = self._by_prefix.get(prefix)
            if unit is None:
                unit = self._by_prefix[prefix] = _Unit(wide=_Column(f"{prefix}/+"))
                self._units.append(unit)
            if last != "+":
                unit.members.append(column)
            if is_wildcard(prefix) and len(unit.members) > 1:
                raise NotPredictedError("merging of filters that have wildcards before the last level")

    # -- what is in them ----------------------------------------------------------------------------------------

    def chunks(self) -> Iterator[Classes]:
        """As many columns at a time as fit into memory; columns that belong together stay together."""
        chunk: list[_Unit] = []
        size = 0
        for unit in self._units:
            if chunk and (size + len(unit.columns)) * len(self._scenario.tree) > CELLS_MAX:
                yield self._classes(chunk)
                chunk, size = [], 0
            chunk.append(unit)
            size += len(unit.columns)
        if chunk:
            yield self._classes(chunk)

    def _classes(self, units: Sequence[_Unit]) -> Classes:
        columns = [column for unit in units for column in unit.columns]
        interest = self._interest(columns)
        publication_rate, permanent = self._publication_rate(columns), np.zeros_like(interest.arrival_rate)
        wanted_anyway = np.zeros_like(permanent)
        tree, positions = self._scenario.tree, {column.filter: at for at, column in enumerate(columns)}
        for publisher in self._scenario.publishers:
            if publisher.topic in positions:
                publication_rate[tree.index[publisher.broker], positions[publisher.topic]] += publisher.rate
        for subscriber in self._scenario.subscribers:
            broker = tree.index[subscriber.broker]
            if subscriber.topic in positions:
                permanent[broker, positions[subscriber.topic]] += 1
            if is_wildcard(subscriber.topic):
                covered = [at for at, column in enumerate(columns) if covers_strictly(subscriber.topic, column.filter)]
                wanted_anyway[broker, covered] = 1
        return Classes(
            multiplicity=np.array([float(column.multiplicity) for column in columns]),
            arrival_rate=interest.arrival_rate,
            mean_active=interest.mean_active,
            permanent=permanent,
            wanted_anyway=wanted_anyway,
            publication_rate=publication_rate,
            wide=self._wide_interest([column.group for column in columns]),
            advertisers=self._advertisers(columns) if self._model.uses_advertisements else None,
            groups=tuple(_groups(units)) if self._model.uses_groups else (),
        )

    def _interest(self, columns: Sequence[_Column]) -> Interest:
        """In exactly these filters."""
        subscriptions = self._scenario.subscriptions
        wide = self._wide_interest([column.wide_group for column in columns])
        interest = wide or Interest(self._zeros(columns), self._zeros(columns))
        at = {column.class_number: place for place, column in enumerate(columns) if column.class_number is not None}
        if subscriptions.spread is not None:
            cells = np.ix_(sorted(subscriptions.places), list(at.values()))
            interest.arrival_rate[cells] = subscriptions.spread.arrival_rate_per_s
            interest.mean_active[cells] = subscriptions.spread.mean_active
        for (broker, number), churn in subscriptions.overrides.items():
            if number in at:
                interest.arrival_rate[broker, at[number]] = churn.arrival_rate_per_s
                interest.mean_active[broker, at[number]] = churn.mean_active
        return interest

    def _wide_interest(self, groups: Sequence[int | None]) -> Interest | None:
        """In the filters of groups of classes, for those columns that have one."""
        subscriptions = self._scenario.subscriptions
        concerned = [place for place, group in enumerate(groups) if group is not None]
        if subscriptions.wide is None or not concerned:
            return None
        interest = Interest(self._zeros(groups), self._zeros(groups))
        cells = np.ix_(sorted(subscriptions.places), concerned)
        interest.arrival_rate[cells] = subscriptions.wide.arrival_rate_per_s
        interest.mean_active[cells] = subscriptions.wide.mean_active
        return interest

    def _publication_rate(self, columns: Sequence[_Column]) -> Floats:
        publications = self._scenario.publications
        rate = self._zeros(columns)
        at = {column.class_number: place for place, column in enumerate(columns) if column.class_number is not None}
        rate[np.ix_(sorted(publications.places), list(at.values()))] = publications.spread_per_s
        for (broker, number), rate_per_s in publications.overrides_per_s.items():
            if number in at:
                rate[broker, at[number]] = rate_per_s
        return rate * publications.share_on

    def _advertisers(self, columns: Sequence[_Column]) -> Advertisers:
        counts, always = self._zeros(columns), self._zeros(columns)
        found = SourceCounts(self._scenario)
        for place, column in enumerate(columns):
            counts[:, place], always[:, place] = found.of(column.filter)
        sources = self._scenario.publications.sources
        is_topic = np.array([not is_wildcard(column.filter) for column in columns])
        if sources is None:
            return Advertisers(always + counts, 0 * counts, 0 * counts, is_topic)
        odds = sources.on.mean_s / sources.off.mean_s
        return Advertisers(always, counts / sources.off.mean_s, counts * np.log1p(odds), is_topic)

    def _zeros(self, columns: Sequence[object]) -> Floats:
        return np.zeros((len(self._scenario.tree), len(columns)))


def _groups(units: Sequence[_Unit]) -> Iterator[Group]:
    """The groups, with the places of their columns among those of all units."""
    start = 0
    for unit in units:
        if unit.wide is not None:
            members = np.arange(start, start + len(unit.members))
            counts = np.array([column.multiplicity // unit.multiplicity for column in unit.members], dtype=np.int64)
            yield Group(float(unit.multiplicity), members, counts, start + len(unit.members))
        start += len(unit.columns)

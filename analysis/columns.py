"""The workload of a scenario as columns for the models of routing.

A column is a filter: a class, the topic of a peer, or a filter with wildcards. Classes with identical workloads share
one column, and so do identical groups of classes, so 1000 uniform classes cost as much as one. The models treat the
topic of a peer as one more class, with the rates of its publishers and with subscriptions that never end.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np

from brokerbed.analysis.drawn import drawn_interest
from brokerbed.analysis.models.contract import Advertisers, Classes, Group, Interest, Model, NotPredictedError, Wire
from brokerbed.analysis.phases import STEADY, Phase
from brokerbed.analysis.roaming import RoamingColumns, Sides, repeated, those_who_roam, together
from brokerbed.analysis.sources import SourceCounts
from brokerbed.scenario import Churn, Population, Scenario, is_wildcard, matches
from brokerbed.scenario.topology import Floats
from brokerbed.topics import REPLIES, covers_strictly

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


def class_columns(scenario: Scenario, model: Model, phase: Phase = STEADY) -> Iterator[Classes]:
    """The columns of the classes, in chunks that fit into memory, with those of the peers if they have no copies.

    If rates vary, each column exists once for every moment of the phase, with its weight as a multiplicity.
    """
    builder = _Builder(scenario, model, phase)
    builder.add_classes()
    if scenario.copies == 1:
        builder.add_peers()
    return builder.chunks()


def peer_columns(scenario: Scenario, model: Model) -> Iterator[Classes]:
    """The columns of the topics of one copy of the peers, if there are several: their topics match no class."""
    builder = _Builder(scenario, model, STEADY)
    if scenario.copies > 1:
        builder.add_peers()
    return builder.chunks()


class _Builder:
    def __init__(self, scenario: Scenario, model: Model, phase: Phase) -> None:
        self._scenario = scenario
        self._model = model
        self._phase = phase
        self._units: list[_Unit] = []
        self._by_prefix: dict[str, _Unit] = {}  # of groups of filters, by what their filters have in common
        self._streams, self._receivers = scenario.streams, scenario.receivers
        self._topics = dict.fromkeys(peer.topic for peer in (*self._streams, *self._receivers))
        self._are_replies_advertised = model.uses_advertisements and bool(scenario.responders)
        if self._are_replies_advertised:
            if any(matches(REPLIES, stream.topic) for stream in scenario.generators):
                raise NotPredictedError(f"publishers to {REPLIES}, which responders advertise")
            self._topics[REPLIES] = None

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
            if chunk and (size + len(unit.columns)) * len(self._phase.weights) * len(self._scenario.tree) > CELLS_MAX:
                yield self._classes(chunk)
                chunk, size = [], 0
            chunk.append(unit)
            size += len(unit.columns)
        if chunk:
            yield self._classes(chunk)

    def _classes(self, units: Sequence[_Unit]) -> Classes:
        columns = _columns_of(units)
        interest = self._interest(columns)
        of_classes = self._publication_rate(columns)
        rates = np.zeros_like(of_classes), np.zeros_like(of_classes), np.zeros_like(of_classes)  # by QoS
        rates[self._scenario.publications.qos][:] = of_classes
        permanent, wanted_anyway = self._zeros(columns), self._zeros(columns)
        tree, positions = self._scenario.tree, {column.filter: at for at, column in enumerate(columns)}
        for publisher in self._streams:
            for place in publisher.places if publisher.topic in positions else ():
                share_per_s = publisher.rate / len(publisher.places)  # a peer that roams is everywhere equally often
                rates[publisher.qos][tree.index[place], positions[publisher.topic], :] += share_per_s
        for subscriber in self._receivers:
            if subscriber.roams:
                for place in subscriber.places if subscriber.topic in positions else ():
                    at = tree.index[place], positions[subscriber.topic]
                    interest.mean_active[at] += 1 / len(subscriber.places)
                continue
            broker = tree.index[subscriber.broker]
            if subscriber.topic in positions:
                permanent[broker, positions[subscriber.topic]] += 1
            if is_wildcard(subscriber.topic):
                covered = [at for at, column in enumerate(columns) if covers_strictly(subscriber.topic, column.filter)]
                wanted_anyway[broker, covered] = 1
        roaming = self._roaming(units)
        moments = len(self._phase.weights)
        below, above = together(self._place(columns, interest, permanent), repeated(roaming.subscribing, moments)) or (
            None,
            None,
        )
        wide = self._wide_interest([column.group for column in columns])
        at_qos_0, at_qos_1, at_qos_2 = (rate.reshape(len(tree), -1) for rate in rates)
        published = at_qos_0, at_qos_1, at_qos_2
        return Classes(
            multiplicity=np.outer([float(column.multiplicity) for column in columns], self._phase.weights).ravel(),
            own=_flat(interest),
            permanent=np.repeat(permanent, moments, axis=1),
            wanted_anyway=np.repeat(wanted_anyway, moments, axis=1),
            publication_rate=published[0] + published[1] + published[2],
            below=below,
            above=above,
            roaming_covers=repeated(roaming.covering, moments),
            wide=None if wide is None else _flat(wide),
            advertisers=self._advertisers(columns) if self._model.uses_advertisements else None,
            groups=tuple(_groups(units, moments)) if self._model.uses_groups else (),
            wire=Wire(np.repeat([self._filter_bytes(column) for column in columns], moments), published),
        )

    def _filter_bytes(self, column: _Column) -> float:
        own, copies = len(column.filter.encode()), self._scenario.copies
        if copies == 1 or column.class_number is not None or column.wide_group is not None:
            return own
        return own + sum(len(f"copy{copy}/") for copy in range(copies)) / copies

    def _interest(self, columns: Sequence[_Column]) -> Interest:
        """In exactly these filters."""
        subscriptions = self._scenario.subscriptions
        wide = self._wide_interest([column.wide_group for column in columns])
        interest = wide or self._no_interest(columns)
        at = {column.class_number: place for place, column in enumerate(columns) if column.class_number is not None}
        if subscriptions.spread is not None:
            cells = np.ix_(sorted(subscriptions.places), list(at.values()))
            self._fill(interest, cells, subscriptions.spread)
        if subscriptions.roam:
            for number, place in at.items():
                for broker, arriving in subscriptions.with_moves(subscriptions.arriving(number)).items():
                    self._fill(interest, (broker, place), arriving)
            return interest
        for (broker, number), churn in subscriptions.overrides.items():
            if number in at:
                self._fill(interest, (broker, at[number]), churn)
        return interest

    def _roaming(self, units: Sequence[_Unit]) -> RoamingColumns:
        if self._model.uses_groups:
            for subscriber in those_who_roam(self._scenario.subscribers):
                for unit in units:
                    others = [column.filter for column in unit.columns if unit.wide is not None]
                    is_wide = unit.wide is not None and unit.wide.filter == subscriber.topic
                    if not is_wide and any(covers_strictly(subscriber.topic, other) for other in others):
                        raise NotPredictedError("merging with a peer that roams and whose filter covers others")
        return RoamingColumns(self._scenario, [column.filter for column in _columns_of(units)])

    def _place(self, columns: Sequence[_Column], interest: Interest, permanent: Floats) -> Sides | None:
        """Adds the subscribers that are placed at leaves."""
        placement = self._scenario.subscriptions.placement
        of_classes = [place for place, column in enumerate(columns) if column.class_number is not None]
        if placement is None or not of_classes:
            return None
        cells = np.ix_(placement.brokers, of_classes)
        if not placement.is_random:
            permanent[cells] += 1
            return None
        interest.mean_active[cells] += placement.share
        for rates in (interest.arrivals, interest.departures):
            rates[cells] += placement.arrival_rate_per_s
        candidates = self._zeros(columns)
        candidates[cells] = 1.0
        repeated = np.repeat(candidates, len(self._phase.weights), axis=1)
        return drawn_interest(self._scenario.tree, repeated, placement.count, placement.redraws_per_s)

    def _wide_interest(self, groups: Sequence[int | None]) -> Interest | None:
        """In the filters of groups of classes, for those columns that have one."""
        subscriptions = self._scenario.subscriptions
        concerned = [place for place, group in enumerate(groups) if group is not None]
        if subscriptions.wide is None or not concerned:
            return None
        interest = self._no_interest(groups)
        cells = np.ix_(sorted(subscriptions.places), concerned)
        moving = 1 / (1 - subscriptions.roam)  # how often each subscription arrives somewhere
        arriving = replace(subscriptions.wide, arrival_rate_per_s=moving * subscriptions.wide.arrival_rate_per_s)
        self._fill(interest, cells, arriving)
        return interest

    def _publication_rate(self, columns: Sequence[_Column]) -> Floats:
        """Per broker, column and moment."""
        publications = self._scenario.publications
        rate = self._zeros(columns)
        at = {column.class_number: place for place, column in enumerate(columns) if column.class_number is not None}
        rate[np.ix_(sorted(publications.places), list(at.values()))] = publications.spread_per_s
        for (broker, number), rate_per_s in publications.overrides_per_s.items():
            if number in at:
                rate[broker, at[number]] = rate_per_s
        return rate[..., None] * publications.share_on * self._phase.publications

    def _advertisers(self, columns: Sequence[_Column]) -> Advertisers:
        counts, always = self._zeros(columns), self._zeros(columns)
        fixed = SourceCounts(self._scenario)
        for place, column in enumerate(columns):
            counts[:, place], always[:, place] = fixed.of(column.filter)
        sources = self._scenario.publications.sources
        moments = len(self._phase.weights)
        is_topic = np.repeat(np.array([self._is_advertised(column.filter) for column in columns]), moments)
        counts, always = np.repeat(counts, moments, axis=1), np.repeat(always, moments, axis=1)
        found = RoamingColumns(self._scenario, [column.filter for column in columns]).advertising
        roaming = repeated(found, moments)
        if sources is None:
            return Advertisers(always + counts, 0 * counts, 0 * counts, is_topic, roaming)
        odds = sources.on.mean_s / sources.off.mean_s
        return Advertisers(always, counts / sources.off.mean_s, counts * np.log1p(odds), is_topic, roaming)

    def _is_advertised(self, topic_filter: str) -> bool:
        """Whether those who publish to this filter advertise it itself: topics, but all topics of answers as one."""
        if self._are_replies_advertised and matches(REPLIES, topic_filter):
            return topic_filter == REPLIES
        return not is_wildcard(topic_filter)

    def _zeros(self, columns: Sequence[object]) -> Floats:
        return np.zeros((len(self._scenario.tree), len(columns)))

    def _no_interest(self, columns: Sequence[object]) -> Interest:
        """With arrays per broker, column and moment."""
        shape = len(self._scenario.tree), len(columns), len(self._phase.weights)
        return Interest(*(np.zeros(shape) for _ in fields(Interest)))

    def _fill(self, interest: Interest, cells: Any, subscriptions: Churn | Population) -> None:
        """In equilibrium, interest disappears as often as it appears."""
        if self._phase.responses:
            assert isinstance(subscriptions, Churn), "a population has no profile"
            response, per_s = self._phase.responses[subscriptions.lifetime], subscriptions.arrival_rate_per_s
            interest.strength[cells] = interest.mean_active[cells] = per_s * response.active_s
            interest.appearing[cells] = interest.arrivals[cells] = per_s * self._phase.arrivals
            interest.disappearing[cells] = interest.departures[cells] = per_s * response.departures
            return
        interest.strength[cells] = subscriptions.strength
        interest.appearing[cells] = interest.disappearing[cells] = subscriptions.appearing_per_s
        interest.mean_active[cells] = subscriptions.mean_active
        interest.arrivals[cells] = interest.departures[cells] = subscriptions.arrival_rate_per_s


def _columns_of(units: Sequence[_Unit]) -> list[_Column]:
    return [column for unit in units for column in unit.columns]


def _flat(interest: Interest) -> Interest:
    """Every moment of every column is a column."""
    arrays: list[Floats] = [getattr(interest, each.name) for each in fields(interest)]
    return Interest(*(array.reshape(len(array), -1) for array in arrays))


def _groups(units: Sequence[_Unit], moments: int) -> Iterator[Group]:
    """The groups, with the places of their columns among those of all units."""
    start = 0
    for unit in units:
        if unit.wide is not None:
            members = np.arange(start, start + len(unit.members))
            counts = np.array([column.multiplicity // unit.multiplicity for column in unit.members], dtype=np.int64)
            wide = start + len(unit.members)
            for moment in range(moments):
                yield Group(float(unit.multiplicity), members * moments + moment, counts, wide * moments + moment)
        start += len(unit.columns)

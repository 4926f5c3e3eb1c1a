"""Measures a run while it goes, from the raw logs that brokers and clients are writing, to end it when it knows enough.

One mechanism for all grounds: new records are read at each look, and counted by bins of time. This covers the headline
rows that are sums over records: rates over links, sizes of tables, costs, delays, round trips and delivery. It does not
measure faults, and no notifications that nobody wants, which need the whole log. The verdict on all rows is that of the
ordinary analysis, after the run.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from brokerbed.analysis.sequential import Bins, Sizes
from brokerbed.log.reader import DTYPE, Routes, names_and_routes
from brokerbed.log.record import CLIENTS, DUPLICATE, MAGIC, NAMES_FILE, NOT_BACK, RECORDS_FILE, REPLAY, Kind
from brokerbed.metrics import Row
from brokerbed.scenario import Scenario
from brokerbed.scenario.units import NS_PER_S

CONTROL = [Kind.LINK_SUBSCRIBE, Kind.LINK_UNSUBSCRIBE, Kind.LINK_ADVERTISE, Kind.LINK_UNADVERTISE, Kind.LINK_REFRESH]
TABLES = {Kind.SUBSCRIBED: 1, Kind.UNSUBSCRIBED: -1, Kind.ADVERTISED: 1, Kind.UNADVERTISED: -1}
Array = np.ndarray[Any, Any]
ToModel = Callable[[Array], Array]  # from the time of a broker's records to model time


@dataclass(slots=True)
class _File:
    """The records of one life, as far as they were read."""

    records: Path
    names_file: Path
    offset: int = len(MAGIC)
    names: list[str] = field(default_factory=list)
    routes: Routes = field(default_factory=lambda: Routes.made_of({}))

    def more(self) -> Array:
        """The records written since the last call, with the names that they refer to."""
        with self.records.open("rb") as content:
            content.seek(self.offset)
            data = content.read()
        whole = len(data) // DTYPE.itemsize * DTYPE.itemsize
        self.offset += whole
        if whole:  # names are written before records
            self.names, self.routes = names_and_routes(self.names_file)
        return np.frombuffer(data[:whole], dtype=DTYPE)

    def by_name(self, value: Callable[[str], float]) -> Array:
        """A value for each number of a name; the last one is for no name."""
        return np.array([*map(value, self.names), 0.0])


class RunningMeasurement:
    """The sums of all rows that are measured while a run goes."""

    def __init__(self, scenario: Scenario, raw: Path, begin_ns: int, bin_ns: int) -> None:
        self._scenario = scenario
        self._raw = raw
        self._begin_ns = begin_ns
        self._bin_ns = bin_ns
        self._files: dict[tuple[str, int], _File] = {}
        self._notified, self._control, self._cost = Bins(), Bins(), Bins()
        self._tables = {name: Sizes(bin_ns) for name in ("remote", "local", "advertised")}
        self._sizes: dict[tuple[str, str], int] = defaultdict(int)  # of each broker's tables
        self._life: dict[str, int] = {}  # of each broker, if it was restarted
        self._peers = _PeerMessages(scenario, begin_ns, bin_ns)

    def read(self, to_model: ToModel) -> None:
        """Counts what was logged since the last call. Clients log model time."""
        for part in (CLIENTS, *self._scenario.tree.names):
            for life, file in self._lives(part):
                records = file.more()
                if not len(records):
                    continue
                if part == CLIENTS:
                    self._peers.note(records, file.names)
                else:
                    self._count(part, life, records, to_model(records["time_ns"]) - self._begin_ns, file)
        self._peers.match()

    @property
    def has_all_logs(self) -> bool:
        """False while the logs of any broker are on another machine."""
        return all((broker, 1) in self._files for broker in self._scenario.tree.names)

    def _lives(self, part: str) -> Iterator[tuple[int, _File]]:
        life, folder = 1, self._raw / part
        while (records := folder / RECORDS_FILE.format(life)).exists():
            file = self._files.setdefault((part, life), _File(records, folder / NAMES_FILE.format(life)))
            yield life, file
            life += 1

    def _count(self, broker: str, life: int, records: Array, since_ns: Array, file: _File) -> None:
        scenario, kind, subject, count = self._scenario, records["kind"], records["subject"], records["count"]
        bins = since_ns // self._bin_ns
        is_link = file.by_name(lambda name: ">" in name)
        is_counted = file.by_name(lambda name: ">" in name and name.partition(">")[0] not in scenario.media)
        is_new = (kind == Kind.SENT) & (records["flags"] & (DUPLICATE | REPLAY) == 0)
        is_control = np.isin(kind, CONTROL)
        self._notified.add(bins[is_new], (is_counted[subject] * count)[is_new])
        self._notified.add(*_routed(records, bins, is_counted, file.routes))
        self._control.add(bins[is_control], (is_counted[subject] * count)[is_control])
        if (costs := scenario.costs) is not None:
            price = file.by_name(lambda name: costs.of_link(*name.split(">")) if ">" in name else 0.0)
            self._cost.add(bins[is_new], (price[subject] * count)[is_new])
            self._cost.add(*_routed(records, bins, price, file.routes))
            is_in = (kind == Kind.RECEIVED) | (kind == Kind.ROUTED)
            self._cost.add(bins[is_in], costs.of_broker(broker) * count[is_in])
        self._change_tables(broker, life, records, since_ns, is_link)

    def _change_tables(self, broker: str, life: int, records: Array, since_ns: Array, is_link: Array) -> None:
        if life > self._life.get(broker, 1):
            self._life[broker] = life  # its tables are empty at first
            for name, table in self._tables.items():
                table.add(since_ns[:1], np.array([-self._sizes.pop((name, broker), 0)]))
        kind = records["kind"]
        signs = np.select([kind == it for it in TABLES], list(TABLES.values()), 0)
        is_of_link = is_link[records["subject"]] > 0
        is_advertisement = (kind == Kind.ADVERTISED) | (kind == Kind.UNADVERTISED)
        for name, is_in in {
            "remote": is_of_link & ~is_advertisement,
            "local": ~is_of_link & ~is_advertisement,
            "advertised": is_of_link & is_advertisement,
        }.items():
            chosen = is_in & (signs != 0)
            self._tables[name].add(since_ns[chosen], signs[chosen])
            self._sizes[name, broker] += int(signs[chosen].sum())

    def sums(self, row: Row, count: int) -> tuple[Array, Array] | None:
        """The x and n of a row by series and bin, for so many bins; None if it is not measured while the run goes."""
        over_time = {
            "rate.notifications": (self._notified,),
            "rate.control": (self._control,),
            "rate.total": (self._notified, self._control),
            "cost.routing": (self._cost,),
            "table.remote_entries": (self._tables["remote"],),
            "table.local_entries": (self._tables["local"],),
            "table.advertisements": (self._tables["advertised"],),
        }.get(row.metric)
        if over_time is None:
            return self._peers.sums(row, count)
        x = np.sum([part.first(count) for part in over_time], axis=0)  # type: ignore[attr-defined]
        return x[None], np.full((1, count), self._bin_ns / NS_PER_S)


def _routed(records: Array, bins: Array, weights: Array, routes: Routes) -> tuple[Array, Array]:
    """What records of several receivers at once count, with a weight for each receiver."""
    chosen = np.flatnonzero(records["kind"] == Kind.ROUTED)
    routed = records[chosen]
    of_receivers = np.append(0.0, np.cumsum(weights[routes.receivers]))
    first, number = routes.of(routed)
    total = of_receivers[first + number] - of_receivers[first]
    subjects = routed["subject"].astype(np.int64)
    back = np.flatnonzero((routed["flags"] & NOT_BACK > 0) & (weights[subjects] > 0))
    _, samples, of_sample = np.unique(
        first[back] << 32 | subjects[back], return_index=True, return_inverse=True
    )  # a route and where its messages come from; there are few of these
    is_in = [
        subjects[place] in routes.receivers[first[place] : first[place] + number[place]] for place in back[samples]
    ]
    total[back] -= weights[subjects[back]] * np.array(is_in, bool)[of_sample]
    return bins[chosen], total * routed["count"]


class _PeerMessages:
    """Delays and deliveries of the peers' messages. A message is lost if a later one of the same stream has arrived."""

    def __init__(self, scenario: Scenario, begin_ns: int, bin_ns: int) -> None:
        self._begin_ns, self._bin_ns = begin_ns, bin_ns
        copies = range(scenario.copies)
        self._copy_of: dict[str, tuple[str, int]] = {}  # by id: the peer in the scenario, and the number of the copy
        for copy in copies:
            for stream in scenario.streams:
                self._copy_of[scenario.copy_of(stream, copy).id] = (stream.sender, copy)
            for receiver in scenario.receivers:
                self._copy_of[scenario.copy_of(receiver, copy).id] = (receiver.id, copy)
        self._copies = scenario.copies
        self._published_ns: dict[str, Array] = {}  # by stream: the time of each message, or -1
        self._arrived: dict[tuple[str, str], list[tuple[Array, Array]]] = defaultdict(list)  # not matched yet
        self._seen: dict[tuple[str, str], Array] = {}  # by subscriber and stream: which messages have arrived
        self._delays: dict[tuple[str, ...], dict[int, tuple[Bins, Bins]]] = defaultdict(dict)
        self._fates: dict[tuple[str, ...], dict[int, tuple[Bins, Bins]]] = defaultdict(dict)

    def note(self, records: Array, names: Sequence[str]) -> None:
        for kind in (Kind.PUBLISHED, Kind.PROCESSED):
            chosen = records[records["kind"] == kind]
            keys = chosen["subject"].astype(np.int64) << 32 | chosen["origin"].astype(np.int64)
            order = np.argsort(keys, kind="stable")
            limits = np.flatnonzero(np.diff(keys[order])) + 1
            for places in np.split(order, limits) if len(order) else ():
                part = chosen[places]
                client, stream = names[part["subject"][0]], names[part["origin"][0]]
                if kind == Kind.PROCESSED:
                    self._arrived[client, stream].append((part["sequence"], part["time_ns"]))
                else:
                    self._published_ns[stream] = _put(
                        self._published_ns.get(stream), part["sequence"], part["time_ns"], -1
                    )

    def match(self) -> None:
        """Counts the messages that have arrived since the last call."""
        for (client, stream), parts in self._arrived.items():
            if client not in self._copy_of or stream not in self._copy_of or not parts:
                continue
            numbers, times_ns = (np.concatenate(each) for each in zip(*parts, strict=True))
            parts.clear()
            seen = self._seen.get((client, stream))
            begun = 0 if seen is None else int(np.flatnonzero(seen)[-1]) + 1
            numbers, first = np.unique(numbers, return_index=True)
            is_new = np.ones(len(numbers), bool)
            if seen is not None:
                is_old = numbers < len(seen)
                is_new[is_old] = ~seen[numbers[is_old]]
            numbers, times_ns = numbers[is_new], times_ns[first][is_new]
            self._seen[client, stream] = seen = _put(seen, numbers, True, False)
            copy = self._copy_of[client][1]
            self._count_delays(client, stream, copy, numbers, times_ns)
            self._count_fates(client, stream, copy, begun, seen)

    def _count_delays(self, client: str, stream: str, copy: int, numbers: Array, times_ns: Array) -> None:
        origin = stream.partition("/")[2] or stream  # an answer's delay is that since its request
        published = self._published_ns.get(origin)
        if published is None or not len(numbers):
            return
        known = numbers < len(published)
        begun_ns = published[numbers[known]]
        ended_ns = times_ns[known][begun_ns >= 0]
        bins = (ended_ns - self._begin_ns) // self._bin_ns
        sums = self._delays[self._row(client, stream)].setdefault(copy, (Bins(), Bins()))
        sums[0].add(bins, (ended_ns - begun_ns[begun_ns >= 0]) / NS_PER_S)
        sums[1].add(bins)

    def _count_fates(self, client: str, stream: str, copy: int, begun: int, seen: Array) -> None:
        """Of the messages up to the last one that has arrived."""
        published = self._published_ns.get(stream)
        if published is None:
            return
        end = min(len(published), int(np.flatnonzero(seen)[-1]) + 1 if seen.any() else 0)
        numbers = np.arange(begun, end)
        numbers = numbers[published[numbers] >= 0]
        bins = (published[numbers] - self._begin_ns) // self._bin_ns
        sums = self._fates[self._row(client, stream)].setdefault(copy, (Bins(), Bins()))
        sums[0].add(bins, seen[numbers].astype(float))
        sums[1].add(bins)

    def _row(self, client: str, stream: str) -> tuple[str, ...]:
        """The labels of the row: of an exchange the requester and the responder, otherwise publisher and subscriber."""
        sender, receiver = self._copy_of[stream][0], self._copy_of[client][0]
        return (receiver, sender, "round trip") if "/" in stream else (sender, receiver)

    def sums(self, row: Row, count: int) -> tuple[Array, Array] | None:
        labels = tuple(row.labels.values())
        if row.metric == "delay.round_trip":
            found = self._delays[(*labels, "round trip")]
        elif row.metric == "delay.end_to_end":
            found = self._delays[labels]
        elif row.metric == "delivery.ratio":
            found = self._fates.get(labels) or self._fates[(*labels[::-1], "round trip")]
        else:
            return None
        series = list(found.values())
        if not series:
            return np.zeros((1, count)), np.zeros((1, count))
        x, n = (np.array([sums[place].first(count) for sums in series]) for place in (0, 1))
        return x, n


def _put(array: Array | None, places: Array, values: "Array | bool", missing: int | bool) -> Array:
    """The array with values at these places, made longer if necessary."""
    size = int(places.max()) + 1 if len(places) else 0
    old = np.zeros(0, np.int64 if missing == -1 else bool) if array is None else array
    if size > len(old):
        longer = np.full(max(size, len(old) * 3 // 2), missing, old.dtype)
        longer[: len(old)] = old
        old = longer
    old[places] = values
    return old

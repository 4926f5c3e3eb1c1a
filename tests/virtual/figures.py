"""A few figures straight from the log of a simulation as it is written, whatever its length: what `predict` predicts.

It knows the record format of brokerbed/log/record.py and nothing of the analysis.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from statistics import NormalDist

import numpy as np

from brokerbed.broker.values import NS_PER_S
from brokerbed.log.record import ADDITIONAL, CLIENTS, FIELDS, NOT_BACK, REPLAY, Kind, Log
from brokerbed.orchestrator.simulator.simulation import Simulation
from brokerbed.scenario import Scenario

DTYPE = np.dtype([(name, {"q": "<i8", "i": "<i4", "B": "u1"}[code]) for name, code in FIELDS])
BATCHES = 10  # equal parts of the measured time, whose spread tells how sure a mean is
CONTROL = (
    Kind.LINK_SUBSCRIBE, Kind.LINK_UNSUBSCRIBE, Kind.LINK_ADVERTISE, Kind.LINK_UNADVERTISE, Kind.LINK_REFRESH,
)  # fmt: skip


def simulate(scenario: Scenario) -> "Figures":
    figures = Figures(scenario)
    Simulation(scenario, figures.write).run()
    return figures


class _Names:
    """Of one broker in one life: names by number, and which are links; how many links each route has."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.is_link = np.zeros(0, dtype=bool)
        self.links_of_route = np.zeros(0, dtype=np.int64)

    def add(self, names: list[tuple[int, str]], routes: list[tuple[int, tuple[int, ...]]]) -> None:
        self.names += [name for _, name in names]
        self.is_link = np.append(self.is_link, np.array([">" in name for _, name in names], dtype=bool))
        links = [int(self.is_link[list(to)].sum()) if to else 0 for _, to in routes]
        self.links_of_route = np.append(self.links_of_route, np.array(links, dtype=np.int64))


class Figures:
    def __init__(self, scenario: Scenario) -> None:
        self._begin_ns = scenario.clock.warmup
        self._end_ns = scenario.clock.warmup + scenario.clock.measure
        self._seconds = scenario.clock.measure / NS_PER_S
        self._edges_ns = np.linspace(self._begin_ns, self._end_ns, BATCHES + 1)
        self._names: dict[tuple[str, int], _Names] = defaultdict(_Names)
        self._counts = {name: np.zeros(BATCHES) for name in ("notifications", "additional", "control", "moved")}
        self._area_ns = {name: np.zeros(BATCHES) for name in ("remote", "local", "advertisements")}
        self._made: dict[str, list[np.ndarray]] = defaultdict(list)  # when each message was published, by publisher
        self._done: dict[tuple[str, str], list[np.ndarray]] = defaultdict(list)  # by subscriber and publisher

    def write(self, name: str, life: int, log: Log) -> None:
        """What a simulation gives its log to."""
        names, routes, records = log.take()
        known = self._names[name, life]
        known.add(names, routes)
        rows = np.frombuffer(bytes(records), dtype=DTYPE)
        if name == CLIENTS:
            self._clients(rows, known)
        else:
            self._rates(rows[(rows["time_ns"] >= self._begin_ns) & (rows["time_ns"] < self._end_ns)], known)
            self._tables(rows, known)

    def _rates(self, rows: np.ndarray, known: _Names) -> None:
        routed = rows[(rows["kind"] == Kind.ROUTED) & (rows["route"] >= 0)]
        is_back = ((routed["flags"] & NOT_BACK) != 0) & known.is_link[routed["subject"]]
        crossings = routed["count"] * (known.links_of_route[routed["route"]] - is_back)
        is_additional = (routed["flags"] & ADDITIONAL) != 0
        sent = rows[(rows["kind"] == Kind.SENT) & ((rows["flags"] & REPLAY) == 0)]
        sent = sent[known.is_link[sent["subject"]]]
        self._count("notifications", routed, crossings)
        self._count("notifications", sent)
        self._count("additional", routed[is_additional], crossings[is_additional])
        self._count("additional", sent[(sent["flags"] & ADDITIONAL) != 0])
        self._count("control", rows[np.isin(rows["kind"], CONTROL)])
        self._count("moved", rows[rows["kind"] == Kind.MOVED])

    def _count(self, name: str, rows: np.ndarray, weights: np.ndarray | None = None) -> None:
        batches = np.searchsorted(self._edges_ns, rows["time_ns"], side="right") - 1
        self._counts[name] += np.bincount(batches, weights, BATCHES)

    def _tables(self, rows: np.ndarray, known: _Names) -> None:
        for kind, sign in ((Kind.SUBSCRIBED, 1), (Kind.UNSUBSCRIBED, -1)):
            found = rows[rows["kind"] == kind]
            is_link = known.is_link[found["subject"]]
            for batch, (begin_ns, end_ns) in enumerate(pairwise(self._edges_ns)):
                left_ns = end_ns - np.clip(found["time_ns"], begin_ns, end_ns)
                self._area_ns["remote"][batch] += sign * left_ns[is_link].sum()
                self._area_ns["local"][batch] += sign * left_ns[~is_link].sum()
        for kind, sign in ((Kind.ADVERTISED, 1), (Kind.UNADVERTISED, -1)):
            found = rows[rows["kind"] == kind]
            found = found[known.is_link[found["subject"]]]
            for batch, (begin_ns, end_ns) in enumerate(pairwise(self._edges_ns)):
                left_ns = end_ns - np.clip(found["time_ns"], begin_ns, end_ns)
                self._area_ns["advertisements"][batch] += sign * left_ns.sum()

    def _clients(self, rows: np.ndarray, known: _Names) -> None:
        """Publishers number their messages without a gap, so their times are enough."""
        for rows_of_one, publisher, _ in _groups(rows[rows["kind"] == Kind.PUBLISHED], known):
            self._made[publisher].append(rows_of_one["time_ns"].copy())
        for rows_of_one, publisher, subscriber in _groups(rows[rows["kind"] == Kind.PROCESSED], known):
            self._done[subscriber, publisher].append(np.stack((rows_of_one["sequence"], rows_of_one["time_ns"])))

    # -- the figures ------------------------------------------------------------------------------------------

    def headline(self) -> dict[str, float]:
        return {metric: float(batches.mean()) for metric, batches in self.batches().items()}

    def batches(self) -> dict[str, np.ndarray]:
        """The same, of each part of the measured time."""
        seconds = self._seconds / BATCHES
        return {
            "table.remote_entries": self._area_ns["remote"] / NS_PER_S / seconds,
            "table.local_entries": self._area_ns["local"] / NS_PER_S / seconds,
            "table.advertisements": self._area_ns["advertisements"] / NS_PER_S / seconds,
            "rate.notifications": self._counts["notifications"] / seconds,
            "rate.notifications.additional": self._counts["additional"] / seconds,
            "rate.control": self._counts["control"] / seconds,
            "rate.moved": self._counts["moved"] / seconds,
        }

    def end_to_end(self, publisher: str, subscriber: str) -> np.ndarray:
        """Seconds from publishing to the end of processing, of what was published in the measured time."""
        if not self._done[subscriber, publisher]:
            return np.zeros(0)
        made = np.concatenate(self._made[publisher])
        done = np.concatenate(self._done[subscriber, publisher], axis=1)
        numbers, first = np.unique(done[0], return_index=True)  # what comes again does not count
        begun = made[numbers - 1]
        delays = (done[1][first] - begun) / NS_PER_S
        measured: np.ndarray = delays[(begun >= self._begin_ns) & (begun < self._end_ns)]
        return measured


def _groups(rows: np.ndarray, known: _Names) -> Iterator[tuple[np.ndarray, str, str]]:
    """The rows of each publisher and client, in order."""
    keys = rows["origin"].astype(np.int64) << 32 | rows["subject"]
    order = np.argsort(keys, kind="stable")
    cuts = np.flatnonzero(np.diff(keys[order])) + 1
    for group in np.split(order, cuts) if len(rows) else ():
        first = rows[group[0]]
        yield rows[group], known.names[first["origin"]], known.names[first["subject"]]


def half_width(parts: np.ndarray) -> float:
    """Of the 95% interval around the mean of parts that hardly depend on one another."""
    freedom = len(parts) - 1
    if freedom < 1:
        return math.inf
    z = NormalDist().inv_cdf(0.975)
    t = z + (z**3 + z) / (4 * freedom) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)  # Student's, nearly
    return float(t * parts.std(ddof=1) / math.sqrt(len(parts)))

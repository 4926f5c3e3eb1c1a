"""A few figures straight from the log of a simulation as it is written, whatever its length: what `predict` predicts.

It knows the record format of broker/log_record.py and nothing of the analysis.
"""

from collections import defaultdict

import numpy as np

from broker.log_record import ADDITIONAL, FIELDS, NOT_BACK, REPLAY, Kind, Log
from broker.values import NS_PER_S
from orchestrator.scenario import Scenario
from orchestrator.simulator.simulation import CLIENTS, Simulation

DTYPE = np.dtype([(name, {"q": "<i8", "i": "<i4", "B": "u1"}[code]) for name, code in FIELDS])
CONTROL = (Kind.LINK_SUBSCRIBE, Kind.LINK_UNSUBSCRIBE, Kind.LINK_REFRESH)


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
        self._names: dict[tuple[str, int], _Names] = defaultdict(_Names)
        self._counts = dict.fromkeys(("notifications", "additional", "control"), 0)
        self._area_ns = dict.fromkeys(("remote", "local"), 0.0)
        self._times: dict[tuple[int, str, str], dict[int, int]] = defaultdict(dict)

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
        self._counts["notifications"] += int(crossings.sum()) + len(sent)
        self._counts["additional"] += int(crossings[is_additional].sum())
        self._counts["additional"] += int(((sent["flags"] & ADDITIONAL) != 0).sum())
        self._counts["control"] += int(np.isin(rows["kind"], CONTROL).sum())

    def _tables(self, rows: np.ndarray, known: _Names) -> None:
        for kind, sign in ((Kind.SUBSCRIBED, 1), (Kind.UNSUBSCRIBED, -1)):
            found = rows[rows["kind"] == kind]
            left_ns = self._end_ns - np.clip(found["time_ns"], self._begin_ns, self._end_ns)
            is_link = known.is_link[found["subject"]]
            self._area_ns["remote"] += sign * float(left_ns[is_link].sum())
            self._area_ns["local"] += sign * float(left_ns[~is_link].sum())

    def _clients(self, rows: np.ndarray, known: _Names) -> None:
        for row in rows:
            key = int(row["kind"]), known.names[row["subject"]], known.names[row["origin"]]
            self._times[key].setdefault(int(row["sequence"]), int(row["time_ns"]))

    # -- the figures ------------------------------------------------------------------------------------------

    def headline(self) -> dict[str, float]:
        rates = {name: count / self._seconds for name, count in self._counts.items()}
        return {
            "table.remote_entries": self._area_ns["remote"] / NS_PER_S / self._seconds,
            "table.local_entries": self._area_ns["local"] / NS_PER_S / self._seconds,
            "rate.notifications": rates["notifications"],
            "rate.notifications.additional": rates["additional"],
            "rate.control": rates["control"],
        }

    def end_to_end(self, publisher: str, subscriber: str) -> list[float]:
        """Seconds from publishing to the end of processing, of what was published in the measured time."""
        made = self._times[int(Kind.PUBLISHED), publisher, publisher]
        done = self._times[int(Kind.PROCESSED), subscriber, publisher]
        return [
            (done[number] - begun) / NS_PER_S
            for number, begun in made.items()
            if number in done and self._begin_ns <= begun < self._end_ns
        ]

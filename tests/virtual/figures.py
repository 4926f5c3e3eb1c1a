"""A few figures straight from a run's log, with numpy: what the rows of `predict` should be."""

from pathlib import Path

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq

from broker.log_record import ADDITIONAL, REPLAY
from orchestrator.run_directory import RawLogs
from orchestrator.scenario import Scenario
from orchestrator.simulator.simulation import Simulation

NS_PER_S = 1_000_000_000


def simulate(scenario: Scenario, folder: Path) -> "Figures":
    """Run it, and read its log back as an analysis does."""
    from orchestrator.run import _collect

    raw = RawLogs(folder / "raw")
    Simulation(scenario, raw.write).run()
    _collect(raw.folder, folder / "log")
    return Figures(folder / "log", scenario)


class Figures:
    def __init__(self, log: Path, scenario: Scenario) -> None:
        self._log = log
        self._begin_ns = scenario.clock.warmup
        self._end_ns = scenario.clock.warmup + scenario.clock.measure
        self._seconds = scenario.clock.measure / NS_PER_S
        self._brokers = scenario.tree.names

    def _count(self, *events: str, flags: int = 0) -> int:
        """Events on links in the measured time; with all these flags."""
        total = 0
        for broker in self._brokers:
            table = pq.read_table(self._log / f"broker={broker}", columns=["time_ns", "event", "client", "flags"])
            mask = pc.and_(pc.greater_equal(table["time_ns"], self._begin_ns), pc.less(table["time_ns"], self._end_ns))
            mask = pc.and_(mask, pc.is_in(table["event"], value_set=_strings(events)))
            mask = pc.and_(mask, pc.match_substring(table["client"], ">"))
            found = table.filter(mask)["flags"].to_numpy()
            total += int(((found & flags) == flags).sum()) - int(((found & REPLAY) != 0).sum())
        return total

    def notifications(self) -> float:
        return self._count("sent") / self._seconds

    def additional(self) -> float:
        return self._count("sent", flags=ADDITIONAL) / self._seconds

    def control(self) -> float:
        return self._count("link_subscribe", "link_unsubscribe", "link_refresh") / self._seconds

    def entries(self, is_remote: bool) -> float:
        """Time average of table entries."""
        area = 0.0
        for broker in self._brokers:
            table = pq.read_table(self._log / f"broker={broker}", columns=["time_ns", "event", "client"])
            mask = pc.is_in(table["event"], value_set=_strings(("subscribed", "unsubscribed")))
            on_links = pc.match_substring(table["client"], ">")
            mask = pc.and_(mask, on_links if is_remote else pc.invert(on_links))
            table = table.filter(mask)
            times = np.clip(table["time_ns"].to_numpy(), self._begin_ns, self._end_ns)
            signs = np.where(table["event"].to_numpy(zero_copy_only=False) == "subscribed", 1, -1)
            area += float((signs * (self._end_ns - times) / NS_PER_S).sum())
        return area / self._seconds

    def end_to_end(self, publisher: str, subscriber: str) -> np.ndarray:
        """Seconds from publishing to the end of processing, of what was published in the measured time."""
        table = pq.read_table(
            self._log / "broker=clients", columns=["time_ns", "event", "client", "origin", "sequence"]
        ).to_pandas()
        made = table[(table.event == "published") & (table.client == publisher)]
        made = made[(made.time_ns >= self._begin_ns) & (made.time_ns < self._end_ns)]
        done = table[(table.event == "processed") & (table.client == subscriber) & (table.origin == publisher)]
        joined = made.merge(done, on=["origin", "sequence"])
        return np.asarray((joined.time_ns_y - joined.time_ns_x) / NS_PER_S)


def _strings(values: tuple[str, ...]) -> object:
    import pyarrow as pa

    return pa.array(values)

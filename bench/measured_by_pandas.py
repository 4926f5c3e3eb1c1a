"""`python -m bench.measured_by_pandas BYTES RUN_DIR`: headline rows of the metric table by pandas on one core.

This is the analysis as an ordinary user of pandas would write it: one frame with the columns that are needed, and names
as categories. It is limited to BYTES of memory, and supports runs without faults only.
"""

import os
import resource
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

from bench.measurement import Means, Measurement, cpu_s, peak_bytes
from brokerbed.analysis.runs import find
from brokerbed.analysis.windows import BATCHES

NS_PER_S = 1_000_000_000
CONTROL = ["link_subscribe", "link_unsubscribe", "link_refresh"]
NOT_COUNTED, ADDITIONAL = 2 | 8, 4  # flags: sent again or replayed; sent where nobody subscribes


def measurement(folder: Path, memory_bytes: int) -> Measurement:
    os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    begun, pid = time.monotonic(), os.getpid()
    before_s = cpu_s(pid)
    try:
        means, failed = measure(folder), ""
    except MemoryError:
        means, failed = {}, "MemoryError"
    return Measurement(time.monotonic() - begun, 0.0, cpu_s(pid) - before_s, peak_bytes(pid), failed, means)


def measure(folder: Path) -> Means:
    begin_ns, end_ns = find(folder).runs[0].measured_ns
    edges = np.array([begin_ns - (begin_ns - end_ns) * number // BATCHES for number in range(BATCHES)] + [end_ns])
    rows = pd.read_parquet(
        folder / "log",
        columns=["time_ns", "event", "client", "flags", "broker"],
        read_dictionary=["event", "client"],
        use_threads=False,
    )
    rows = rows[rows["broker"] != "clients"]
    is_link = rows["client"].cat.categories.str.contains(">")[rows["client"].cat.codes]
    return _rates(rows, is_link, edges) | _tables(rows, is_link, edges) | _delays(folder, edges)


def _rates(rows: pd.DataFrame, is_link: np.ndarray, edges: np.ndarray) -> Means:
    is_sent = (rows["event"] == "sent") & is_link & (rows["flags"] & NOT_COUNTED == 0)
    is_control = rows["event"].isin(CONTROL)
    seconds = (edges[-1] - edges[0]) / NS_PER_S / BATCHES

    def per_second(is_counted: pd.Series) -> list[float]:
        counts = np.histogram(_batch_of(rows["time_ns"][is_counted], edges), np.arange(BATCHES + 1) - 0.5)[0]
        return [counts.sum() / seconds / BATCHES, *(counts / seconds)]

    return {
        "rate.notifications": per_second(is_sent),
        "rate.notifications.additional": per_second(is_sent & (rows["flags"] & ADDITIONAL != 0)),
        "rate.control": per_second(is_control),
        "rate.total": per_second(is_sent | is_control),
    }


def _tables(rows: pd.DataFrame, is_link: np.ndarray, edges: np.ndarray) -> Means:
    """Time averages, from the size at the beginning of a batch and the time from each change to its end."""
    changes = rows.assign(is_remote=is_link)[rows["event"].isin(["subscribed", "unsubscribed"])]
    change = np.where(changes["event"] == "subscribed", 1, -1)
    batch = _batch_of(changes["time_ns"], edges)
    area = change * (edges[np.clip(batch + 1, 0, BATCHES)] - changes["time_ns"])
    means = {}
    for is_remote, name in ((True, "table.remote_entries"), (False, "table.local_entries")):
        in_scope = (changes["is_remote"] == is_remote).to_numpy()
        scope = pd.DataFrame({"batch": batch, "change": change, "area": area})[in_scope]
        sums = scope.groupby("batch").sum().reindex(range(-1, BATCHES), fill_value=0)
        size = sums["change"].cumsum().shift(fill_value=0)
        entry_ns = size.to_numpy()[1:] * np.diff(edges) + sums["area"].to_numpy()[1:]
        total_ns = edges[-1] - edges[0]
        means[name] = [entry_ns.sum() / total_ns, *(entry_ns / (total_ns / BATCHES))]
    return means


def _delays(folder: Path, edges: np.ndarray) -> Means:
    events = pd.read_parquet(
        folder / "log" / "broker=clients",
        columns=["time_ns", "event", "origin", "sequence", "client"],
        read_dictionary=["event", "origin", "client"],
        use_threads=False,
    )
    message = ["origin", "sequence"]
    published = events[events["event"] == "published"].groupby(message, observed=True)["time_ns"].min()
    processed = events[events["event"] == "processed"].groupby([*message, "client"], observed=True)["time_ns"].min()
    both = processed.rename("ended_ns").reset_index().merge(published.rename("begun_ns").reset_index(), on=message)
    both["batch"] = _batch_of(both["ended_ns"], edges)
    both["delay_s"] = (both["ended_ns"] - both["begun_ns"]) / NS_PER_S
    compared = both[both["batch"].between(0, BATCHES - 1)]
    means = compared.groupby("batch")["delay_s"].mean().reindex(range(BATCHES), fill_value=0.0)
    return {"delay.end_to_end": [compared["delay_s"].mean(), *means]}


def _batch_of(times_ns: pd.Series, edges: np.ndarray) -> np.ndarray:
    """The batch of each time: -1 before the compared time, BATCHES after it."""
    return np.searchsorted(edges, times_ns, side="right") - 1


if __name__ == "__main__":
    measurement(Path(sys.argv[2]), int(sys.argv[1])).print_json()

"""Frames of a few rows from short tuples, and what came out as plain values."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from brokerbed.analysis.jobs.frames import Frames
from brokerbed.analysis.runs import Finished
from brokerbed.analysis.tallies import Tally
from brokerbed.analysis.transforms.tally import tally
from brokerbed.log.schema import EVENTS

S = 1_000_000_000
BIN_NS = 8 * S
LONG_AGO_S = -1_000_000
DEFAULTS: dict[str, Any] = {
    "origin": None, "sequence": None, "number": None, "topic": None, "size": 0, "qos": 0, "reason": 0, "flags": 0,
    "run": 0, "bin_ns": BIN_NS, "input": "received",
}  # fmt: skip
ADDED = pa.field("run", pa.int32()), pa.field("bin_ns", pa.int64()), pa.field("input", pa.string())
SCHEMA = pa.schema([*EVENTS, *ADDED])
LIVES = (
    "run int, broker string, life int, restarted_ns bigint, from_position bigint, to_position bigint, is_last boolean"
)
FOREVER = 1 << 62


def lives_of(run: int, broker: str, position: int, restarted_ns: int = 0) -> list[tuple[Any, ...]]:
    """The two lives of a broker whose second one begins at this position of its log."""
    return [(run, broker, 1, 0, 0, position, False), (run, broker, 2, restarted_ns, position, FOREVER, True)]


class Small:
    """Makes frames; times are given in seconds."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark

    def events(self, *rows: tuple[Any, ...], routes: str = "received") -> DataFrame:
        """(seconds, broker, event, client[, other columns]), in the order in which they were logged.

        `routes` is the event at which brokers route a message."""
        return self.logged(
            {
                **DEFAULTS, "position": position, "time_ns": round(seconds * S), "broker": broker, "event": event,
                "client": client, "input": routes, **(more[0] if more else {}),
            }
            for position, (seconds, broker, event, client, *more) in enumerate(rows)
        )  # fmt: skip

    def logged(self, rows: Iterable[dict[str, Any]]) -> DataFrame:
        return self.spark.createDataFrame(pa.Table.from_pylist(list(rows), SCHEMA))

    def stored(self, rows: Iterable[dict[str, Any]], file: Path) -> DataFrame:
        """Many rows, which Spark should not carry in its plans."""
        pq.write_table(pa.Table.from_pylist(list(rows), SCHEMA), file)
        return self.spark.read.parquet(str(file))

    def table(self, ddl: str, *rows: tuple[Any, ...]) -> DataFrame:
        return Frames(self.spark, _NOWHERE).table(rows, ddl)

    def tally(self, events: DataFrame, intervals: DataFrame | None = None, peers: tuple[str, ...] = ()) -> Tally:
        names = self.table("run int, id string", *((0, peer) for peer in peers))
        times = self.intervals((LONG_AGO_S, 0, -1), (0, 1000, 0)) if intervals is None else intervals
        return Tally(tally(events, names, times).toArrow().to_pandas())

    def intervals(self, *its: tuple[float, float, int], runs: Sequence[int] = (0,)) -> DataFrame:
        """(begin, end, batch or -1) in seconds; all batches of a run are of the same length."""
        found = []
        number = 1 + max(batch for *_, batch in its)
        length_s = sum(end - begin for begin, end, batch in its if batch >= 0) / number
        for run in runs:
            for place, (begin, end, batch) in enumerate(its):
                begin_ns, end_ns = round(begin * S), round(end * S)
                first, last = max(-1, begin_ns // BIN_NS), max(-1, (end_ns - 1) // BIN_NS)
                for bin_ in range(first, last + 1):
                    row = run, 0, bin_, place, begin_ns, end_ns, batch, float(length_s)
                    found.append(row)
        return self.table(
            "run int, point int, bin bigint, interval int, begin_ns bigint, end_ns bigint, batch int, seconds double",
            *found,
        )


_NOWHERE: Finished = None  # type: ignore[assignment]  # a table needs no run


def plain(frame: DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    """All rows, in the order of their columns; a value that is not there comes first."""
    rows = [tuple(row) for row in frame.select(*columns).collect()]
    return sorted(rows, key=lambda row: [(it is not None, it) for it in row])


def cells(frame: DataFrame | pd.DataFrame) -> dict[tuple[Any, ...], tuple[Any, ...]]:
    """x and n by metric, labels and batch; of peers by copy and batch."""
    found: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    columns = "metric", "first", "second", "copy", "batch", "x", "n"
    if isinstance(frame, pd.DataFrame):
        rows = list(zip(*(frame[column] for column in columns), strict=True))
    else:
        rows = plain(frame, *columns)
    for metric, first, second, copy, batch, x, n in rows:
        key = metric, *filter(None, (first, second)), str(batch) if copy < 0 else f"{copy}/{batch}"
        assert key not in found
        found[key] = x, n
    return found

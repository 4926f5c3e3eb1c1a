"""Reads the few rows of a log about faults, starts of brokers and links that move. It needs no Spark."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from brokerbed.analysis import faults, link_moves
from brokerbed.analysis.faults import Mark
from brokerbed.analysis.runs import READERS, Part, Run

EVENTS = ("started", *faults.EVENTS, *link_moves.EVENTS)
COLUMNS = ("event", "time_ns", "position", "client", "sequence", "topic")
BATCH_ROWS = 65_536


def marks_of(runs: Iterable[Run]) -> list[Mark]:
    parts = [(run.number, part) for run in runs for part in run.parts]
    with ThreadPoolExecutor(READERS) as pool:
        return [mark for marks in pool.map(lambda part: list(_marks(*part)), parts) for mark in marks]


def _marks(run: int, part: Part) -> Iterator[Mark]:
    with pq.ParquetFile(part.file, read_dictionary=["event"]) as content:
        for group in range(content.num_row_groups):
            marked = _marked(content.read_row_group(group, ["event"])["event"])
            if len(marked):
                for event, time_ns, position, client, sequence, topic in _rows(content, group, marked):
                    yield Mark(run, part.broker, event, time_ns, position, client, sequence, topic)


def _marked(events: pa.ChunkedArray) -> np.ndarray:
    """The places of the marks. They are looked for among the distinct events, of which there are few."""
    found, begin = [], 0
    for chunk in events.chunks:
        numbers = np.flatnonzero(np.isin(chunk.dictionary.to_pylist(), EVENTS))
        if len(numbers):
            found.append(begin + np.flatnonzero(np.isin(chunk.indices.to_numpy(zero_copy_only=False), numbers)))
        begin += len(chunk)
    return np.concatenate(found) if found else np.empty(0, np.int64)


def _rows(content: pq.ParquetFile, group: int, marked: np.ndarray) -> Iterator[tuple[Any, ...]]:
    """The rows at these places; nothing behind the last of them is decoded."""
    begin = 0
    for batch in content.iter_batches(BATCH_ROWS, [group], list(COLUMNS)):
        here = marked[(marked >= begin) & (marked < begin + len(batch))] - begin
        if len(here):
            rows = pa.table(batch).take(pa.array(here))
            columns = [pc.cast(rows[name], pa.string()) if name == "event" else rows[name] for name in COLUMNS]
            yield from zip(*(column.to_pylist() for column in columns), strict=True)
        begin += len(batch)
        if begin > marked[-1]:
            return

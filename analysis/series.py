"""The series that the report draws, and analysis/series.parquet, which stores them.

| kind | name | x | y |
|---|---|---|---|
| `rate.<what>` | | middle of an interval of time, s | per second |
| `rate.cost` | | middle of an interval of time, s | what notifications cost per second, if links may move |
| `move` | child, its parent so far and its next one | s | |
| `moves_of` | a peer that roams | how often its session has moved since the beginning | over how many links in all |
| `delay` | publisher and subscriber | s | the share of delays that were longer |
| `delay.stage` | stage and place of a queue | s | the share of times in the queue that were longer |
| `on` | peer | connected from, s | to, s |
| `seen` | peer | | end of the time for which connections are known, s |
| `fault` | what it did | from, s | to, s (null: it never healed) |
| `left_out` | | not compared from, s | to, s |
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

FILE = "series.parquet"
SCHEMA = pa.schema(
    [
        ("point", pa.int32()),
        ("kind", pa.string()),
        ("name", pa.string()),
        ("x", pa.float64()),
        ("y", pa.float64()),
    ]
)


class Sample(NamedTuple):
    point: int
    kind: str
    name: str
    x: float | None
    y: float | None


def write(folder: Path, samples: Iterable[Sample]) -> None:
    rows = [sample._asdict() for sample in samples]
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / FILE)


def read(folder: Path) -> list[Sample]:
    """The samples in the order in which they were written. Errors of pyarrow and of the file system are passed on."""
    table = pq.read_table(folder / FILE, schema=SCHEMA)
    return [Sample(**row) for row in table.to_pylist()]


def longer_than(counts: dict[int, int], per_decade: int) -> Iterator[tuple[float, float]]:
    """The upper limit of each logarithmic bucket, and the share of observations beyond it."""
    total = left = sum(counts.values())
    if counts:
        yield 10 ** (min(counts) / per_decade), 1.0
    for bucket in sorted(counts):
        left -= counts[bucket]
        yield 10 ** ((bucket + 1) / per_decade), left / total


def connected(moves: Iterable[tuple[str, float]], begin_s: float, end_s: float) -> Iterator[tuple[float, float]]:
    """When a peer was connected between two moments, from its events in order of time."""
    since: float | None = None
    for event, time_s in moves:
        if event == "connected":
            since = time_s if since is None else since
        elif since is not None:
            if time_s > begin_s and since < end_s:
                yield max(since, begin_s), min(time_s, end_s)
            since = None
    if since is not None and since < end_s:
        yield max(since, begin_s), end_s


def by_kind(samples: Iterable[Sample]) -> dict[tuple[int, str], dict[str, list[tuple[float, float]]]]:
    """Pairs of x and y by point and kind, then by name; a missing value becomes infinity."""
    pairs: dict[tuple[int, str], dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for sample in samples:
        pair = tuple(float("inf") if value is None else value for value in (sample.x, sample.y))
        pairs[sample.point, sample.kind][sample.name].append((pair[0], pair[1]))
    return pairs

"""The series of an analysis, as analysis/series.parquet keeps them: small tables for pictures.

| kind | name | x | y |
|---|---|---|---|
| `rate.<what>` | | middle of a part of time, s | per second |
| `delay` | publisher and subscriber | s | the share of delays that were longer |
| `on` | peer | connected from, s | to, s |
| `seen` | peer | | what is known of it ends here, s |
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
    rows = [it._asdict() for it in samples]
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / FILE)


def read(folder: Path) -> list[Sample]:
    """In the order in which they were written; the errors are those of pyarrow and of the file system."""
    table = pq.read_table(folder / FILE, schema=SCHEMA)
    return [Sample(**row) for row in table.to_pylist()]


def longer_than(counts: dict[int, int], per_decade: int) -> Iterator[tuple[float, float]]:
    """From counts in logarithmic buckets: each bucket's upper limit, and the share of what is beyond it."""
    total = left = sum(counts.values())
    if counts:
        yield 10 ** (min(counts) / per_decade), 1.0
    for bucket in sorted(counts):
        left -= counts[bucket]
        yield 10 ** ((bucket + 1) / per_decade), left / total


def connected(moves: Iterable[tuple[str, float]], begin_s: float, end_s: float) -> Iterator[tuple[float, float]]:
    """From (event, time) in order: when a peer was connected, between the two moments."""
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
    """Per point and kind: name -> pairs of x and y; what is missing is infinite."""
    found: dict[tuple[int, str], dict[str, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for it in samples:
        pair = tuple(float("inf") if value is None else value for value in (it.x, it.y))
        found[it.point, it.kind][it.name].append((pair[0], pair[1]))
    return found

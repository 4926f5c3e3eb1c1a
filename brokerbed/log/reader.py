"""From a broker's log files to Arrow: names put back, and each record spelt out into one row per event.

A `routed` record stands for `count` messages that each went to every receiver of a route: it becomes one `received` row
per message and one `sent` row per message and receiver.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from brokerbed.log.record import FIELDS, MAGIC, NAMES_FILE, NOT_BACK, RECORD, RECORDS_FILE, Kind
from brokerbed.log.schema import EVENTS

_NUMPY = {"q": "<i8", "i": "<i4", "B": "u1"}
DTYPE = np.dtype([(name, _NUMPY[code]) for name, code in FIELDS])
assert DTYPE.itemsize == RECORD.size
RECORDS_MAX = 500_000  # read at a time
COUNT_MAX = 1_000_000  # messages in one record; a broker handles far fewer at a time
ROWS_MAX = 1_000_000  # spelt out at a time, but for those of the last record: a record may stand for many


EVENT_NAMES = [Kind(number).name.lower() if number in set(Kind) else "" for number in range(256)]


class LogError(ValueError):
    """The files are no log of a broker; the text says which and why."""


@dataclass(frozen=True, slots=True)
class Routes:
    """The receivers of all routes one after the other, and where those of each begin and end."""

    receivers: np.ndarray
    limits: np.ndarray

    @classmethod
    def made_of(cls, routes: dict[int, list[int]]) -> "Routes":
        known = [routes.get(number, []) for number in range(max(routes, default=-1) + 1)]
        limits = np.cumsum([0, *map(len, known), 0])  # the last one is empty: for routes that the names do not have
        return cls(np.array([receiver for to in known for receiver in to], dtype=np.int64), limits)

    def of(self, records: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the receivers of each record begin, and how many there are."""
        last = len(self.limits) - 2
        is_known = (records["kind"] == Kind.ROUTED) & (records["route"] >= 0) & (records["route"] < last)
        places = np.where(is_known, records["route"], last)
        return self.limits[places], self.limits[places + 1] - self.limits[places]


def read(folder: Path, broker: str) -> pa.Table:
    """All events of one broker's log over all its lives, in the order in which they were logged."""
    return pa.concat_tables(tables(folder, broker))


def tables(
    folder: Path, broker: str, records_max: int = RECORDS_MAX, clock: "ModelTime | None" = None
) -> Iterator[pa.Table]:
    """The same piece by piece, so that a log of any length can be read."""
    life, position = 1, 0
    while (folder / RECORDS_FILE.format(life)).exists() or life == 1:
        names, routes = names_and_routes(folder / NAMES_FILE.format(life))
        lookup = pa.array([*names, None], pa.string())  # the last one for "there is none"
        for records in _records(folder / RECORDS_FILE.format(life), records_max):
            for piece in _pieces(records if clock is None else clock.of(records), routes):
                try:
                    table = _table(piece, lookup, routes, broker, position)
                except IndexError:
                    file = folder / RECORDS_FILE.format(life)
                    raise LogError(f"{file}: the log is damaged: a record has a name that is not there") from None
                position += len(table)
                yield table
        life += 1


def _table(records: np.ndarray, lookup: pa.Array, routes: Routes, broker: str, position: int) -> pa.Table:
    spelt, clients = _spelt_out(records, routes)

    def names_of(numbers: np.ndarray) -> pa.Array:
        return lookup.take(pa.array(np.where(numbers < 0, len(lookup) - 1, numbers)))

    columns = {
        "position": np.arange(position, position + len(spelt)),
        "time_ns": spelt["time_ns"],
        "broker": pa.repeat(pa.scalar(broker), len(spelt)),
        "event": pa.array(EVENT_NAMES).take(pa.array(spelt["kind"])),
        "origin": names_of(spelt["origin"]),
        "sequence": pa.array(spelt["sequence"], mask=spelt["sequence"] < 0),
        "number": pa.array(spelt["route"], mask=spelt["kind"] != Kind.IDENTIFIED),
        "client": names_of(clients),
        "topic": names_of(spelt["topic"]),
        "size": spelt["size"],
        "qos": spelt["qos"].astype(np.int8),
        "reason": spelt["reason"].astype(np.int16),
        "flags": spelt["flags"].astype(np.int8),
    }
    return pa.table(columns, schema=EVENTS)


@dataclass(frozen=True, slots=True)
class ModelTime:
    """From wall to model time; what was logged after the end is left out.

    The clock of a broker on another machine is ahead of ours by an offset, which is taken to change evenly.
    """

    start_ns: int  # wall time of model time zero
    until_ns: int
    speedup: float
    offsets_ns: tuple[int, int] = (0, 0)  # of the broker's clock at the beginning and at the end

    def of(self, records: np.ndarray) -> np.ndarray:
        first_ns, last_ns = self.offsets_ns
        since_start_ns = records["time_ns"] - first_ns - self.start_ns
        if last_ns != first_ns:
            drift_ns = last_ns - first_ns
            gained = drift_ns / (drift_ns + self.until_ns - self.start_ns)  # per nanosecond that it shows
            since_start_ns = since_start_ns - np.rint(since_start_ns * gained).astype(np.int64)
        is_kept = since_start_ns <= self.until_ns - self.start_ns
        kept = records[is_kept].copy()
        kept["time_ns"] = np.rint(since_start_ns[is_kept] * self.speedup)
        return kept


def write_parquet(folder: Path, broker: str, dataset: Path, clock: ModelTime | None = None) -> None:
    """As the broker's part of a dataset that is partitioned by broker; `clock` if its records have wall time."""
    target = dataset / f"broker={broker}"
    target.mkdir(parents=True, exist_ok=True)
    schema = EVENTS.remove(EVENTS.get_field_index("broker"))
    with pq.ParquetWriter(target / "events.parquet", schema) as writer:
        for table in tables(folder, broker, clock=clock):
            writer.write_table(table.drop_columns(["broker"]))


def _records(file: Path, records_max: int) -> Iterator[np.ndarray]:
    try:
        with file.open("rb") as content:
            if content.read(len(MAGIC)) != MAGIC:
                raise LogError(f"{file}: this is not a message log of brokerbed (version 2)")
            is_first = True
            while (piece := content.read(records_max * RECORD.size)) or is_first:
                is_first = False
                whole = (
                    len(piece) // RECORD.size * RECORD.size
                )  # a broker that was killed may have written half a record
                records = np.frombuffer(piece[:whole], dtype=DTYPE)
                if ((records["count"] < 0) | (records["count"] > COUNT_MAX)).any():
                    raise LogError(f"{file}: the log is damaged: no record stands for so many messages")
                yield records
    except OSError as error:
        raise LogError(f"{file}: {error.strerror}") from None


def names_and_routes(file: Path) -> tuple[list[str], Routes]:
    names: list[str] = []
    routes: dict[int, list[int]] = {}
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise LogError(f"{file}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise LogError(f"{file}: the log's names are damaged: they are not UTF-8") from None
    for number, line in enumerate(lines, 1):
        try:
            entry = json.loads(line)
            if "name" in entry:
                names.append(str(entry["is"]))
            else:
                routes[int(entry["route"])] = list(entry["to"])
        except (ValueError, KeyError, TypeError):
            if number == len(lines):
                break  # the last line of a broker that was killed
            raise LogError(f"{file}: line {number} is not an entry of the log's names") from None
    return names, Routes.made_of(routes)


def _pieces(records: np.ndarray, routes: Routes) -> list[np.ndarray]:
    """Such that none stands for many more than ROWS_MAX rows."""
    rows = np.cumsum(records["count"] * (1 + routes.of(records)[1]))
    return np.split(records, np.flatnonzero(np.diff(rows // ROWS_MAX)) + 1)


def _spelt_out(records: np.ndarray, routes: Routes) -> tuple[np.ndarray, np.ndarray]:
    """One row per event, and the client of each row."""
    first, receivers = routes.of(records)
    rows = records["count"] * (1 + receivers)
    record = np.repeat(np.arange(len(records)), rows)
    message, column = np.divmod(np.arange(len(record)) - np.repeat(np.cumsum(rows) - rows, rows), 1 + receivers[record])
    spelt = records[record]
    clients = spelt["subject"].astype(np.int64)
    to = np.flatnonzero(column)
    clients[to] = routes.receivers[first[record[to]] + column[to] - 1]
    is_back = (column > 0) & (spelt["flags"] & NOT_BACK > 0) & (clients == spelt["subject"])
    spelt["sequence"] += message
    spelt["count"] = 1
    of_routed = spelt["kind"] == Kind.ROUTED
    spelt["flags"][of_routed] &= ~np.uint8(NOT_BACK)
    spelt["kind"][of_routed] = np.where(column[of_routed] > 0, Kind.SENT, Kind.RECEIVED)
    return spelt[~is_back], clients[~is_back]

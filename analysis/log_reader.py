"""From a broker's log files to Arrow: names put back, and each record spelt out into one row per event.

A `routed` record stands for `count` messages that each went to every receiver of a route: it becomes one `received` row
per message and one `sent` row per message and receiver.
"""

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from analysis.schema import EVENTS
from broker.log_record import FIELDS, MAGIC, NAMES_FILE, RECORD, RECORDS_FILE, Kind

_NUMPY = {"q": "<i8", "i": "<i4", "B": "u1"}
DTYPE = np.dtype([(name, _NUMPY[code]) for name, code in FIELDS])
assert DTYPE.itemsize == RECORD.size


class LogError(ValueError):
    """The files are no log of a broker; the text says which and why."""


def read(folder: Path, broker: str) -> pa.Table:
    """All events of one broker's log over all its lives, in the order in which they were logged."""
    lives: list[pa.Table] = []
    while (folder / RECORDS_FILE.format(len(lives) + 1)).exists() or not lives:
        lives.append(_read_life(folder, len(lives) + 1, broker))
    return pa.concat_tables(lives)


def _read_life(folder: Path, number: int, broker: str) -> pa.Table:
    records = _records(folder / RECORDS_FILE.format(number))
    names, routes = _names(folder / NAMES_FILE.format(number))
    spelt, clients = _spelt_out(records, routes)
    lookup = pa.array([*names, None], pa.string())  # the last one for "there is none"
    events = np.array([kind.name.lower() if kind else "" for kind in map(_kind, range(256))])
    columns = {
        "time_ns": spelt["time_ns"],
        "broker": pa.repeat(pa.scalar(broker), len(spelt)),
        "event": pa.array(events[spelt["kind"]]),
        "origin": lookup.take(pa.array(np.where(spelt["origin"] < 0, len(names), spelt["origin"]))),
        "sequence": pa.array(spelt["sequence"], mask=spelt["sequence"] < 0),
        "client": lookup.take(pa.array(np.where(clients < 0, len(names), clients))),
        "topic": lookup.take(pa.array(np.where(spelt["topic"] < 0, len(names), spelt["topic"]))),
        "size": spelt["size"],
        "qos": spelt["qos"].astype(np.int8),
        "reason": spelt["reason"].astype(np.int16),
        "flags": spelt["flags"].astype(np.int8),
    }
    return pa.table(columns, schema=EVENTS)


def write_parquet(folder: Path, broker: str, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    pq.write_table(read(folder, broker), target / f"{broker}.parquet")


def _kind(number: int) -> Kind | None:
    return Kind(number) if number in set(Kind) else None


def _records(file: Path) -> np.ndarray:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise LogError(f"{file}: {error.strerror}") from None
    if not content.startswith(MAGIC):
        raise LogError(f"{file}: this is not a message log of brokerbed (version 2)")
    body = memoryview(content)[len(MAGIC) :]
    whole = len(body) // RECORD.size * RECORD.size  # a broker that was killed may have written half a record
    return np.frombuffer(body[:whole], dtype=DTYPE)


def _names(file: Path) -> tuple[list[str], dict[int, list[int]]]:
    names: list[str] = []
    routes: dict[int, list[int]] = {}
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise LogError(f"{file}: {error.strerror}") from None
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
    return names, routes


def _spelt_out(records: np.ndarray, routes: dict[int, list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """One row per event, and the client of each row."""
    receivers = np.array([len(routes.get(int(route), ())) for route in records["route"]], dtype=np.int64)
    is_routed = records["kind"] == Kind.ROUTED
    count = records["count"].astype(np.int64)
    rows = np.where(is_routed, count * (1 + receivers), count)
    spelt = np.repeat(records, rows)
    clients = spelt["subject"].astype(np.int64)
    starts = np.concatenate(([0], np.cumsum(rows)[:-1])) if len(rows) else np.zeros(0, dtype=np.int64)
    for position in np.flatnonzero((count > 1) | is_routed):
        start, n = int(starts[position]), int(count[position])
        to = routes.get(int(records["route"][position]), []) if is_routed[position] else []
        width = 1 + len(to)
        block = slice(start, start + n * width)
        spelt["sequence"][block] += np.repeat(np.arange(n), width)
        spelt["count"][block] = 1
        if is_routed[position]:
            spelt["kind"][block] = np.tile([Kind.RECEIVED] + [Kind.SENT] * len(to), n)
            clients[block] = np.tile([int(records["subject"][position]), *to], n)
    return spelt, clients

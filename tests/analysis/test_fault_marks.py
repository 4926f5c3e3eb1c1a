"""Faults and lives of brokers, from the few rows of the log that tell of them."""

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq

from brokerbed.analysis.faults import FOREVER_NS, Fault, Life, Mark, faults_of, restarts_of
from brokerbed.analysis.marks import BATCH_ROWS, marks_of
from brokerbed.analysis.runs import STORED, Part


def mark(run: int, event: str, time_ns: int, number: int, what: str = "crash b2") -> Mark:
    return Mark(run, "clients", event, time_ns, time_ns, what, number)


def test_faults_of_two_that_overlap() -> None:
    marks = [
        mark(0, "heal_confirmed", 70, 2, "cut b1-b0"),
        mark(0, "fault", 10, 1),
        mark(0, "fault_confirmed", 11, 1),
        mark(0, "fault", 20, 2, "cut b1-b0"),
        mark(0, "fault_confirmed", 20, 2, "cut b1-b0"),
        mark(0, "healed", 30, 1),
        mark(0, "healed", 60, 2, "cut b1-b0"),
        mark(0, "heal_confirmed", 45, 1),
        Mark(0, "b2", "started", 0, 0, None, None),
        Mark(0, "b2", "started", 30, 9, None, None),
    ]
    assert faults_of(marks) == [
        Fault(0, 1, "crash b2", 10, True, 30, 45),
        Fault(0, 2, "cut b1-b0", 20, True, 60, 70),
    ]


def test_faults_of_several_runs_are_kept_apart() -> None:
    found = faults_of([mark(1, "fault", 5, 1), mark(0, "fault", 6, 1), mark(1, "fault_confirmed", 7, 1)])
    assert [(it.run, it.struck_ns, it.has_effect) for it in found] == [(0, 6, False), (1, 5, True)]


def test_until_a_fault_is_through() -> None:
    """The moment after the last of: all is well again, and what it held up is through."""
    assert Fault(0, 1, "x", 10, True, 30, 45, None).until_ns == 46
    assert Fault(0, 1, "x", 10, True, 30, 45, 40).until_ns == 46
    assert Fault(0, 1, "x", 10, True, 30, 45, 99).until_ns == 100
    assert Fault(0, 1, "x", 10, True, 30, None, 99).until_ns == FOREVER_NS


def test_restarts_of() -> None:
    """b1 lives three times, b2 twice, b0 once; the first life of each is no restart."""
    started = [
        Mark(0, "b1", "started", 50, 400, None, None),
        Mark(0, "b0", "started", -10, 0, None, None),
        Mark(0, "b1", "started", -10, 0, None, None),
        Mark(0, "b1", "started", 20, 150, None, None),
        Mark(0, "b2", "started", -10, 0, None, None),
        Mark(0, "b2", "started", 30, 70, None, None),
        mark(0, "fault", 15, 1),
    ]
    assert restarts_of(started) == [
        Life(0, "b1", 2, 20, 150, 400),
        Life(0, "b1", 3, 50, 400, FOREVER_NS),
        Life(0, "b2", 2, 30, 70, FOREVER_NS),
    ]


def test_marks_are_found_among_other_rows(tmp_path: Path) -> None:
    """In three row groups: a mark at both ends of the first, none in the second, one behind a batch in the third."""
    file = tmp_path / "events.parquet"
    marked = {0: ("started", None, None), 9: ("fault", "crash b2", 1), 20 + BATCH_ROWS: ("healed", "crash b2", 1)}
    rows = []
    for position in range(30 + BATCH_ROWS):
        event, client, sequence = marked.get(position, ("sent", "b1>b0", position))
        others = {field.name: None if field.nullable else 0 for field in STORED}
        rows.append(
            {**others, "position": position, "time_ns": 2 * position, "event": event, "client": client,
             "sequence": sequence}
        )  # fmt: skip
    table = pa.Table.from_pylist(rows, STORED)
    with pq.ParquetWriter(file, STORED) as writer:
        for begin, length in ((0, 10), (10, 10), (20, len(rows) - 20)):
            writer.write_table(table.slice(begin, length))
    run = SimpleNamespace(number=3, parts=[Part(file, "b1", len(rows))])
    last = 20 + BATCH_ROWS
    assert marks_of([run]) == [  # type: ignore[list-item]
        Mark(3, "b1", "started", 0, 0, None, None),
        Mark(3, "b1", "fault", 18, 9, "crash b2", 1),
        Mark(3, "b1", "healed", 2 * last, last, "crash b2", 1),
    ]

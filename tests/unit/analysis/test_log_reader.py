"""Records that stand for several events, spelt out."""

from pathlib import Path

import pytest

from brokerbed.log import reader as log_reader
from brokerbed.log.record import MAGIC, NOT_BACK, RECORD, RETAIN, Kind, name_line, route_line

NAMES = ("pub", "b1>b0", "b1>b3", "sub", "t", "b1.1")
PUB, UP, DOWN, SUB, TOPIC, ORIGIN = range(len(NAMES))


def record(time_ns: int, kind: Kind, subject: int, sequence: int, route: int, count: int, flags: int) -> bytes:
    return RECORD.pack(time_ns, sequence, ORIGIN, subject, TOPIC, route, 5, count, kind, 0, 0, flags)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    names = [name_line(*it) for it in enumerate(NAMES)] + [route_line(0, [UP, DOWN, SUB]), route_line(2, [SUB])]
    (tmp_path / "log.1.names").write_text("\n".join(names) + "\n")
    records = [
        record(1, Kind.ROUTED, PUB, 7, 0, 2, RETAIN),
        record(2, Kind.ROUTED, DOWN, 9, 0, 1, NOT_BACK),
        record(3, Kind.SENT, SUB, 10, -1, 3, NOT_BACK),  # only of `routed` the flag means something
        record(4, Kind.ROUTED, PUB, 13, 1, 1, 0),  # a route of which the names were lost
        record(5, Kind.ROUTED, PUB, 14, 3, 1, 0),
        record(6, Kind.IDENTIFIED, PUB, 15, 0, 1, 0),  # 0 is no route here, but the publisher's number
    ]
    (tmp_path / "log.1.records").write_bytes(MAGIC + b"".join(records))
    return tmp_path


ROWS = [
    (1, "received", "pub", 7, RETAIN), (1, "sent", "b1>b0", 7, RETAIN), (1, "sent", "b1>b3", 7, RETAIN),
    (1, "sent", "sub", 7, RETAIN),
    (1, "received", "pub", 8, RETAIN), (1, "sent", "b1>b0", 8, RETAIN), (1, "sent", "b1>b3", 8, RETAIN),
    (1, "sent", "sub", 8, RETAIN),
    (2, "received", "b1>b3", 9, 0), (2, "sent", "b1>b0", 9, 0), (2, "sent", "sub", 9, 0),
    (3, "sent", "sub", 10, NOT_BACK), (3, "sent", "sub", 11, NOT_BACK), (3, "sent", "sub", 12, NOT_BACK),
    (4, "received", "pub", 13, 0),
    (5, "received", "pub", 14, 0),
    (6, "identified", "pub", 15, 0),
]  # fmt: skip


@pytest.mark.parametrize("rows_max", [1, 4, log_reader.ROWS_MAX])
def test_records_are_spelt_out(folder: Path, monkeypatch: pytest.MonkeyPatch, rows_max: int) -> None:
    monkeypatch.setattr(log_reader, "ROWS_MAX", rows_max)
    rows = log_reader.read(folder, "b1").to_pylist()
    assert [tuple(row[it] for it in ("time_ns", "event", "client", "sequence", "flags")) for row in rows] == ROWS
    assert [row["position"] for row in rows] == list(range(len(ROWS)))
    assert {(row["origin"], row["topic"], row["size"]) for row in rows} == {("b1.1", "t", 5)}
    assert [row["number"] for row in rows] == [None] * 16 + [0]


def test_pieces_are_small(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "ROWS_MAX", 4)
    assert max(map(len, log_reader.tables(folder, "b1"))) <= 8

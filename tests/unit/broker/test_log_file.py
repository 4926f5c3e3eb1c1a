"""The log on a disk that fills up: gaps, never damage, and the broker goes on."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from brokerbed.broker.runtime.log_file import LogFile
from brokerbed.log.reader import read
from brokerbed.log.record import RECORD, Kind, Log


class FullDisk:
    """A file that takes some bytes and then none, until there is room again."""

    def __init__(self, file: Any, room: int) -> None:
        self._file = file
        self.room = room

    def write(self, data: memoryview) -> int:
        if self.room == 0:
            raise OSError(28, "No space left on device")
        taken = min(self.room, len(data))
        self.room -= taken
        return int(self._file.write(data[:taken]))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def test_full_disk_loses_whole_records_and_says_so_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def story() -> int:
        log = Log()
        file = LogFile(log, tmp_path)
        full = FullDisk(file._records, room=RECORD.size * 3 // 2)  # one record and a half
        file._records = full  # type: ignore[assignment]
        for name in ("a", "b", "c"):
            log.add(1, Kind.CONNECTED, log.number(name))
            log.add(2, Kind.DISCONNECTED, log.number(name))
            await file.flush()
            if name == "b":
                full.room = 10_000
        await file.close()
        return file.lost_bytes

    lost = asyncio.run(story())
    assert [row["client"] for row in read(tmp_path, "x").to_pylist()] == ["c", "c"]
    assert lost == 4 * RECORD.size
    assert capsys.readouterr().err.splitlines() == [
        "brokerbed broker: the message log has gaps from now on (No space left on device)"
    ]


def test_names_that_could_not_be_written_come_later(tmp_path: Path) -> None:
    async def story() -> None:
        log = Log()
        file = LogFile(log, tmp_path)
        full = FullDisk(file._names, room=0)
        file._names = full  # type: ignore[assignment]
        log.number("early")
        log.route((0,))
        await file.flush()
        full.room = 10_000
        log.add(1, Kind.CONNECTED, log.number("late"))
        await file.flush()
        await file.close()

    asyncio.run(story())
    lines = [json.loads(line) for line in (tmp_path / "log.1.names").read_text().splitlines()]
    assert lines == [{"name": 0, "is": "early"}, {"route": 0, "to": [0]}, {"name": 1, "is": "late"}]

"""The durable state of a broker: rows by key in one SQLite file, written in one transaction per turn of the event loop.

In WAL mode a transaction that was committed survives the death of the process; with `disk` it is also forced to the
disk before anything is acknowledged. SQLite's own log is protected by checksums, and every row has one of ours, so that
damage anywhere is found when the file is opened. A damaged store is set aside, with all its files, and a new one begun.
"""

import marshal
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

from brokerbed.broker.core import persist
from brokerbed.broker.core.persist import Row
from brokerbed.broker.core.store import StoreFullError

FILE = "store.sqlite"
PARTS = ("", "-wal", "-journal", "-shm")  # what may lie beside it
APPLICATION_ID = 0x62726264  # "brbd": this file is ours
VERSION = 3  # of the rows and their meaning; see MIGRATIONS
MARSHAL = 2  # version of the encoding, which every Python reads
CRC_OF_WHOLE = 0x2144DF1C  # the CRC-32 of anything that ends with its own CRC-32
SPARE_PAGES_MAX = 1000  # unused, before the file is made smaller
SHRINK_PAGES = 200  # at a time, a few milliseconds
QUIET_LOOKS = 2  # without a commit between them, before the log is moved into the file
WAL_PAGES = 4000  # before they are moved into the file
TABLE = "CREATE TABLE rows (key INTEGER PRIMARY KEY, value BLOB NOT NULL)"
_WAL_HEADER, _FRAME_HEADER = 32, 24  # bytes, as SQLite documents them

_NOT_DAMAGE = (
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_IOERR,
)  # fmt: skip
_UNREADABLE = (sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ)  # other troubles with I/O are no damage


class StoreError(Exception):
    """The store cannot be used; the text is one sentence."""


class SqliteStore:
    def __init__(self, folder: Path, is_forced: bool) -> None:
        """`is_forced`: a commit returns when the disk has it. `open` comes next."""
        self.file = folder / FILE
        self._is_forced = is_forced
        self._looks = 0  # by `shrink` since the last commit
        _check_files(self.file)
        self._rows = sqlite3.connect(self.file, isolation_level=None, timeout=0, check_same_thread=False)

    def open(self) -> None:
        """StoreError for a store of a newer version; any other error has its meaning from `is_damage`."""
        rows = self._rows
        rows.execute("PRAGMA locking_mode = EXCLUSIVE")
        rows.execute(f"PRAGMA synchronous = {'FULL' if self._is_forced else 'OFF'}")
        if rows.execute("PRAGMA schema_version").fetchone()[0] == 0:
            self._create(rows)
        else:
            self._check_maker(rows)
            rows.execute("PRAGMA journal_mode = WAL")
            _check_log(self.file, max(0, rows.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]))
            rows.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # half of a log that is in the file would spoil it
            self._migrate(rows)
        rows.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
        rows.execute(f"PRAGMA journal_size_limit = {WAL_PAGES * 4096}")

    def _create(self, rows: sqlite3.Connection) -> None:
        try:
            rows.execute("PRAGMA auto_vacuum = INCREMENTAL")
            rows.execute("PRAGMA journal_mode = WAL")
            rows.execute("BEGIN IMMEDIATE")
            rows.execute(TABLE)
            rows.execute(f"PRAGMA application_id = {APPLICATION_ID}")
            rows.execute(f"PRAGMA user_version = {VERSION}")
            rows.execute("COMMIT")
        except sqlite3.Error:
            if self.file.stat().st_size == 0:  # which would be taken for damaged the next time
                self.file.unlink()
            raise

    def _check_maker(self, rows: sqlite3.Connection) -> None:
        """Nothing is changed in what is not ours."""
        if rows.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise sqlite3.DatabaseError("it was not made by brokerbed")
        version = rows.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise StoreError(
                f"{self.file} was written by a newer version of brokerbed (format {version}, not {VERSION}): "
                "use that version, or another --data"
            )
        if version < VERSION and version not in MIGRATIONS:
            raise sqlite3.DatabaseError(f"it has the format {version}, which never was")

    def _migrate(self, rows: sqlite3.Connection) -> None:
        for old in range(rows.execute("PRAGMA user_version").fetchone()[0], VERSION):
            rows.execute("BEGIN IMMEDIATE")
            MIGRATIONS[old](rows)
            rows.execute(f"PRAGMA user_version = {old + 1}")
            rows.execute("COMMIT")
        if rows.execute("SELECT sql FROM sqlite_schema").fetchall() != [(TABLE,)]:
            raise sqlite3.DatabaseError("its table is another")

    def load(self) -> Iterator[tuple[int, Row]]:
        """sqlite3.DatabaseError if any part of the file is damaged."""
        (problem,) = self._rows.execute("PRAGMA quick_check(1)").fetchone()
        if problem != "ok":
            raise sqlite3.DatabaseError(problem)
        yield from self._read("SELECT key, value FROM rows ORDER BY key")

    def row(self, key: int) -> Row | None:
        return next((row for _, row in self._read("SELECT key, value FROM rows WHERE key = ?", key)), None)

    def _read(self, query: str, *values: int) -> Iterator[tuple[int, Row]]:
        for key, value in self._rows.execute(query, values):
            yield key, _decoded(key, value)

    def commit(self, rows: list[tuple[int, Row | None]]) -> None:
        changed, removed = [], []
        for key, row in dict(rows).items():  # the last word on a key counts
            if row is None:
                removed.append((key,))
            else:
                changed.append((key, _encoded(key, row)))
        try:
            self._rows.execute("BEGIN IMMEDIATE")
            if changed:
                self._rows.executemany("REPLACE INTO rows VALUES (?, ?)", changed)
            if removed:
                self._rows.executemany("DELETE FROM rows WHERE key = ?", removed)
            self._rows.execute("COMMIT")
            self._looks = 0
        except sqlite3.Error as error:
            if self._rows.in_transaction:
                self._rows.execute("ROLLBACK")
            raise StoreFullError(str(error)) from None

    def shrink(self) -> bool:
        """Give some unused space back to the file system; whether there is more.

        The file itself gets smaller when the log is moved into it. That is also done when nothing was written for a
        while: then the store is as safe as it can be.
        """
        self._looks += 1
        try:
            spare = int(self._rows.execute("PRAGMA freelist_count").fetchone()[0])
            if spare > SPARE_PAGES_MAX:
                self._rows.executescript(f"PRAGMA incremental_vacuum({SHRINK_PAGES})")  # execute() would free one page
            has_more = spare > SPARE_PAGES_MAX + SHRINK_PAGES
            if self._looks == QUIET_LOOKS or (spare > SPARE_PAGES_MAX and not has_more):
                self._rows.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error:  # no room even for that
            return False
        return has_more

    def close(self) -> None:
        self._rows.close()


def _encoded(key: int, row: Row) -> bytes:
    data = marshal.dumps(row, MARSHAL)
    return data + zlib.crc32(data, (key ^ key >> 32) & 0xFFFF_FFFF).to_bytes(4, "little")


def _decoded(key: int, value: object) -> Row:
    if not isinstance(value, bytes) or zlib.crc32(value, (key ^ key >> 32) & 0xFFFF_FFFF) != CRC_OF_WHOLE:
        raise sqlite3.DatabaseError(f"row {key} is damaged")
    row: Row = marshal.loads(value)  # noqa: S302  # it ignores what follows, and the checksum is ours
    return row


def _give_sessions_users(rows: sqlite3.Connection) -> None:
    """To version 3: sessions belong to users, and links tell copies by packet ids instead of by marks.

    Nobody knows any more to whom the sessions of version 2 belonged, so they are nobody's: a broker that tells users
    apart gives them to no user.
    """
    rows.execute("DELETE FROM rows WHERE key BETWEEN ? AND ?", (persist.RECEIVED_ID, persist.RECEIVED - 1))
    sessions = rows.execute(
        "SELECT key, value FROM rows WHERE key BETWEEN ? AND ?", (persist.SESSION, persist.SUBSCRIPTION - 1)
    )
    for key, value in sessions.fetchall():
        client_id, expiry_s, expires_at_ns, link = _decoded(key, value)
        row = (client_id, expiry_s, expires_at_ns, None if link is None else (*link, 1), None)
        rows.execute("UPDATE rows SET value = ? WHERE key = ?", (_encoded(key, row), key))


MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {  # from version n to n + 1
    1: lambda _: None,  # to 2: there may be the row of the message log
    2: _give_sessions_users,
}


def is_damage(error: Exception) -> bool:
    """Whether an error when opening or loading means that the files are damaged, not that they cannot be had now."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return code & 0xFF not in _NOT_DAMAGE or code in _UNREADABLE


def set_aside(folder: Path) -> Path:
    """Rename a damaged store, with all its files; returns the new name.

    Only then it is closed: SQLite would remove its log, but leaves alone what has moved.
    """
    aside = folder / f"{FILE}.damaged-{time.strftime('%Y%m%dT%H%M%S')}"
    for part in PARTS:
        damaged = folder / (FILE + part)
        if damaged.exists():
            damaged.rename(folder / (aside.name + part))
    return aside


def _check_files(file: Path) -> None:
    """SQLite takes an empty file, or none, for a new store, whatever it was before; and it removes its log."""
    log = Path(f"{file}-wal")
    if file.is_file() and file.stat().st_size == 0:
        raise sqlite3.DatabaseError("it is empty")
    if not file.exists() and log.exists() and log.stat().st_size:
        raise sqlite3.DatabaseError("of its files there is only SQLite's log")


def _check_log(file: Path, whole_frames: int) -> None:
    """SQLite reads its log up to the first damaged frame, as if the rest had not been written. We look further.

    A kill cuts short the last transaction only. So where a transaction ends beyond what SQLite could read, and more
    follows, something that was committed is lost.
    """
    log = Path(f"{file}-wal")
    with log.open("rb") as frames:
        header = frames.read(_WAL_HEADER)
        if len(header) < _WAL_HEADER or not frames.read(1):
            return
        if not _is_log_header(header):
            raise sqlite3.DatabaseError("the header of SQLite's log is damaged")
        size = _FRAME_HEADER + int.from_bytes(header[8:12], "big")
        has_end = False
        frames.seek(_WAL_HEADER + whole_frames * size)
        while len(frame := frames.read(size)) >= _FRAME_HEADER:
            if frame[8:12] == header[16:20] or frame[12:16] == header[20:24]:  # else it is left from an older log
                if has_end:
                    raise sqlite3.DatabaseError("a frame in SQLite's log is damaged")
                has_end = frame[4:8] != bytes(4)


def _is_log_header(header: bytes) -> bool:
    """Its checksum is of the words before it, as SQLite documents."""
    order: Literal["little", "big"] = "big" if header[3] & 1 else "little"
    words = [int.from_bytes(header[at : at + 4], order) for at in range(0, 24, 4)]
    first = second = 0
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFF_FFFF
        second = (second + odd + first) & 0xFFFF_FFFF
    return header[24:32] == first.to_bytes(4, "big") + second.to_bytes(4, "big")

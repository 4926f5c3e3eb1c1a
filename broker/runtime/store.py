"""The durable state of a broker: rows by key in one SQLite file, written in one transaction per turn of the event loop.

In WAL mode a committed transaction survives the death of the process; with the durability `disk` it is also forced to
the disk before anything is acknowledged. SQLite's own log (the WAL) is protected by checksums, and every row has a
checksum of ours, so damage anywhere is found when the store is opened. Commits are numbered, and the last number is
also in a file of its own (commit_count.py), so a store that has lost commits is found, too. A damaged store is set
aside with all its files, and a new one is created with the rows that could be read.

One row of each commit carries its number. Where a commit only removes rows, one of them stays, empty, until the next
commit: a row for the number alone would be one more page to write each time.
"""

import marshal
import sqlite3
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Literal

from brokerbed.broker.core import persist
from brokerbed.broker.core.rows import Row
from brokerbed.broker.core.store import StoreFullError
from brokerbed.broker.runtime.commit_count import CommitCount

FILE = "store.sqlite"
NEW_FILE = "store.sqlite.new"  # a store that is to take the place of a damaged one, until it is complete
PARTS = ("-wal", "-journal", "-shm", "")  # suffixes of the files that a store may consist of; no file without its log
APPLICATION_ID = 0x62726264  # "brbd": marks the file as brokerbed's
VERSION = 8  # version of the rows and their meaning; see MIGRATIONS
MARSHAL_VERSION = 2  # a version of the encoding that every Python can read
NUMBERED = 0x6E756D62  # changes the checksum of a row that carries the number of its commit
NUMBER_BYTES = 8
KINDS = 16  # of rows, at most
EMPTY_KEY = 1  # of the empty row of a commit that changes nothing; the keys of this kind belong to the driver
CRC_RESIDUE = 0x2144DF1C  # the CRC-32 of any data that ends with its own CRC-32
SPARE_PAGES_MAX = 1000  # unused pages before the file is made smaller
SHRINK_PAGES = 200  # pages freed at a time, which takes a few milliseconds
QUIET_SHRINK_CALLS = 2  # calls of `shrink` without a commit in between after which the WAL is moved into the file
WAL_PAGES = 4000  # pages in the WAL before they are moved into the file
TABLE = "CREATE TABLE rows (key INTEGER PRIMARY KEY, value BLOB NOT NULL)"
_OF_KIND = "SELECT key, value FROM rows WHERE key >= ? AND key < ? ORDER BY key"
_WAL_HEADER, _FRAME_HEADER = 32, 24  # bytes, as SQLite documents them

_NOT_DAMAGE = (
    sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_FULL, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_READONLY, sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_IOERR,
)  # fmt: skip
_UNREADABLE = (sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ)  # other I/O errors do not indicate damage


class StoreError(Exception):
    """The store cannot be used; the text is one sentence."""


class SqliteStore:
    def __init__(self, folder: Path, is_forced: bool) -> None:
        """`is_forced`: a commit returns only when the data is on the disk. `open` must be called next.

        Raises InUseError if another broker uses the folder, and OSError if its files cannot be written.
        """
        self.file = folder / FILE
        self._is_forced = is_forced
        self._shrink_calls = 0  # since the last commit
        self._number = 0  # of the last commit
        self._empty: int | None = None  # key of the empty row, which the next commit removes
        self._database: sqlite3.Connection | None = None
        self._count = CommitCount(folder)
        counted = self._count.read()
        self.is_count_damaged = counted is None  # so it is unknown whether commits are missing
        self._counted = counted or 0

    def open(self) -> None:
        """Raises StoreError for a store of a newer version. For any other error, `is_damage` tells what it means."""
        new = self.file.with_name(NEW_FILE)
        if new.exists():
            new.unlink() if self.file.exists() else new.rename(
                self.file
            )  # a broker was killed while it replaced the file
        _check_files(self.file, self._counted)
        database = self._database = _connected(self.file, self._is_forced)
        if database.execute("PRAGMA schema_version").fetchone()[0] == 0:
            _create(database, self.file)
        else:
            self._check_origin(database)
            database.execute("PRAGMA journal_mode = WAL")
            _check_log(self.file, max(0, database.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()[1]))
            self._migrate(database)
        database.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
        database.execute(f"PRAGMA journal_size_limit = {WAL_PAGES * 4096}")

    def _check_origin(self, database: sqlite3.Connection) -> None:
        """Refuse a file that brokerbed did not create, before anything in it is changed."""
        if database.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise sqlite3.DatabaseError("it was not made by brokerbed")
        version = database.execute("PRAGMA user_version").fetchone()[0]
        if version > VERSION:
            raise StoreError(
                f"{self.file} was written by a newer version of brokerbed (format {version}, not {VERSION}): "
                "use that version, or another --data"
            )
        if version < VERSION and version not in MIGRATIONS:
            raise sqlite3.DatabaseError(f"it has the format {version}, which never was")

    def _migrate(self, database: sqlite3.Connection) -> None:
        for old in range(database.execute("PRAGMA user_version").fetchone()[0], VERSION):
            database.execute("BEGIN IMMEDIATE")
            MIGRATIONS[old](database)
            database.execute(f"PRAGMA user_version = {old + 1}")
            database.execute("COMMIT")
        if database.execute("SELECT sql FROM sqlite_schema").fetchall() != [(TABLE,)]:
            raise sqlite3.DatabaseError("its table is another")

    def load(self) -> Iterator[tuple[int, Row]]:
        """All rows in the order of their keys.

        Raises sqlite3.DatabaseError if any part of the file is damaged, or if commits are missing.
        """
        (problem,) = self._connection.execute("PRAGMA quick_check(1)").fetchone()
        if problem != "ok":
            raise sqlite3.DatabaseError(problem)
        yield from self._read("SELECT key, value FROM rows ORDER BY key")
        if missing := max(0, self._counted - self._number):
            raise sqlite3.DatabaseError(f"its last {missing} transactions are missing")
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # a WAL left half in the file would corrupt it

    def row(self, key: int) -> Row | None:
        return next((row for _, row in self._read("SELECT key, value FROM rows WHERE key = ?", key)), None)

    def readable(self) -> dict[int, Row]:
        """The rows of a damaged store that can still be read: for each kind, those before and after what is damaged."""
        rows: dict[int, Row] = {}
        for kind in range(KINDS):
            between = kind << persist.SHIFT, (kind + 1) << persist.SHIFT
            for query in (_OF_KIND, _OF_KIND + " DESC"):
                with suppress(sqlite3.Error, UnicodeDecodeError):
                    for key, value in self._connection.execute(query, between):
                        with suppress(sqlite3.DatabaseError):  # of this row alone
                            row, number = _decoded(key, value)
                            self._number = max(self._number, number)
                            if row is not None:
                                rows[key] = row
        return rows

    def _read(self, query: str, *values: int) -> Iterator[tuple[int, Row]]:
        for key, value in self._connection.execute(query, values):
            row, number = _decoded(key, value)
            if number > self._number:
                self._number = number
                self._empty = key if row is None else None
            if row is not None:
                yield key, row

    def replace(self, rows: list[tuple[int, Row]]) -> Path | None:
        """Set the files aside and put a store with these rows in their place; returns the new name, None if none was.

        This store has to be closed next. When it closes, SQLite removes its WAL, but not if the file has been renamed.
        """
        new = self.file.with_name(NEW_FILE)
        for part in PARTS:
            Path(f"{new}{part}").unlink(missing_ok=True)
        with closing(_connected(new, is_forced=True)) as database:
            _create(database, new)
            _write(database, rows, [], max(self._counted, self._number))
        aside = _set_aside(self.file)
        new.rename(self.file)
        return aside

    def commit(self, rows: list[tuple[int, Row | None]]) -> None:
        latest = dict(rows)  # the last row of each key counts
        if self._empty is not None:
            latest.setdefault(self._empty, None)
        changed = [(key, row) for key, row in latest.items() if row is not None]
        removed = [key for key, row in latest.items() if row is None]
        try:
            empty = _write(self._connection, changed, removed, self._number + 1)
            self._count.write(self._number + 1)
        except (sqlite3.Error, OSError) as error:
            raise StoreFullError(str(error)) from None
        self._number += 1
        self._empty = empty
        self._shrink_calls = 0

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._database is None:
            raise sqlite3.DatabaseError("it is not open")
        return self._database

    def shrink(self) -> bool:
        """Give some unused space back to the file system; returns whether there is more.

        The file itself gets smaller when the WAL is moved into it. That is also done when nothing was written for a
        while, which makes the store as safe as possible.
        """
        self._shrink_calls += 1
        try:
            spare = int(self._connection.execute("PRAGMA freelist_count").fetchone()[0])
            if spare > SPARE_PAGES_MAX:
                # execute() would free only one page.
                self._connection.executescript(f"PRAGMA incremental_vacuum({SHRINK_PAGES})")
            has_more = spare > SPARE_PAGES_MAX + SHRINK_PAGES
            if self._shrink_calls == QUIET_SHRINK_CALLS or (spare > SPARE_PAGES_MAX and not has_more):
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error:  # the disk has no room even for this
            return False
        return has_more

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
        self._count.close()


def _connected(file: Path, is_forced: bool) -> sqlite3.Connection:
    database = sqlite3.connect(file, isolation_level=None, timeout=0, check_same_thread=False)
    database.execute("PRAGMA locking_mode = EXCLUSIVE")
    database.execute(f"PRAGMA synchronous = {'FULL' if is_forced else 'OFF'}")
    return database


def _create(database: sqlite3.Connection, file: Path) -> None:
    try:
        database.execute("PRAGMA auto_vacuum = INCREMENTAL")
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("BEGIN IMMEDIATE")
        database.execute(TABLE)
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database.execute(f"PRAGMA user_version = {VERSION}")
        database.execute("COMMIT")
    except sqlite3.Error:
        if file.stat().st_size == 0:  # an empty file would be taken for a damaged store
            file.unlink()
        raise


def _write(
    database: sqlite3.Connection, changed: Sequence[tuple[int, Row]], removed: list[int], number: int
) -> int | None:
    """Write one commit. If it only removes rows, one of them stays as an empty row; returns the key of that row."""
    encoded = [(key, _encoded(key, row)) for key, row in changed]
    empty = None
    if changed:
        key, row = changed[-1]
        encoded[-1] = key, _encoded(key, row, number)
    else:
        *removed, empty = removed or [EMPTY_KEY]
        encoded = [(empty, _encoded(empty, None, number))]
    try:
        database.execute("BEGIN IMMEDIATE")
        database.executemany("REPLACE INTO rows VALUES (?, ?)", encoded)
        if removed:
            database.executemany("DELETE FROM rows WHERE key = ?", [(key,) for key in removed])
        database.execute("COMMIT")
    except sqlite3.Error:
        if database.in_transaction:
            database.execute("ROLLBACK")
        raise
    return empty


def _encoded(key: int, row: Row | None, number: int | None = None) -> bytes:
    """A row with its checksum, which depends on its key. One row of each commit carries the commit's number."""
    data, start = marshal.dumps(row, MARSHAL_VERSION), (key ^ key >> 32) & 0xFFFF_FFFF
    if number is not None:
        data += number.to_bytes(NUMBER_BYTES, "little")
        start ^= NUMBERED
    return data + zlib.crc32(data, start).to_bytes(4, "little")


def _decoded(key: int, value: object) -> tuple[Row | None, int]:
    """The row, None for an empty one, and the number of the commit if it carries one, else 0."""
    start = (key ^ key >> 32) & 0xFFFF_FFFF
    number = 0
    if not isinstance(value, bytes):
        raise sqlite3.DatabaseError(f"row {key} is damaged")
    if zlib.crc32(value, start) != CRC_RESIDUE:
        if zlib.crc32(value, start ^ NUMBERED) != CRC_RESIDUE:
            raise sqlite3.DatabaseError(f"row {key} is damaged")
        number = int.from_bytes(value[-4 - NUMBER_BYTES : -4], "little")
    row: Row | None = marshal.loads(value)  # noqa: S302  # our checksum was right; marshal ignores what follows the data
    return row, number


def _add_users_to_sessions(database: sqlite3.Connection) -> None:
    """Migrate to version 3: sessions belong to users, and links recognise copies by packet ids instead of by marks.

    It is unknown to which users the sessions of version 2 belonged, so they get none: a broker that distinguishes users
    gives them to no user.
    """
    database.execute("DELETE FROM rows WHERE key BETWEEN ? AND ?", (persist.RECEIVED_ID, persist.RECEIVED - 1))
    sessions = database.execute(
        "SELECT key, value FROM rows WHERE key BETWEEN ? AND ?", (persist.SESSION, persist.SUBSCRIPTION - 1)
    )
    for key, value in sessions.fetchall():
        decoded, _ = _decoded(key, value)
        assert decoded is not None
        client_id, expiry_s, expires_at_ns, link = decoded
        row = (client_id, expiry_s, expires_at_ns, None if link is None else (*link, 1), None)
        database.execute("UPDATE rows SET value = ? WHERE key = ?", (_encoded(key, row), key))


MIGRATIONS: dict[int, Callable[[sqlite3.Connection], None]] = {  # from version n to n + 1
    1: lambda _: None,  # to 2: there may be a row for the message log
    2: _add_users_to_sessions,
    3: lambda _: None,  # to 4: rows of announced entries may name the session of their link
    4: lambda _: None,  # to 5: there may be rows of runs
    5: lambda _: None,  # to 6: rows of links may say that the link moves
    6: lambda _: None,  # to 7: rows of sessions and deliveries may say that the session moves
    7: lambda _: None,  # to 8: rows may carry the number of their commit, and may be empty
}


def is_damage(error: Exception) -> bool:
    """Whether an error when opening or loading means that the files are damaged, not just unavailable at present."""
    if isinstance(error, OSError):
        return False
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
    return code & 0xFF not in _NOT_DAMAGE or code in _UNREADABLE


def _set_aside(file: Path) -> Path | None:
    """Rename a damaged store, with all its files; returns the new name, None if there were none."""
    name = aside = f"{file.name}.damaged-{time.strftime('%Y%m%dT%H%M%S')}"
    others = 0
    while any(file.parent.glob(f"{aside}*")):
        others += 1
        aside = f"{name}.{others}"
    damaged = [part for part in PARTS if Path(f"{file}{part}").exists()]
    for part in damaged:
        Path(f"{file}{part}").rename(file.with_name(aside + part))
    return file.with_name(aside) if damaged else None


def _check_files(file: Path, counted: int) -> None:
    """Raise DatabaseError if SQLite would silently start a new database, and remove the WAL, in place of a damaged one.

    SQLite does so if the file is empty or missing. `counted`: how many commits there were.
    """
    log = Path(f"{file}-wal")
    if file.is_file() and file.stat().st_size == 0:
        raise sqlite3.DatabaseError("it is empty")
    if not file.exists() and log.exists() and log.stat().st_size:
        raise sqlite3.DatabaseError("of its files there is only SQLite's log")
    if not file.exists() and counted:
        raise sqlite3.DatabaseError(f"the file with its {counted} transactions is missing")


def _check_log(file: Path, whole_frames: int) -> None:
    """Raise DatabaseError if a frame in the WAL is damaged. SQLite itself ignores such a frame and all that follow.

    A kill cuts short the last transaction only. So if a transaction ends beyond the frames that SQLite could read, and
    more frames follow, something that was committed is lost.
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
            if frame[8:12] == header[16:20] or frame[12:16] == header[20:24]:  # other frames are left from an older log
                if has_end:
                    raise sqlite3.DatabaseError("a frame in SQLite's log is damaged")
                has_end = frame[4:8] != bytes(4)


def _is_log_header(header: bytes) -> bool:
    """Whether a WAL header has the right checksum, computed from its other words as SQLite documents."""
    order: Literal["little", "big"] = "big" if header[3] & 1 else "little"
    words = [int.from_bytes(header[at : at + 4], order) for at in range(0, 24, 4)]
    first = second = 0
    for even, odd in zip(words[::2], words[1::2], strict=True):
        first = (first + even + second) & 0xFFFF_FFFF
        second = (second + odd + first) & 0xFFFF_FFFF
    return header[24:32] == first.to_bytes(4, "big") + second.to_bytes(4, "big")

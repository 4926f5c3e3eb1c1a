"""The files of a store, damaged, foreign, locked or too new: nothing wrong is ever taken for what was stored."""

import marshal
import os
import random
import resource
import sqlite3
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.core.broker import Broker
from brokerbed.broker.core.restore import restore
from brokerbed.broker.core.rows import Row
from brokerbed.broker.core.store import MemoryStore
from brokerbed.broker.runtime import command
from brokerbed.broker.runtime import store as store_module
from brokerbed.broker.runtime.store import FILE, SqliteStore, StoreError, is_damage
from tests.broker.running import broker
from tests.durability import stores
from tests.durability.stores import Content, Made, Stored, refused
from tests.mqtt.dial import Dial

FLIPS = 500  # at random places of a file, besides those in headers
HEADER_BYTES = 100  # of the file, as SQLite documents it
LEAF = 0x0D  # the first byte of a page with rows; the fifth is their number
NOBODY = 65_534  # the user without rights


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return stores.make(tmp_path_factory.mktemp("made"))


@pytest.fixture(params=["killed", "ended", "again"])
def stored(made: Made, request: pytest.FixtureRequest) -> Stored:
    return made.stored(request.param)


@contextmanager
def opened(folder: Path) -> Iterator[SqliteStore]:
    with closing(SqliteStore(folder, is_forced=False)) as store:
        store.open()
        yield store


def loaded(folder: Path) -> Content | None:
    """What a broker takes from the store; None: it is known that this is damaged."""
    try:
        with opened(folder) as store:
            return dict(store.load())
    except StoreError:  # the damage is in the number of the version
        return None
    except (sqlite3.Error, UnicodeDecodeError) as error:  # the latter where SQLite cites what is damaged
        if not is_damage(error):
            raise
        return None


# -- damage, for the code that opens and loads ------------------------------------------------------------------------


def test_store_is_loaded_as_it_was(made: Made, stored: Stored, tmp_path: Path) -> None:
    assert loaded(stored.put(tmp_path)) == made.content
    assert len({key >> 56 for key in made.content}) == 6  # kinds of rows: all that a broker without links has
    assert len(made.history) > 40
    assert made.killed.log
    assert not made.ended.log


def test_broker_can_live_with_every_commit(made: Made) -> None:
    for rows in made.history.values():
        restore(Broker(BrokerConfig(), is_durable=True), sorted(rows.items()), 1)


def test_file_that_is_cut(made: Made, stored: Stored, tmp_path: Path) -> None:
    for size in range(stores.PAGE_BYTES, len(stored.main), stores.PAGE_BYTES):
        assert loaded(stored.cut("main", size).put(tmp_path)) in (None, made.content), size
    assert loaded(stored.cut("main", 0).put(tmp_path)) is None


def test_file_with_another_byte(made: Made, stored: Stored, tmp_path: Path) -> None:
    draw = random.Random(1)
    found = 0
    for place in (*range(HEADER_BYTES), *draw.sample(range(len(stored.main)), FLIPS)):
        rows = loaded(stored.flip("main", place, 1 << draw.randrange(8)).put(tmp_path))
        assert rows in (None, made.content), place
        found += rows is None
    assert found > FLIPS // 4  # the others are in unused bytes, or in pages that are newer in the log


def test_file_with_another_bit_in_a_key(made: Made, tmp_path: Path) -> None:
    """SQLite cannot tell as long as the keys are in order, which the last one always is when it grows."""
    key = max(made.content)
    stored_as = bytes(0x80 | key >> shift & 0x7F for shift in range(57, 7, -7)) + bytes([key & 0xFF])
    assert made.ended.main.count(stored_as) == 1
    for bit in range(8 * len(stored_as)):
        damaged = made.ended.flip("main", made.ended.main.index(stored_as) + bit // 8, 1 << bit % 8)
        assert loaded(damaged.put(tmp_path)) is None, bit


def test_file_with_another_bit_in_the_schema(made: Made, tmp_path: Path) -> None:
    at = made.ended.main.index(store_module.TABLE.encode())
    for bit in range(8 * len(store_module.TABLE)):
        damaged = made.ended.flip("main", at + bit // 8, 1 << bit % 8)
        assert loaded(damaged.put(tmp_path)) is None, bit


def test_page_that_says_it_has_fewer_rows(made: Made, tmp_path: Path) -> None:
    """What is left is whole, so no checksum of a row would tell."""
    main = made.ended.main
    pages = [at for at in range(stores.PAGE_BYTES, len(main), stores.PAGE_BYTES) if main[at] == LEAF]
    assert pages
    for page in pages:
        rows = main[page + 4]
        assert loaded(made.ended.flip("main", page + 4, rows ^ (rows - 1)).put(tmp_path)) is None, page


@pytest.mark.parametrize("value", ["text", 5, 1.5, b"", b"another"])
def test_row_with_another_value(made: Made, value: object, tmp_path: Path) -> None:
    with closing(sqlite3.connect(made.ended.put(tmp_path) / FILE, isolation_level=None)) as rows:
        rows.execute("UPDATE rows SET value = ? WHERE key = ?", (value, min(made.content)))
    assert loaded(tmp_path) is None


def test_log_that_is_cut_gives_an_earlier_commit(made: Made, tmp_path: Path) -> None:
    within = (0, 10, stores.FRAME_HEADER_BYTES, stores.PAGE_BYTES // 2)
    for size in (0, 10, *(frame + more for frame in made.killed.frames() for more in within)):
        expected = made.history[max(end for end in made.history if end <= size)]
        damaged = made.killed.cut("log", size)
        assert loaded(damaged.uncounted().put(tmp_path)) == expected, size
        assert loaded(damaged.put(tmp_path)) == (expected if expected == made.content else None), size


def test_log_with_another_byte(made: Made, tmp_path: Path) -> None:
    draw, log = random.Random(2), made.killed.log
    heads = [frame + more for frame in made.killed.frames()[-8:] for more in range(stores.FRAME_HEADER_BYTES)]
    *_, last, end = made.killed.ends()
    assert heads[0] < last < heads[-1] < end == len(log)
    for place in (*range(stores.LOG_HEADER_BYTES), *heads, *draw.sample(range(len(log)), FLIPS)):
        rows = loaded(made.killed.uncounted().flip("log", place, 1 << draw.randrange(8)).put(tmp_path))
        assert rows in allowed(made.killed, place, made.history[last], made.content), place


def allowed(stored: Stored, place: int, before: Content, now: Content) -> tuple[Content | None, ...]:
    """What may be loaded if this byte of the log is another: damage in the last commit looks like a kill during it."""
    last, end = [stores.LOG_HEADER_BYTES, *stored.ends()][-2:]
    if place >= end:
        return (now,)
    return (None, before) if place >= last else (None,)


def test_log_that_was_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of an older log behind those of the present one neither hide damage nor are taken for it."""
    monkeypatch.setattr(store_module, "WAL_PAGES", 12)
    draw, model = random.Random(3), MemoryStore()
    live = tmp_path / "live"
    live.mkdir()
    cases = 0
    with opened(live) as store:
        for number in range(40):
            file, rows = Stored.of(live).main, dict(model.rows)
            batch = [(draw.randrange(1, 60), _row(draw, number)) for _ in range(draw.randrange(1, 6))]
            store.commit(batch)
            model.commit(batch)
            now = Stored.of(live)
            if now.main != file or now.ends()[-1] == len(now.log):  # as long as it is, or just moved into the file
                continue
            for place in range(draw.randrange(stores.FRAME_BYTES), len(now.log), stores.FRAME_BYTES):
                damaged = now.uncounted().flip("log", place, 1 << draw.randrange(8))
                assert loaded(damaged.put(tmp_path)) in allowed(now, place, rows, model.rows), (number, place)
                cases += 1
    assert cases > 100


def _row(draw: random.Random, number: int) -> Row | None:
    return None if draw.random() < 0.3 else (number, draw.randbytes(draw.choice((10, 500, 3000))))


def test_quiet_store_needs_no_log(tmp_path: Path) -> None:
    with opened(tmp_path) as store:
        store.commit([(1, ("kept",))])
        assert Stored.of(tmp_path).log
        for _ in range(store_module.QUIET_SHRINK_CALLS):
            store.shrink()
        alone = Stored(Stored.of(tmp_path).main)
    assert loaded(alone.put(tmp_path)) == {1: ("kept",)}


# -- damage, for the program ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["main", "log"])
@pytest.mark.parametrize("share", [0.0, 0.5, 0.999])
@pytest.mark.parametrize("how", ["cut", "flip"])
def test_broker_starts_on_a_damaged_store(made: Made, part: str, share: float, how: str, tmp_path: Path) -> None:
    """Either nothing has happened to its sessions, or it says so, and has the rest of them."""
    whole = made.killed if part == "log" else made.ended
    size = len(whole.log) if part == "log" else len(whole.main)
    damaged = whole.cut(part, int(size * share)) if how == "cut" else whole.flip(part, int(size * share), 4)
    errors, payloads = serve(damaged.put(tmp_path))
    if errors == "":
        assert payloads == made.owed
    else:
        is_kept_aside(damaged, tmp_path, errors)
        assert payloads is None or payloads == [payload for payload in made.owed if payload in payloads]


def serve(folder: Path) -> tuple[str, list[bytes] | None]:
    """Runs a broker on the store; what it wrote to stderr, and what it had for a subscriber if it knew its session."""
    with broker("--data", folder) as running:
        client = stores.join(Dial(running.ports["mqtt"]), "one")
        payloads = client.take_all() if client.connack.session_present else None
    client.close()  # it has seen the end of the broker
    assert running.process.returncode == 0
    return running.errors, payloads


def is_kept_aside(damaged: Stored, folder: Path, errors: str) -> None:
    """One line says where the files are, with all that was in the log."""
    (line,) = errors.splitlines()
    aside = Path(line.split(" it is now ")[1])
    assert aside.parent == folder
    assert line.startswith("brokerbed broker: the store is damaged (")
    assert aside.name.startswith(f"{FILE}.damaged-")
    log = Path(f"{aside}-wal")
    assert aside.exists()
    assert (log.read_bytes() if log.exists() else b"") == damaged.log


@pytest.mark.parametrize("variant", ["killed", "ended", "again"])
def test_undamaged_store_is_served(made: Made, variant: str, tmp_path: Path) -> None:
    assert serve(made.stored(variant).put(tmp_path)) == ("", made.owed)


# -- files that are no store ------------------------------------------------------------------------------------------


def foreign(folder: Path) -> bytes:
    """Somebody else's database."""
    file = folder / "foreign"
    with closing(sqlite3.connect(file)) as rows:
        rows.execute(store_module.TABLE)
        rows.execute(f"PRAGMA user_version = {store_module.VERSION}")
    return file.read_bytes()


@pytest.mark.parametrize("kind", ["noise", "foreign", "empty", "log only"])
def test_file_that_is_no_store_is_set_aside(made: Made, kind: str, tmp_path: Path) -> None:
    content = {"noise": random.Random(4).randbytes(10_000), "foreign": foreign(tmp_path), "empty": b""}
    files = Stored(content.get(kind, b""), made.killed.log if kind == "log only" else b"")
    files.put(tmp_path)
    if kind == "log only":
        (tmp_path / FILE).unlink()
    errors, payloads = serve(tmp_path)
    assert payloads is None
    aside = Path(errors.split(" it is now ")[1].rstrip())
    kept, unchanged = (Path(f"{aside}-wal"), files.log) if kind == "log only" else (aside, files.main)
    assert kept.read_bytes() == unchanged
    assert len(errors.splitlines()) == 1


def test_store_of_a_newer_version_is_refused_and_left_alone(made: Made, tmp_path: Path) -> None:
    with closing(sqlite3.connect(made.ended.put(tmp_path) / FILE)) as rows:
        rows.execute("PRAGMA user_version = 99")
    newer = Stored.of(tmp_path)
    assert f"newer version of brokerbed (format 99, not {store_module.VERSION})" in refused(command.BAD_INPUT, tmp_path)
    assert Stored.of(tmp_path) == newer


SESSIONS, MARKS, LINK = 1 << 56, 5 << 56, 10**9  # where keys of kinds begin in version 2; the number of a session


def sealed(key: int, row: Row) -> tuple[int, bytes]:
    """A row as it stands in the file."""
    data = marshal.dumps(row, 2)
    return key, data + zlib.crc32(data, (key ^ key >> 32) & 0xFFFF_FFFF).to_bytes(4, "little")


@pytest.mark.parametrize("version", [1, 2])
def test_store_of_an_older_version_is_served(made: Made, version: int, tmp_path: Path) -> None:
    """Version 1 had no row of a message log, as these have none. Version 2 had sessions without users, links without
    packet ids to go on with, and marks."""
    folder = made.ended.put(tmp_path)
    with closing(sqlite3.connect(folder / FILE)) as rows:
        stored = rows.execute("SELECT key, value FROM rows WHERE key BETWEEN ? AND ?", (SESSIONS, SESSIONS + LINK))
        sessions = [(key, marshal.loads(value)) for key, value in stored.fetchall()]
        assert {"one", "two"} <= {row[0] for _, row in sessions}
        older = [sealed(key, row[:4]) for key, row in sessions]
        older.append(sealed(SESSIONS + LINK, ("$link/b", 0xFFFF_FFFF, None, ("b", False, False))))
        older.append(sealed(MARKS + LINK + 1, (LINK, "b.1", 17)))
        rows.executemany("REPLACE INTO rows VALUES (?, ?)", older)
        rows.execute(f"PRAGMA user_version = {version}")
        rows.commit()
    assert serve(tmp_path) == ("", made.owed)
    with closing(sqlite3.connect(tmp_path / FILE)) as rows:
        assert rows.execute("PRAGMA user_version").fetchone() == (store_module.VERSION,)


@pytest.mark.parametrize("version", [0, -1, -(2**31)])
def test_store_of_no_version_is_damaged(made: Made, version: int, tmp_path: Path) -> None:
    with closing(sqlite3.connect(made.ended.put(tmp_path) / FILE)) as rows:
        rows.execute(f"PRAGMA user_version = {version}")
    assert loaded(tmp_path) is None


def test_folder_in_the_place_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / FILE).mkdir()
    assert "the store cannot be opened" in refused(command.MISSING, tmp_path)


def test_second_broker_on_the_same_data_is_refused(made: Made, tmp_path: Path) -> None:
    with broker("--data", made.ended.put(tmp_path)) as running:
        assert "another broker uses this folder" in refused(command.MISSING, tmp_path)
        client = stores.join(Dial(running.ports["mqtt"]), "one")
        assert client.take_all() == made.owed
        client.close()


@contextmanager
def without_rights() -> Iterator[None]:
    """Not as root, who may read and write everything."""
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        if is_root:
            os.seteuid(0)


@pytest.mark.parametrize("mode", [0o000, 0o444])
def test_file_without_permission_is_not_taken_for_damaged(made: Made, mode: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = made.ended.uncounted().put(Path(name))
        folder.chmod(0o777)
        (folder / FILE).chmod(mode)
        with pytest.raises(sqlite3.OperationalError) as raised, without_rights(), opened(folder):
            pass
        assert not is_damage(raised.value)
        (folder / FILE).chmod(0o600)
        assert Stored.of(folder).main == made.ended.main


@contextmanager
def file_size_limited(size: int) -> Iterator[None]:
    """As with a quota: to SQLite it is an I/O error, other than a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_file_that_may_not_grow_is_not_taken_for_damaged(made: Made, tmp_path: Path) -> None:
    made.killed.put(tmp_path)
    size = len(made.killed.main)
    with pytest.raises(sqlite3.OperationalError) as raised, file_size_limited(size), opened(tmp_path):
        pass
    assert not is_damage(raised.value)
    assert loaded(tmp_path) == made.content


def test_file_that_could_not_be_made_is_not_taken_for_damaged(tmp_path: Path) -> None:
    with pytest.raises(sqlite3.OperationalError) as raised, file_size_limited(0), opened(tmp_path):
        pass
    assert not is_damage(raised.value)
    assert loaded(tmp_path) == {}


# -- what is stored is what is loaded ---------------------------------------------------------------------------------

KEYS = st.builds(lambda kind, number: kind << 56 | number, st.integers(1, 10), st.integers(1, 2**56 - 1))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text() | st.binary(max_size=6000),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=8,
)
ROWS = st.lists(VALUES, max_size=4).map(tuple)


@given(data=st.data())
@settings(max_examples=80)
def test_random_commits_equal_those_in_memory(data: st.DataObject) -> None:
    keys = data.draw(st.lists(KEYS, min_size=1, max_size=6))
    batches = st.lists(st.tuples(st.sampled_from(keys), st.none() | ROWS), max_size=6)
    lives = data.draw(st.lists(st.lists(batches, max_size=4), max_size=4))
    model = MemoryStore()
    with tempfile.TemporaryDirectory() as folder:
        for life in lives:
            with opened(Path(folder)) as store:
                assert repr([*store.load()]) == repr([*model.load()])  # with types: True is not 1
                for batch in life:
                    store.commit(batch)
                    model.commit(batch)
                    assert repr([*store.load()]) == repr([*model.load()])

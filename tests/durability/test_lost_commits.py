"""A store that lost commits, or part of its rows: the broker says so, sets the files aside and keeps the rest."""

import asyncio
import random
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.core import persist
from brokerbed.broker.core.broker import Broker
from brokerbed.broker.core.restore import NUMBER, restore
from brokerbed.broker.core.rows import Row
from brokerbed.broker.core.salvage import salvaged
from brokerbed.broker.core.store import MemoryStore
from brokerbed.broker.runtime import command, commit_count, server
from brokerbed.broker.runtime.store import FILE, SqliteStore
from tests.broker.running import broker
from tests.durability import stores
from tests.durability.stores import LOG, Made, refused
from tests.durability.test_store_files import loaded, serve
from tests.mqtt.client311 import connect
from tests.mqtt.dial import Dial
from tests.small_disk import small_disk


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return stores.make(tmp_path_factory.mktemp("made"))


# -- commits that are missing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("lost", [1, 5])
def test_log_cut_between_commits_is_reported_and_the_rest_is_kept(made: Made, lost: int, tmp_path: Path) -> None:
    """SQLite finds nothing wrong with such a log."""
    end = made.killed.ends()[-1 - lost]
    damaged = made.killed.cut("log", end)
    assert loaded(damaged.uncounted().put(tmp_path)) == made.history[end]
    errors, payloads = serve(damaged.put(tmp_path))
    assert (
        f"the store is damaged (its last {lost} transactions are missing): what could be read of it was kept" in errors
    )
    assert payloads == [payload for payload in made.owed if payload in (payloads or ())] != []
    assert "damaged" not in serve(tmp_path)[0]  # the next start finds nothing wrong


def test_log_that_is_gone_is_reported(made: Made, tmp_path: Path) -> None:
    made.killed.put(tmp_path)
    (tmp_path / LOG).unlink()
    errors, _ = serve(tmp_path)
    assert f"its last {len(made.killed.ends())} transactions are missing" in errors


def test_older_copy_of_the_store_is_reported(made: Made, tmp_path: Path) -> None:
    with broker("--data", made.ended.put(tmp_path)) as running:
        dial = Dial(running.ports["mqtt"])
        stores.join(dial, "late").subscribe("more", qos=1)
        stores.kill(running)
        dial.close()
    (tmp_path / LOG).unlink()
    (tmp_path / FILE).write_bytes(made.ended.main)
    assert "transactions are missing" in serve(tmp_path)[0]


def test_store_that_is_gone_is_reported(made: Made, tmp_path: Path) -> None:
    made.ended.put(tmp_path)
    (tmp_path / FILE).unlink()
    errors, payloads = serve(tmp_path)
    assert payloads is None
    assert "transactions is missing): nothing was kept; there was nothing to set aside" in errors


def test_commit_that_was_not_counted_yet_is_no_damage(tmp_path: Path) -> None:
    """A broker is killed between the commit and the count."""
    with closing(SqliteStore(tmp_path, is_forced=False)) as store:
        store.open()
        store.commit([(10, ("first",))])
        before = (tmp_path / commit_count.FILE).read_bytes()
        store.commit([(10, None), (11, ("second",))])
    (tmp_path / commit_count.FILE).write_bytes(before)
    assert loaded(tmp_path) == {11: ("second",)}


@pytest.mark.parametrize("place", range(13))
def test_count_with_another_byte_is_reported_and_the_store_is_used(made: Made, place: int, tmp_path: Path) -> None:
    count = made.ended.count
    damaged = count + b"x" if place == len(count) else stores.Stored(b"", b"", count).flip("count", place, 1).count
    made.ended.put(tmp_path)
    (tmp_path / commit_count.FILE).write_bytes(damaged)
    with closing(SqliteStore(tmp_path, is_forced=False)) as store:
        assert store.is_count_damaged
        store.open()
        assert dict(store.load()) == made.content
    if place == 0:
        errors, payloads = serve(tmp_path)
        assert errors.endswith("is damaged, so it is unknown whether anything is missing from the store\n")
        assert payloads == made.owed


def test_every_commit_is_numbered_once(tmp_path: Path) -> None:
    """Also those that only remove rows, or nothing; and what they leave behind is never taken for a row."""
    draw, model = random.Random(5), MemoryStore()
    for life in range(6):
        with closing(SqliteStore(tmp_path, is_forced=False)) as store:
            store.open()
            assert dict(store.load()) == model.rows
            for number in range(draw.randrange(20)):
                rows = [(draw.randrange(2, 9), None if draw.random() < 0.7 else (life, number)) for _ in range(2)]
                batch: list[tuple[int, Row | None]] = [*rows[: draw.randrange(3)]]
                store.commit(batch)
                model.commit(batch)
        stored = stores.Stored.of(tmp_path)
        assert stored.count
        assert loaded(stored.put(tmp_path)) == model.rows


# -- what is kept of a damaged store ----------------------------------------------------------------------------------


def test_whatever_page_is_damaged_the_rest_is_kept(made: Made, tmp_path: Path) -> None:
    draw = random.Random(6)
    kept = []
    for page in range(1, len(made.ended.main) // stores.PAGE_BYTES):
        main = bytearray(made.ended.main)
        main[page * stores.PAGE_BYTES : (page + 1) * stores.PAGE_BYTES] = draw.randbytes(stores.PAGE_BYTES)
        stores.Stored(bytes(main), b"", made.ended.count).put(tmp_path)
        with closing(SqliteStore(tmp_path, is_forced=False)) as store:
            store.open()
            rows = store.readable()
        assert rows.items() <= made.content.items(), page
        restore(Broker(BrokerConfig(), is_durable=True), salvaged(rows), 1)
        kept.append(len(salvaged(rows)) / len(made.content))
    assert sorted(kept)[len(kept) // 2] > 0.7  # little is left only without the sessions, or the root of the tree
    assert max(kept) == 1


def test_rows_that_need_missing_ones_are_not_kept(made: Made) -> None:
    """Without any one of its rows the rest can be restored, and the rest is everything that does not need that row."""
    for missing in made.content:
        rows = {key: row for key, row in made.content.items() if key != missing}
        kept = dict(salvaged(rows))
        needing = {key for key, row in rows.items() if missing & NUMBER in references(key, row)}
        assert set(rows) - set(kept) <= needing | {key for key in rows if key & ~NUMBER == persist.MESSAGE}, missing
        restore(Broker(BrokerConfig(), is_durable=True), sorted(kept.items()), 1)


def references(key: int, row: Row) -> list[object]:
    kind = key & ~NUMBER
    if kind in (persist.RETAINED, persist.ENTERING, persist.SUBSCRIPTION, persist.RECEIVED):
        return [row[0]]
    return [row[0], row[1]] if kind in (persist.DELIVERY, persist.SENT_RUN) else []


def test_replacing_that_was_interrupted_is_completed(made: Made, tmp_path: Path) -> None:
    """Killed when the old file had been set aside, and the new one had not its name yet."""
    new = made.ended.put(tmp_path) / f"{FILE}.new"
    (tmp_path / FILE).rename(new)
    assert serve(tmp_path) == ("", made.owed)
    new.write_bytes(b"half of a store")
    assert serve(tmp_path)[0] == ""
    assert not new.exists()


def test_disk_without_room_for_the_rest_changes_nothing(made: Made, tmp_path: Path) -> None:
    damaged = made.ended.flip("main", len(made.ended.main) // 2, 4)
    size = len(damaged.main) + 2 * stores.PAGE_BYTES + 8 * stores.PAGE_BYTES
    with small_disk(tmp_path / "disk", size) as disk:
        damaged.put(disk)
        errors = refused(command.MISSING, disk)
        assert "could not be replaced" in errors
        assert stores.Stored.of(disk) == damaged
        assert not list(disk.glob(f"{FILE}.damaged*"))


# -- disks that cannot be written, or slowly --------------------------------------------------------------------------


def test_store_on_a_read_only_disk_is_refused(made: Made, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", 2**22) as disk:
        made.ended.put(disk)
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True, capture_output=True)
        errors = refused(command.MISSING, disk)
        assert str(disk) in errors
        assert ": Read-only file system; choose another" in errors
        assert stores.Stored.of(disk) == made.ended


class SlowStore(MemoryStore):
    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.committed_s = 0.0  # when the first commit was complete

    def commit(self, rows: list[tuple[int, Row | None]]) -> None:
        time.sleep(self.seconds)
        super().commit(rows)
        self.committed_s = self.committed_s or time.monotonic()


def test_slow_disk_is_reported_and_nothing_is_acknowledged_before_it_is_stored(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SLOW_COMMIT_NS", 100_000_000)
    store = SlowStore(0.2)

    async def serve_slowly() -> float:
        running = server.Server(Broker(BrokerConfig(), is_durable=True), store)
        listener = await asyncio.get_running_loop().create_server(running.protocol, "127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*listener.sockets[0].getsockname())
        writer.write(connect("slow", clean=False))
        await reader.readexactly(4)
        answered_s = time.monotonic()
        writer.close()
        listener.close()
        running.close()
        await running.closed()
        return answered_s

    answered_s = asyncio.run(serve_slowly())
    assert [row[0] for row in store.rows.values()] == ["slow"]
    assert answered_s >= store.committed_s
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("brokerbed broker: the store is slow (it took 0.")

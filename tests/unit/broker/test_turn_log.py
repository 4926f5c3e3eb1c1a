"""The log of a testbed's broker: before any output, in one piece with the store, complete after a kill at any byte."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import mqtt5
import pytest

from brokerbed.broker.config import BrokerConfig
from brokerbed.broker.core import persist
from brokerbed.broker.core.broker import Broker
from brokerbed.broker.core.store import MemoryStore, Store, StoreFullError
from brokerbed.broker.runtime.log_file import TurnLog, complete
from brokerbed.broker.runtime.server import Server
from brokerbed.broker.runtime.store import SqliteStore
from brokerbed.log.reader import read
from brokerbed.log.record import RECORD, Kind, Log
from tests.unit.broker.test_log_file import FullDisk

QOS1 = mqtt5.QoS(1)
JOIN = mqtt5.ConnectPacket("me", clean_start=False, session_expiry_interval=3600).write()
SUBSCRIBE = mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("t", max_qos=QOS1)]).write()
PUBLISH = mqtt5.PublishPacket("t", b"me 7", qos=QOS1, packet_id=2).write()
PING = mqtt5.PingReqPacket().write()
JOINED, PUBLISHED = ["connected", "subscribed"], ["identified", "received", "sent"]


class KilledError(BaseException):
    """Nothing of the process is left but its files."""


class Turns:
    """An event loop that does what is due soon when the test says so, and nothing later."""

    def __init__(self) -> None:
        self._soon: list[Callable[[], None]] = []

    def call_soon(self, action: Callable[[], None]) -> None:
        self._soon.append(action)

    def call_later(self, *_: object) -> asyncio.Handle:
        return asyncio.Handle(print, (), self)  # type: ignore[arg-type]

    def get_debug(self) -> bool:
        return False

    def turn(self) -> None:
        soon, self._soon = self._soon, []
        for action in soon:
            action()


class Wire(asyncio.Transport):
    def __init__(self, told: Callable[[bytes], None]) -> None:
        super().__init__()
        self.write = told  # type: ignore[method-assign,assignment]

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def close(self) -> None:
        pass

    def abort(self) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class Life:
    """One life of a broker with a client."""

    def __init__(self, folder: Path, store: Store | None, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.turns = Turns()
        self.output: list[bytes] = []
        self.logged: list[list[str]] = []  # when something was put out, the events that were in the log
        log = Log()
        self.log = TurnLog(log, folder)
        broker = Broker(BrokerConfig(name="b", is_testbed=True), log, is_durable=store is not None)
        with monkeypatch.context() as patched:
            patched.setattr(asyncio, "get_running_loop", lambda: self.turns)
            self.server = Server(broker, store, self.log)
        self.wire = self.server.protocol()
        self.wire.connection_made(Wire(self._told))

    def _told(self, data: bytes) -> None:
        self.output.append(data)
        self.logged.append(events(self.folder))

    def get(self, *packets: bytes) -> None:
        """What the broker does in one turn."""
        for packet in packets:
            self.wire.data_received(packet)
        self.turns.turn()


Live = Callable[[Store | None], Life]


@pytest.fixture
def live(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Live]:
    """Begins a life; its files are closed in the end."""
    with ExitStack() as ending:

        def begin(store: Store | None) -> Life:
            life = Life(tmp_path, store, monkeypatch)
            ending.callback(life.log.close)
            return life

        yield begin


def events(folder: Path) -> list[str]:
    return [row["event"] for row in read(folder, "b").to_pylist()]


@contextmanager
def sqlite_store(folder: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(folder, is_forced=False)
    with closing(store):
        store.open()
        yield store


@pytest.mark.parametrize("store", [None, MemoryStore()])
def test_output_never_precedes_the_log(store: MemoryStore | None, live: Live) -> None:
    life = live(store)
    life.get(JOIN)
    life.get(SUBSCRIBE)
    life.get(PUBLISH)
    life.get(PING)
    assert [it[0] >> 4 for it in life.output] == [2, 9, 4, 13]  # PUBACK, and the message to the same client with it
    assert life.logged == [JOINED[:1], JOINED, JOINED + PUBLISHED, JOINED + PUBLISHED]


def test_what_is_not_answered_is_in_the_log_too(live: Live, tmp_path: Path) -> None:
    life = live(MemoryStore())
    life.get(JOIN)
    life.get(mqtt5.PublishPacket("nobody", b"").write())
    assert events(tmp_path) == ["connected", "received"]


class DyingFile:
    """A file to which only so many bytes get before the process is killed."""

    def __init__(self, file: Any, room: int) -> None:
        self._file = file
        self._room = room

    def write(self, data: memoryview) -> int:
        self._file.write(data[: self._room])
        raise KilledError

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


@pytest.mark.parametrize("is_turn_larger", [False, True])
@pytest.mark.parametrize("room", [0, 1, RECORD.size - 1, RECORD.size, RECORD.size * 5 // 2, RECORD.size * 3])
def test_next_start_completes_the_log_of_a_broker_killed_while_appending(
    room: int, is_turn_larger: bool, live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, turn = ([], [JOIN, SUBSCRIBE, PUBLISH]) if is_turn_larger else ([JOIN, SUBSCRIBE], [PUBLISH])
    with sqlite_store(tmp_path) as store:
        life = live(store)
        for packet in before:
            life.get(packet)
        told = len(life.output)
        monkeypatch.setattr(life.log, "_records", DyingFile(life.log._records, room))
        with pytest.raises(KilledError):
            life.get(*turn)
        assert len(life.output) == told  # nobody was told
    with sqlite_store(tmp_path) as store:
        row = store.row(persist.LOG)
        assert row is not None
        complete(tmp_path, row)
        assert events(tmp_path) == JOINED + PUBLISHED
        complete(tmp_path, row)
        assert events(tmp_path) == JOINED + PUBLISHED
        assert [key >> persist.SHIFT for key, _ in store.load()].count(persist.DELIVERY >> persist.SHIFT) == 1


def test_broker_killed_before_it_has_stored_a_turn_has_not_logged_it(live: Live, tmp_path: Path) -> None:
    with sqlite_store(tmp_path) as store:
        life = live(store)
        life.get(JOIN)
        life.get(SUBSCRIBE)
        life.wire.data_received(PUBLISH)
    with sqlite_store(tmp_path) as store:
        row = store.row(persist.LOG)
        assert row is not None
        complete(tmp_path, row)
        assert events(tmp_path) == JOINED


class MoodyStore(MemoryStore):
    is_full = False

    def commit(self, rows: list[tuple[int, Any]]) -> None:
        if self.is_full:
            raise StoreFullError("no room")
        super().commit(rows)


def test_turn_that_the_store_takes_late_is_logged_once(live: Live, tmp_path: Path) -> None:
    store = MoodyStore()
    life = live(store)
    life.get(JOIN)
    life.get(SUBSCRIBE)
    told, store.is_full = len(life.output), True
    life.get(PUBLISH)
    for _ in range(2):
        life.server._retry()  # tried again
    life.server.close()
    assert (events(tmp_path), len(life.output)) == (JOINED, told)
    store.is_full = False
    life.server._retry()
    assert events(tmp_path) == JOINED + PUBLISHED
    _, size, records = store.rows[persist.LOG]
    assert size + len(records) == (tmp_path / "log.1.records").stat().st_size
    assert len(records) == len(PUBLISHED) * RECORD.size


def test_log_on_a_full_disk_has_gaps_and_is_not_mixed_up(
    live: Live, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = MemoryStore()
    life = live(store)
    life.get(JOIN)
    full = FullDisk(life.log._records, room=RECORD.size // 2)
    monkeypatch.setattr(life.log, "_records", full)
    life.get(SUBSCRIBE)
    life.get(PUBLISH)
    full.room = 10_000
    life.get(mqtt5.PublishPacket("nobody", b"").write())
    assert len(life.output) == 3  # it has gone on
    assert events(tmp_path) == ["connected", "received"]
    assert life.log.lost_bytes == (1 + len(PUBLISHED)) * RECORD.size
    complete(
        tmp_path, store.rows[persist.LOG]
    )  # as if it were killed now: what follows a gap is no part of what is missing
    assert events(tmp_path) == ["connected", "received"]
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_records_without_their_names_are_lost(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = Log()
    file = TurnLog(log, tmp_path)
    names = file._names
    file._names = FullDisk(names, room=0)  # type: ignore[assignment]
    log.add(1, Kind.CONNECTED, log.number("early"))
    assert file.row() is None
    file._names = names
    log.add(2, Kind.CONNECTED, log.number("late"))
    file.write()
    file.close()
    assert [row["client"] for row in read(tmp_path, "b").to_pylist()] == ["late"]
    assert "has gaps" in capsys.readouterr().err


def test_log_that_lacks_more_than_a_turn_is_left_alone(tmp_path: Path) -> None:
    log = Log()
    file = TurnLog(log, tmp_path)
    log.add(1, Kind.STARTED, -1)
    file.write()
    log.add(2, Kind.STARTED, -1)
    row = file.row()
    assert row is not None
    file.write()
    file.close()
    records = tmp_path / "log.1.records"
    cut = records.read_bytes()[: -RECORD.size * 2]
    records.write_bytes(cut)
    complete(tmp_path, row)
    assert records.read_bytes() == cut
    records.unlink()
    complete(tmp_path, row)
    assert not records.exists()

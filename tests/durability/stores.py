"""Real stores, made by broker processes, for tests that damage them. What is in them is read by SQLite alone."""

import marshal
import random
import sqlite3
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

import mqtt5

from brokerbed.broker.core.rows import Row
from brokerbed.broker.runtime import commit_count
from brokerbed.broker.runtime.store import FILE
from tests.broker.running import WAIT_S, Running, broker, launch
from tests.mqtt.client5 import Client5
from tests.mqtt.dial import Dial

LOG = f"{FILE}-wal"
PAGE_BYTES = 4096
LOG_HEADER_BYTES, FRAME_HEADER_BYTES = 32, 24
FRAME_BYTES = FRAME_HEADER_BYTES + PAGE_BYTES
QOS = {"one": 1, "two": 2}  # of the subscribers, by their client ids
NEVER_S = 0xFFFF_FFFF
WINDOW = 3  # messages that a subscriber has open
MESSAGES = 15  # that a broker gets in one life
LARGE_BYTES = 6000  # such a payload is a row of its own, on several pages

Content = dict[int, Row]


@dataclass(frozen=True)
class Stored:
    """The files of a store."""

    main: bytes
    log: bytes = b""  # SQLite's own; empty: there is none
    count: bytes = b""  # how many commits there were; empty: nobody knows

    @classmethod
    def of(cls, folder: Path) -> Self:
        log, count = folder / LOG, folder / commit_count.FILE
        return cls(
            (folder / FILE).read_bytes(), *(file.read_bytes() if file.exists() else b"" for file in (log, count))
        )

    def put(self, folder: Path) -> Path:
        """Alone into the folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for old in folder.glob(f"{FILE}*"):
            old.unlink()
        (folder / FILE).write_bytes(self.main)
        if self.count:
            (folder / commit_count.FILE).write_bytes(self.count)
        if self.log:
            (folder / LOG).write_bytes(self.log)
        return folder

    def frames(self) -> range:
        """Where in the log a frame begins."""
        return range(LOG_HEADER_BYTES, len(self.log) - FRAME_BYTES + 1, FRAME_BYTES)

    def ends(self) -> list[int]:
        """Where in the log a commit ends."""
        heads = {frame: self.log[frame : frame + FRAME_HEADER_BYTES] for frame in self.frames()}
        salt = self.log[16:24]  # that of older frames is another
        return [frame + FRAME_BYTES for frame, head in heads.items() if head[8:16] == salt and any(head[4:8])]

    def uncounted(self) -> Self:
        return replace(self, count=b"")

    def cut(self, part: str, size: int) -> Self:
        """One of the files is that short."""
        return replace(self, **{part: getattr(self, part)[:size]})

    def flip(self, part: str, at: int, bits: int) -> Self:
        """One byte of one of the files is another."""
        data = bytearray(getattr(self, part))
        data[at] ^= bits
        return replace(self, **{part: bytes(data)})


def content(stored: Stored, folder: Path) -> Content:
    """The rows as SQLite and marshal give them."""
    with closing(sqlite3.connect(stored.put(folder) / FILE)) as rows:
        rows.execute("PRAGMA synchronous = OFF")
        read = ((key, marshal.loads(value)) for key, value in rows.execute("SELECT key, value FROM rows"))
        return {key: row for key, row in read if row is not None}  # the last commit may have left an empty one


def history(stored: Stored, folder: Path) -> dict[int, Content]:
    """What there was when the log had this size: at its start and after every commit."""
    return {size: content(stored.cut("log", size), folder) for size in (0, *stored.ends())}


@dataclass(frozen=True)
class Made:
    """The stores of one broker: what it had when it was killed, then when it was ended, or killed again."""

    killed: Stored  # both files count
    ended: Stored
    again: Stored  # killed with nothing to do
    history: dict[int, Content]  # by the size of the log of `killed`
    owed: list[bytes]  # the payloads, to each subscriber

    def stored(self, variant: str) -> Stored:
        return {"killed": self.killed, "ended": self.ended, "again": self.again}[variant]

    @property
    def content(self) -> Content:
        return self.history[max(self.history)]


def make(folder: Path) -> Made:
    """Two lives of a broker with clients, and one more in which nothing happens, ended in both ways."""
    draw = random.Random(1)
    with broker("--data", folder) as running:
        owed = _live(running, draw, 0)
    with broker("--data", folder) as running:
        owed += _live(running, draw, 1)
        kill(running)
    killed = Stored.of(folder)
    with broker("--data", folder) as running:
        kill(running)
    again = Stored.of(folder)
    killed.put(folder)
    with broker("--data", folder):
        pass
    return Made(killed, Stored.of(folder), again, history(killed, folder / "history"), owed)


def kill(running: Running) -> None:
    running.process.kill()
    running.process.wait(WAIT_S)


def refused(code: int, folder: Path) -> str:
    """The sentence with which a broker does not start."""
    process = launch("--data", folder)
    try:
        _, errors = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
    assert process.returncode == code, errors
    assert len(errors.splitlines()) == 1, errors
    return errors


def join(dial: Dial, name: str, receive_max: int = 100) -> Client5:
    """A client with a session that never expires, so that a restart alone changes nothing of it."""
    return dial.v5(name, clean_start=False, session_expiry_interval=NEVER_S, receive_max=receive_max, keep_alive=0)


def _live(running: Running, draw: random.Random, life: int) -> list[bytes]:
    """Leaves rows of every kind that a single broker has; returns what is owed to the subscribers from this life."""
    dial = Dial(running.ports["mqtt"])
    for name, qos in QOS.items():
        join(dial, name, WINDOW).subscribe("all/#", f"life/{life}", qos=qos)
    publisher = join(dial, "publisher")
    sizes = [draw.choice((0, 30, LARGE_BYTES)) for _ in range(MESSAGES)]
    payloads = [b"%d-%d " % (life, number) + draw.randbytes(size) for number, size in enumerate(sizes)]
    for number, payload in enumerate(payloads):
        publisher.publish(f"all/{number % 3}", payload, qos=1 + number % 2)
        publisher.publish(f"kept/{number % 4}", payload[:100], retain=True)
    _leave_released(dial, publisher, life)
    publisher.send(mqtt5.PublishPacket("nobody", b"", qos=mqtt5.QoS(2), packet_id=100 + life).write())
    publisher.reply(mqtt5.PubRecPacket)  # and no PUBREL
    dial.close()
    return payloads


def _leave_released(dial: Dial, publisher: Client5, life: int) -> None:
    """A session whose message at QoS 2 is released, and not completed."""
    slow = join(dial, f"slow{life}")
    slow.subscribe("slow")
    publisher.publish("slow", b"slow", qos=2)
    packet_id = slow.expect(mqtt5.PublishPacket).packet_id
    assert packet_id is not None
    slow.send(mqtt5.PubRecPacket(packet_id).write())
    slow.expect(mqtt5.PubRelPacket)

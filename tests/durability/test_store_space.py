"""The space that a store takes: what a broker does when there is no more, and that it gives back what it can."""

import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from brokerbed.broker.runtime.command import MISSING
from brokerbed.broker.runtime.store import FILE, SPARE_PAGES_MAX
from tests.broker.running import WAIT_S, Running, broker, metric, until
from tests.durability.stores import LOG, PAGE_BYTES, Stored, kill, refused
from tests.mqtt.client311 import PUBACK, Client311, connect, publish
from tests.mqtt.dial import Dial
from tests.small_disk import small_disk

DISK_BYTES = 8 * 2**20
FREE_BYTES = 2**20  # beside the ballast, when the load begins
PAYLOAD_BYTES = 1000
SILENCE_S = 1.3  # in which a broker tries twice to write again
BLOCKED, PROBLEMS = "brokerbed_store_blocked", "brokerbed_store_problems_total"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A small file system of its own."""
    with small_disk(tmp_path / "disk", DISK_BYTES) as place:
        yield place


def fill(disk: Path, free_bytes: int) -> Path:
    """A file that leaves just so much space."""
    ballast, space = disk / "ballast", os.statvfs(disk)
    with ballast.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_bsize - free_bytes)
    return ballast


def payload(number: int) -> bytes:
    return b"%d " % number + bytes(PAYLOAD_BYTES)


def writer_to_somebody_away(dial: Dial) -> Client311:
    """A client that publishes, and a session that keeps what it publishes until `read_all`."""
    reader = dial.v311("reader", clean=False)
    reader.subscribe("t", qos=1)
    reader.disconnect()
    return dial.v311("writer", clean=False, keep_alive=0)


def read_all(dial: Dial, count: int) -> list[bytes]:
    reader = dial.v311("reader", clean=False)
    payloads = [reader.take().payload for _ in range(count)]
    reader.quiet()
    reader.disconnect()
    return payloads


def is_answered(client: Client311, seconds: float) -> bool:
    return bool(select.select([client.socket], [], [], seconds)[0])


def publish_until_blocked(running: Running, writer: Client311) -> int:
    """One message after the other; the number of that which is not acknowledged."""
    for number in range(1, DISK_BYTES // PAYLOAD_BYTES):
        writer.send(publish("t", payload(number), 1, number))
        while not is_answered(writer, 0.2):
            if metric(running, BLOCKED):
                return number
        writer.acknowledged(PUBACK, number)
    raise AssertionError("the file system must be full, and everything was acknowledged")


def about_store(errors: str) -> list[str]:
    """The lines that are not about the message log, which has troubles of its own."""
    return [line for line in errors.splitlines() if "message log has gaps" not in line]


@pytest.mark.parametrize("durability", ["process", "disk"])
def test_full_disk_stops_a_broker_that_loses_nothing(disk: Path, durability: str) -> None:
    with broker("--data", disk / "data", "--durability", durability, "--metrics-port", "0") as running:
        dial = Dial(running.ports["mqtt"])
        writer = writer_to_somebody_away(dial)
        ballast = fill(disk, FREE_BYTES)
        stuck = publish_until_blocked(running, writer)
        newcomer = dial.open311()
        newcomer.send(connect("newcomer"))
        assert not is_answered(writer, SILENCE_S)
        assert not is_answered(newcomer, 0)
        assert (metric(running, BLOCKED), metric(running, PROBLEMS)) == (1, 1)
        writer.drop()
        ballast.unlink()
        writer = dial.v311("writer", clean=False, keep_alive=0)
        assert writer.connack.session_present
        writer.send(publish("t", payload(stuck), 1, stuck, dup=True))
        writer.acknowledged(PUBACK, stuck)
        assert is_answered(newcomer, WAIT_S)
        assert (metric(running, BLOCKED), metric(running, PROBLEMS)) == (0, 1)
        payloads = read_all(dial, stuck + 1)
        dial.close()
    assert payloads == [payload(number) for number in (*range(1, stuck + 1), stuck)]  # taken twice, as QoS 1 allows
    first, second = about_store(running.errors)
    assert "the store cannot be written" in first
    assert "the store can be written again" in second


@pytest.mark.parametrize("is_killed", [False, True])
def test_broker_that_ends_with_the_disk_full_keeps_what_it_acknowledged(disk: Path, is_killed: bool) -> None:
    with broker("--data", disk / "data", "--metrics-port", "0") as running:
        dial = Dial(running.ports["mqtt"])
        writer = writer_to_somebody_away(dial)
        ballast = fill(disk, FREE_BYTES)
        stuck = publish_until_blocked(running, writer)
        if is_killed:
            kill(running)
    dial.close()
    assert running.process.returncode == (-signal.SIGKILL if is_killed else 0)
    assert len(about_store(running.errors)) == 1
    stored = Stored.of(disk / "data")
    assert "No space left" in refused(MISSING, disk / "data")
    assert Stored.of(disk / "data") == stored
    ballast.unlink()
    with broker("--data", disk / "data") as running:
        dial = Dial(running.ports["mqtt"])
        payloads = read_all(dial, stuck - 1)
        dial.close()
    assert payloads == [payload(number) for number in range(1, stuck)]
    assert running.errors == ""


# -- space that is not needed any more --------------------------------------------------------------------------------

MESSAGES = 20_000
MESSAGE_BYTES = 500
AT_ONCE = 1000  # not more than a broker sends before the first is acknowledged


def queue(dial: Dial) -> None:
    """Very many messages for the session that is away."""
    writer = writer_to_somebody_away(dial)
    for first in range(0, MESSAGES, AT_ONCE):
        numbers = range(first, first + AT_ONCE)
        writer.send(*(publish("t", b"%d" % n + bytes(MESSAGE_BYTES), 1, n - first + 1) for n in numbers))
        for n in numbers:
            writer.acknowledged(PUBACK, n - first + 1)


def size_of_files(folder: Path) -> int:
    return sum(file.stat().st_size for file in (folder / FILE, folder / LOG))


def test_store_gets_smaller_when_a_queue_has_been_delivered(tmp_path: Path) -> None:
    with broker("--data", tmp_path) as running:
        dial = Dial(running.ports["mqtt"])
        queue(dial)
        full = size_of_files(tmp_path)
        assert full > MESSAGES * MESSAGE_BYTES
        assert len(read_all(dial, MESSAGES)) == MESSAGES
        spare = SPARE_PAGES_MAX * PAGE_BYTES
        until(lambda: size_of_files(tmp_path) < spare + 100_000, "giving space back")
        assert spare + 100_000 < full // 2
        dial.close()

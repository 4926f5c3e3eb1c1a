"""Clients that mean harm, or are merely broken, cost nobody else anything.

BROKERBED_FUZZ_BYTES says how many hostile bytes (default one million; the issue's figure is ten).
"""

import contextlib
import os
import socket
import threading
from types import TracebackType
from typing import Self

import pytest

from tests.mqtt.client311 import PUBACK, Publish, ack, connect, publish, subscribe
from tests.mqtt.dial import Dial, unique
from tests.mqtt.fuzz import streams
from tests.mqtt.raw import WAIT_S, RawConnection, packet, string
from tests.mqtt.servers import Server

FUZZ_BYTES = int(os.environ.get("BROKERBED_FUZZ_BYTES", "1000000"))
SEED = 20240229
MEGABYTE = 1 << 20
GROWTH_BYTES_MAX = 128 * MEGABYTE  # of resident memory: twice the queue of one slow client, which is 64 MB


class CleanClient:
    """A well-behaved client that keeps asking and being answered in a thread of its own."""

    def __init__(self, port: int) -> None:
        self.rounds = 0
        self.error: BaseException | None = None
        self._dial = Dial(port)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            topic = unique("clean")
            old, new = self._dial.v311(), self._dial.v5()
            old.subscribe(topic + "/request")
            new.subscribe(topic + "/answer")
            while not self._stop.is_set():
                new._last_id = old._last_id = self.rounds % 60_000
                payload = b"%d" % self.rounds
                new.publish(topic + "/request", payload, 1, response_topic=topic + "/answer")
                assert old.take().payload == payload
                old.publish(topic + "/answer", payload, 2)
                assert new.take().payload == payload
                self.rounds += 1
        except BaseException as error:  # noqa: BLE001 (told to the test, whatever it is)
            self.error = error

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(2 * WAIT_S)
        self._dial.close()


def attack(port: int, data: bytes) -> None:
    """Sends all of it, however the server takes it, and waits until the server has closed the connection."""
    connection = RawConnection(port)
    with contextlib.closing(connection):
        try:
            connection.send(data)
            connection.socket.shutdown(socket.SHUT_WR)
        except TimeoutError:
            raise AssertionError("the server neither reads nor closes") from None
        except OSError:
            return  # it has closed before all was sent
        connection.closed()


def test_fuzzed_bytes_do_not_disturb_a_clean_client(own_broker: Server) -> None:
    before = own_broker.resident_bytes()
    with CleanClient(own_broker.port) as clean:
        for data in streams(SEED, FUZZ_BYTES):
            attack(own_broker.port, data)
            assert own_broker.alive(), f"{data!r} brought the broker down:\n{own_broker.story()}"
            assert clean.error is None, f"while {data!r} was sent: {clean.error!r}"
    assert clean.error is None
    assert clean.rounds > 10
    assert own_broker.resident_bytes() - before < GROWTH_BYTES_MAX
    dial = Dial(own_broker.port)
    dial.v311().quiet()
    dial.v5().quiet()
    dial.close()


def test_ill_formed_text_leaves_no_stack_trace(own_broker: Server) -> None:
    """What any stranger can send is no accident of the broker: its log is not filled with stack traces."""
    for data in (connect(b"\xff"), packet(0x10, string("MQTT"), b"\x05\x02\x00\x3c\x00", string(b"\xff"))):
        attack(own_broker.port, data)
    dial = Dial(own_broker.port)
    for client in (dial.v311(), dial.v5()):
        client.send(packet(0x30, string(b"\xff"), b"\x00", b"x"))
        client.closed()
    dial.close()
    assert "Traceback" not in own_broker.story()
    assert "panicked" not in own_broker.story()


@pytest.mark.parametrize("qos", [0, 1])
def test_slow_consumer_stalls_nobody(own_broker: Server, topic: str, qos: int) -> None:
    """A subscriber stops reading while 192 MB are published for it: far more than any socket buffer holds."""
    dial = Dial(own_broker.port)
    slow = dial.open311(receive_buffer_bytes=4096)
    slow.send(connect(unique(), keep_alive=0), subscribe(1, (topic, qos)))
    slow.packet(), slow.packet()
    healthy, publisher = dial.v5(), dial.v5()
    healthy.subscribe(topic, qos=qos)
    before = own_broker.resident_bytes()
    payload = b"x" * (64 * 1024)
    with CleanClient(own_broker.port) as clean:
        for number in range(3 * 1024):
            publisher.publish(topic, b"%d " % number + payload, qos)
            assert healthy.take().payload.startswith(b"%d " % number)
    assert clean.error is None
    assert clean.rounds > 10
    assert own_broker.resident_bytes() - before < GROWTH_BYTES_MAX
    again = [slow.expect(Publish) for _ in range(10)]  # when it reads again, it finds whole packets in order
    assert [int(message.payload.split()[0]) for message in again] == list(range(10))
    assert {len(message.payload) for message in again} == {len(payload) + 2}
    dial.close()


def test_slow_publisher_stalls_nobody(dial: Dial, topic: str) -> None:
    """Half a packet, and nothing more, holds up nobody."""
    slow, client = dial.v311(), dial.v311()
    client.subscribe(topic)
    whole = publish(topic, b"x" * 1000, 1, 1)
    slow.send(whole[:500])
    client.publish(topic, b"quick")
    assert client.take().payload == b"quick"
    slow.send(whole[500:])
    slow.acknowledged(PUBACK, 1)
    assert len(client.take().payload) == 1000


def test_client_that_never_acknowledges_stalls_nobody(dial: Dial, topic: str) -> None:
    """Its window stays full; what waits for it waits, others go on, and it gets the rest when it acknowledges."""
    lazy, other, publisher = dial.v311(), dial.v5(), dial.v5()
    lazy.subscribe(topic)
    other.subscribe(topic)
    for number in range(200):
        publisher.publish(topic, b"%d" % number, 1)
        assert int(other.take().payload) == number
    seen: list[int] = []
    while len(seen) < 200:
        message = lazy.expect(Publish)
        lazy.send(ack(PUBACK, message.packet_id))
        seen.append(int(message.payload))
    assert seen == list(range(200))


def test_many_connections_that_say_nothing_stall_nobody(dial: Dial, topic: str) -> None:
    for _ in range(100):
        dial.raw()
    client = dial.v5()
    client.subscribe(topic)
    client.publish(topic, b"x")
    assert client.take().payload == b"x"


def test_storm_of_take_overs_leaves_one_client(dial: Dial, topic: str) -> None:
    client_id = unique()
    clients = [dial.v5(client_id, session_expiry_interval=60, clean_start=False) for _ in range(30)]
    clients[-1].subscribe(topic)
    for client in clients[:-1]:
        client.refused(0x8E)
    clients[-1].publish(topic, b"x")
    assert clients[-1].take().payload == b"x"
    clients[-1].quiet()

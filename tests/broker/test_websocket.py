"""WebSockets whose clients do not read: they are bounded, and can be ended. And what else comes to that port."""

import signal
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager

import mqtt5
import pytest

from tests.broker.running import WAIT_S, Running, broker, connect_packet, metric, until
from tests.broker.websockets import BINARY, CLOSE, RawWebSocket
from tests.mqtt.dial import Dial

SUBSCRIBE = mqtt5.SubscribePacket(1, [mqtt5.TopicFilter("t", max_qos=mqtt5.QoS(0))]).write()
RECEIVE_BUFFER_BYTES = 4096
LARGE_BYTES = 7 * 2**20  # more than the system's socket buffers take, less than the broker buffers for one client
OPTIONS = ("--ws-port", "0", "--metrics-port", "0")


@contextmanager
def stuck(running: Running, **options: object) -> Iterator[RawWebSocket]:
    """A client over a WebSocket that does not read what is sent to it; more is on its way than fits."""
    with (
        closing(RawWebSocket(running.ports["websocket"], RECEIVE_BUFFER_BYTES)) as web,
        closing(Dial(running.ports["mqtt"])) as dial,
    ):
        web.connect(connect_packet("stuck", **options))
        web.send(SUBSCRIBE)
        assert web.frame()[1][:1] == b"\x90"
        publisher = dial.v5()
        for _ in range(4):
            publisher.send(mqtt5.PublishPacket("t", bytes(LARGE_BYTES)).write())
            publisher.quiet()
        publisher.disconnect()
        yield web


def test_buffer_of_a_websocket_counts_what_is_being_sent() -> None:
    """Two messages of 7 MB are more than the 8 MB that are buffered for one client: the others are dropped for it."""
    with broker(*OPTIONS) as running, stuck(running):
        assert metric(running, "brokerbed_messages_delivered_total") == 2
        assert metric(running, "brokerbed_messages_dropped_total", reason="slow") == 2


def test_stuck_websocket_is_ended_when_its_keep_alive_is_over() -> None:
    with broker(*OPTIONS) as running, stuck(running, keep_alive=1):
        until(lambda: metric(running, "brokerbed_connections") == 0, "the end of the connection")


def test_stuck_websocket_is_ended_when_its_session_is_taken_over() -> None:
    with broker(*OPTIONS) as running, stuck(running), closing(Dial(running.ports["mqtt"])) as dial:
        other = dial.v5("stuck")
        until(lambda: metric(running, "brokerbed_connections") == 1, "the end of the first connection")
        other.quiet()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_stuck_websocket_does_not_keep_a_broker_from_ending(number: signal.Signals) -> None:
    with broker(*OPTIONS) as running, stuck(running):
        running.process.send_signal(number)
        assert running.process.wait(WAIT_S) == 0
    assert running.errors == ""


def test_websocket_that_reads_again_gets_everything_in_order() -> None:
    with broker(*OPTIONS) as running, stuck(running) as web, closing(Dial(running.ports["mqtt"])) as dial:
        data = b""
        while len(data) < 2 * LARGE_BYTES:
            data += web.frame()[1]
        until(lambda: metric(running, "brokerbed_messages_under_way") == 0, "the end of what is under way")
        dial.v5().publish("t", b"small", 0)
        packet, _ = mqtt5.read(memoryview(web.frame()[1]))
        assert isinstance(packet, mqtt5.PublishPacket)
        assert packet.payload == b"small"


def test_end_says_goodbye_over_websockets() -> None:
    with broker(*OPTIONS) as running, closing(RawWebSocket(running.ports["websocket"])) as web:
        web.connect(connect_packet())
        running.process.terminate()
        assert web.frame() == (BINARY, b"\xe0\x01\x8b")
        assert web.frame()[0] == CLOSE
        assert running.process.wait(WAIT_S) == 0
    assert running.errors == ""


@pytest.mark.parametrize(
    "request_text",
    [
        "GET /mqtt HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: keep-alive\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc",
        "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
    ],
)
def test_request_that_is_no_upgrade_is_answered_and_closed(request_text: str) -> None:
    with (
        broker(*OPTIONS) as running,
        socket.create_connection(("127.0.0.1", running.ports["websocket"]), WAIT_S) as wire,
    ):
        wire.sendall(request_text.encode())
        answer = b""
        while data := wire.recv(65536):
            answer += data
    assert answer.startswith(b"HTTP/1.1 426 ")
    assert b"WebSockets" in answer
    assert running.errors == ""

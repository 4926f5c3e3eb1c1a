"""Connections that never become clients: they count, and have their time, from the moment TCP connects, on every port."""

import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from tests.broker.running import WAIT_S, Running, broker, connect_packet, metric, until
from tests.broker.test_command import NEEDS_OPENSSL, certificate, code, talk
from tests.broker.websockets import RawWebSocket

CONNECTIONS_MAX, TIMEOUT_S = 5, 1.5
LIMITS = f"[limits]\nconnections_max = {CONNECTIONS_MAX}\nconnect_timeout_s = {TIMEOUT_S}\n"
DRIP_S = 0.1
FIRST_BYTES = {
    "mqtt": connect_packet("slow" * 50),
    "tls": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),  # a TLS record with a ClientHello
    "websocket": b"GET /mqtt HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 500,
}
KINDS = ["mqtt", pytest.param("tls", marks=NEEDS_OPENSSL), "websocket"]


@contextmanager
def limited(folder: Path, kind: str) -> Iterator[tuple[Running, int]]:
    """A broker with low limits, and the port of that kind."""
    config, text = folder / "broker.toml", LIMITS
    if kind == "tls":
        certificate(folder)
        text = 'tls_cert = "cert.pem"\ntls_key = "key.pem"\n' + text
    config.write_text(text)
    with broker("--config", config, "--ws-port", "0", "--metrics-port", "0") as running:
        yield running, running.ports["websocket" if kind == "websocket" else "mqtt"]
    assert running.errors == ""


def is_open(wire: socket.socket) -> bool:
    """Nothing has come, not even the end."""
    wire.setblocking(False)
    try:
        return bool(wire.recv(1))
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def drip(wires: list[socket.socket], data: bytes, seconds: float) -> None:
    """Sends it byte by byte, for so long."""
    end = time.monotonic() + seconds
    for number in range(len(data)):
        if time.monotonic() > end:
            return
        for wire in wires:
            with suppress(OSError):
                wire.send(data[number : number + 1])
        time.sleep(DRIP_S)


def greet(folder: Path, port: int, kind: str) -> None:
    """A client of that kind connects."""
    if kind == "websocket":
        web = RawWebSocket(port)
        web.connect(connect_packet())
        web.close()
        return
    context = ssl.create_default_context(cafile=str(folder / "cert.pem")) if kind == "tls" else None
    assert code(talk(port, connect_packet(), context=context)) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_silent_connections_count_from_the_beginning(tmp_path: Path, kind: str) -> None:
    """Those beyond the limit are closed at once, the others when their time is over; then there is room again."""
    with limited(tmp_path, kind) as (running, port), ExitStack() as opened:
        wires = [
            opened.enter_context(socket.create_connection(("127.0.0.1", port), WAIT_S))
            for _ in range(3 * CONNECTIONS_MAX)
        ]
        until(lambda: sum(map(is_open, wires)) <= CONNECTIONS_MAX, "the end of those beyond the limit")
        assert metric(running, "brokerbed_connections_opened_total") == len(wires)
        until(lambda: not any(map(is_open, wires)), "the end of the others")
        until(lambda: metric(running, "brokerbed_connections") == 0, "the broker's knowing of it")
        greet(tmp_path, port, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_connection_that_drips_bytes_gets_no_more_time(tmp_path: Path, kind: str) -> None:
    with limited(tmp_path, kind) as (_, port), ExitStack() as opened:
        wires = [opened.enter_context(socket.create_connection(("127.0.0.1", port), WAIT_S)) for _ in range(2)]
        drip(wires, FIRST_BYTES[kind], 3 * TIMEOUT_S)
        assert not any(map(is_open, wires))
        greet(tmp_path, port, kind)


def test_websocket_without_a_connect_is_closed(tmp_path: Path) -> None:
    with limited(tmp_path, "websocket") as (running, port):
        web = RawWebSocket(port)
        assert web.frame()[0] == 8
        until(lambda: metric(running, "brokerbed_connections") == 0, "the end of the connection")
        web.close()


@NEEDS_OPENSSL
def test_garbage_instead_of_tls_is_closed(tmp_path: Path) -> None:
    with limited(tmp_path, "tls") as (running, port):
        for garbage in (connect_packet(), b"GET / HTTP/1.1\r\n\r\n", bytes(100)):
            with socket.create_connection(("127.0.0.1", port), WAIT_S) as wire:
                wire.sendall(garbage)
                with suppress(ConnectionError):
                    while wire.recv(1000):
                        pass
        until(lambda: metric(running, "brokerbed_connections") == 0, "the end of the connections")
        greet(tmp_path, port, "tls")

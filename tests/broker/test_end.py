"""The end of a broker that is told to end, whenever that is: exit code 0, and nothing said on stderr about it."""

import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.broker.running import COMMAND, POLL_S, WAIT_S, broker, connect_packet
from tests.mqtt.servers import free_port

PARENT = ("--parent", "127.0.0.1:9")  # where nobody listens
STAGES: dict[str, tuple[str, ...]] = {
    "plain": (),
    "websocket": ("--ws-port", "0"),
    "all ports": ("--ws-port", "0", "--metrics-port", "0"),
    "store and parent": ("--data", "data", "--durability", "process", "--ws-port", "0", *PARENT),
    "testbed": ("--config", "testbed.toml", "--data", "data", "--durability", "process", "--metrics-port", "0"),
}


def launch(place: Path, port: int, *options: str) -> "subprocess.Popen[str]":
    (place / "testbed.toml").write_text("testbed = true\n")
    return subprocess.Popen(
        [COMMAND, "broker", "--port", str(port), *options],
        cwd=place, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def until_answers(port: int) -> socket.socket:
    """A connection, as soon as there can be one."""
    end = time.monotonic() + WAIT_S
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port), WAIT_S)
        except ConnectionRefusedError:
            assert time.monotonic() < end, "the broker does not listen"
            time.sleep(POLL_S)


@pytest.mark.parametrize("stage", STAGES)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_broker_ends_cleanly_as_soon_as_its_port_answers(tmp_path: Path, stage: str, number: signal.Signals) -> None:
    """Other ports may not be open yet; the client is sent away, or was never let in."""
    port = free_port()
    process = launch(tmp_path, port, *STAGES[stage])
    with until_answers(port) as client:
        client.sendall(connect_packet())
        process.send_signal(number)
        _, errors = process.communicate(timeout=WAIT_S)
        told = [line for line in errors.splitlines() if "the parent at 127.0.0.1:9 cannot be reached" not in line]
        assert (process.returncode, told) == (0, [])


@pytest.mark.parametrize("count", [2, 5])
def test_further_signals_do_not_disturb_the_end(tmp_path: Path, count: int) -> None:
    """They come while it says goodbye, and while the interpreter ends."""
    with broker("--data", tmp_path, "--durability", "process", "--ws-port", "0") as running:
        for number in (signal.SIGTERM, signal.SIGINT, *[signal.SIGTERM] * (count - 2)):
            running.process.send_signal(number)
            time.sleep(POLL_S)
        assert running.process.wait(WAIT_S) == 0
    assert running.errors == ""

"""The server under test as a child process on a free loopback port. Knows how to start and stop it, nothing of MQTT."""

import os
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.needs import path_of

KIND = os.environ.get("BROKERBED_TEST_BROKER", "brokerbed")
HOST = "127.0.0.1"
START_S = 20.0  # a cold interpreter on a loaded machine
POLL_S = 0.02  # between two attempts to connect while it starts: nothing announces that it listens
STOP_S = 10.0

# A copy for each overlapping subscription, since its single copy would have the wrong QoS; the rest are its defaults.
MOSQUITTO_CONF = """\
listener {port} 127.0.0.1
allow_anonymous true
user root
persistence false
allow_duplicate_messages true
set_tcp_nodelay true
"""


def mosquitto_departs(reason: str) -> pytest.MarkDecorator:
    """Skips a test on Mosquitto 2.0.11 where it departs from the standard itself."""
    return pytest.mark.skipif(KIND == "mosquitto", reason=f"Mosquitto 2.0.11 departs: {reason}")


def skip_on_mosquitto(reason: str) -> None:
    """The same from inside a test, for one case of many."""
    if KIND == "mosquitto":
        pytest.skip(f"Mosquitto 2.0.11 departs: {reason}")


@dataclass
class Server:
    process: subprocess.Popen[bytes]
    port: int
    log: Path

    def alive(self) -> bool:
        return self.process.poll() is None

    def story(self) -> str:
        """What it wrote, for the message of a failing test."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-4000:]

    def resident_bytes(self) -> int:
        """Its resident memory."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        raise AssertionError(f"process {self.process.pid} has no resident memory")

    def stop(self) -> None:
        """Ends the process that was started here, and waits until it is gone."""
        self.process.terminate()
        try:
            self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(STOP_S)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port = probe.getsockname()[1]
    assert isinstance(port, int)
    return port


@dataclass(frozen=True)
class Limits:
    """The same settings in the words of either server."""

    brokerbed: str  # the table `limits` of its configuration file
    mosquitto: str


def command(port: int, directory: Path, limits: Limits | None) -> list[str]:
    file = directory / "settings"
    if KIND == "mosquitto":
        settings = MOSQUITTO_CONF.format(port=port) + (limits.mosquitto if limits else "")
        file.write_text(settings, encoding="utf-8")
        return [path_of("mosquitto"), "-c", str(file)]
    assert KIND == "brokerbed", f"BROKERBED_TEST_BROKER is brokerbed or mosquitto, not {KIND}"
    start = [sys.prefix + "/bin/brokerbed", "broker", "--port", str(port)]
    if limits is None:
        return start
    file.write_text("[limits]\n" + limits.brokerbed, encoding="utf-8")
    return [*start, "--config", str(file)]


def start(directory: Path, limits: Limits | None = None) -> Server:
    """Starts the server under test and waits until it accepts a connection."""
    port, log = free_port(), directory / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command(port, directory, limits), stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT
        )
    server = Server(process, port, log)
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline and server.alive():
        try:
            socket.create_connection((HOST, port), timeout=START_S).close()
        except ConnectionRefusedError:
            time.sleep(POLL_S)
        else:
            return server
    server.stop()
    pytest.fail(f"{KIND} did not listen on port {port} within {START_S:g} s:\n{server.story()}")

"""Broker processes that are killed and started again on the same port and data. Knows nothing of MQTT."""

import random
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

HOST = "127.0.0.1"
COMMAND = (str(Path(sys.prefix) / "bin" / "brokerbed"), "broker")
STOP_S = 10.0
PORT_MIN = 15_000
PORT_TRIES = 1000
STORY_CHARACTERS = 2000  # of what a broker wrote, shown when it ended

# Saves its database after every change, as nearly durable as it can be; and drops nothing that waits.
MOSQUITTO_CONF = """\
listener {port} 127.0.0.1
allow_anonymous true
user root
set_tcp_nodelay true
max_queued_messages 0
persistence true
persistence_location {folder}/
autosave_on_changes true
autosave_interval 1
"""


class BrokerProcess:
    STDIN: int = subprocess.DEVNULL

    def __init__(self, name: str, port: int, command: Sequence[str], log: Path) -> None:
        self.name = name
        self.port = port
        self.incarnation = 0  # counts the kills, so that a client knows which process it was connected to
        self._command = command
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as output:
            self._process = subprocess.Popen(self._command, stdin=self.STDIN, stdout=output, stderr=subprocess.STDOUT)

    def kill(self) -> None:
        """SIGKILL, and nothing else, to the process that was started here."""
        assert self._process is not None
        self.incarnation += 1
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(STOP_S)
        self._close_input()

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def story(self) -> str:
        """How it ended, and the last of what it wrote."""
        code = self._process.poll() if self._process is not None else None
        return f"exit code {code}; {self._log.read_text(errors='replace')[-STORY_CHARACTERS:].strip()}"

    def stores_set_aside(self, folder: Path) -> list[str]:
        """The stores that the broker has found damaged, by name; beside each are the files that SQLite keeps with it."""
        names = (it.name for it in (folder / self.name).glob("*.damaged-*"))
        return sorted(name for name in names if not name.endswith(("-wal", "-shm", "-journal")))

    def stop(self) -> None:
        """Ends the process that was started here, whatever state it is in."""
        if self._process is None:
            return
        self.incarnation += 1
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_S)
        self._close_input()

    def _close_input(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()


def free_ports(count: int) -> list[int]:
    """Ports below those that the kernel gives to clients: nobody takes one while its broker is down.

    From a port of that range a client that dials it again and again would in the end connect to itself.
    """
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    found: list[int] = []
    for port in random.sample(range(PORT_MIN, first), PORT_TRIES):
        if len(found) < count and _is_free(port):
            found.append(port)
    assert len(found) == count, f"no {count} free ports between {PORT_MIN} and {first}"
    return found


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def brokerbed_chain(
    folder: Path, names: str, durability: str | None, routing: str, command: Sequence[str]
) -> list[BrokerProcess]:
    """One broker for each letter, each the parent of the next; without a durability, as without `--data`."""
    chain: list[BrokerProcess] = []
    for name, port in zip(names, free_ports(len(names)), strict=True):
        arguments = [*command, "--name", name, "--port", str(port), "--routing", routing]
        if durability is not None:
            arguments += ["--data", str(folder / name), "--durability", durability]
        if chain:
            arguments += ["--parent", f"{HOST}:{chain[-1].port}"]
        chain.append(BrokerProcess(name, port, arguments, folder / f"{name}.log"))
    return chain


def mosquitto(folder: Path, program: str) -> BrokerProcess:
    (port,) = free_ports(1)
    file = folder / "mosquitto.conf"
    file.write_text(MOSQUITTO_CONF.format(port=port, folder=folder), encoding="utf-8")
    return BrokerProcess("m", port, [program, "-c", str(file)], folder / "mosquitto.log")

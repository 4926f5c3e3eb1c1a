"""`mosquitto_pub` and `mosquitto_sub` as child processes: clients nobody here wrote. Every wait is bounded."""

import queue
import subprocess
import threading
from types import TracebackType
from typing import Self

from tests.mqtt.dial import unique
from tests.mqtt.raw import WAIT_S
from tests.mqtt.servers import HOST
from tests.needs import path_of

VERSIONS = {"3.1.1": "mqttv311", "5": "mqttv5"}
READY = b"ready"


def _command(name: str, port: int, version: str, arguments: tuple[str, ...]) -> list[str]:
    return [path_of(name), "-h", HOST, "-p", str(port), "-V", VERSIONS[version], *arguments]


def publish(port: int, version: str, *arguments: str, data: bytes | None = None) -> None:
    """Runs mosquitto_pub to its end; `data` is its standard input."""
    done = subprocess.run(
        _command("mosquitto_pub", port, version, arguments), input=data, capture_output=True, timeout=WAIT_S
    )
    assert done.returncode == 0, done.stderr
    assert not done.stderr, done.stderr


def subscribe(port: int, version: str, *arguments: str) -> bytes:
    """Runs mosquitto_sub to its end, and returns what it printed."""
    done = subprocess.run(_command("mosquitto_sub", port, version, arguments), capture_output=True, timeout=WAIT_S)
    assert done.returncode == 0, done.stderr
    return done.stdout


class Listener:
    """A running mosquitto_sub.

    It is known to be subscribed when it prints a retained message whose topic stands behind the others in its
    subscription: mosquitto_sub says nothing else at that moment.
    """

    def __init__(self, port: int, version: str, *arguments: str) -> None:
        marker = unique("ready")
        publish(port, version, "-t", marker, "-r", "-q", "1", "-m", READY.decode())
        command = _command("mosquitto_sub", port, version, (*arguments, "-t", marker))
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self._lines: queue.Queue[bytes] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        first = self.line()  # in whatever format it was asked to print
        assert any(token in first for token in (READY, READY.hex().encode(), marker.encode())), first

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip(b"\n"))

    def line(self) -> bytes:
        """The next line it prints."""
        try:
            return self._lines.get(timeout=WAIT_S)
        except queue.Empty:
            raise AssertionError(f"mosquitto_sub printed nothing for {WAIT_S:g} s") from None

    def waiting(self) -> list[bytes]:
        """The lines it has printed by now."""
        lines = []
        while not self._lines.empty():
            lines.append(self._lines.get_nowait())
        return lines

    def kill(self) -> None:
        """As a failing machine would: no DISCONNECT."""
        self.process.kill()
        self.process.wait(WAIT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(WAIT_S)
        self._reader.join(WAIT_S)
        for stream in (self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()

"""A broker process for tests that need its options, its files or its end; and small helpers to talk to it."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import mqtt5

COMMAND = Path(sys.prefix) / "bin" / "brokerbed"
WAIT_S = 20


@dataclass
class Running:
    process: subprocess.Popen[str]
    ports: dict[str, int]  # mqtt, websocket, metrics


@contextmanager
def broker(*options: str | Path) -> Iterator[Running]:
    """Starts `brokerbed broker --port 0`, waits until it says where it listens, and ends it."""
    arguments = [str(COMMAND), "broker", "--port", "0", *map(str, options)]
    process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith("brokerbed broker "), process.stderr.read() if process.stderr else ""
        told = line.rstrip().split(": ", 1)[1]
        ports = {part.split()[0]: int(part.rsplit(":", 1)[1]) for part in told.split(", ")}
        yield Running(process, ports)
    finally:
        process.terminate()
        process.communicate(timeout=WAIT_S)


def connect_packet(client_id: str = "c", **options: object) -> bytes:
    return mqtt5.ConnectPacket(client_id, clean_start=True, **options).write()  # type: ignore[arg-type]

"""A broker process for tests that need its options, its files or its end; and small helpers to talk to it."""

import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import mqtt5
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

COMMAND = Path(sys.prefix) / "bin" / "brokerbed"
WAIT_S = 20
POLL_S = 0.01


@dataclass
class Running:
    process: subprocess.Popen[str]
    ports: dict[str, int]  # mqtt, websocket, metrics
    errors: str = ""  # what it wrote to stderr, once it has been ended


def launch(*options: str | Path) -> subprocess.Popen[str]:
    """Starts `brokerbed broker --port 0` with more options, and does not wait."""
    arguments = [str(COMMAND), "broker", "--port", "0", *map(str, options)]
    return subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def listening(process: subprocess.Popen[str]) -> Running:
    """Waits until the broker says where it listens."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("brokerbed broker "), process.stderr.read() if process.stderr else ""
    told = line.rstrip().split(": ", 1)[1]
    return Running(process, {part.split()[0]: int(part.rsplit(":", 1)[1]) for part in told.split(", ")})


@contextmanager
def broker(*options: str | Path) -> Iterator[Running]:
    """A broker that listens; it is ended afterwards."""
    process = launch(*options)
    running = None
    try:
        running = listening(process)
        yield running
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=WAIT_S)
        if running is not None:
            running.errors = errors


def until(condition: Callable[[], bool], what: str, wait_s: float = WAIT_S) -> None:
    """Waits for it, within bounds."""
    end = time.monotonic() + wait_s
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen within {wait_s} s"
        time.sleep(POLL_S)


def metric(running: Running, name: str, **labels: str) -> float:
    """A broker's metric: the sum of all lines that have these labels, 0 where there is none yet."""
    found = [it for it in metrics(running) if it.name == name and labels.items() <= it.labels.items()]
    return sum(it.value for it in found)


def metrics(running: Running) -> list[Sample]:
    with urllib.request.urlopen(f"http://127.0.0.1:{running.ports['metrics']}/", timeout=WAIT_S) as answer:
        families = text_string_to_metric_families(answer.read().decode())
    return [sample for family in families for sample in family.samples]


def connect_packet(client_id: str = "c", **options: object) -> bytes:
    return mqtt5.ConnectPacket(client_id, clean_start=True, **options).write()  # type: ignore[arg-type]

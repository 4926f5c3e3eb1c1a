"""How far the clocks of other machines are from the clock of this one.

A small program in a container answers each line with its time. The answer with the shortest round trip is the best:
the clock was read at some moment of that trip, so half of it is how wrong the offset can be.
"""

import socket
import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from brokerbed.orchestrator.grounds.attached_container import HEADER_BYTES, STDOUT, raw_socket

ASKED = 20  # times; the best of them counts
ANSWER_S_MAX = 20.0  # a container of a busy machine takes a while to start a program
ANSWER_BYTES_MAX = 4096
UNCERTAINTY_NS_MAX = 5_000_000  # 5 ms: more than a hop between brokers of one machine takes
DRIFT_NS_MAX = 5_000_000
PROGRAM = "import sys, time\nfor _ in sys.stdin: print(time.time_ns(), flush=True)"


@dataclass(frozen=True, slots=True)
class Reading:
    """A clock beside ours: what it is ahead, and by how much that may be wrong."""

    offset_ns: int
    uncertainty_ns: int


@dataclass(slots=True)
class Clocks:
    """The clocks of brokers on other machines, at the beginning and at the end of a run."""

    at_start: dict[str, Reading] = field(default_factory=dict)
    at_end: dict[str, Reading] = field(default_factory=dict)

    def offsets_ns(self, broker: str) -> tuple[int, int]:
        """At the beginning and at the end; brokers of this machine have our clock."""
        if broker not in self.at_start:
            return 0, 0
        start = self.at_start[broker]
        return start.offset_ns, self.at_end.get(broker, start).offset_ns

    def as_json(self) -> dict[str, Any]:
        """Without the brokers of this machine, whose offset is 0."""
        return {
            name: {
                "start": self.offsets_ns(name)[0],
                "end": self.offsets_ns(name)[1],
                "uncertainty": max(
                    offsets[name].uncertainty_ns for offsets in (self.at_start, self.at_end) if name in offsets
                ),
            }
            for name in self.at_start
        }

    def warnings(self) -> Iterable[str]:
        offsets_by_broker: Mapping[str, Any] = self.as_json()
        if not offsets_by_broker:
            return
        unsure = max(offsets_by_broker, key=lambda name: offsets_by_broker[name]["uncertainty"])
        if offsets_by_broker[unsure]["uncertainty"] > UNCERTAINTY_NS_MAX:
            yield (
                f"the clock of broker {unsure}'s machine is known only to within"
                f" {offsets_by_broker[unsure]['uncertainty'] / 1e6:.1f} ms, and so are delays between machines"
            )
        drift = {name: abs(offsets["end"] - offsets["start"]) for name, offsets in offsets_by_broker.items()}
        worst = max(drift, key=lambda name: drift[name])
        if drift[worst] > DRIFT_NS_MAX:
            yield (
                f"the clock of broker {worst}'s machine drifted by {drift[worst] / 1e6:.1f} ms during the run; delays"
                " between machines are corrected as if it had drifted evenly"
            )


def read_clock(container: Any) -> Reading:
    """Of the machine of a container that runs. OSError if it does not answer."""
    api = container.client.api
    command = ["python3", "-c", PROGRAM]
    execution = api.exec_create(container.id, command, stdin=True, stdout=True, stderr=False)["Id"]
    answers = api.exec_start(execution, socket=True)
    with closing(answers), closing(raw_socket(answers)) as stream:
        stream.settimeout(ANSWER_S_MAX)
        return min((_ask(stream) for _ in range(ASKED)), key=lambda reading: reading.uncertainty_ns)


def _ask(stream: socket.socket) -> Reading:
    asked_ns, begun_ns = time.time_ns(), time.monotonic_ns()
    stream.sendall(b"\n")
    their_ns = int(_answer(stream))
    trip_ns = time.monotonic_ns() - begun_ns
    return Reading(their_ns - asked_ns - trip_ns // 2, trip_ns // 2)


def _answer(stream: socket.socket) -> bytes:
    """One line of its output."""
    line = b""
    while not line.endswith(b"\n"):
        header = _exactly(stream, HEADER_BYTES)
        size = int.from_bytes(header[4:], "big")
        if size > ANSWER_BYTES_MAX:
            raise ConnectionError("the clock of a container cannot be read: it answers something else")
        content = _exactly(stream, size)
        if header[0] == STDOUT:
            line += content
    return line


def _exactly(stream: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        more = stream.recv(size - len(content))
        if not more:
            raise ConnectionError("the clock of a container cannot be read: it does not answer")
        content += more
    return content

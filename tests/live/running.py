"""A run with its live page, as a command."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from threading import Thread

from tests.broker.running import until
from tests.local.commands import brokerbed, processes

BEGIN_S_MAX = 600.0  # an image may have to be built first
TEXT = """
scenario: 1
name: watched
clock: {warmup: 2s, measure: 600s, speedup: 5}
topology: {tree: explicit, parents: {top: null, left: top, right: top, low: right}}
classes: 4
subscriptions: {mean_active: 20, lifetime: {mean: 10s}}
publications: {rate: 40/s}
publishers: [{id: p, broker: left, topic: t/x, rate: 5/s}]
subscribers: [{id: s, broker: low, topic: 't/#', on: {mean: 10s}, off: {mean: 5s}, session_service: {mean: 20ms}}]
"""


class Watched:
    def __init__(self, process: "Popen[str]") -> None:
        self.process = process
        self.said: list[str] = []
        self._reading = Thread(target=self._read, daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stderr is not None
        self.said.extend(self.process.stderr)

    def close(self) -> None:
        self._reading.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()

    @property
    def address(self) -> str:
        """As it was printed."""
        found = re.search(r"live page: (http://\S+)", "".join(self.said))
        return found[1] if found else ""


@contextmanager
def watched(place: Path, ground: str = "local", text: str = TEXT) -> Iterator[Watched]:
    place.mkdir(exist_ok=True)
    file = place / "watched.yaml"
    file.write_text(text, encoding="utf-8")
    process = brokerbed(place, "run", file, "--on", ground, "--live", "--no-analyse", "--out", place / "runs")
    run = Watched(process)
    try:
        until(lambda: bool(run.address) or process.poll() is not None, "the live page", BEGIN_S_MAX)
        assert run.address, run.said
        yield run
    finally:
        process.terminate()
        process.wait()
        run.close()
    assert processes(place) == []

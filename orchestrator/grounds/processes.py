"""The processes of a run. Each is in the journal, the last lines of its stderr are kept, and `close` ends them all."""

import asyncio
import signal
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress

from brokerbed.orchestrator.grounds import journal
from brokerbed.orchestrator.grounds.base import GroundError

END_S_MAX = 5.0  # how long a process may take to end
LINE_BYTES_MAX = 1 << 24
KEPT_LINES = 50  # lines of stderr that are kept per process
SHOWN_LINES = 5  # lines of stderr that the report of a death shows
COMPLAINTS_MAX = 5


class StderrLines:
    """The last lines that a process, or a broker over all its lives, wrote to stderr."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._listening: asyncio.Task[None] | None = None

    def listen(self, stream: asyncio.StreamReader) -> None:
        self._listening = asyncio.create_task(self._listen(stream))

    async def _listen(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            self.lines.append(line.decode(errors="replace").strip().removeprefix("brokerbed broker: "))

    @property
    def is_closed(self) -> bool:
        """Whether stderr has ended."""
        return self._listening is None or self._listening.done()

    async def wait_closed(self) -> None:
        if self._listening is not None:
            await asyncio.wait([self._listening])

    @property
    def last(self) -> str:
        """The last lines as the end of a sentence; empty if there are none."""
        shown = [line for line in self.lines if line][-SHOWN_LINES:]
        return ": " + " / ".join(shown) if shown else ""


class Processes:
    def __init__(self) -> None:
        self._journal = journal.Journal()
        self._creating: set[asyncio.Task[asyncio.subprocess.Process]] = set()
        self._all: list[asyncio.subprocess.Process] = []

    async def spawn(self, what: str, stderr: StderrLines, module: str, *options: str) -> asyncio.subprocess.Process:
        """Starts a process in its own session, which Ctrl-C does not reach. The process exits when its stdin ends."""
        creating = asyncio.create_task(self._create(what, stderr, module, *options))
        self._creating.add(creating)
        creating.add_done_callback(self._creating.discard)
        return await asyncio.shield(creating)  # if we are cancelled meanwhile, the process is still registered

    async def _create(self, what: str, stderr: StderrLines, module: str, *options: str) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", module, *options,
                stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True, limit=LINE_BYTES_MAX,
            )  # fmt: skip
        except OSError as error:
            raise GroundError(f"{what} cannot be started ({error.strerror})", is_missing=True) from None
        self._all.append(process)
        assert process.stderr is not None
        stderr.listen(process.stderr)
        self._journal.process(process.pid, what)
        return process

    async def close(self) -> None:
        """Ends all processes."""
        if self._creating:
            await asyncio.wait(self._creating)
        left = self._all
        for number in (signal.SIGTERM, signal.SIGKILL):
            left = [process for process in left if process.returncode is None]
            for process in left:
                with suppress(ProcessLookupError):
                    process.send_signal(number)
                    process.send_signal(signal.SIGCONT)
            if left:
                await asyncio.wait([asyncio.ensure_future(process.wait()) for process in left], timeout=END_S_MAX)
        self._journal.close()


def how_it_ended(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


def stderr_warnings(stderr_by_source: Mapping[str, StderrLines]) -> Iterable[str]:
    """The lines on stderr as sentences; equal lines of several processes appear once."""
    by_line: dict[str, list[str]] = {}
    for name, stderr in stderr_by_source.items():
        for line in dict.fromkeys(stderr.lines):
            by_line.setdefault(line, []).append(name)
    sentences = [(line, names) for line, names in by_line.items() if line]
    for line, names in sentences[:COMPLAINTS_MAX]:
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"{names[0]}{others} said: {line}"
    if len(sentences) > COMPLAINTS_MAX:
        yield f"brokers and clients said {len(sentences) - COMPLAINTS_MAX} other things"

"""The processes of a run: each is in the journal, what it says on stderr is kept, and none is left when it is over."""

import asyncio
import signal
import sys
from collections import deque
from collections.abc import Iterable, Mapping
from contextlib import suppress

from brokerbed.orchestrator.grounds import journal
from brokerbed.orchestrator.grounds.base import GroundError

END_S_MAX = 5.0  # for a process that was asked to end
LINE_BYTES_MAX = 1 << 24
KEPT_LINES = 50  # of what a process said
TOLD_LINES = 5  # of what it said before it died
COMPLAINTS_MAX = 5


class Said:
    """What a process, or one life of a broker after the other, wrote to stderr."""

    def __init__(self) -> None:
        self.lines: deque[str] = deque(maxlen=KEPT_LINES)
        self._listening: asyncio.Task[None] | None = None

    def listen(self, stream: asyncio.StreamReader) -> None:
        self._listening = asyncio.create_task(self._listen(stream))

    async def _listen(self, stream: asyncio.StreamReader) -> None:
        while line := await stream.readline():
            self.lines.append(line.decode(errors="replace").strip().removeprefix("brokerbed broker: "))

    @property
    def is_over(self) -> bool:
        """It will say nothing more."""
        return self._listening is None or self._listening.done()

    async def over(self) -> None:
        if self._listening is not None:
            await asyncio.wait([self._listening])

    @property
    def last(self) -> str:
        """As the end of a sentence, empty if it said nothing."""
        told = [line for line in self.lines if line][-TOLD_LINES:]
        return ": " + " / ".join(told) if told else ""


class Processes:
    def __init__(self) -> None:
        self._journal = journal.Journal()
        self._creating: set[asyncio.Task[asyncio.subprocess.Process]] = set()
        self._all: list[asyncio.subprocess.Process] = []

    async def spawn(self, what: str, said: Said, module: str, *options: str) -> asyncio.subprocess.Process:
        """In a session of its own, so that Ctrl-C reaches only the orchestrator; it ends when its input does."""
        creating = asyncio.create_task(self._create(what, said, module, *options))
        self._creating.add(creating)
        creating.add_done_callback(self._creating.discard)
        return await asyncio.shield(creating)  # whoever is cancelled meanwhile leaves a process that is known

    async def _create(self, what: str, said: Said, module: str, *options: str) -> asyncio.subprocess.Process:
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
        said.listen(process.stderr)
        self._journal.process(process.pid, what)
        return process

    async def close(self) -> None:
        """Nothing is left running."""
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
                await asyncio.wait([asyncio.ensure_future(it.wait()) for it in left], timeout=END_S_MAX)
        self._journal.close()


def how_it_ended(code: int) -> str:
    if code >= 0:
        return f"exit code {code}"
    with suppress(ValueError):
        return f"killed by {signal.Signals(-code).name}"
    return f"killed by signal {-code}"


def complaints(said: Mapping[str, Said]) -> Iterable[str]:
    """What they said, one sentence each, said by several only once."""
    by_line: dict[str, list[str]] = {}
    for name, its in said.items():
        for line in dict.fromkeys(its.lines):
            by_line.setdefault(line, []).append(name)
    told = [(line, names) for line, names in by_line.items() if line]
    for line, names in told[:COMPLAINTS_MAX]:
        others = f" and {len(names) - 1} more" if len(names) > 1 else ""
        yield f"{names[0]}{others} said: {line}"
    if len(told) > COMPLAINTS_MAX:
        yield f"brokers and clients said {len(told) - COMPLAINTS_MAX} other things"

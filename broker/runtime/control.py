"""What the process that has started a broker of a testbed may ask of it, over standard input and output.

Nobody else can write to that pipe, so no client can use this. A line is an instruction, and is answered by a line:

- `move CHILD PARENT` has the link of a child move to another neighbour of this broker (see core/link_moves.py). The
  answer is `moving CHILD to PARENT`, or `refused: ` and the reason. The move goes on after the answer.

Whoever gives instructions has to read the answers: the broker waits while that pipe is full.

When the pipe is closed, the broker ends.
"""

import asyncio
import os
import stat
import sys
from collections.abc import Callable

from brokerbed.broker.runtime.server import Server

INPUT_BYTES = 4096  # how much is read at once
LINE_BYTES_MAX = 1024  # an instruction has two names; a longer line is not one, and what was read of it is forgotten


def listen(server: Server, stop: asyncio.Event) -> None:
    """Follow the instructions on standard input, if that is a pipe or a socket, and stop when it is closed."""
    if sys.stdin is None:
        return
    mode = os.fstat(sys.stdin.fileno()).st_mode
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return
    loop, pipe = asyncio.get_running_loop(), sys.stdin.fileno()
    lines = Lines(lambda line: print(_answer(server, line), flush=True))

    def read() -> None:
        data = os.read(pipe, INPUT_BYTES)
        if data:
            lines.add(data)
        else:
            loop.remove_reader(pipe)
            stop.set()

    loop.add_reader(pipe, read)


class Lines:
    """Splits input into lines."""

    def __init__(self, handle: Callable[[str], None]) -> None:
        self._handle = handle
        self._rest = b""

    def add(self, data: bytes) -> None:
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest if len(rest) <= LINE_BYTES_MAX else b""
        for line in lines:
            self._handle(line.decode(errors="replace"))


def _answer(server: Server, line: str) -> str:
    verb, *names = line.split() or [""]
    if verb != "move" or len(names) != 2:
        return f"refused: an instruction is like `move CHILD PARENT`, not {line[:LINE_BYTES_MAX]!r}"
    child, parent = names
    problem = server.broker.overlay.link_moves.begin(child, parent, server.now_ns())
    server.flush()
    return f"moving {child} to {parent}" if problem is None else f"refused: {problem}"

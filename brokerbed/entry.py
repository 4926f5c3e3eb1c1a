"""The console script. A broker starts without the libraries of the other commands, which cost time and memory."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn

SIGNALLED = 128  # shells report a program that was ended by a signal with this plus the signal's number
INTERRUPTED = SIGNALLED + signal.SIGINT  # by Ctrl-C
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> NoReturn:
    try:
        try:
            code = _exit_code()
            if code > SIGNALLED:
                _ignore_signals()
        except KeyboardInterrupt:  # a second one, before the first one was handled
            code = INTERRUPTED
            _ignore_signals()
    except KeyboardInterrupt:  # a third
        code = INTERRUPTED
        _ignore_signals()
    # If KeyboardInterrupt propagates out of an exec of source text, as libraries use it, CPython ends by SIGINT even
    # if the exception is caught later. The next exec of source text resets that flag.
    exec("")  # noqa: S102
    sys.exit(code)


def _exit_code() -> int:
    try:
        with _exiting_on_interrupt():
            command, arguments = _command(sys.argv[1:])
        return command(arguments)
    except KeyboardInterrupt:
        return INTERRUPTED
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)


def _command(arguments: list[str]) -> tuple[Callable[[list[str]], int], list[str]]:
    if arguments[:1] == ["broker"]:
        from brokerbed.broker.runtime.command import main as broker

        return broker, arguments[1:]
    from brokerbed.cli import dispatch

    return dispatch, arguments


@contextmanager
def _exiting_on_interrupt() -> Iterator[None]:
    """Exit at once on Ctrl-C while libraries are imported: nothing needs cleaning up yet, and some would fail oddly."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:  # otherwise SIGINT is ignored
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _ignore_signals() -> None:
    """The command has cleaned up after a signal; another one must not kill the interpreter while it exits."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    main()

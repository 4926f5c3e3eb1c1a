"""A pool of processes that uses all cores and ends cleanly on Ctrl-C, and the handling of signals that end a run."""

import os
import signal
from collections.abc import Callable, Iterator, MutableSequence, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager, suppress
from multiprocessing import active_children, get_context
from threading import Event
from typing import TypeVar

from brokerbed.orchestrator.grounds.base import Progress

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
INTERRUPT_POLL_S = 0.2  # how often we check for Ctrl-C

T = TypeVar("T")
Work = Callable[[T, Progress], None]  # must be a module-level function, because it is pickled


def run_on_all_cores(tasks: Sequence[T], work: Work[T], done: int, progress: Progress) -> None:
    """Does `work` for each task, in a process per core; progress counts the `done` ones, too."""
    if not tasks:
        return
    total, context = done + len(tasks), get_context("spawn")
    parts = context.RawArray("d", len(tasks))  # the fraction of each run that is done
    workers = min(len(tasks), os.cpu_count() or 1)
    pool = ProcessPoolExecutor(workers, context, _begin_worker, (parts,))
    is_stopped = Event()
    with on_signal(is_stopped.set):  # so that no exception interrupts the pool itself
        left = set[Future[bool]]()
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # workers inherit the mask, and unblock it when ready
            try:
                left = {pool.submit(_work, work, task, number) for number, task in enumerate(tasks)}
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            while left and not is_stopped.is_set():
                ended, left = wait(left, INTERRUPT_POLL_S, FIRST_COMPLETED)
                if not all(job.result() for job in ended):
                    is_stopped.set()
                progress((done + sum(parts)) / total)
        finally:
            _end_workers(left)  # a failed run is reported without waiting for the others
            pool.shutdown(cancel_futures=True)
    if is_stopped.is_set():
        raise KeyboardInterrupt


def _end_workers(left: set[Future[bool]]) -> None:
    """Interrupts the workers repeatedly, because one that has just started does not handle signals yet."""
    for job in left:
        job.cancel()
    while left := {job for job in left if not job.done()}:
        for worker in active_children():
            with suppress(ProcessLookupError):
                os.kill(worker.pid or 0, signal.SIGINT)
        wait(left, INTERRUPT_POLL_S)


class _Worker:
    is_stopped = False
    parts: MutableSequence[float]  # the fraction of each run that is done, shared with the parent process


def _begin_worker(parts: MutableSequence[float]) -> None:
    _Worker.parts = parts
    for number in SIGNALS:
        signal.signal(number, _interrupted)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _interrupted(*_: object) -> None:
    """Ctrl-C reaches every worker, which then ends its run and starts no other."""
    _Worker.is_stopped = True


def _work(work: Work[T], task: T, number: int) -> bool:
    """Returns False if the task was interrupted."""
    if _Worker.is_stopped:
        return False

    def progress(part: float) -> None:
        _Worker.parts[number] = part

    try:
        work(task, progress)
        progress(1.0)
    except (KeyboardInterrupt, SystemExit):
        _Worker.is_stopped = True
        return False
    return True


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Makes SIGTERM and SIGHUP end the program with cleanup, as Ctrl-C does."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    handlers = {number: signal.signal(number, end) for number in _handled_signals() if number != signal.SIGINT}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _handled_signals() -> list[signal.Signals]:
    return [number for number in SIGNALS if number != signal.SIGHUP or signal.getsignal(number) != signal.SIG_IGN]


@contextmanager
def on_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Calls `stop` on Ctrl-C instead of raising, so that no log is interrupted while it is written.

    SIGTERM, and SIGHUP unless it is ignored, are handled likewise; only the exit code differs.
    """
    received: list[int] = []

    def note(number: int, _: object) -> None:
        received.append(number)
        stop()

    handlers = {number: signal.signal(number, note) for number in _handled_signals()}
    if _Worker.is_stopped:  # a signal arrived before this run could handle it
        stop()
    try:
        yield
    except KeyboardInterrupt:
        if not received:
            raise
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if received and received[0] != signal.SIGINT:
        raise SystemExit(128 + received[0])  # as shells report it
    if received:
        raise KeyboardInterrupt

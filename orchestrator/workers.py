"""Runs on all cores: a pool of processes that ends cleanly on Ctrl-C, and the signals that end a run."""

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
WORKERS_S = 0.2  # between two looks whether Ctrl-C was pressed

T = TypeVar("T")
Work = Callable[[T, Progress], None]  # a function of a module, as it is sent to other processes


def run_on_all_cores(tasks: Sequence[T], work: Work[T], done: int, progress: Progress) -> None:
    """Does `work` for each task, in a process per core; progress counts the `done` ones, too."""
    if not tasks:
        return
    total, context = done + len(tasks), get_context("spawn")
    parts = context.RawArray("d", len(tasks))  # of each run that is done
    workers = min(len(tasks), os.cpu_count() or 1)
    pool = ProcessPoolExecutor(workers, context, _begin_worker, (parts,))
    is_stopped = Event()
    with on_signal(is_stopped.set):  # it never comes amidst what the pool does
        left = set[Future[bool]]()
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # workers inherit it, and hear when they are ready to
            try:
                left = {pool.submit(_work, work, task, number) for number, task in enumerate(tasks)}
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            while left and not is_stopped.is_set():
                ended, left = wait(left, WORKERS_S, FIRST_COMPLETED)
                if not all(job.result() for job in ended):
                    is_stopped.set()
                progress((done + sum(parts)) / total)
        finally:
            _end_workers(left)  # also when a run failed: its error is not kept back until the others are done
            pool.shutdown(cancel_futures=True)
    if is_stopped.is_set():
        raise KeyboardInterrupt


def _end_workers(left: set[Future[bool]]) -> None:
    """They are told again and again, as one that has just begun does not listen yet."""
    for job in left:
        job.cancel()
    while left := {job for job in left if not job.done()}:
        for worker in active_children():
            with suppress(ProcessLookupError):
                os.kill(worker.pid or 0, signal.SIGINT)
        wait(left, WORKERS_S)


class _Worker:
    is_stopped = False
    parts: MutableSequence[float]  # of each run that is done, shared with the process that began this worker


def _begin_worker(parts: MutableSequence[float]) -> None:
    _Worker.parts = parts
    for number in SIGNALS:
        signal.signal(number, _interrupted)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _interrupted(*_: object) -> None:
    """Ctrl-C reaches every worker: it ends its run, and begins no other."""
    _Worker.is_stopped = True


def _work(work: Work[T], task: T, number: int) -> bool:
    """False if it was interrupted."""
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
    """SIGTERM and SIGHUP as Ctrl-C: what is under way is ended, and cleaned up."""

    def end(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    handlers = {number: signal.signal(number, end) for number in _heard() if number != signal.SIGINT}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _heard() -> list[signal.Signals]:
    return [it for it in SIGNALS if it != signal.SIGHUP or signal.getsignal(it) != signal.SIG_IGN]


@contextmanager
def on_signal(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C is taken note of, so that it comes between two steps and never amidst the writing of a log.

    So is SIGTERM, and SIGHUP unless it is ignored: as Ctrl-C, but for the exit code.
    """
    came: list[int] = []

    def note(number: int, _: object) -> None:
        came.append(number)
        stop()

    handlers = {number: signal.signal(number, note) for number in _heard()}
    if _Worker.is_stopped:  # it came before this run was ready for it
        stop()
    try:
        yield
    except KeyboardInterrupt:
        if not came:
            raise
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if came and came[0] != signal.SIGINT:
        raise SystemExit(128 + came[0])  # as shells report it
    if came:
        raise KeyboardInterrupt

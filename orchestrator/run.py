"""`brokerbed run`: an experiment on a ground, into its run directory.

The runs of an experiment (points of a sweep, several seeds) are done on all cores, or wherever `spread` takes them.
What is finished stays: the same command goes on with a sweep that was interrupted.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import active_children, get_context
from pathlib import Path
from threading import Event, Thread

from analysis.errors import SparkError
from analysis.log_reader import ModelTime, write_parquet
from analysis.predict import predict
from broker.log_record import CLIENTS, RECORDS_FILE
from broker.runtime.store import FILE as STORE_FILE
from orchestrator import run_directory
from orchestrator.grounds.base import Announce, Ground, GroundError, Place, Played, Progress, Tell
from orchestrator.grounds.local import LocalGround
from orchestrator.grounds.real import Watcher
from orchestrator.grounds.virtual import VirtualGround
from orchestrator.scenario import Experiment, Scenario

VIRTUAL, LOCAL, DOCKER = "virtual", "local", "docker"


GROUNDS = (VIRTUAL, LOCAL, DOCKER)
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
WORKERS_S = 0.2  # between two looks whether Ctrl-C was pressed
WATCH_S = 1.0  # between two looks at what others have finished
SEEN_S_MAX = 60.0  # until shared storage shows what another machine has written (NFS remembers for up to that)


@dataclass(frozen=True, slots=True)
class Task:
    """One run: of a point, with a seed, on a ground."""

    scenario: Scenario
    folder: Path
    ground: str = VIRTUAL
    file: Path = Path("scenario.yaml")  # of the experiment, and which of its points this is
    point: int = 0
    engines: tuple[str, ...] = ()  # of the docker ground
    live: tuple[str, int] | None = None  # where the live page is served

    def absolute(self) -> "Task":
        return replace(self, folder=self.folder.absolute(), file=self.file.absolute())


def ground_of(name: str, engines: Sequence[str] = (), watcher: Watcher | None = None) -> Ground:
    if name == DOCKER:
        from orchestrator.grounds.docker import DockerGround  # its SDK takes a while to import

        return DockerGround(engines, watcher)
    return LocalGround(watcher) if name == LOCAL else VirtualGround()


def _watcher_of(task: Task, tell: Tell) -> Watcher | None:
    if task.live is None:
        return None
    from orchestrator.live.server import live_page  # aiohttp takes a while to import

    rows = predict(task.scenario, detail=False).rows
    predicted = {(row.metric, *row.labels.values()): row.predicted for row in rows if row.is_headline}
    return partial(live_page, predicted=predicted, host=task.live[0], port=task.live[1], tell=tell)


Spread = Callable[[Sequence[Task], Callable[[Task], None]], object]  # does them all, somewhere


@contextmanager
def _told() -> Iterator[None]:
    """What the system refuses (space, permission, open files) is said in one sentence."""
    try:
        yield
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        raise GroundError(f"{where}{error.strerror or error}", is_missing=True) from error


@_told()
def run(
    experiment: Experiment,
    ground: str,
    seed: int | None,
    seeds: int,
    out: Path,
    progress: Progress,
    spread: Spread | None = None,
    tell: Tell = lambda _: None,
    engines: Sequence[str] = (),
    live: tuple[str, int] | None = None,
) -> Path:
    """The run directory. Each point is run with `seeds` seeds, beginning with `seed` or the scenario's own."""
    points = [replace(point, seed=point.seed if seed is None else seed) for point in experiment.points]
    for point in points:
        ground_of(ground, engines).check(point)
    with _ended_by_signals():
        ground_of(ground, engines).prepare(tell)
    folder = None
    if experiment.is_sweep or seeds > 1:
        folder = run_directory.unfinished(out, experiment.name, ground, points[0].seed, experiment.file)
    is_new = folder is None
    folder = folder or run_directory.create(out, experiment.name, ground, points[0].seed, experiment.file)
    tasks = [
        replace(task, engines=tuple(engines), live=live) for task in _tasks(experiment, ground, points, seeds, folder)
    ]
    if len(tasks) == 1:
        run_task(tasks[0], progress, tell)
        return folder
    left = [task for task in tasks if not run_directory.is_finished(task.folder)]
    if not is_new:
        tell(f"going on with {folder}: {len(tasks) - len(left)} of {len(tasks)} runs are done")
    if spread is not None and left:
        with _watching(left, len(tasks), progress):
            spread(left, run_task)
        _await_all(left)
    elif ground == VIRTUAL:
        _run_on_all_cores(left, len(tasks), progress)
    else:
        _run_in_turn(left, len(tasks), progress, tell)
    run_directory.describe_all(folder, points[0], ground, len(experiment.points), seeds)
    return folder


@contextmanager
def _watching(tasks: list[Task], total: int, progress: Progress) -> Iterator[None]:
    """Tells of the progress that others make: a run is done when its run.json says so."""
    is_over = Event()

    def watch() -> None:
        left = tasks
        while not is_over.wait(WATCH_S):
            left = [task for task in left if not run_directory.is_finished(task.folder)]
            progress(1 - len(left) / total)

    watcher = Thread(target=watch, name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()


def _await_all(tasks: list[Task]) -> None:
    """What other machines have written is seen here, too, if they and we share the storage."""
    end = time.monotonic() + SEEN_S_MAX
    while left := [task for task in tasks if not run_directory.is_finished(task.folder)]:
        if time.monotonic() > end:
            raise SparkError(
                f"{left[0].folder.absolute()}: the workers did this run, and it is not here: run directories (--out)"
                " must be on storage that all machines see under the same path"
            )
        time.sleep(WATCH_S)


def _tasks(experiment: Experiment, ground: str, points: list[Scenario], seeds: int, folder: Path) -> list[Task]:
    tasks = []
    for number, point in enumerate(points):
        place = folder / "points" / str(number) if experiment.is_sweep else folder
        for seed in range(point.seed, point.seed + seeds):
            its = place if seeds == 1 else place / "seeds" / str(seed)
            tasks.append(Task(replace(point, seed=seed), its, ground, folder / "scenario.yaml", number))
    return tasks


def _run_in_turn(tasks: list[Task], total: int, progress: Progress, tell: Tell) -> None:
    """Real processes have the machine for themselves."""
    for done, task in enumerate(tasks, total - len(tasks)):
        run_task(task, lambda part, done=done: progress((done + part) / total), tell)  # type: ignore[misc]


def _run_on_all_cores(tasks: list[Task], total: int, progress: Progress) -> None:
    if not tasks:
        return
    done = total - len(tasks)
    workers = min(len(tasks), os.cpu_count() or 1)
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin_worker)
    is_stopped = Event()
    with _on_signal(is_stopped.set):  # it never comes amidst what the pool does
        try:
            signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)  # workers inherit it, and hear when they are ready to
            try:
                left = {pool.submit(_run_in_worker, task) for task in tasks}
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
            while left and not is_stopped.is_set():
                ended, left = wait(left, WORKERS_S, FIRST_COMPLETED)
                if not all(job.result() for job in ended):
                    is_stopped.set()
                done += len(ended)
                progress(done / total)
            _end_workers(left)
        finally:
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


def _begin_worker() -> None:
    for number in SIGNALS:
        signal.signal(number, _interrupted)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


def _interrupted(*_: object) -> None:
    """Ctrl-C reaches every worker: it ends its run, and begins no other."""
    _Worker.is_stopped = True


def _run_in_worker(task: Task) -> bool:
    """False if it was interrupted."""
    if _Worker.is_stopped:
        return False
    try:
        run_task(task)
    except (KeyboardInterrupt, SystemExit):
        _Worker.is_stopped = True
        return False
    return True


def run_task(task: Task, progress: Progress = lambda _: None, tell: Tell = lambda _: None) -> None:
    scenario, folder = task.scenario, task.folder
    for part in ("log", "raw"):  # of a run that was interrupted or killed
        shutil.rmtree(folder / part, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    started, begun = time.time(), time.monotonic()
    run_directory.describe(folder, scenario, task.ground, started)
    raw = folder / "raw"
    ground = ground_of(task.ground, task.engines, _watcher_of(task, tell))
    with _on_signal(ground.stop), _observed(task, ground.played) as announce:
        try:
            ground.play(scenario, Place(task.file, task.point, raw, announce), progress)
        finally:  # what was logged is kept, also when it is interrupted
            _collect(raw, folder / "log", ground.played, scenario.clock.speedup)
    for warning in ground.played.warnings:
        tell(f"warning: {warning}")
    run_directory.describe(folder, scenario, task.ground, started, time.monotonic() - begun, ground.played)


def _observed(task: Task, played: Played) -> "AbstractContextManager[Announce]":
    """Prometheus can see it while it runs, if it runs in real time."""
    if task.ground == VIRTUAL:
        return nullcontext(lambda _: None)
    from orchestrator.observe import observed  # which workers of a cluster need not have

    return observed(task.scenario, task.ground, task.file.parent, task.folder, played)


@contextmanager
def _ended_by_signals() -> Iterator[None]:
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
def _on_signal(stop: Callable[[], None]) -> Iterator[None]:
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


def _collect(raw: Path, dataset: Path, played: Played, speedup: float) -> None:
    clock = None
    if played.start_ns is not None:
        clock = ModelTime(played.start_ns, played.until_ns or time.time_ns(), speedup)
    for store in raw.glob(f"*/{STORE_FILE}*"):  # first of all: it makes room
        store.unlink()
    for part in sorted(raw.iterdir()) if raw.exists() else ():
        if played.has_begun and (part / RECORDS_FILE.format(1)).exists():
            write_parquet(part, part.name, dataset, None if part.name == CLIENTS else clock)
        shutil.rmtree(part)
    shutil.rmtree(raw, ignore_errors=True)

"""`brokerbed run`: an experiment on a ground, into its run directory.

The runs of an experiment (points of a sweep, several seeds) are done on all cores, or wherever `spread` takes them.
What is finished stays: the same command goes on with a sweep that was interrupted.
"""

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path
from threading import Event, Thread

from analysis.errors import SparkError
from analysis.log_reader import write_parquet
from orchestrator import run_directory
from orchestrator.scenario import Experiment, Scenario
from orchestrator.simulator.simulation import Simulation

VIRTUAL = "virtual"
WATCH_S = 1.0  # between two looks at what others have finished
SEEN_S_MAX = 60.0  # until shared storage shows what another machine has written (NFS remembers for up to that)
Progress = Callable[[float], None]  # the part that is done, 0 to 1


@dataclass(frozen=True, slots=True)
class Task:
    """One run: of a point, with a seed."""

    scenario: Scenario
    folder: Path

    def absolute(self) -> "Task":
        return replace(self, folder=self.folder.absolute())


Spread = Callable[[Sequence[Task], Callable[[Task], None]], object]  # does them all, somewhere


def run(
    experiment: Experiment,
    seed: int | None,
    seeds: int,
    out: Path,
    progress: Progress,
    spread: Spread | None = None,
    tell: Callable[[str], None] = lambda _: None,
) -> Path:
    """The run directory. Each point is run with `seeds` seeds, beginning with `seed` or the scenario's own."""
    points = [replace(point, seed=point.seed if seed is None else seed) for point in experiment.points]
    folder = None
    if experiment.is_sweep or seeds > 1:
        folder = run_directory.unfinished(out, experiment.name, VIRTUAL, points[0].seed, experiment.file)
    is_new = folder is None
    folder = folder or run_directory.create(out, experiment.name, VIRTUAL, points[0].seed, experiment.file)
    tasks = list(_tasks(experiment, points, seeds, folder))
    if len(tasks) == 1:
        run_task(tasks[0], progress)
        return folder
    left = [task for task in tasks if not run_directory.is_finished(task.folder)]
    if not is_new:
        tell(f"going on with {folder}: {len(tasks) - len(left)} of {len(tasks)} runs are done")
    if spread is not None and left:
        with _watching(left, len(tasks), progress):
            spread(left, run_task)
        _await_all(left)
    elif left:
        _run_on_all_cores(left, len(tasks), progress)
    run_directory.describe_all(folder, points[0], VIRTUAL, len(experiment.points), seeds)
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


def _tasks(experiment: Experiment, points: list[Scenario], seeds: int, folder: Path) -> list[Task]:
    tasks = []
    for number, point in enumerate(points):
        place = folder / "points" / str(number) if experiment.is_sweep else folder
        for seed in range(point.seed, point.seed + seeds):
            its = place if seeds == 1 else place / "seeds" / str(seed)
            tasks.append(Task(replace(point, seed=seed), its))
    return tasks


def _run_on_all_cores(tasks: list[Task], total: int, progress: Progress) -> None:
    done = total - len(tasks)
    workers = min(len(tasks), os.cpu_count() or 1)
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin_worker)
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # workers hear of Ctrl-C when they are ready for it
    try:
        jobs = [pool.submit(_run_in_worker, task) for task in tasks]
    finally:
        signal.signal(signal.SIGINT, handler)
    try:
        for job in as_completed(jobs):
            if not job.result():
                raise KeyboardInterrupt
            done += 1
            progress(done / total)
    finally:
        pool.shutdown(cancel_futures=True)


class _Worker:
    is_stopped = False


def _begin_worker() -> None:
    signal.signal(signal.SIGINT, _interrupted)


def _interrupted(*_: object) -> None:
    """Ctrl-C reaches every worker: it ends its run, and begins no other."""
    _Worker.is_stopped = True


def _run_in_worker(task: Task) -> bool:
    """False if it was interrupted."""
    if _Worker.is_stopped:
        return False
    try:
        run_task(task)
    except KeyboardInterrupt:
        _Worker.is_stopped = True
        return False
    return True


def run_task(task: Task, progress: Progress = lambda _: None) -> None:
    scenario, folder = task.scenario, task.folder
    for part in ("log", "raw"):  # of a run that was interrupted or killed
        shutil.rmtree(folder / part, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    started, begun = time.time(), time.monotonic()
    run_directory.describe(folder, scenario, VIRTUAL, started, None)
    raw = run_directory.RawLogs(folder / "raw")
    simulation = Simulation(scenario, raw.write)
    with _on_interrupt(simulation.stop):
        try:
            simulation.run(progress)
        finally:  # what was logged is kept, also when it is interrupted
            _collect(raw.folder, folder / "log")
    run_directory.describe(folder, scenario, VIRTUAL, started, time.monotonic() - begun)


@contextmanager
def _on_interrupt(stop: Callable[[], None]) -> Iterator[None]:
    """Ctrl-C is taken note of, so that it comes between two steps and never amidst the writing of a log."""
    handler = signal.signal(signal.SIGINT, lambda *_: stop())
    if _Worker.is_stopped:  # it came before this run was ready for it
        stop()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _collect(raw: Path, dataset: Path) -> None:
    for part in sorted(raw.iterdir()) if raw.exists() else ():
        write_parquet(part, part.name, dataset)
        shutil.rmtree(part)
    shutil.rmtree(raw, ignore_errors=True)

"""`brokerbed run`: an experiment on a ground, into its run directory.

The runs of an experiment (the points of a sweep, or several seeds) use all cores, or go wherever `spread` sends them.
Finished runs are kept, so repeating the command resumes a sweep that was interrupted.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Event, Thread

from brokerbed.broker.runtime.store import FILE as STORE_FILE
from brokerbed.log.reader import LogError, ModelTime, write_parquet
from brokerbed.log.record import CLIENTS, RECORDS_FILE
from brokerbed.metrics import Expectation
from brokerbed.orchestrator import run_directory, run_request
from brokerbed.orchestrator.estimate import Predict, announcement, estimate
from brokerbed.orchestrator.grounds.base import Announce, GroundError, Notify, Place, Played, Progress
from brokerbed.orchestrator.grounds.real import Watcher
from brokerbed.orchestrator.grounds.registry import GROUNDS, VIRTUAL
from brokerbed.orchestrator.pacer import Pacer
from brokerbed.orchestrator.workers import ended_by_signals, on_signal, run_on_all_cores
from brokerbed.scenario import Experiment, Scenario

WATCH_S = 1.0  # how often we check what other processes have finished
SEEN_S_MAX = 60.0  # until shared storage shows what another machine has written (NFS caches for that long)


Pace = Callable[[Scenario, Path], Pacer]  # for a scenario and the folder of its raw logs


@dataclass(frozen=True, slots=True)
class Task:
    """One run of one point with one seed on one ground."""

    scenario: Scenario
    folder: Path
    ground: str = VIRTUAL
    file: Path = Path("scenario.yaml")  # the file of the experiment
    point: int = 0
    engines: tuple[str, ...] = ()  # of the docker ground
    live: tuple[str, int] | None = None  # where the live page is served
    pace: Pace | None = None  # makes what ends the run early; it is pickled, so it must be a module-level function

    def absolute(self) -> "Task":
        return replace(self, folder=self.folder.absolute(), file=self.file.absolute())


def _watcher_of(task: Task, notify: Notify, expected: Expectation | None) -> Watcher | None:
    if task.live is None:
        return None
    from brokerbed.orchestrator.live.server import live_page  # aiohttp takes a while to import

    rows = () if expected is None else expected.rows
    predicted = {(row.metric, *row.labels.values()): row.predicted for row in rows if row.is_headline}
    return partial(live_page, predicted=predicted, host=task.live[0], port=task.live[1], notify=notify)


Spread = Callable[[Sequence[Task], Callable[[Task], None]], object]  # executes all tasks somewhere else


@contextmanager
def _os_errors_reported(folder: Path) -> Iterator[None]:
    """Turns errors of the operating system (disk space, permissions, open files) into one sentence."""
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise GroundError(f"{error.filename or folder}: {reason}", is_missing=True) from error


def run(
    experiment: Experiment,
    ground: str,
    seed: int | None,
    seeds: int,
    out: Path,
    progress: Progress,
    spread: Spread | None = None,
    notify: Notify = lambda _: None,
    engines: Sequence[str] = (),
    live: tuple[str, int] | None = None,
    predict: Predict | None = None,
    pace: Pace | None = None,
) -> Path:
    """Runs each point with `seeds` seeds, beginning with `seed` or the scenario's own, and returns the run directory.

    With `predict`, long runs are announced, and predictions are shown during a run. With `pace`, runs whose clock has
    `until` end when they know enough.
    """
    points = [replace(point, seed=point.seed if seed is None else seed) for point in experiment.points]
    kind = GROUNDS[ground]
    for point in points:
        kind.make(engines, None).check(point)
    with ended_by_signals():
        kind.make(engines, None).prepare(notify)
    request = run_request.Request.of(points, ground, seeds, engines)
    with _os_errors_reported(out):
        folder, lock = _directory(experiment, request, points[0].seed, out, notify)
    with closing(lock), _os_errors_reported(folder):
        tasks = [
            replace(task, engines=tuple(engines), live=live, pace=pace)
            for task in _tasks(experiment, ground, points, seeds, folder)
        ]
        left = [task.scenario for task in tasks if not run_directory.is_finished(task.folder)]
        if left and spread is None and predict is not None:
            line = announcement(estimate(left, not kind.is_real_time, predict), folder)
            if line is not None:
                notify(line)
        if len(tasks) == 1:
            run_task(tasks[0], progress, notify, predict)
        else:
            _run_all(tasks, ground, progress, spread, notify, predict)
            run_directory.describe_all(folder, points[0], ground, len(experiment.points), seeds)
        for task in tasks:
            for line in run_directory.ended_by_pacer(task.folder):
                notify(line if len(tasks) == 1 else f"{task.folder.relative_to(folder)}: {line}")
    return folder


def _directory(
    experiment: Experiment, request: run_request.Request, seed: int, out: Path, notify: Notify
) -> tuple[Path, run_request.Lock]:
    """The newest directory in which this very request was interrupted, or a new one. Nobody else works in it."""
    place = out, experiment.name, request.ground, seed
    directory = None
    if experiment.is_sweep or request.seeds > 1:
        directory = _interrupted_directory(run_directory.existing(*place), experiment.text, request, notify)
    if directory is None:
        folder = run_directory.create(*place, experiment)
        directory = folder, run_request.write(folder, request)
    run_directory.point_latest_to(directory[0])
    return directory


def _interrupted_directory(
    folders: list[Path], text: bytes, request: run_request.Request, notify: Notify
) -> tuple[Path, run_request.Lock] | None:
    """The directory to resume, or None; then the user is told why the newest unfinished one is not resumed."""
    reasons = list[str]()
    for folder in folders:
        reason = run_request.why_not_resumed(folder, request, text)
        if reason is None:
            lock = run_request.Lock(folder)
            if not lock.acquire():
                reason = "another process is working in it"
            elif not run_directory.is_finished(folder):
                return folder, lock
            lock.close()
        if reason is None:
            break  # the last run of this request is complete, so the user wants a new one
        if not run_directory.is_finished(folder):
            reasons.append(f"{folder} is not resumed: {reason}")
    for line in reasons[:1]:
        notify(line)
    return None


def _run_all(
    tasks: list[Task], ground: str, progress: Progress, spread: Spread | None, notify: Notify, predict: Predict | None
) -> None:
    """Runs all tasks that are not finished yet."""
    left = [task for task in tasks if not run_directory.is_finished(task.folder)]
    if any(task.folder.exists() for task in tasks):
        done = f"{len(tasks) - len(left)} of {len(tasks)} runs are done"
        notify(f"resuming {tasks[0].file.parent}, which the same command began: {done}")
    if spread is not None and left:
        with _watching(left, len(tasks), progress):
            spread(left, run_task)
        _await_all(left)
    elif not GROUNDS[ground].is_real_time:
        run_on_all_cores(left, run_task, len(tasks) - len(left), progress)
    else:
        _run_in_turn(left, len(tasks), progress, notify, predict)


@contextmanager
def _watching(tasks: list[Task], total: int, progress: Progress) -> Iterator[None]:
    """Reports the progress of runs in other processes, which mark finished runs in run.json."""
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
    """Waits until the results of other machines are visible here, which requires shared storage."""
    end = time.monotonic() + SEEN_S_MAX
    while left := [task for task in tasks if not run_directory.is_finished(task.folder)]:
        if time.monotonic() > end:
            raise GroundError(
                f"{left[0].folder.absolute()}: the workers did this run, and it is not here: run directories (--out)"
                " must be on storage that all machines see under the same path",
                is_missing=True,
            )
        time.sleep(WATCH_S)


def _tasks(experiment: Experiment, ground: str, points: list[Scenario], seeds: int, folder: Path) -> list[Task]:
    tasks = []
    for number, point in enumerate(points):
        place = folder / "points" / str(number) if experiment.is_sweep else folder
        for seed in range(point.seed, point.seed + seeds):
            run_folder = place if seeds == 1 else place / "seeds" / str(seed)
            tasks.append(Task(replace(point, seed=seed), run_folder, ground, folder / "scenario.yaml", number))
    return tasks


def _run_in_turn(tasks: list[Task], total: int, progress: Progress, notify: Notify, predict: Predict | None) -> None:
    """Runs one task after the other, because real brokers need the machine to themselves."""
    for done, task in enumerate(tasks, total - len(tasks)):
        run_task(task, lambda part, done=done: progress((done + part) / total), notify, predict)  # type: ignore[misc]


def run_task(
    task: Task,
    progress: Progress = lambda _: None,
    notify: Notify = lambda _: None,
    predict: Predict | None = None,
) -> None:
    with run_request.locked_directory(task.file.parent), _os_errors_reported(task.folder):
        _run_task(task, progress, notify, predict)


def _run_task(task: Task, progress: Progress, notify: Notify, predict: Predict | None) -> None:
    scenario, folder = task.scenario, task.folder
    for part in ("log", "raw"):  # left by a run that was interrupted or killed
        shutil.rmtree(folder / part, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    started, begun = time.time(), time.monotonic()
    run_directory.describe(folder, scenario, task.ground, started)
    raw = folder / "raw"
    kind = GROUNDS[task.ground]
    expected = predict(scenario, True) if predict is not None and kind.is_real_time else None
    is_paced = scenario.clock.until is not None or scenario.clock.finds_warmup
    pacer = task.pace(scenario, raw) if task.pace is not None and is_paced else None
    ground = kind.make(task.engines, _watcher_of(task, notify, expected))
    with on_signal(ground.stop), _observed(task, expected, ground.played) as announce:
        collect = partial(_collect, raw, folder / "log", ground.played, scenario.clock.speedup)
        try:
            ground.play(scenario, Place(task.file, task.point, raw, announce, pacer), progress)
            if pacer is not None:
                end_ns = ground.played.end_ns or scenario.clock.warmup + scenario.clock.measure
                pacer.is_over(end_ns, ground.played.start_ns, is_final=True)
        except BaseException:  # the log is kept even if the run was interrupted
            with suppress(OSError, LogError):  # the reason why the run failed matters more
                collect()
            raise
        collect()
    for warning in ground.played.warnings:
        notify(f"warning: {warning}")
    run_directory.describe(folder, scenario, task.ground, started, time.monotonic() - begun, ground.played, pacer)


def _observed(task: Task, expected: Expectation | None, played: Played) -> "AbstractContextManager[Announce]":
    """Lets Prometheus observe the run, if it runs in real time."""
    if not GROUNDS[task.ground].is_real_time:
        return nullcontext(lambda _: None)
    from brokerbed.orchestrator.observe import observed  # workers of a cluster may lack what it imports

    return observed(task.scenario, expected, task.ground, task.file.parent, task.folder, played)


def _collect(raw: Path, dataset: Path, played: Played, speedup: float) -> None:
    clock = None
    if played.start_ns is not None:
        clock = ModelTime(played.start_ns, played.until_ns or time.time_ns(), speedup)
    for store in raw.glob(f"*/{STORE_FILE}*"):  # this comes first, because it frees space
        store.unlink()
    try:
        for part in sorted(raw.iterdir()) if raw.exists() else ():
            if played.has_begun and (part / RECORDS_FILE.format(1)).exists():
                broker_clock = None
                if clock is not None and part.name != CLIENTS:  # clients log model time
                    broker_clock = replace(clock, offsets_ns=played.clocks.offsets_ns(part.name))
                write_parquet(part, part.name, dataset, broker_clock)
            shutil.rmtree(part)
    except (OSError, LogError):  # an incomplete log is useless, and the disk may be full
        shutil.rmtree(dataset, ignore_errors=True)
        raise
    finally:
        shutil.rmtree(raw, ignore_errors=True)

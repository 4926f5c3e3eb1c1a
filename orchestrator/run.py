"""`brokerbed run`: an experiment on a ground, into its run directory; the points of a sweep on all cores."""

import os
import shutil
import signal
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from multiprocessing import get_context
from pathlib import Path

from analysis.log_reader import write_parquet
from orchestrator import run_directory
from orchestrator.scenario import Experiment, Scenario
from orchestrator.simulator.simulation import Simulation

VIRTUAL = "virtual"
Progress = Callable[[float], None]  # the part that is done, 0 to 1


@dataclass(frozen=True, slots=True)
class Done:
    """A finished run, or one point of it."""

    folder: Path
    scenario: Scenario
    wall_s: float


def run(experiment: Experiment, seed: int | None, out: Path, progress: Progress) -> tuple[Path, list[Done]]:
    """The run directory and its points; a single run is its own only point."""
    points = [replace(point, seed=point.seed if seed is None else seed) for point in experiment.points]
    folder = run_directory.create(out, experiment.name, VIRTUAL, points[0].seed, experiment.file)
    if not experiment.is_sweep:
        return folder, [_run_point(points[0], folder, progress)]
    return folder, _run_points(points, folder, progress)


def _run_points(points: list[Scenario], folder: Path, progress: Progress) -> list[Done]:
    done: dict[int, Done] = {}
    workers = min(len(points), os.cpu_count() or 1)
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"), initializer=_begin_worker)
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)  # workers hear of Ctrl-C when they are ready for it
    try:
        jobs = {
            pool.submit(_run_in_worker, point, folder / "points" / str(number)): number
            for number, point in enumerate(points)
        }
    finally:
        signal.signal(signal.SIGINT, handler)
    try:
        for job in as_completed(jobs):
            result = job.result()
            if result is None:
                raise KeyboardInterrupt
            done[jobs[job]] = result
            progress(len(done) / len(points))
    finally:
        pool.shutdown(cancel_futures=True)
    return [done[number] for number in sorted(done)]


class _Worker:
    is_busy = is_stopped = False


def _begin_worker() -> None:
    signal.signal(signal.SIGINT, _interrupted)


def _interrupted(*_: object) -> None:
    """Ctrl-C reaches every worker: it ends its point, and begins no other."""
    _Worker.is_stopped = True
    if _Worker.is_busy:
        raise KeyboardInterrupt


def _run_in_worker(scenario: Scenario, folder: Path) -> Done | None:
    """None if it was interrupted."""
    if _Worker.is_stopped:
        return None
    _Worker.is_busy = True
    try:
        return _run_point(scenario, folder)
    except KeyboardInterrupt:
        return None
    finally:
        _Worker.is_busy = False


def _run_point(scenario: Scenario, folder: Path, progress: Progress = lambda _: None) -> Done:
    folder.mkdir(parents=True, exist_ok=True)
    started, begun = time.time(), time.monotonic()
    run_directory.describe(folder, scenario, VIRTUAL, started, None)
    raw = run_directory.RawLogs(folder / "raw")
    simulation = Simulation(scenario, raw.write)
    try:
        simulation.run(progress)
    finally:  # what was logged is kept, also when it is interrupted
        _collect(raw.folder, folder / "log")
    wall_s = time.monotonic() - begun
    run_directory.describe(folder, scenario, VIRTUAL, started, wall_s)
    return Done(folder, scenario, wall_s)


def _collect(raw: Path, dataset: Path) -> None:
    for part in sorted(raw.iterdir()) if raw.exists() else ():
        write_parquet(part, part.name, dataset)
        shutil.rmtree(part)
    shutil.rmtree(raw, ignore_errors=True)

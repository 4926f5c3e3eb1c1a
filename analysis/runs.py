"""Finds finished runs on disk, and reports what is wrong with a run directory before Spark starts."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from brokerbed.analysis.errors import RunError
from brokerbed.analysis.link_moves import Move
from brokerbed.log.record import CLIENTS
from brokerbed.log.schema import EVENTS
from brokerbed.scenario import Experiment, Scenario, load

READERS = 8  # files whose metadata are read at the same time
STORED = EVENTS.remove(EVENTS.get_field_index("broker"))  # the name of the folder contains the broker


@dataclass(frozen=True, slots=True)
class Part:
    """The log of one broker, or of the clients."""

    file: Path
    broker: str
    rows: int


@dataclass(frozen=True, slots=True)
class Run:
    """One run of one point with one seed."""

    number: int
    point: int
    folder: Path
    scenario: Scenario
    ground: str
    model_s: float
    wall_s: float
    measured_ns: tuple[int, int]
    parts: tuple[Part, ...]
    warnings: tuple[str, ...] = ()  # reasons why its measurements may be wrong
    moves: tuple[Move, ...] = ()  # of links; `scenario` has the tree that is compared, see moved_runs.py
    begin: Scenario | None = None  # with the tree before any move; None if links cannot move

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)


@dataclass(frozen=True, slots=True)
class Finished:
    """All runs of one run directory, with all points of a sweep and all seeds, or of a part of it."""

    folder: Path
    experiment: Experiment
    runs: tuple[Run, ...]

    @property
    def rows(self) -> int:
        return sum(run.rows for run in self.runs)

    def of_point(self, point: int) -> list[Run]:
        return [run for run in self.runs if run.point == point]


def find(folder: Path) -> Finished:
    """The runs in a run directory; RunError if it is not one, is incomplete, or is damaged."""
    experiment = experiment_of(folder)
    runs: list[Run] = []
    for point, scenario in enumerate(experiment.points):
        place = place_of(folder, experiment, point)
        for each in seeds_in(place / "seeds") or [place]:
            runs.append(_run(len(runs), point, each, scenario))
    return Finished(folder, experiment, tuple(runs))


def experiment_of(folder: Path) -> Experiment:
    """The experiment of a run directory; for a point of a sweep or one of its seeds, that point alone."""
    if not folder.is_dir():
        raise RunError(f"{folder}: there is no such run directory")
    if (folder / "scenario.yaml").is_file():
        return load(folder / "scenario.yaml")
    top, point = _top_of(folder.resolve())
    if not (top / "scenario.yaml").is_file():
        raise RunError(f"{folder}: this is not a run directory (it has no scenario.yaml)")
    experiment = load(top / "scenario.yaml")
    if experiment.is_sweep != (point is not None) or (point or 0) >= len(experiment.points):
        raise RunError(f"{folder}: the scenario of {top} has no such point")
    return replace(experiment, is_sweep=False, is_pair=False, points=(experiment.points[point or 0],))


def _top_of(folder: Path) -> tuple[Path, int | None]:
    """The run directory that contains points/N, seeds/S or points/N/seeds/S, and the number of the point."""
    if folder.parent.name == "seeds":
        folder = folder.parents[1]
    if folder.parent.name == "points" and folder.name.isdecimal():
        return folder.parents[1], int(folder.name)
    return folder, None


def place_of(folder: Path, experiment: Experiment, point: int) -> Path:
    """The folder with the runs of a point."""
    return folder / "points" / str(point) if experiment.is_sweep else folder


def seeds_in(folder: Path) -> list[Path]:
    folders = list(folder.iterdir()) if folder.is_dir() else []
    for seed_folder in folders:
        if not (seed_folder.name.isdecimal() and seed_folder.is_dir()):
            raise RunError(f"{seed_folder}: this does not belong among the runs with several seeds; move it away")
    return sorted(folders, key=lambda seed_folder: int(seed_folder.name))


def _run(number: int, point: int, folder: Path, scenario: Scenario) -> Run:
    description = described(folder)
    try:
        warnings = tuple(map(str, description.get("warnings", ())))
        seed, wall_seconds = int(description["seed"]), description["wall_seconds"]
        wall_s = None if wall_seconds is None else float(wall_seconds)
        begin_ns, end_ns = map(int, description["measured_ns"])
        model_s, ground = float(description["model_seconds"]), str(description["ground"])
    except (KeyError, TypeError, ValueError):
        raise RunError(f"{folder / 'run.json'}: this is not the description of a run") from None
    if wall_s is None:
        raise RunError(f"{folder}: the run has not finished, or was interrupted; run the scenario again")
    parts = _parts(folder / "log", scenario.tree.names)
    as_run = replace(scenario, seed=seed, clock=scenario.clock.measured(begin_ns, end_ns))
    return Run(number, point, folder, as_run, ground, model_s, wall_s, (begin_ns, end_ns), parts, warnings)


def described(folder: Path) -> dict[str, Any]:
    file = folder / "run.json"
    try:
        description = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"{file}: {error.strerror}; the run was not finished") from None
    except ValueError:
        raise RunError(f"{file}: this is not JSON; the run was not finished, or the file is damaged") from None
    if not isinstance(description, dict):
        raise RunError(f"{file}: this is not the description of a run")
    return description


def _parts(log: Path, brokers: Sequence[str]) -> tuple[Part, ...]:
    if not log.is_dir():
        raise RunError(f"{log}: there is no message log; the run was not finished")
    files = sorted(path for path in log.rglob("*") if path.is_file())
    with ThreadPoolExecutor(READERS) as pool:
        parts = tuple(pool.map(_part, files))
    if not sum(part.rows for part in parts):
        raise RunError(f"{log}: the message log is empty; the run was not finished")
    names, present = set(brokers), {part.broker for part in parts}
    for part in parts:
        if part.broker not in names and part.broker != CLIENTS:
            raise RunError(f"{part.file}: there is no broker {part.broker} in this scenario; move it away")
    if missing := [name for name in brokers if name not in present]:
        raise RunError(f"{log}: there is no log of {missing[0]}; the run was not finished, or the log is damaged")
    return parts


def _part(file: Path) -> Part:
    key, _, broker = file.parent.name.partition("=")
    if key != "broker" or file.suffix != ".parquet":
        raise RunError(f"{file}: this file does not belong in a message log; move it away")
    try:
        with pq.ParquetFile(file) as content:
            schema, rows = content.schema_arrow, content.metadata.num_rows
    except (pa.ArrowException, OSError):
        raise RunError(f"{file}: this is not a complete Parquet file; it is truncated or damaged") from None
    if not schema.remove_metadata().equals(STORED):
        raise RunError(f"{file}: its columns are not those of a message log of this version of brokerbed")
    return Part(file, broker, rows)


def summary_of(folder: Path) -> dict[str, Any] | None:
    """The summary of an earlier analysis, if there was one."""
    try:
        summary = json.loads((folder / "analysis" / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return summary if isinstance(summary, dict) else None

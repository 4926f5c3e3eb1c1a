"""Finished runs as the analysis finds them on disk. What is wrong with a run directory is said before Spark starts."""

import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from brokerbed.analysis.errors import RunError
from brokerbed.log.record import CLIENTS
from brokerbed.log.schema import EVENTS
from brokerbed.scenario import Experiment, Scenario, load

READERS = 8  # files whose ends are read at the same time
STORED = EVENTS.remove(EVENTS.get_field_index("broker"))  # the broker is the name of the file's folder


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
    warnings: tuple[str, ...] = ()  # why its figures may be wrong

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)


@dataclass(frozen=True, slots=True)
class Finished:
    """All runs of one run directory: of the points of a sweep, and of several seeds; or of one of those."""

    folder: Path
    experiment: Experiment
    runs: tuple[Run, ...]

    @property
    def rows(self) -> int:
        return sum(run.rows for run in self.runs)

    def of_point(self, point: int) -> list[Run]:
        return [run for run in self.runs if run.point == point]


def find(folder: Path) -> Finished:
    """What is in a run directory; RunError if it is none, or not complete, or damaged."""
    experiment = experiment_of(folder)
    runs: list[Run] = []
    for point, scenario in enumerate(experiment.points):
        place = place_of(folder, experiment, point)
        for each in seeds_in(place / "seeds") or [place]:
            runs.append(_run(len(runs), point, each, scenario))
    return Finished(folder, experiment, tuple(runs))


def experiment_of(folder: Path) -> Experiment:
    """What was run there; in the directory of a point of a sweep, or of one of its seeds, that point alone."""
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
    return replace(experiment, is_sweep=False, points=(experiment.points[point or 0],))


def _top_of(folder: Path) -> tuple[Path, int | None]:
    """The run directory to which points/N, seeds/S or points/N/seeds/S belongs, and the number of the point."""
    if folder.parent.name == "seeds":
        folder = folder.parents[1]
    if folder.parent.name == "points" and folder.name.isdecimal():
        return folder.parents[1], int(folder.name)
    return folder, None


def place_of(folder: Path, experiment: Experiment, point: int) -> Path:
    """Where the runs of a point are."""
    return folder / "points" / str(point) if experiment.is_sweep else folder


def seeds_in(folder: Path) -> list[Path]:
    found = list(folder.iterdir()) if folder.is_dir() else []
    for it in found:
        if not (it.name.isdecimal() and it.is_dir()):
            raise RunError(f"{it}: this does not belong among the runs with several seeds; move it away")
    return sorted(found, key=lambda it: int(it.name))


def _run(number: int, point: int, folder: Path, scenario: Scenario) -> Run:
    told = described(folder)
    try:
        warnings = tuple(map(str, told.get("warnings", ())))
        seed, wall_s = int(told["seed"]), None if told["wall_seconds"] is None else float(told["wall_seconds"])
        begin_ns, end_ns = map(int, told["measured_ns"])
        model_s, ground = float(told["model_seconds"]), str(told["ground"])
    except (KeyError, TypeError, ValueError):
        raise RunError(f"{folder / 'run.json'}: this is not the description of a run") from None
    if wall_s is None:
        raise RunError(f"{folder}: the run is still under way, or was interrupted; run the scenario again")
    parts = _parts(folder / "log", scenario.tree.names)
    seeded = replace(scenario, seed=seed)
    return Run(number, point, folder, seeded, ground, model_s, wall_s, (begin_ns, end_ns), parts, warnings)


def described(folder: Path) -> dict[str, Any]:
    file = folder / "run.json"
    try:
        told = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise RunError(f"{file}: {error.strerror}; the run was not finished") from None
    except ValueError:
        raise RunError(f"{file}: this is not JSON; the run was not finished, or the file is damaged") from None
    if not isinstance(told, dict):
        raise RunError(f"{file}: this is not the description of a run")
    return told


def _parts(log: Path, brokers: Sequence[str]) -> tuple[Part, ...]:
    if not log.is_dir():
        raise RunError(f"{log}: there is no message log; the run was not finished")
    files = sorted(it for it in log.rglob("*") if it.is_file())
    with ThreadPoolExecutor(READERS) as pool:
        parts = tuple(pool.map(_part, files))
    if not sum(part.rows for part in parts):
        raise RunError(f"{log}: the message log is empty; the run was not finished")
    known, present = set(brokers), {part.broker for part in parts}
    for part in parts:
        if part.broker not in known and part.broker != CLIENTS:
            raise RunError(f"{part.file}: there is no broker {part.broker} in this scenario; move it away")
    if missing := [it for it in brokers if it not in present]:
        raise RunError(f"{log}: there is no log of {missing[0]}; the run was not finished, or the log is damaged")
    return parts


def _part(file: Path) -> Part:
    key, _, broker = file.parent.name.partition("=")
    if key != "broker" or file.suffix != ".parquet":
        raise RunError(f"{file}: this file does not belong into a message log; move it away")
    try:
        with pq.ParquetFile(file) as content:
            schema, rows = content.schema_arrow, content.metadata.num_rows
    except (pa.ArrowException, OSError):
        raise RunError(f"{file}: this is no complete Parquet file; it is truncated or damaged") from None
    if not schema.remove_metadata().equals(STORED):
        raise RunError(f"{file}: its columns are not those of a message log (of this version of brokerbed)")
    return Part(file, broker, rows)


def summary_of(folder: Path) -> dict[str, Any] | None:
    """What an earlier analysis found, if there was one."""
    try:
        told = json.loads((folder / "analysis" / "summary.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return told if isinstance(told, dict) else None

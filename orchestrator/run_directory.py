"""The directory of a run: what is written while it runs, and what the analysis finds in it.

`run.json` says what was run and how, `scenario.yaml` is the file as it was given, `log/` the message log. While a run
is under way its raw logs are in `raw/`; when it ends they become the dataset in `log/`.
"""

import glob
import json
import os
import platform
import shutil
import subprocess
import time
from dataclasses import fields, is_dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel

from brokerbed.broker.values import NS_PER_S
from brokerbed.orchestrator.grounds.base import Played
from brokerbed.orchestrator.pacer import Pacer
from brokerbed.scenario import Experiment, Scenario
from brokerbed.scenario.topology import Tree

PACKAGES = ("mqtt5", "numpy", "pyarrow", "pyspark", "uvloop")  # packages whose version may affect the results of a run


def create(out: Path, name: str, ground: str, seed: int, experiment: Experiment) -> Path:
    """Creates a new directory for a run, with the scenario file and the files that it needs beside it."""
    stamp = time.strftime("%Y%m%dT%H%M%S")
    out.mkdir(parents=True, exist_ok=True)
    for attempt in range(1000):
        folder = out / (f"{name}-{ground}-{seed}-{stamp}" + (f"-{attempt}" if attempt else ""))
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        break
    (folder / "scenario.yaml").write_bytes(experiment.text)
    for file in experiment.files:
        shutil.copyfile(Path(experiment.file).with_name(file), folder / file)
    return folder


def existing(out: Path, name: str, ground: str, seed: int) -> list[Path]:
    """The directories of runs with this name, ground and first seed, the newest first."""
    return sorted(out.glob(f"{glob.escape(f'{name}-{ground}-{seed}-')}*/"), reverse=True)


def point_latest_to(folder: Path) -> None:
    """Lets the link `latest` beside the run directory lead to it."""
    new = folder.parent / f".latest-{os.getpid()}"
    new.symlink_to(folder.name)
    new.replace(folder.parent / "latest")


def is_finished(folder: Path) -> bool:
    """Whether run.json marks a run, or all runs of an experiment, as finished."""
    try:
        return json.loads((folder / "run.json").read_text(encoding="utf-8"))["wall_seconds"] is not None
    except (OSError, ValueError, KeyError, TypeError):
        return False


def ended_by_pacer(folder: Path) -> list[str]:
    """What run.json says about when a run began to measure and why it ended, if it had a pacer."""
    try:
        document = json.loads((folder / "run.json").read_text(encoding="utf-8"))
        return [str(line) for line in document["pacing"]["said"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []


def describe_all(folder: Path, first: Scenario, ground: str, points: int, seeds: int) -> None:
    """Writes the run.json of a finished sweep, or of several seeds."""
    runs = [json.loads(file.read_text(encoding="utf-8")) for file in sorted(folder.glob("**/run.json"))]
    document = {
        "name": first.name, "seed": first.seed, "seeds": seeds, "points": points, "ground": ground,
        "version": version("brokerbed"), "commit": commit(), "started": min(run["started"] for run in runs),
        "wall_seconds": sum(run["wall_seconds"] for run in runs),
        "model_seconds": sum(run["model_seconds"] for run in runs),
    }  # fmt: skip
    _write(folder / "run.json", document)


def describe(
    folder: Path, scenario: Scenario, ground: str, started: float, wall_s: float | None = None,
    played: Played | None = None, pacer: Pacer | None = None,
) -> None:  # fmt: skip
    """Writes run.json; without `wall_s` the run has not finished."""
    begin_ns, end_ns = scenario.clock.warmup, scenario.clock.warmup + scenario.clock.measure
    if played is not None and played.end_ns is not None:
        end_ns = played.end_ns
    if pacer is not None:
        begin_ns = pacer.begin_ns
    document = {
        "scenario": plain(scenario),
        "seed": scenario.seed,
        "ground": ground,
        "version": version("brokerbed"),
        "commit": commit(),
        "machine": {"system": platform.platform(), "python": platform.python_version(), "cpus": os.cpu_count()},
        "packages": {name: version(name) for name in PACKAGES},
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(started)),
        "wall_seconds": wall_s,
        "model_seconds": (end_ns - begin_ns) / NS_PER_S,
        "measured_ns": [begin_ns, end_ns],
        "clock_offsets_ns": {} if played is None else played.clocks.as_json(),
        "warnings": [] if played is None else played.warnings,
        "testbed": {} if played is None else played.notes,
    }
    if pacer is not None and wall_s is not None:
        document["pacing"] = pacer.as_json()
    _write(folder / "run.json", document)


def _write(file: Path, document: dict[str, Any]) -> None:
    new = file.with_name(f"{file.name}.new")
    new.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    new.replace(file)


def plain(value: Any) -> Any:
    """Converts a scenario and all its parts to what JSON can represent."""
    if isinstance(value, Tree):
        parents = [None if parent < 0 else value.names[parent] for parent in value.parents.tolist()]
        return dict(zip(value.names, parents, strict=True))
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json", by_alias=True)
    if is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, dict):
        return {_key(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, frozenset):
        return sorted(value)
    return value.item() if isinstance(value, np.generic) else value


def _key(key: Any) -> str:
    return ":".join(map(str, key)) if isinstance(key, tuple) else str(key)


def commit() -> str | None:
    """The commit of the source code, if it is a git clone."""
    here = Path(__file__).parent
    try:
        command = ["git", "rev-parse", "HEAD"]
        done = subprocess.run(command, cwd=here, capture_output=True, text=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() or None

"""The commands of the analysis in this process, on the session that all tests share; and runs in their own."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from brokerbed.cli import dispatch
from tests.broker.running import COMMAND

RUN_S_MAX = 120

PAIR = """
scenario: 1
name: pair
clock: {warmup: 20s, measure: 200s}
topology: {tree: star, brokers: 2}
classes: 200
subscriptions: {mean_active: 40, lifetime: {mean: 1s}}
publications: {rate: 30/s}
tolerance: 10%
"""
SHORT = PAIR.replace("measure: 200s", "measure: 40s")


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    errors: str

    @property
    def json(self) -> dict[str, Any]:
        told = json.loads(self.out)
        assert isinstance(told, dict)
        return told


class Commands:
    def __init__(self, spark: SparkSession, capture: pytest.CaptureFixture[str]) -> None:
        self._spark = spark
        self._capture = capture

    def __call__(self, *arguments: str | Path) -> Said:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("brokerbed.analysis.jobs.analyse.session", self._session)
            self._capture.readouterr()
            code = dispatch([*map(str, arguments)])
        return Said(code, *self._capture.readouterr())

    @contextmanager
    def _session(self, *_: object, **__: object) -> Iterator[SparkSession]:
        yield self._spark


def run_only(folder: Path, text: str, *options: str) -> Path:
    """The run directory of a run by the installed command, without its analysis."""
    (folder / "s.yaml").write_text(text)
    done = subprocess.run(
        [COMMAND, "run", "s.yaml", "--on", "virtual", "--no-analyse", *options],
        cwd=folder, capture_output=True, text=True, timeout=RUN_S_MAX, check=False, env=dict(os.environ),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.strip()

"""Java dies amidst an analysis: one sentence, and exit code 3."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.analysis.real import simulate
from tests.broker.running import COMMAND, until
from tests.progress import without_progress

TEXT = """
scenario: 1
name: doomed
clock: {measure: 20s}
topology: {tree: star, brokers: 3}
publications: {rate: 20/s}
"""
WAIT_S = 120.0


def java_of(group: int) -> int | None:
    """The Java in this process group that runs Spark, not the one that only works out its command line."""
    for place in Path("/proc").iterdir():
        if place.name.isdigit():
            try:
                if os.getpgid(int(place.name)) == group and b"SparkSubmit" in (place / "cmdline").read_bytes():
                    return int(place.name)
            except OSError:
                continue
    return None


@pytest.mark.parametrize("at_work_s", [1.0, 2.0, 3.0, 4.0])
def test_java_that_is_killed(tmp_path: Path, at_work_s: float) -> None:
    """When it starts, or while it is at work: either way it is one sentence."""
    folder = simulate(tmp_path, TEXT)
    process = subprocess.Popen(
        [COMMAND, "analyse", folder], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )
    try:
        until(lambda: java_of(process.pid) is not None, "Spark's Java", WAIT_S)
        time.sleep(at_work_s)
        java = java_of(process.pid)
        assert java is not None
        os.kill(java, signal.SIGKILL)
        out, errors = process.communicate(timeout=WAIT_S)
    finally:
        process.kill()
    assert process.returncode == 3, errors
    assert out == ""
    assert len(without_progress(errors)) == 1, errors
    (line,) = without_progress(errors)
    assert line.startswith("brokerbed: Spark")

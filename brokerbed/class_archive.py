"""`python -m brokerbed.class_archive` analyses a small run, so that Java archives the classes which Spark has loaded.

With this archive, which is kept beside the programs of the virtual environment, Spark starts in half the time. It is an
optimisation only.
"""

import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from brokerbed.analysis.errors import SparkError
from brokerbed.analysis.java import JavaError
from brokerbed.analysis.jobs.analyse import analyse
from brokerbed.analysis.jobs.session import ARCHIVE
from brokerbed.analysis.runs import find
from brokerbed.orchestrator.grounds.registry import VIRTUAL
from brokerbed.orchestrator.run import run
from brokerbed.scenario import load

WAIT_S_MAX = 120.0
SCENARIO = """
scenario: 1
name: class-archive
clock: {warmup: 5s, measure: 40s}
topology: {tree: star, brokers: 3}
classes: 2
subscriptions: {mean_active: 4, lifetime: {mean: 5s}}
publications: {rate: 5/s}
service: {broker_in: {mean: 1ms}, link: {mean: 1ms}}
publishers: [{id: p, broker: b1, topic: t, rate: 2/s, on: {mean: 2s}, off: {mean: 1s}, service: {mean: 1ms}}]
subscribers:
  - {id: s, broker: b2, topic: t, on: {mean: 2s}, off: {mean: 1s}, session_service: {mean: 1ms}, service: {mean: 1ms}}
faults: [{at: 20s, crash: b2, for: 2s}]
"""


def create_class_archive() -> str:
    """Returns the result as a sentence."""
    start_s = time.monotonic()
    with TemporaryDirectory() as folder:
        file, new = Path(folder) / "scenario.yaml", Path(folder) / "new.jsa"
        file.write_text(SCENARIO, encoding="utf-8")
        finished = find(run(load(file), VIRTUAL, None, 1, Path(folder), lambda _: None))
        try:
            list(analyse([finished], archive=new))
        except (SparkError, JavaError) as error:
            return f"Spark cannot be used yet: {error}"
        _end_java()
        while time.monotonic() - start_s < WAIT_S_MAX:
            if new.exists():
                ARCHIVE.unlink(missing_ok=True)
                new.replace(ARCHIVE)
                return f"Spark's classes are in {ARCHIVE} ({time.monotonic() - start_s:.0f} s)"
            time.sleep(0.2)
    return "Spark's classes could not be kept; it will start a little slower"


def _end_java() -> None:
    """Java writes the archive when it exits, and it exits when its gateway is closed."""
    from pyspark import SparkContext

    gateway = SparkContext._gateway
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(WAIT_S_MAX)
        SparkContext._gateway = SparkContext._jvm = None


if __name__ == "__main__":
    print(create_class_archive())
    sys.exit(0)

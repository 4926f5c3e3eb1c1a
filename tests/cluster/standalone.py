"""A Spark standalone cluster on this machine: a master and workers as processes of their own, on free ports.

Every process of it has its working directory below the cluster's folder, so that none that is left stays unseen.
"""

import json
import os
import re
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyspark

from brokerbed.analysis.java import need_java
from brokerbed.analysis.jobs.session import ARCHIVE

SPARK = Path(pyspark.__file__).parent
START_S_MAX = 90.0  # a Java process takes seconds to start, many more on a busy machine
END_S_MAX = 30.0
POLL_S = 0.1
DIES_WITH_US = "setpriv", "--pdeathsig", "TERM"  # also if the tests are killed
MASTER = "org.apache.spark.deploy.master.Master"
WORKER = "org.apache.spark.deploy.worker.Worker"
# All that runs here is small: Java need not compile well, and finds Spark's classes where the driver does.
JAVA_OPTIONS = f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable -Xlog:all=off -XX:SharedArchiveFile={ARCHIVE}"
DEFAULTS = f"""spark.executor.memory 512m
spark.executor.extraJavaOptions {JAVA_OPTIONS}
"""


def until(condition: Callable[[], object], what: str, seconds: float = START_S_MAX) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"{what}: not within {seconds:.0f} s"
        time.sleep(POLL_S)


def processes_in(folder: Path) -> list[str]:
    """The command lines of all processes that work in a folder or below it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if (process / "cwd").resolve().is_relative_to(folder.resolve()):
                found.append((process / "cmdline").read_text(errors="replace").replace("\0", " ").strip())
        except OSError:  # it has ended meanwhile
            continue
    return [line for line in found if line]  # what has ended and was not waited for has none


class Daemon:
    """A master or a worker, with all that it starts."""

    def __init__(self, folder: Path, kind: str, *options: str) -> None:
        self.folder, self.log = folder, folder / "log"
        folder.mkdir()
        environment = os.environ | {
            "JAVA_HOME": str(need_java().executable.resolve().parents[1]),
            "SPARK_HOME": str(SPARK), "SPARK_CONF_DIR": str(folder), "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m", "SPARK_LOCAL_DIRS": str(folder / "scratch"),
            "SPARK_DAEMON_JAVA_OPTS": JAVA_OPTIONS,
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        }  # fmt: skip
        places = "-h", "127.0.0.1", "-p", "0", "--webui-port", "0"
        command = [*DIES_WITH_US, str(SPARK / "bin" / "spark-class"), kind, *places, *options]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip

    def said(self, pattern: str) -> str:
        """Waits for a line in its log; what the pattern's group matches there."""
        until(lambda: re.search(pattern, self.log.read_text()) or self.process.poll() is not None, pattern)
        found = re.search(pattern, self.log.read_text())
        assert found, f"it ended: {self.log.read_text()[-2000:]}"
        return found[1]

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """With all that it started."""
        if self.process.poll() is None:
            os.killpg(self.process.pid, how)
        try:
            self.process.wait(END_S_MAX)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(END_S_MAX)


class Cluster:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.defaults = folder / "conf"  # for applications; SPARK_CONF_DIR
        self.defaults.mkdir()
        (self.defaults / "spark-defaults.conf").write_text(DEFAULTS)
        self.master = Daemon(folder / "master", MASTER)
        self.workers: list[Daemon] = []

    def begin(self, workers: int) -> None:
        self.url = self.master.said(r"Starting Spark master at (spark://\S+)")
        self._page = f"http://127.0.0.1:{self.master.said(r'MasterUI. on port ([0-9]+)')}/json/"
        for _ in range(workers):
            self.add_worker()
        self.await_workers(workers)

    def add_worker(self) -> Daemon:
        options = "-c", "1", "-m", "1g", "-d"
        place = self.folder / f"worker{len(self.workers)}"
        self.workers.append(Daemon(place, WORKER, *options, str(place / "work"), self.url))
        return self.workers[-1]

    def await_workers(self, count: int) -> None:
        until(lambda: self.state()["aliveworkers"] == count, f"{count} workers")

    def state(self) -> dict[str, Any]:
        """What the master tells of workers and applications."""
        with urllib.request.urlopen(self._page, timeout=START_S_MAX) as answer:
            told = json.load(answer)
        assert isinstance(told, dict)
        return told

    def applications(self) -> list[str]:
        """Those that have come to their end, the newest last."""
        until(lambda: not self.state()["activeapps"], "the end of all applications", END_S_MAX)
        return sorted(it["id"] for it in self.state()["completedapps"])

    def end(self) -> None:
        for daemon in (*self.workers, self.master):
            daemon.end()
        until(lambda: not processes_in(self.folder), f"the end of {processes_in(self.folder)}", END_S_MAX)


def tasks_done(worker: Daemon, application: str = "*") -> int:
    """How many tasks the executors of a worker have finished, by their own account."""
    logs = worker.folder.glob(f"work/{application}/*/stderr")
    return sum(log.read_text(errors="replace").count("Executor: Finished task ") for log in logs)

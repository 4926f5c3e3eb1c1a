"""The Spark session; no other module starts one. Its output is hidden unless Spark fails."""

import logging
import os
import re
import signal
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread, current_thread, main_thread
from typing import IO

import pyspark
from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from brokerbed.analysis.errors import SparkError
from brokerbed.analysis.java import need_java
from brokerbed.analysis.jobs.cluster import await_executors, check_master, is_local, prepare

LOCAL = "local[*]"
DRIVER_MEMORY, DRIVER_MEMORY_LARGE = "2g", "4g"  # of the Java heap; sorts and joins that do not fit spill to disk
ROWS_PER_PARTITION = 1_000_000
PARTITIONS_MIN, PARTITIONS_MAX = 2, 2000
TRACEBACK = "Traceback (most recent call last):"
WORDS_SHOWN = 300  # characters of Spark's error message
SMALL_ROWS = 15_000_000  # below, the simpler compiler and garbage collector of Java are faster
TASKS_S = 2.0  # how often the number of completed tasks is polled
Progress = Callable[[float, str], None]  # called with the share of the work that is done, and the running steps
ARCHIVE = Path(sys.prefix) / f"spark-{pyspark.__version__}.jsa"  # Spark's classes as a memory image of Java


@contextmanager
def session(
    master: str | None, rows: int, verbose: bool = False, archive: Path | None = None
) -> Iterator[SparkSession]:
    """A session for logs with about this many rows. With `archive`, Java saves its loaded classes there."""
    java = need_java()
    os.environ["JAVA_HOME"] = str(java.executable.resolve().parents[1])
    master = master or LOCAL
    check_master(master)
    prepare(master)
    partitions = min(PARTITIONS_MAX, max(PARTITIONS_MIN, rows // ROWS_PER_PARTITION))
    builder: SparkSession.Builder = SparkSession.builder
    options = {
        "spark.master": master,
        "spark.app.name": "brokerbed",
        "spark.driver.memory": DRIVER_MEMORY_LARGE if is_local(master) and rows > SMALL_ROWS else DRIVER_MEMORY,
        "spark.ui.enabled": "false",
        "spark.ui.retainedJobs": "10",  # these are for a page that is switched off, and fill the heap
        "spark.ui.retainedStages": "10",
        "spark.ui.retainedTasks": "100",
        "spark.sql.ui.retainedExecutions": "1",
        "spark.driver.extraJavaOptions": _java_options(rows, archive),
        "spark.ui.showConsoleProgress": "false",
        "spark.unsafe.sorter.spill.read.ahead.enabled": "false",  # takes 2 MB for each part of a sort that was spilled
        "spark.speculation": "false",  # two tasks for one run would write to the same folder
        "spark.buffer.pageSize": "4m",  # each sort and window needs one, and ten of the default 32 MB are too much
        "spark.sql.adaptive.enabled": str(rows > SMALL_ROWS).lower(),
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.enableVectorizedReader": "true",
        "spark.sql.files.maxPartitionBytes": "64m",
        "spark.sql.debug.maxToStringFields": "100",
    }
    for key, value in options.items():
        builder = builder.config(key, value)
    with tempfile.TemporaryFile("w+") as output, _own_interrupts():
        with _stderr_to(output, not verbose):
            try:
                spark = builder.getOrCreate()
            except Exception as error:  # noqa: BLE001  # the Java side raises errors of many types
                raise SparkError(f"Spark does not start on {master}: {_reason(error, output)}") from None
        if current_thread() is main_thread():
            signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's handler fails when it interrupts a call
        spark.sparkContext.setLogLevel("WARN" if verbose else "OFF")
        try:
            if not is_local(master):
                await_executors(spark, master)
            yield spark
        except (PySparkException, Py4JError, ConnectionError) as error:
            if (ending := ended_by(error)) is not None:
                raise ending from None
            text = _text(error)
            if text is None or isinstance(error, Py4JNetworkError | ConnectionError) or _is_dead(spark):
                raise SparkError(
                    "Spark's Java process died during the analysis, probably for lack of memory (-v shows its output)"
                ) from error
            raise SparkError(f"Spark failed: {_cause(text)}") from error
        finally:
            with suppress(Py4JError, OSError), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # if Java has died, there is nothing to stop
                spark.stop()


@contextmanager
def with_tasks(spark: SparkSession, progress: Progress) -> Iterator[Progress]:
    """Passes progress on, and regularly adds how many tasks of the active stages are done."""
    last, is_over = (0.0, ""), Event()

    def report(part: float, step: str) -> None:
        nonlocal last
        last = part, step
        progress(part, step)

    def watch() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not is_over.wait(TASKS_S):
            with suppress(Py4JError, OSError):  # the thread that started the work reports that Java has died
                stages = [
                    stage for stage in map(tracker.getStageInfo, tracker.getActiveStageIds()) if stage is not None
                ]
                part, step = last
                done, total = sum(stage.numCompletedTasks for stage in stages), sum(stage.numTasks for stage in stages)
                progress(part, f"{step} ({done} of {total} Spark tasks)" if total else step)

    watcher = Thread(target=watch, name="Spark tasks", daemon=True)
    watcher.start()
    try:
        yield report
    finally:
        is_over.set()
        watcher.join(TASKS_S)  # Java may no longer answer


def ended_by(error: BaseException) -> BaseException | None:
    """The interrupt (Ctrl-C or a signal) because of which calls to Java failed, if there was one."""
    while (before := error.__context__) is not None:
        if not isinstance(before, Exception):
            return before
        error = before
    return None


def _is_dead(spark: SparkSession) -> bool:
    """Whether the Java process has ended; calls to it then fail in many ways."""
    process = getattr(spark.sparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def _text(error: Exception) -> str | None:
    """The text of an error, which Java is asked for; None if Java has ended in the meantime."""
    try:
        return str(error)
    except (Py4JError, OSError):
        return None


def _java_options(rows: int, archive: Path | None) -> str:
    options = ["-Xlog:disable", "-Xlog:all=off"]  # so that an archive of another version is ignored silently
    if rows <= SMALL_ROWS:
        options += ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        options += ["-XX:ReservedCodeCacheSize=240m"]  # the default of 48 MB is too small for several analyses
    if archive is not None:
        options.append(f"-XX:ArchiveClassesAtExit={archive}")
    elif ARCHIVE.exists():
        options.append(f"-XX:SharedArchiveFile={ARCHIVE}")
    return " ".join(options)


@contextmanager
def _own_interrupts() -> Iterator[None]:
    """Restores the handler of Ctrl-C afterwards, and keeps the bridge to Java from logging interrupted calls."""
    handler = signal.getsignal(signal.SIGINT)
    logging.disable(logging.ERROR)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)
        if current_thread() is main_thread():
            signal.signal(signal.SIGINT, handler)


@contextmanager
def _stderr_to(file: IO[str], wanted: bool) -> Iterator[None]:
    """Redirects stderr to a file, also for programs started meanwhile. What Python itself prints stays visible."""
    if not wanted:
        yield
        return
    sys.stderr.flush()
    kept, ours = os.dup(2), sys.stderr
    with os.fdopen(kept, "w", buffering=1, errors="backslashreplace", closefd=False) as visible:
        if _is_file_2(ours):
            sys.stderr = visible
        os.dup2(file.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            sys.stderr = ours
    os.close(kept)


def _is_file_2(stream: IO[str]) -> bool:
    try:
        return stream.fileno() == 2
    except (OSError, AttributeError):  # a test captures the stream
        return False


def _reason(error: Exception, output: IO[str]) -> str:
    output.seek(0)
    text = output.read()
    if logged := re.search(r" ERROR \S+: (.+)", text):
        return logged[1][:WORDS_SHOWN]
    lines = [line for line in text.splitlines() if "rror" in line or "xception" in line]
    return (lines[-1] if lines else _first_line(str(error)))[-WORDS_SHOWN:]


def _cause(text: str) -> str:
    """The last line of an error of a Python worker, or the first line of any other error."""
    _, has_trace, trace = text.rpartition(TRACEBACK)
    if not has_trace:
        return _first_line(text)
    lines = trace.partition("\n\tat ")[0].strip().splitlines()
    return lines[-1][:WORDS_SHOWN] if lines else _first_line(text)


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or ["for no reason that it gives"])[0][:WORDS_SHOWN]

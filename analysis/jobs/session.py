"""The Spark session: the only place that starts one. Its chatter goes to a file that nobody sees unless it fails."""

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from analysis.errors import SparkError
from orchestrator.java import need_java

LOCAL = "local[*]"
DRIVER_MEMORY = "2g"  # of the Java heap; sorts and joins that do not fit spill to disk
ROWS_PER_PARTITION = 1_000_000
PARTITIONS_MIN, PARTITIONS_MAX = 4, 2000
WORDS_SHOWN = 300  # of what Spark said before it failed
SMALL_ROWS = 5_000_000  # up to here Java's best compiler costs more than it gives
ARCHIVE = Path(sys.prefix) / f"spark-{pyspark.__version__}.jsa"  # Spark's classes as Java has them in memory


@contextmanager
def session(
    master: str | None, rows: int, verbose: bool = False, archive: Path | None = None
) -> Iterator[SparkSession]:
    """A session for logs of about so many rows; ended on leaving. With `archive` its classes are kept there."""
    java = need_java()
    os.environ["JAVA_HOME"] = str(java.executable.resolve().parents[1])
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else Spark warns of it, and listens elsewhere
    partitions = min(PARTITIONS_MAX, max(PARTITIONS_MIN, rows // ROWS_PER_PARTITION))
    builder: SparkSession.Builder = SparkSession.builder
    options = {
        "spark.master": master or LOCAL,
        "spark.app.name": "brokerbed",
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": _java_options(rows, archive),
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.parquet.enableVectorizedReader": "true",
        "spark.sql.files.maxPartitionBytes": "64m",
        "spark.sql.debug.maxToStringFields": "100",
    }
    for key, value in options.items():
        builder = builder.config(key, value)
    with tempfile.TemporaryFile("w+") as said:
        with _stderr_to(said, not verbose):
            try:
                spark = builder.getOrCreate()
            except Exception as error:  # noqa: BLE001  # whatever the Java side has to say
                raise SparkError(f"Spark does not start on {master or LOCAL}: {_reason(error, said)}") from None
        spark.sparkContext.setLogLevel("WARN" if verbose else "OFF")
        try:
            yield spark
        except PySparkException as error:
            raise SparkError(f"Spark failed: {_first_line(str(error))}") from error
        finally:
            spark.stop()


def _java_options(rows: int, archive: Path | None) -> str:
    options = ["-Xlog:disable", "-Xlog:all=off"]  # an archive that does not fit is passed over in silence
    if rows <= SMALL_ROWS:
        options += ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
    if archive is not None:
        options.append(f"-XX:ArchiveClassesAtExit={archive}")
    elif ARCHIVE.exists():
        options.append(f"-XX:SharedArchiveFile={ARCHIVE}")
    return " ".join(options)


@contextmanager
def _stderr_to(file: IO[str], wanted: bool) -> Iterator[None]:
    """Also of programs that are started meanwhile, for as long as they live."""
    if not wanted:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _reason(error: Exception, said: IO[str]) -> str:
    said.seek(0)
    lines = [line for line in said.read().splitlines() if "rror" in line or "xception" in line]
    return (lines[-1] if lines else _first_line(str(error)))[-WORDS_SHOWN:]


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or ["for no reason that it gives"])[0][:WORDS_SHOWN]

"""What a Spark cluster needs beyond a local session: a master that answers, addresses, and executors.

This module knows nothing of logs or runs, and is imported before Spark.
"""

import os
import re
import socket
import sys
import time
from typing import TYPE_CHECKING

from brokerbed.analysis.errors import MasterError, SparkError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STANDALONE = "spark://"
KINDS = re.compile(r"local(\[[^\]]+\])?|local-cluster\[[^\]]+\]|yarn|k8s://.+|spark://[^,/]+:[0-9]+(,[^,/]+:[0-9]+)*")
LOOPBACK = ("localhost", "[::1]")
ANSWER_S_MAX = 5.0  # for a connection to the master; Spark itself tries for a minute
EXECUTOR_S_MAX = 120.0  # for the first executor; Spark itself waits forever
POLL_S = 0.1


def check_master(master: str) -> None:
    """MasterError if the address is invalid; SparkError if no standalone master answers there."""
    if not KINDS.fullmatch(master):
        raise MasterError(
            f"--master: must be spark://HOST:PORT, yarn, k8s://URL or local[N], not {master} (see docs/cluster.md)"
        )
    reasons = []
    for host, port in _addresses(master):
        try:
            socket.create_connection((host.strip("[]"), port), ANSWER_S_MAX).close()
        except (OSError, OverflowError) as error:
            reasons.append(getattr(error, "strerror", None) or str(error))
        else:
            return
    if reasons:
        raise SparkError(
            f"no Spark master answers at {master} ({'; '.join(dict.fromkeys(reasons))}): is the cluster up, and is this"
            " the address that its master shows?"
        )


def prepare(master: str) -> None:
    """Sets the environment variables with which Spark's Java process and Python workers start."""
    if is_local(master):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:  # workers may have another Python
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_here(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # otherwise Spark warns, and listens on another address


def is_local(master: str) -> bool:
    """Whether all work is done in this one process."""
    return master.split("[", 1)[0] == "local"


def is_here(master: str) -> bool:
    """Whether all of Spark runs on this machine. Executors elsewhere must be able to connect to the driver."""
    if not master.startswith(STANDALONE):
        return master.startswith("local")
    return all(host in LOOPBACK or host.startswith("127.") for host, _ in _addresses(master))


def await_executors(spark: "SparkSession", master: str) -> None:
    """Waits for the first executor; SparkError if the cluster provides none."""
    context = spark.sparkContext._jsc.sc()
    end = time.monotonic() + EXECUTOR_S_MAX
    while context.getExecutorMemoryStatus().size() < 2:  # the driver itself counts as one
        if context.isStopped() or time.monotonic() > end:
            wanted = spark.sparkContext.getConf().get("spark.executor.memory", "1g")
            raise SparkError(
                f"{master} gives no executor within {EXECUTOR_S_MAX:.0f} s: its workers are gone, busy, have less than"
                f" {wanted} of memory (spark.executor.memory), or do not reach this machine (spark.driver.host)"
            )
        time.sleep(POLL_S)


def _addresses(master: str) -> list[tuple[str, int]]:
    """Host and port of every master of a standalone cluster; empty for other kinds of clusters."""
    if not master.startswith(STANDALONE):
        return []
    pairs = (address.rpartition(":") for address in master.removeprefix(STANDALONE).split(","))
    return [(host, int(port)) for host, _, port in pairs]

"""What is different on a Spark cluster: whether its master answers, who must reach whom, waiting for executors.

Knows nothing of logs or runs, and is imported before Spark is.
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
ANSWER_S_MAX = 5.0  # of a master to a connection; Spark itself tries for a minute
EXECUTOR_S_MAX = 120.0  # until the first executor is there; Spark itself waits for ever
POLL_S = 0.1


def check_master(master: str) -> None:
    """MasterError if it is no master's address; SparkError if it is a standalone master's and nobody answers there."""
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
    """The environment in which Spark's Java side and its Python workers are started."""
    if is_local(master):
        os.environ["PYSPARK_PYTHON"] = sys.executable
    else:  # workers may have theirs elsewhere
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    if is_here(master):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else Spark warns of it, and listens elsewhere


def is_local(master: str) -> bool:
    """Whether all work is done in this one process."""
    return master.split("[", 1)[0] == "local"


def is_here(master: str) -> bool:
    """Whether all of Spark is on this machine: executors elsewhere must be able to call back."""
    if not master.startswith(STANDALONE):
        return master.startswith("local")
    return all(host in LOOPBACK or host.startswith("127.") for host, _ in _addresses(master))


def await_executors(spark: "SparkSession", master: str) -> None:
    """Return when somebody is there to work; SparkError if the cluster gives us nobody."""
    context = spark.sparkContext._jsc.sc()
    end = time.monotonic() + EXECUTOR_S_MAX
    while context.getExecutorMemoryStatus().size() < 2:  # the first is the driver itself
        if context.isStopped() or time.monotonic() > end:
            wanted = spark.sparkContext.getConf().get("spark.executor.memory", "1g")
            raise SparkError(
                f"{master} gives no executor within {EXECUTOR_S_MAX:.0f} s: its workers are gone, busy, have less than"
                f" {wanted} of memory (spark.executor.memory), or do not reach this machine (spark.driver.host)"
            )
        time.sleep(POLL_S)


def _addresses(master: str) -> list[tuple[str, int]]:
    """Host and port of every master of a standalone cluster; of others there is nothing to try."""
    if not master.startswith(STANDALONE):
        return []
    pairs = (it.rpartition(":") for it in master.removeprefix(STANDALONE).split(","))
    return [(host, int(port)) for host, _, port in pairs]

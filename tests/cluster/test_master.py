"""`--master`: what is no address, who does not answer, who gives nothing, and what Spark's processes are told."""

import os
import socket
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from brokerbed.analysis.errors import MasterError, SparkError
from brokerbed.analysis.jobs import cluster
from tests.cluster.commands import SWEEP, TINY, brokerbed, run
from tests.cluster.standalone import processes_in
from tests.progress import without_progress


@pytest.fixture
def dead_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.mark.needs("java")
@pytest.mark.parametrize("command", ["run", "analyse"])
def test_master_that_does_not_answer(tmp_path: Path, command: str, dead_port: int) -> None:
    arguments = ["run", "s.yaml", "--on", "virtual"]
    if command == "analyse":
        arguments = ["analyse", str(run(tmp_path, TINY, "there"))]
    (tmp_path / "s.yaml").write_text(SWEEP)
    before = sorted(tmp_path.rglob("*"))
    master = f"spark://127.0.0.1:{dead_port}"
    code, out, errors = brokerbed(tmp_path, *arguments, "--master", master)
    assert (code, out) == (3, "")
    (line,) = without_progress(errors)
    assert line == (
        f"brokerbed: no Spark master answers at {master} (Connection refused): is the cluster up, and is this the"
        " address that its master shows?"
    )
    assert sorted(tmp_path.rglob("*")) == before
    assert processes_in(tmp_path) == []


@pytest.mark.parametrize(
    "wrong", ["here:7077", "spark://here", "spark:/here:7077", "spark://a:1,b", "http://here:8080", "local[", "mesos"]
)
def test_what_is_no_master(wrong: str) -> None:
    with pytest.raises(MasterError, match=r"^--master: must be spark://HOST:PORT, yarn, k8s://URL or local\[N\], not "):
        cluster.check_master(wrong)


@pytest.mark.needs("java")
def test_wrong_master_is_bad_input(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SWEEP)
    code, out, errors = brokerbed(tmp_path, "run", "s.yaml", "--on", "virtual", "--master", "here:7077")
    assert (code, out, errors.count("\n")) == (2, "", 1)


@pytest.mark.parametrize("other", ["local", "local[*]", "local[2]", "local[2,3]", "yarn", "k8s://https://here:6443"])
def test_masters_that_are_not_asked(other: str) -> None:
    cluster.check_master(other)


def test_one_of_several_masters_is_enough(dead_port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        live_port = server.getsockname()[1]
        cluster.check_master(f"spark://127.0.0.1:{dead_port},127.0.0.1:{live_port}")
    with pytest.raises(SparkError, match="no Spark master answers"):
        cluster.check_master(f"spark://127.0.0.1:{dead_port},127.0.0.1:{live_port}")


@pytest.mark.parametrize(
    ("master", "python", "address"),
    [
        ("local[*]", sys.executable, "127.0.0.1"),
        ("spark://127.0.0.1:7077", "theirs", "127.0.0.1"),
        ("spark://localhost:7077,127.0.0.2:7077", "theirs", "127.0.0.1"),
        ("spark://localhost:7077,spark.example:7077", "theirs", None),  # executors call the driver back
        ("spark://spark.example:7077", "theirs", None),
        ("yarn", "theirs", None),
        ("k8s://https://127.0.0.1:6443", "theirs", None),
    ],
)
def test_environment_of_sparks_processes(
    master: str, python: str, address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "theirs")
    monkeypatch.setenv("SPARK_LOCAL_IP", "")
    monkeypatch.delenv("SPARK_LOCAL_IP")
    cluster.prepare(master)
    assert os.environ["PYSPARK_PYTHON"] == python
    assert os.environ.get("SPARK_LOCAL_IP") == address
    monkeypatch.delenv("PYSPARK_PYTHON")
    cluster.prepare(master)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


def test_cluster_without_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "EXECUTOR_S_MAX", 0.3)
    spark = MagicMock()
    context = spark.sparkContext._jsc.sc.return_value
    context.isStopped.return_value = False
    spark.sparkContext.getConf.return_value.get.return_value = "3g"
    context.getExecutorMemoryStatus.return_value.size.side_effect = [1, 1, 2]
    cluster.await_executors(spark, "yarn")
    context.getExecutorMemoryStatus.return_value.size.side_effect = None
    context.getExecutorMemoryStatus.return_value.size.return_value = 1
    with pytest.raises(SparkError, match=r"^yarn gives no executor within 0 s: its workers .* less than 3g of memory"):
        cluster.await_executors(spark, "yarn")

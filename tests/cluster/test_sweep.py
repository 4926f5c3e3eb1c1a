"""`run --on virtual --master`: the points of a sweep as tasks on the workers of a Spark cluster."""

import json
import signal
import venv
from pathlib import Path

import pytest

from tests.cluster.commands import LONG, SWEEP, brokerbed, finish, run, start
from tests.cluster.standalone import Cluster, processes_in, tasks_done, until
from tests.progress import without_progress

RUN = "run", "s.yaml", "--on", "virtual", "--out", "out", "--no-analyse"


def logs(folder: Path) -> dict[str, bytes]:
    """The content of every file of the message logs of a sweep."""
    return {str(it.relative_to(folder)): it.read_bytes() for it in folder.glob("points/*/log/*/*")}


@pytest.fixture(scope="module")
def long_logs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Of the long sweep, run without a cluster."""
    return logs(run(tmp_path_factory.mktemp("long"), LONG, "here"))


def test_sweep_on_the_workers_though_one_dies(cluster: Cluster, tmp_path: Path, long_logs: dict[str, bytes]) -> None:
    """It is the same, byte for byte, as without a cluster; what a dead worker has begun is done anew by another."""
    doomed = cluster.add_worker()
    (tmp_path / "s.yaml").write_text(LONG)
    process = start(tmp_path, *RUN, "--master", cluster.url, conf=cluster.defaults)
    try:
        until(
            lambda: [it for it in processes_in(doomed.folder / "work") if "pyspark.daemon" in it],
            "a task on the worker",
        )
        until(lambda: list(tmp_path.glob("out/latest/points/*/raw/*")), "runs under way")
    finally:
        doomed.end(signal.SIGKILL)
        still_going = process.poll() is None
        code, out, errors = finish(process)
    assert still_going
    assert code == 0, errors
    folder = tmp_path / out.strip()
    assert len(long_logs) == 4 * 3  # points; two brokers and the clients
    assert logs(folder) == long_logs
    told = json.loads((folder / "run.json").read_text())
    assert (told["points"], told["model_seconds"]) == (4, 4 * 1500.0)
    assert sorted(it.name for it in (folder / "points" / "3").iterdir()) == ["log", "run.json"]
    application = cluster.applications()[-1]
    assert sum(tasks_done(worker, application) for worker in cluster.workers) == 4


def test_interrupted_sweep_ends_its_tasks(cluster: Cluster, tmp_path: Path, long_logs: dict[str, bytes]) -> None:
    (tmp_path / "s.yaml").write_text(LONG)
    process = start(tmp_path, *RUN, "--master", cluster.url, conf=cluster.defaults)
    try:
        until(lambda: list(tmp_path.glob("out/latest/points/*/raw/*")), "the first run")
    finally:
        process.send_signal(signal.SIGINT)
        code, out, errors = finish(process)
    assert (code, out, without_progress(errors)) == (130, "", [])
    cluster.applications()
    for place in (tmp_path, *(worker.folder / "work" for worker in cluster.workers)):
        until(lambda place=place: not processes_in(place), f"the end of all tasks in {place}")  # type: ignore[misc]
    done = {it.parent.name for it in tmp_path.glob("out/latest/points/*/log")}
    assert len(done) < 4
    again = run(tmp_path, LONG, "out")
    assert again.resolve() == (tmp_path / "out" / "latest").resolve()
    assert logs(again) == long_logs


def test_workers_without_brokerbed_are_told_of_in_one_line(cluster: Cluster, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", with_pip=False, symlinks=True)
    python = tmp_path / "bare" / "bin" / "python"
    (tmp_path / "s.yaml").write_text(SWEEP)
    master = "--master", cluster.url
    code, out, errors = brokerbed(tmp_path, *RUN, *master, conf=cluster.defaults, PYSPARK_PYTHON=str(python))
    assert (code, out) == (3, "")
    (line,) = without_progress(errors)
    assert line.startswith("brokerbed: Spark failed: ModuleNotFoundError: No module named ")

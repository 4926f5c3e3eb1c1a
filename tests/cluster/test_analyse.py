"""`analyse --master`: the same numbers as on this machine alone, worked out by the executors."""

import signal
from pathlib import Path

import pytest

from tests.cluster.commands import TINY, brokerbed, finish, numbers, run, start
from tests.cluster.standalone import Cluster, tasks_done, until

EXACT = 1e-9
Numbers = dict[tuple[str, ...], float | None]


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("analysed"), TINY, "with #, %20 and [x]")


@pytest.fixture(scope="module")
def here(run_dir: Path) -> Numbers:
    """What local[*] finds out."""
    code, out, errors = brokerbed(run_dir, "analyse", ".", "--json")
    assert code in (0, 1), errors
    return numbers(out)


def test_same_numbers_on_the_executors_though_a_worker_dies(cluster: Cluster, run_dir: Path, here: Numbers) -> None:
    """It is killed with its executor, and with it the results of tasks that others still need."""
    doomed = cluster.add_worker()
    process = start(run_dir, "analyse", ".", "--json", "--master", cluster.url, conf=cluster.defaults)
    try:
        until(lambda: tasks_done(doomed) >= 5, "tasks on the worker")
    finally:
        doomed.end(signal.SIGKILL)
        still_going = process.poll() is None
        code, out, errors = finish(process)
    assert still_going
    assert code in (0, 1), errors
    assert len(here) > 30
    there = numbers(out)
    assert there.keys() == here.keys()
    for key, value in here.items():  # some rows of so short a run have no interval
        assert there[key] == (value if value is None else pytest.approx(value, rel=EXACT, abs=EXACT)), key
    application = cluster.applications()[-1]
    assert min(tasks_done(worker, application) for worker in cluster.workers[:2]) > 5

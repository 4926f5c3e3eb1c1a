"""`brokerbed run --on virtual`: the run directory, exact repetition, sweeps, mistakes."""

import filecmp
import json
import os
import signal
import subprocess
import time
import weakref
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from brokerbed.orchestrator.simulator.simulation import Simulation
from brokerbed.scenario import ALGORITHMS, load
from tests.broker.running import COMMAND, until

RUN_S_MAX = 120
SMALL = """
scenario: 1
name: small
clock: {warmup: 5s, measure: 20s}
topology: {tree: regular, arity: 2, depth: 3}
classes: 5
subscriptions: {mean_active: 20, lifetime: {mean: 10s}}
publications: {rate: 20/s}
service: {broker_in: {mean: 1ms}}
publishers: [{id: p, broker: b1, topic: t/x, rate: 2/s, on: {mean: 5s}, off: {mean: 2s}}]
subscribers: [{id: s, broker: b6, topic: 't/#', on: {mean: 5s}, off: {mean: 2s}, session_service: {mean: 10ms}}]
faults: [{at: 8s, crash: b2, for: 2s}, {every: {mean: 6s}, cut: any, for: {mean: 1s}}]
"""


def run(folder: Path, text: str, *options: str, hash_seed: str = "0") -> subprocess.CompletedProcess[str]:
    (folder / "s.yaml").write_text(text)
    return subprocess.run(
        [COMMAND, "run", "s.yaml", "--on", "virtual", "--no-analyse", *options],
        cwd=folder, capture_output=True, text=True, timeout=RUN_S_MAX, check=False,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
    )  # fmt: skip


def same(one: Path, other: Path) -> bool:
    files = sorted(str(it.relative_to(one)) for it in one.rglob("*.parquet"))
    assert files == sorted(str(it.relative_to(other)) for it in other.rglob("*.parquet"))
    assert files
    return filecmp.cmpfiles(one, other, files, shallow=False)[0] == files


def test_same_seed_same_log_byte_for_byte(tmp_path: Path) -> None:
    for out, seed, hash_seed in (("one", "1", "1"), ("two", "1", "2"), ("three", "2", "1")):
        done = run(tmp_path, SMALL, "--out", out, "--seed", seed, hash_seed=hash_seed)
        assert done.returncode == 0, done.stderr
    logs = [tmp_path / out / "latest" / "log" for out in ("one", "two", "three")]
    assert same(logs[0], logs[1])
    assert not same(logs[0], logs[2])


def test_same_seed_same_log_for_each_routing_algorithm(tmp_path: Path) -> None:
    """With covers and merged filters, sources that come and go, and a refresh, so that each algorithm does all it can."""
    text = SMALL.replace("classes: 5", "classes: {count: 12, groups: 3}\nrefresh: 3s")
    text = text.replace("lifetime: {mean: 10s}", "lifetime: {mean: 3s}, wide: {mean_active: 4}")
    text = text.replace("rate: 20/s}", "rate: 20/s, sources: {on: {mean: 2s}, off: {mean: 2s}}}")
    text += f"sweep: {{routing: [{', '.join(ALGORITHMS.built_in)}]}}\n"
    for hash_seed in ("1", "2"):
        done = run(tmp_path, text, "--out", hash_seed, hash_seed=hash_seed)
        assert done.returncode == 0, done.stderr
    assert same(tmp_path / "1" / "latest" / "points", tmp_path / "2" / "latest" / "points")


def test_memory_of_a_simulation_is_free_when_the_next_one_runs(tmp_path: Path) -> None:
    """Points of a sweep are run one after the other in the same processes."""
    (tmp_path / "s.yaml").write_text(SMALL)
    scenario = load(tmp_path / "s.yaml").points[0]

    def simulated() -> weakref.ref[Simulation]:
        simulation = Simulation(scenario, None)
        simulation.run()
        return weakref.ref(simulation)

    first, second = simulated(), simulated()
    assert first() is None
    assert second() is not None, "its objects refer to each other: only the collector frees them"


def test_run_directory_has_what_the_analysis_needs(tmp_path: Path) -> None:
    done = run(tmp_path, SMALL)
    assert done.returncode == 0, done.stderr
    (folder,) = (it for it in (tmp_path / "runs").iterdir() if not it.is_symlink())
    assert done.stdout.strip() == f"runs/{folder.name}"
    assert folder.name.startswith("small-virtual-1-")
    assert (tmp_path / "runs" / "latest").resolve() == folder
    assert (folder / "scenario.yaml").read_text() == SMALL
    told = json.loads((folder / "run.json").read_text())
    assert (told["ground"], told["seed"], told["model_seconds"]) == ("virtual", 1, 20.0)
    assert told["measured_ns"] == [5_000_000_000, 25_000_000_000]
    assert told["scenario"]["tree"]["b6"] == "b2"
    assert sorted(it.name for it in folder.iterdir()) == ["log", "request.json", "run.json", "scenario.yaml"]
    parts = sorted(it.name for it in (folder / "log").iterdir())
    assert parts == [f"broker=b{number}" for number in range(7)] + ["broker=clients"]
    table = pq.read_table(folder / "log")
    assert {"published", "sent", "received", "processed", "link_subscribe"} <= set(table["event"].to_pylist())
    lives = {it for it in table["origin"].to_pylist() if it is not None and it.startswith("b2.")}
    assert lives == {"b2.1", "b2.2"}  # it crashed once, and published in both lives


def test_sweep_is_one_directory_with_points(tmp_path: Path) -> None:
    done = run(tmp_path, SMALL + "sweep: {routing: [identity, flooding], classes: [5]}\n", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    for number, routing in enumerate(("identity", "flooding")):
        folder = tmp_path / told["run_directory"] / "points" / str(number)
        assert json.loads((folder / "run.json").read_text())["scenario"]["routing"] == routing
        assert (folder / "log" / "broker=b0").is_dir()


@pytest.mark.parametrize(
    ("options", "named"), [(["--on", "moon"], "--on"), (["--seed", "-1"], "--seed"), (["--seed", "x"], "--seed")]
)
def test_mistakes_are_one_line_and_exit_code_2(tmp_path: Path, options: list[str], named: str) -> None:
    done = run(tmp_path, SMALL, *options)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert named in done.stderr
    assert not (tmp_path / "runs").exists()


def test_another_broker_changes_nothing_for_the_others(tmp_path: Path) -> None:
    """The same messages are published at b1 when the tree has one broker more."""
    found = []
    for brokers in (3, 4):
        text = f"""
scenario: 1
name: star
clock: {{measure: 20s}}
topology: {{tree: star, brokers: {brokers}}}
publishers: [{{id: p, broker: b1, topic: t, rate: 5/s, on: {{mean: 5s}}, off: {{mean: 5s}}}}]
publications: {{at: [{{broker: b1, class: 0, rate: 3/s}}]}}
"""
        done = run(tmp_path, text, "--out", f"out{brokers}")
        assert done.returncode == 0, done.stderr
        table = pq.read_table(tmp_path / f"out{brokers}" / "latest" / "log" / "broker=b1")
        rows = zip(table["time_ns"].to_pylist(), table["event"].to_pylist(), table["topic"].to_pylist(), strict=True)
        found.append([row for row in rows if row[1] == "received"])
    assert found[0] == found[1]
    assert len(found[0]) > 100


@pytest.mark.needs("java")  # it is asked for before the run begins
@pytest.mark.parametrize("is_impatient", [False, True])
@pytest.mark.parametrize("sweep", ["", "sweep: {routing: [identity, flooding, simple]}\n"])
def test_interrupted_run_keeps_what_was_logged(tmp_path: Path, sweep: str, is_impatient: bool) -> None:
    """Ctrl-C, once or again and again, reaches the whole process group; nothing is left running, and there is no
    traceback."""
    (tmp_path / "s.yaml").write_text(SMALL.replace("measure: 20s", "measure: 100000s") + sweep)
    process = subprocess.Popen(
        ["env", "--default-signal=INT", COMMAND, "run", "s.yaml", "--on", "virtual"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        until(lambda: any(tmp_path.rglob("raw/b0/log.1.records")), "the beginning of the log")
        os.killpg(process.pid, signal.SIGINT)
        while is_impatient and process.poll() is None:
            time.sleep(0.02)
            os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=RUN_S_MAX)
    finally:
        process.kill()
    assert (process.returncode, "Traceback" in errors) == (130, False), errors
    assert any(tmp_path.rglob("log/broker=b0/events.parquet"))
    assert not any(tmp_path.rglob("raw"))
    until(lambda: is_gone(process.pid), "the end of all its processes")


def is_gone(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return True
    return False

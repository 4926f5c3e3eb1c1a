"""`brokerbed run --on docker`: whatever ends it, no container and no network is left; what is wrong is one sentence."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import docker
import pytest
from docker.models.containers import Container
from docker.models.networks import Network

from brokerbed.orchestrator.grounds import docker as docker_ground
from brokerbed.orchestrator.grounds import image
from brokerbed.orchestrator.grounds.base import GroundError
from brokerbed.orchestrator.grounds.container import METRICS_PORT, PORT, DockerHost, Helper, Ports
from brokerbed.orchestrator.grounds.engine import LABEL, Engine, labels_of
from tests.broker.running import until
from tests.conformance.runs import play
from tests.local.commands import has_records
from tests.progress import without_progress

BEGIN_S_MAX = 120.0  # the image is there by then
END_S_MAX = 120.0
TEXT = """
scenario: 1
name: contained
clock: {measure: 600s}
topology: {tree: star, brokers: 3}
publishers: [{id: p, broker: b1, topic: t, rate: 10/s}]
subscribers: [{id: s, broker: b2, topic: t}]
"""


@pytest.fixture
def engine() -> Iterator[docker.DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


def brokerbed(*arguments: str | Path, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "brokerbed.entry", *map(str, arguments)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | more, process_group=0,
    )  # fmt: skip


@contextmanager
def begun(place: Path, engine: docker.DockerClient) -> Iterator[subprocess.Popen[str]]:
    """A run whose model time has begun."""
    (place / "s.yaml").write_text(TEXT)
    process = brokerbed("run", place / "s.yaml", "--on", "docker", "--no-analyse", "--out", place / "runs")
    try:
        until(
            lambda: any(map(has_records, place.glob("runs/*/raw/clients/*"))) or process.poll() is not None,
            "the beginning of model time",
            BEGIN_S_MAX,
        )
        assert process.poll() is None, process.communicate()
        yield process
    finally:
        process.kill()
        process.communicate()
        for container in containers(engine, process.pid):
            container.remove(force=True)
        for network in networks(engine, process.pid):
            network.remove()


def containers(engine: docker.DockerClient, pid: int) -> list[Container]:
    found = engine.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True)
    return [it for it in found if it.labels[LABEL].startswith(f"{pid}-")]


def name_of(container: Container) -> str:
    return str(container.name).rpartition("-")[2]


def networks(engine: docker.DockerClient, pid: int) -> list[Network]:
    found = engine.networks.list(filters={"label": LABEL})
    return [it for it in found if it.attrs["Labels"][LABEL].startswith(f"{pid}-")]


@pytest.mark.needs("docker")
def test_ctrl_c_leaves_nothing_but_the_log(tmp_path: Path, engine: docker.DockerClient) -> None:
    with begun(tmp_path, engine) as process:
        ours = {name_of(it): it for it in containers(engine, process.pid) if "clients" not in str(it.name)}
        assert sorted(ours) == ["b0", "b1", "b2"]
        host = ours["b1"].attrs["HostConfig"]
        assert host["ReadonlyRootfs"]
        assert host["CapDrop"] == ["ALL"]
        assert "no-new-privileges" in host["SecurityOpt"]
        assert host["Memory"] > 0
        assert host["PidsLimit"] > 0
        assert not ours["b1"].attrs["Config"]["User"].startswith("0")
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=END_S_MAX)
        assert process.returncode == 130, errors
        assert "Traceback" not in errors
        assert not containers(engine, process.pid)
        assert not networks(engine, process.pid)
    assert list(tmp_path.glob("runs/latest/log/broker=b2/events.parquet"))
    assert not list(tmp_path.glob("runs/latest/raw"))


@pytest.mark.needs("docker")
def test_clean_removes_what_a_killed_orchestrator_left(tmp_path: Path, engine: docker.DockerClient) -> None:
    with begun(tmp_path, engine) as process:
        process.kill()
        process.wait()
        assert len(containers(engine, process.pid)) >= 3
        said, _ = brokerbed("clean").communicate(timeout=END_S_MAX)
        assert said.count("ended container") >= 4
        assert "ended network" in said
        assert not containers(engine, process.pid)
        assert not networks(engine, process.pid)


@pytest.mark.needs("docker")
def test_broker_that_dies_is_told(tmp_path: Path, engine: docker.DockerClient) -> None:
    with begun(tmp_path, engine) as process:
        next(it for it in containers(engine, process.pid) if name_of(it) == "b2").kill()
        _, errors = process.communicate(timeout=END_S_MAX)
        assert process.returncode == 1
        assert "broker b2 died" in errors
        assert "Traceback" not in errors
        assert not containers(engine, process.pid)


@pytest.mark.needs("docker")
def test_container_that_cannot_be_made_leaves_none_of_the_others(tmp_path: Path, engine: docker.DockerClient) -> None:
    """Its name is taken; that is told at once, while the others are being made."""
    name = f"brokerbed-{labels_of('')[LABEL]}-b0"
    taken = engine.containers.create(image.ensure(engine, lambda _: None), name=name)
    try:
        with pytest.raises(GroundError, match="already in use"):
            play("docker", tmp_path, TEXT)
        assert not containers(engine, os.getpid())
        assert not networks(engine, os.getpid())
    finally:
        taken.remove()


@pytest.mark.needs("docker")
def test_helper_for_a_broker_that_has_died_is_removed(engine: docker.DockerClient) -> None:
    """The helper is created, but it cannot start, because there is no network that it could enter."""
    dead = engine.containers.create(image.ensure(engine, lambda _: None))
    try:
        with closing(Engine()) as used:
            host = DockerHost(used, "b1", "10.0.0.2", ("10.0.0.2", METRICS_PORT), Ports())
            host.container = dead
            helper = Helper(used, image.ensure(engine, lambda _: None), labels_of("test"))
            assert asyncio.run(helper.run(host, "cut", ("10.0.0.1", PORT), "up")) == ""
    finally:
        dead.remove()
    assert not containers(engine, os.getpid())


def refused(tmp_path: Path, **environment: str) -> str:
    """What a run says that cannot be made here; it leaves nothing."""
    (tmp_path / "s.yaml").write_text(TEXT)
    command = ("run", tmp_path / "s.yaml", "--on", "docker", "--no-analyse", "--out", tmp_path / "runs", "--json")
    process = brokerbed(*command, **environment)
    out, errors = process.communicate(timeout=END_S_MAX)
    assert (process.returncode, out) == (3, "")
    assert not (tmp_path / "runs").exists()
    (line,) = without_progress(errors)
    return line


def test_without_an_engine(tmp_path: Path) -> None:
    line = refused(tmp_path, DOCKER_HOST="tcp://127.0.0.1:9")
    assert "no Docker engine answers" in line
    assert "--on local" in line


@pytest.mark.needs("engine")
def test_image_that_cannot_be_made(tmp_path: Path) -> None:
    line = refused(tmp_path, BROKERBED_BASE_IMAGE="127.0.0.1:9/none:1")
    assert "BROKERBED_BASE_IMAGE is 127.0.0.1:9/none:1, which is neither here nor can it be pulled" in line


@pytest.mark.needs("docker")
def test_link_that_cannot_be_cut_ends_the_run(
    tmp_path: Path, engine: docker.DockerClient, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The helper's image is gone."""
    monkeypatch.setattr(docker_ground, "Helper", lambda engine, _, labels: Helper(engine, "brokerbed:none", labels))
    text = TEXT + "faults: [{at: 1s, cut: [b1, b0], for: 1s}]\n"
    with pytest.raises(GroundError, match="the link of b1 to its parent could not be cut"):
        play("docker", tmp_path, text)
    assert "Traceback" not in capfd.readouterr().err
    assert not containers(engine, os.getpid())

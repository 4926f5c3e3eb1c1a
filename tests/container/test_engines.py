"""`--engine`: brokers on the engines of several machines, by ssh and tcp, and on a swarm; an engine that is stopped."""

import io
import json
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from itertools import pairwise
from pathlib import Path
from threading import Thread

import docker
import pytest

from brokerbed.orchestrator.grounds import image, sites
from brokerbed.orchestrator.grounds.base import GroundError
from brokerbed.orchestrator.grounds.engine import LABEL
from tests.broker.running import until
from tests.conformance.runs import everything_arrived, play
from tests.container.engines import THERE, OtherEngine, other_engine
from tests.container.test_docker_ground import END_S_MAX, brokerbed, containers, networks
from tests.progress import without_progress

pytestmark = pytest.mark.needs("docker", "root", "ip", "dockerd", "nsenter")  # for another machine with an engine
BEGIN_S_MAX = 120.0
HERE = "unix:///var/run/docker.sock"
TEXT = """
scenario: 1
name: spread
clock: {measure: 12s}
topology: {tree: explicit, parents: {top: null, left: top, right: top, low: right}}
publishers: [{id: p, broker: left, topic: t/x, rate: 10/s}]
subscribers: [{id: s, broker: low, topic: 't/#'}]
faults: [{at: 2s, crash: right, for: 2s}, {at: 6s, cut: [right, top], for: 2s}, {at: 9s, cut: [low, right], for: 1s}]
"""
FAULTS = ("crash right", "cut right-top", "cut low-right")


@pytest.fixture(scope="module", autouse=True)
def _other_name() -> Iterator[None]:
    """The image of this machine has one more name, which comes first: it must not be copied under that."""
    with closing(docker.from_env()) as client:
        name = "brokerbed:0"
        client.images.get(image.ensure(client, lambda _: None)).tag(name)
        yield
        client.images.remove(name)


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OtherEngine]:
    with other_engine(tmp_path_factory.mktemp("other")) as engine:
        yield engine


def brokers_of(client: docker.DockerClient) -> set[str]:
    found = client.containers.list(all=True, filters={"label": LABEL}, ignore_removed=True)
    return {str(it.name).rpartition("-")[2] for it in found if "clients" not in str(it.name)}


@contextmanager
def meanwhile(action: Callable[[], None]) -> Iterator[None]:
    acting = Thread(target=action)
    acting.start()
    try:
        yield
    finally:
        acting.join()


@pytest.mark.needs("sshd")
def test_brokers_on_two_engines_one_of_them_by_ssh(
    tmp_path: Path, other: OtherEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{other.serve_ssh()}:{os.environ['PATH']}")
    seen: set[str] = set()

    def look(client: docker.DockerClient) -> None:
        until(lambda: len(brokers_of(client)) >= 2, "brokers there", BEGIN_S_MAX)
        seen.update(brokers_of(client))

    with other.client() as client, meanwhile(lambda: look(client)):
        done = play("docker", tmp_path, TEXT, engines=[HERE, other.ssh])
    assert seen == {"right", "low"}
    told = json.loads((done.folder / "run.json").read_text(encoding="utf-8"))
    assert told["testbed"]["engines"] == [HERE, other.ssh]
    everything_arrived(done)
    assert sorted(done.rows) == ["clients", "left", "low", "right", "top"]
    for fault in FAULTS:
        assert done.fault_times_s(fault) == sorted(done.fault_times_s(fault))
    for client in (docker.from_env(), docker.DockerClient(other.tcp)):
        assert not containers(client, os.getpid())
        assert not networks(client, os.getpid())
        assert not client.volumes.list(filters={"dangling": True})
        client.close()


def test_one_node_swarm(tmp_path: Path, other: OtherEngine) -> None:
    drivers: set[str] = set()

    def look(client: docker.DockerClient) -> None:
        until(lambda: bool(brokers_of(client)), "brokers there", BEGIN_S_MAX)
        drivers.update(it.attrs["Driver"] for it in networks(client, os.getpid()))

    with other.client() as client:
        client.swarm.init(advertise_addr=THERE)
        try:
            with meanwhile(lambda: look(client)):
                done = play("docker", tmp_path, TEXT, engines=[other.tcp])
            left = networks(client, os.getpid())
        finally:
            client.swarm.leave(force=True)
    assert drivers == {"overlay"}
    assert not left
    everything_arrived(done)
    for fault in FAULTS:
        assert done.fault_times_s(fault) == sorted(done.fault_times_s(fault))


def test_engine_that_is_stopped_amidst_a_run(tmp_path: Path, other: OtherEngine) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(TEXT.replace("12s", "600s"))
    process = brokerbed(
        "run", file, "--on", "docker", "--engine", other.tcp, "--no-analyse", "--out", tmp_path / "runs"
    )
    try:
        with other.client() as client:
            until(lambda: len(containers(client, process.pid)) >= 5, "brokers and clients", 120)
            until(lambda: all(it.status == "running" for it in containers(client, process.pid)), "all of them", 60)
        other.stop()
        _, errors = process.communicate(timeout=END_S_MAX)
    finally:
        process.kill()
        process.wait()
        other.start()
    (line,) = without_progress(errors)
    assert process.returncode == 1
    assert other.tcp in line
    assert "`brokerbed clean`" in line
    process = brokerbed("clean", "--engine", other.tcp)
    said, _ = process.communicate(timeout=END_S_MAX)
    assert said.count("ended container") >= 5
    with other.client() as client:
        assert not brokers_of(client)
        assert [it.name for it in client.networks.list() if str(it.name).startswith("brokerbed")] == []


@pytest.mark.parametrize(
    ("engine", "code", "said"),
    [
        ("tcp://127.0.0.1:9", 3, "no Docker engine answers at tcp://127.0.0.1:9 (Connection refused)"),
        ("ssh://root@127.0.0.1:9", 3, "no Docker engine answers at ssh://root@127.0.0.1:9"),
        ("127.0.0.1:9", 2, "--engine: 127.0.0.1:9 is no ssh://, tcp:// or unix:// address"),
    ],
)
def test_wrong_engine_is_one_sentence(tmp_path: Path, engine: str, code: int, said: str) -> None:
    (tmp_path / "s.yaml").write_text(TEXT)
    command = ("run", tmp_path / "s.yaml", "--on", "docker", "--no-analyse", "--out", tmp_path / "runs")
    process = brokerbed(*command, "--engine", engine)
    _, errors = process.communicate(timeout=END_S_MAX)
    (line,) = without_progress(errors)
    assert process.returncode == code
    assert said in line


def test_links_that_are_slow_are_refused(tmp_path: Path, other: OtherEngine) -> None:
    (tmp_path / "s.yaml").write_text(TEXT + "links: [{between: [left, top], delay: {mean: 5ms}}]\n")
    command = ("run", tmp_path / "s.yaml", "--on", "docker", "--no-analyse", "--out", tmp_path / "runs")
    process = brokerbed(*command, "--engine", other.tcp)
    _, errors = process.communicate(timeout=END_S_MAX)
    *warnings, line = without_progress(errors)
    assert (process.returncode, "leave out `links`" in line) == (1, True)
    assert all(it.startswith("warning: ") for it in warnings)  # a random delay has no prediction


def test_tree_with_more_brokers_than_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the 1022 hosts of a /22 one is the gateway; 1019 are left out here, so that there are two for four brokers."""
    monkeypatch.setattr(sites, "OTHERS", 1019)
    client = docker.from_env()
    with pytest.raises(GroundError, match="a network has addresses for 921 brokers and processes of clients"):
        play("docker", tmp_path, TEXT)
    assert not containers(client, os.getpid())
    assert not networks(client, os.getpid())
    client.close()


def test_no_address_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = docker.from_env()
    pool = docker.types.IPAMConfig(pool_configs=[docker.types.IPAMPool(subnet=sites.SUBNETS[-1])])
    taken = client.networks.create(f"brokerbed-test-{os.getpid()}", ipam=pool)
    monkeypatch.setattr(sites, "SUBNETS", sites.SUBNETS[-1:])
    try:
        with pytest.raises(GroundError, match="all addresses are taken"):
            play("docker", tmp_path, TEXT)
        assert not containers(client, os.getpid())
    finally:
        taken.remove()
        client.close()


AHEAD_S = 3600
AHEAD = f"""\
import time
_time, _time_ns = time.time, time.time_ns
time.time = lambda: _time() + {AHEAD_S}
time.time_ns = lambda: _time_ns() + {AHEAD_S} * 10**9
"""
SEVEN = """
scenario: 1
name: seven
clock: {measure: 6s}
topology: {tree: regular, arity: 2, depth: 3}
publishers: [{id: p, broker: b3, topic: t/x, rate: 20/s}]
subscribers: [{id: s, broker: b6, topic: 't/#'}]
"""


@contextmanager
def clock_ahead(client: docker.DockerClient, tag: str) -> Iterator[None]:
    """Every Python program in the containers of this engine sees another time; a time namespace cannot do that, as it
    has no wall clock of its own."""
    dockerfile = f"FROM {tag}\nUSER 0\nCOPY sitecustomize.py /opt/brokerbed/source/\nUSER 10001:10001\n"
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, text in {"Dockerfile": dockerfile, "sitecustomize.py": AHEAD}.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            tar.addfile(entry, io.BytesIO(text.encode()))
    plain = client.images.get(tag).id
    assert plain is not None
    client.images.build(fileobj=io.BytesIO(packed.getvalue()), custom_context=True, tag=tag, rm=True)
    try:
        yield
    finally:
        client.images.get(plain).tag(tag)


def test_clock_of_another_machine_is_measured_and_corrected(tmp_path: Path, other: OtherEngine) -> None:
    with closing(docker.from_env()) as here, other.client() as there:
        tag = image.ensure(here, lambda _: None)
        image.copy(here, there, tag)
        with clock_ahead(there, tag):
            done = play("docker", tmp_path, SEVEN, engines=[HERE, other.tcp])
    everything_arrived(done)
    told = json.loads((done.folder / "run.json").read_text(encoding="utf-8"))
    offsets = told["clock_offsets_ns"]
    assert sorted(offsets) == ["b2", "b5", "b6"], "half of the tree is on the other engine"
    for its in offsets.values():
        assert its["start"] == pytest.approx(AHEAD_S * 10**9, abs=its["uncertainty"])
        assert its["end"] == pytest.approx(AHEAD_S * 10**9, abs=its["uncertainty"])
    unsure_ns = 2 * max(its["uncertainty"] for its in offsets.values())
    ways: dict[int, list[int]] = {}
    for broker, client in (("b3", "p"), ("b1", "b1>b3"), ("b0", "b0>b1"), ("b2", "b2>b0"), ("b6", "b6>b2")):
        for row in done.events(broker, "received", client):
            ways.setdefault(row["sequence"], []).append(row["time_ns"])
    assert len(ways) > 50
    for times_ns in ways.values():
        assert len(times_ns) == 5
        assert all(later >= earlier - unsure_ns for earlier, later in pairwise(times_ns))
        assert times_ns[-1] - times_ns[0] < AHEAD_S * 10**9 / 100

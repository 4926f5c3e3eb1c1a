"""The image of the docker ground, on a real engine: small, built once, enough for brokers and clients, nothing more."""

import io
import os
import shutil
import socket
import tarfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.models.containers import Container

from brokerbed.doctor import examine
from brokerbed.orchestrator.grounds import base_image, image
from brokerbed.orchestrator.grounds.base import GroundError
from brokerbed.orchestrator.grounds.base_image import BaseProperties

ROOT = Path(__file__).parents[2]
ANSWER_S_MAX = 60.0
CONNECT = bytes.fromhex("100d 0004 4d515454 05 02 0000 00 0000".replace(" ", ""))  # MQTT 5, clean start, no client id
HARDENED: dict[str, Any] = {
    "read_only": True, "cap_drop": ["ALL"], "security_opt": ["no-new-privileges"], "user": "10001",
    "pids_limit": 64, "mem_limit": "256m", "labels": {"brokerbed": "1"},
}  # fmt: skip


@pytest.fixture(scope="module")
def client() -> Iterator[docker.DockerClient]:
    client = docker.from_env()
    yield client
    client.close()


@pytest.fixture(scope="module")
def tag(client: docker.DockerClient) -> str:
    return image.ensure(client, print)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A copy of what the image is made of."""
    for name in (image.CONSTRAINTS, image.DOCKERFILE, *image.SOURCES):
        target = tmp_path / "tree" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        copy = shutil.copytree if (image.PACKAGE / name).is_dir() else shutil.copy
        copy(image.PACKAGE / name, target)
    return tmp_path / "tree"


@pytest.mark.needs("docker")
def test_image_is_under_250_mb_and_labelled(client: docker.DockerClient, tag: str) -> None:
    made = client.images.get(tag)
    assert made.attrs["Size"] < 250e6
    assert made.labels["brokerbed"] == "1"
    assert made.attrs["Config"]["User"] == "10001:10001"


@pytest.mark.needs("docker")
def test_second_time_nothing_is_built(client: docker.DockerClient, tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = client.images.get(tag).id

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("nothing has changed")

    for name in ("build", "context"):
        monkeypatch.setattr(image, name, refuse)
    monkeypatch.setattr(base_image, "pullable_base", refuse)
    said: list[str] = []
    assert image.ensure(client, said.append) == tag
    assert client.images.get(tag).id == before
    assert said == []


@pytest.mark.needs("docker")
def test_hardened_broker_answers_over_the_bridge(client: docker.DockerClient, tag: str, tmp_path: Path) -> None:
    (tmp_path / "broker.toml").write_text("allow_anonymous = true\n", encoding="utf-8")
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents:
        if folder.name.startswith("pytest-"):
            folder.chmod(0o755)
    container = client.containers.create(
        tag,
        [
            "brokerbed.broker.runtime.command",
            "--host",
            "0.0.0.0",
            "--config",
            "/config/broker.toml",
            "--metrics-port",
            "9100",
        ],
        volumes={str(tmp_path): {"bind": "/config", "mode": "ro"}},
        **HARDENED,
    )
    try:
        container.start()
        with _connected(container, 1883) as line:
            line.sendall(CONNECT)
            answer = line.recv(4)
        assert answer[0] == 0x20  # CONNACK
        assert answer[3] == 0  # success
        with _connected(container, 9100) as line:
            line.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert b" 200 OK" in line.recv(100)
    finally:
        container.remove(force=True)


def _connected(container: Container, port: int) -> socket.socket:
    until_s = time.monotonic() + ANSWER_S_MAX
    while True:
        container.reload()
        assert container.status == "running", container.logs().decode()
        address = container.attrs["NetworkSettings"]["Networks"]["bridge"]["IPAddress"]
        try:
            return socket.create_connection((address, port), timeout=ANSWER_S_MAX)
        except ConnectionRefusedError:
            assert time.monotonic() < until_s, container.logs().decode()
            time.sleep(0.05)  # nothing tells when it listens


@pytest.mark.needs("docker")
def test_clients_run_in_it(client: docker.DockerClient, tag: str) -> None:
    said = client.containers.run(
        tag, ["brokerbed.clients.process", "--help"], remove=True, network_mode="none", **HARDENED
    )
    assert b"--seed" in said


@pytest.mark.needs("docker")
def test_all_that_is_imported_is_compiled_already(client: docker.DockerClient, tag: str) -> None:
    look = (
        "import sys, pathlib, brokerbed.broker.runtime.command, brokerbed.broker.runtime.metrics, brokerbed.clients.process\n"
        "named = [(n, getattr(m, '__cached__', None)) for n, m in list(sys.modules.items())]\n"
        "print([n for n, cached in named if cached and n != '__main__' and not pathlib.Path(cached).exists()])"
    )
    said = client.containers.run(tag, ["-c", look], entrypoint="python3", remove=True, network_mode="none", **HARDENED)
    assert said.decode().strip() == "[]"


@pytest.mark.needs("docker")
def test_helper_cuts_a_way_in_the_namespace_of_another(client: docker.DockerClient, tag: str) -> None:
    """With NET_ADMIN alone; the rule is gone when it is deleted."""
    held = client.containers.run(
        tag, ["-c", "import time; time.sleep(600)"], entrypoint="python3", detach=True, **HARDENED
    )
    rule = "OUTPUT -d 192.0.2.1 -j DROP"
    helper: dict[str, Any] = {**HARDENED, "user": "0", "cap_add": ["NET_ADMIN"], "network_mode": f"container:{held.id}"}
    try:
        for command, expected in ((f"-A {rule}", True), (f"-D {rule}", False)):
            script = f"iptables {command} && iptables -S OUTPUT"
            said = client.containers.run(tag, ["-c", script], entrypoint="sh", remove=True, **helper)
            assert (b"192.0.2.1/32 -j DROP" in said) is expected
    finally:
        held.remove(force=True)


def _context(dockerfile: bytes) -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        entry = tarfile.TarInfo("Dockerfile")
        entry.size = len(dockerfile)
        tar.addfile(entry, io.BytesIO(dockerfile))
    file.seek(0)
    return file


@pytest.mark.needs("docker")
@pytest.mark.usefixtures("tag")
def test_build_that_fails_says_its_last_line(client: docker.DockerClient) -> None:
    base = base_image.local_base(client)
    assert base is not None
    text = b"ARG BASE\nFROM ${BASE}\nRUN echo first >&2; echo it is broken >&2; exit 1\n"
    with pytest.raises(GroundError) as told:
        image.build(client, _context(text), "brokerbed:never", base, BaseProperties((3, 11), (2, 36), "x86_64", True))
    assert told.value.is_missing
    assert str(told.value) == "the image could not be built: it is broken"
    assert base_image.image_of(client, "brokerbed:never") is None


@pytest.mark.needs("docker")
@pytest.mark.usefixtures("tag")
def test_build_has_no_network_unless_the_base_lacks_tools(client: docker.DockerClient) -> None:
    base = base_image.local_base(client)
    assert base is not None
    inside = base_image.inspect_base(client, base)
    text = b'ARG BASE\nFROM ${BASE}\nRUN echo there is a route; [ "$(wc -l < /proc/net/route)" -le 1 ]\n'
    with pytest.raises(GroundError, match="there is a route"):
        image.build(client, _context(text), "brokerbed:test-network", base, replace(inside, has_tools=False))
    image.build(client, _context(text), "brokerbed:test-network", base, replace(inside, has_tools=True))
    client.images.remove("brokerbed:test-network")


@pytest.mark.needs("engine")
def test_registry_that_is_not_there_is_given_up_soon(
    client: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:  # takes connections and says nothing
        monkeypatch.setenv(base_image.GIVEN, f"127.0.0.1:{mute.getsockname()[1]}/nothing:1")
        monkeypatch.setattr(base_image, "REGISTRY_S_MAX", 1)
        usual_s = client.api.timeout
        assert base_image.pullable_base(client) is None
        assert client.api.timeout == usual_s
        with pytest.raises(GroundError, match="neither here nor can it be pulled") as told:
            image.ensure(client, print)
    assert told.value.is_missing


@pytest.mark.needs("engine")
def test_base_of_which_none_can_be_had_says_what_to_do(
    client: docker.DockerClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(base_image.GIVEN, raising=False)
    monkeypatch.setattr(base_image, "ORDINARY", "127.0.0.1:9/python:none")
    monkeypatch.setattr(base_image, "MADE", "brokerbed-base:none")
    monkeypatch.setattr(shutil, "which", lambda *_, **__: None)
    with pytest.raises(GroundError, match="debootstrap is not installed; docker pull") as told:
        image.ensure(client, print)
    assert told.value.is_missing
    monkeypatch.setattr(shutil, "which", lambda *_, **__: "/usr/sbin/debootstrap")
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(GroundError, match="debootstrap needs root"):
        image.ensure(client, print)


@pytest.mark.needs("docker")
def test_doctor_knows_the_image(tag: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def found() -> str | None:
        return next(it.found for it in examine() if it.what == "image for containers")

    assert found() == f"{tag} is there"
    monkeypatch.setenv(base_image.GIVEN, "127.0.0.1:9/nothing:1")
    monkeypatch.setattr(base_image, "debootstrap_problem", lambda: "debootstrap is not installed")
    assert found() is None


def test_engine_that_does_not_answer_is_one_sentence() -> None:
    client = docker.DockerClient("tcp://127.0.0.1:9", version="1.41", timeout=2)
    with pytest.raises(GroundError, match="the Docker engine does not") as told:
        image.ensure(client, print)
    client.close()
    assert told.value.is_missing
    assert "\n" not in str(told.value)


def test_tag_follows_content(tree: Path) -> None:
    first = image.tag_of(tree, "sha256:1")
    assert first == image.tag_of(image.PACKAGE, "sha256:1")
    seen = {first, image.tag_of(tree, "sha256:2")}
    for name in ("broker/values.py", "clients/crowd.py", "scenario/units.py", image.DOCKERFILE):
        with (tree / name).open("a", encoding="utf-8") as file:
            file.write("# changed\n")
        seen.add(image.tag_of(tree, "sha256:1"))
    (tree / "broker" / "more.py").touch()
    seen.add(image.tag_of(tree, "sha256:1"))
    assert len(seen) == 7
    (tree / "broker" / "__pycache__").mkdir(exist_ok=True)
    (tree / "broker" / "__pycache__" / "more.cpython-311.pyc").touch()
    assert image.tag_of(tree, "sha256:1") in seen


def test_hand_written_commands_have_the_same_packages() -> None:
    page = (ROOT / "docs" / "docker.md").read_text(encoding="utf-8")
    assert " ".join(image.required()) in page

"""Brokers that prove to each other that they know the link secret, as programs with their files."""

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import mqtt5
import pytest

from brokerbed.broker.runtime.addresses import is_loopback
from tests.broker.running import Running, broker, launch, metric, until
from tests.mqtt.dial import Dial
from tests.mqtt.servers import free_port
from tests.needs import path_of

SECRET = "a secret of more than sixteen characters\n"


def config(folder: Path, name: str, secret: str | None, more: str = "") -> Path:
    file = folder / f"{name}.toml"
    first = f'link_secret_file = "{name}.secret"\n' if secret is not None else ""
    if secret is not None:
        (folder / f"{name}.secret").write_text(secret, encoding="utf-8")
    file.write_text(first + more, encoding="utf-8")
    return file


@contextmanager
def pair(folder: Path, parent: str | None, child: str | None) -> Iterator[tuple[Running, Running]]:
    with broker("--name", "root", "--config", config(folder, "root", parent)) as above:
        address = f"127.0.0.1:{above.ports['mqtt']}"
        options = (
            "--name",
            "leaf",
            "--parent",
            address,
            "--config",
            config(folder, "leaf", child),
            "--metrics-port",
            "0",
        )
        with broker(*options) as below:
            yield above, below


def test_brokers_with_one_secret_are_linked_and_pass_messages_on(tmp_path: Path) -> None:
    with pair(tmp_path, SECRET, SECRET.strip()) as (above, below):
        until(lambda: metric(below, "brokerbed_link_connected") == 1, "the link")
        up, down = Dial(above.ports["mqtt"]), Dial(below.ports["mqtt"])
        subscriber = down.v5()
        subscriber.subscribe("t")
        publisher = up.v5()

        def heard() -> bool:
            publisher.publish("t", b"x", 0)
            return b"x" in subscriber.take_all()

        until(heard, "a message over the link")
        up.close()
        down.close()


@pytest.mark.parametrize(
    ("parent", "child", "why"),
    [
        (SECRET, "another secret, as long as it has to be", "does not know the link secret of this broker"),
        (SECRET, None, "refuses the link: check link_secret_file on both sides"),
        (None, SECRET, "refuses the link: it has no link_secret_file"),
    ],
)
def test_child_without_its_parents_secret_says_why_it_is_not_linked(
    tmp_path: Path, parent: str | None, child: str | None, why: str
) -> None:
    with pair(tmp_path, parent, child) as (_, below):
        errors = below.process.stderr
        assert errors is not None
        line = errors.readline()
        assert why in line
        assert metric(below, "brokerbed_link_connected") == 0


@pytest.mark.parametrize(
    ("secret", "message"),
    [("too short", "must hold at least 16 characters"), (None, "cannot be read")],
)
def test_secret_that_cannot_be_used_is_exit_code_2_and_one_line(
    tmp_path: Path, secret: str | None, message: str
) -> None:
    file = config(tmp_path, "root", secret, "" if secret else 'link_secret_file = "nowhere"\n')
    process = launch("--config", file)
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 2
    assert message in errors
    assert errors.count("\n") == 1


@contextmanager
def mosquitto(folder: Path) -> Iterator[int]:
    port = free_port()
    (folder / "m.conf").write_text(f"listener {port} 127.0.0.1\nallow_anonymous true\n", encoding="utf-8")
    process = subprocess.Popen([path_of("mosquitto"), "-c", folder / "m.conf"], stderr=subprocess.DEVNULL)
    try:
        until(lambda: _answers(port), "Mosquitto")
        yield port
    finally:
        process.terminate()
        process.wait(20)


def _answers(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.mark.needs("mosquitto")
def test_foreign_parent_is_said_to_be_one_where_there_is_a_secret(tmp_path: Path) -> None:
    """A Mosquitto cannot prove anything: the link is an ordinary client there, if the configuration says so."""
    with mosquitto(tmp_path) as port:
        address = f"127.0.0.1:{port}"
        told = config(tmp_path, "told", SECRET, "[parent]\nforeign = true\n")
        with broker("--name", "leaf", "--parent", address, "--config", told, "--metrics-port", "0") as below:
            until(lambda: metric(below, "brokerbed_link_connected") == 1, "the link")
        untold = config(tmp_path, "untold", SECRET)
        with broker("--name", "other", "--parent", address, "--config", untold, "--metrics-port", "0") as below:
            errors = below.process.stderr
            assert errors is not None
            assert "foreign = true" in errors.readline()
            assert metric(below, "brokerbed_link_connected") == 0


def test_client_without_the_secret_cannot_pose_as_a_link(tmp_path: Path) -> None:
    with broker("--config", config(tmp_path, "root", SECRET)) as it:
        dial = Dial(it.ports["mqtt"])
        client = dial.open5()
        properties = [("overlay-name", "x"), ("overlay-instance", "1")]
        client.send(mqtt5.ConnectPacket("$link/x", user_properties=properties).write())
        assert client.expect(mqtt5.ConnAckPacket).reason_code == 0x87
        dial.close()


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("127.0.0.1", True), ("127.8.9.10", True), ("::1", True), ("::ffff:127.0.0.1", True), ("localhost", True),
        ("10.0.0.1", False), ("::ffff:10.0.0.1", False), ("fe80::1", False), ("0.0.0.0", False), ("example.org", False),
        ("", False),
    ],
)  # fmt: skip
def test_addresses_of_this_machine(host: str, is_local: bool) -> None:
    assert is_loopback(host) == is_local

"""deploy/compose.yaml: seven brokers to look at, with whichever Compose is installed."""

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
import yaml

from brokerbed.orchestrator.grounds import image
from tests.broker.running import until
from tests.mqtt.dial import Dial
from tests.needs import compose

FILE = Path(__file__).parents[2] / "deploy" / "compose.yaml"
NAMES = ("root", "left", "right", "a", "b", "c", "d")
UP_S_MAX = 120.0


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, int]]:
    """Of a tree that is up, on ports that nobody else has."""
    command = compose()
    assert command is not None
    client = docker.from_env()
    monkeypatch.setenv("IMAGE", image.ensure(client, print))
    variables = [f"{kind}_{name.upper()}" for kind in ("PORT", "METRICS") for name in NAMES]
    held = {it: socket.create_server(("127.0.0.1", 0)) for it in variables}
    for variable, it in held.items():
        monkeypatch.setenv(variable, str(it.getsockname()[1]))
    found = {name: int(held[f"PORT_{name.upper()}"].getsockname()[1]) for name in NAMES}
    for it in held.values():
        it.close()
    project = f"brokerbed-test-{os.getpid()}"
    command += ["--project-name", project, "--file", str(FILE)]

    def healthy() -> int:
        filters: dict[str, Any] = {"label": f"com.docker.compose.project={project}", "health": "healthy"}
        return len(client.containers.list(filters=filters))

    try:
        subprocess.run([*command, "up", "--detach"], check=True, capture_output=True)
        until(lambda: healthy() == len(NAMES), "seven healthy brokers", UP_S_MAX)
        yield found
    finally:
        subprocess.run([*command, "down", "--volumes", "--timeout", "5"], check=True, capture_output=True)
        client.close()


@pytest.mark.needs("docker", "compose")
def test_what_is_published_at_one_broker_reaches_all(ports: dict[str, int]) -> None:
    dials = {name: Dial(port) for name, port in ports.items()}
    heard: dict[str, set[bytes]] = {name: set() for name in NAMES}
    try:
        clients = {name: dial.v5() for name, dial in dials.items()}
        for name in NAMES:
            clients[name].subscribe("news")

        def all_hear_all() -> bool:
            """Links, and interest, take a moment."""
            for name in NAMES:
                clients[name].publish("news", name.encode(), qos=0)
            for name in NAMES:
                heard[name].update(clients[name].take_all())
            return all(it == {other.encode() for other in NAMES} for it in heard.values())

        until(all_hear_all, "messages of all seven at all seven", UP_S_MAX)
    finally:
        for dial in dials.values():
            dial.close()


@pytest.mark.needs("compose")
def test_prometheus_and_grafana_are_there_only_if_asked_for() -> None:
    """Their images cannot be had everywhere; that the file is right is all that can be said without them."""
    services = yaml.safe_load(FILE.read_text())["services"]
    assert {name for name, it in services.items() if "profiles" not in it} == {"secret", *NAMES}
    command = compose()
    assert command is not None
    options = ["--file", str(FILE), "--profile", "watch", "config"]
    shown = subprocess.run([*command, *options], check=True, capture_output=True, text=True).stdout
    told = yaml.safe_load(shown)["services"]
    assert told.keys() == {"secret", *NAMES, "prometheus", "grafana"}
    for name in ("prometheus", "grafana"):
        assert told[name]["profiles"] == ["watch"]
        assert told[name]["network_mode"] == "host"
        mounted = [it["source"] if isinstance(it, dict) else it.split(":")[0] for it in told[name]["volumes"]]
        assert all(Path(it).exists() for it in mounted), mounted

"""Docker engines: what reaches ssh of an address, and which containers may be removed."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from brokerbed.orchestrator.grounds import engine
from brokerbed.orchestrator.grounds.tunnel import Tunnel

LABELS = "import json; from brokerbed.orchestrator.grounds.engine import labels_of; print(json.dumps(labels_of('run')))"


@pytest.fixture
def ssh_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with what ssh was called with, if it was."""
    found, program = tmp_path / "arguments", tmp_path / "ssh"
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {found}\necho refused >&2\nexit 255\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return found


@pytest.mark.parametrize(
    "url", ["ssh://-oProxyCommand=touch", "ssh://root@-oProxyCommand=x", "ssh://-oX@host", "ssh:///x"]
)
def test_address_that_ssh_would_take_for_an_option_is_refused(ssh_arguments: Path, url: str) -> None:
    with pytest.raises(OSError, match="is no name of a machine"):
        Tunnel(url)
    assert not ssh_arguments.exists()


def test_machine_is_given_to_ssh_after_all_options(ssh_arguments: Path) -> None:
    with pytest.raises(OSError, match="refused"):
        Tunnel("ssh://root@somewhere:2222")
    assert ssh_arguments.read_text().splitlines()[-2:] == ["--", "root@somewhere"]


def labels_in_another_namespace() -> dict[str, str]:
    """Of an orchestrator whose process ids are those of another namespace, as in a container with our host name."""
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", LABELS]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(engine.__file__).parents[2])
    told: dict[str, str] = json.loads(done.stdout)
    return told


class Thing:
    def __init__(self, labels: dict[str, str]) -> None:
        self.labels = labels
        self.name = "thing"
        self.attrs = {"Labels": labels}
        self.is_removed = False

    def remove(self, **_: object) -> None:
        self.is_removed = True


def client_with(*things: Thing) -> Any:
    def found(filters: dict[str, list[str]], **_: object) -> list[Thing]:
        wanted = [it.partition("=") for it in filters["label"]]
        return [
            it for it in things if all(key in it.labels and value in ("", it.labels[key]) for key, _, value in wanted)
        ]

    listed = SimpleNamespace(list=found)
    return SimpleNamespace(containers=listed, networks=SimpleNamespace(list=lambda **_: []))


@pytest.mark.needs("process namespace")
def test_containers_of_an_orchestrator_in_another_pid_namespace_are_left_alone() -> None:
    """Nobody here can tell whether it lives: there is another process here with its id, or none."""
    others = Thing(labels_in_another_namespace())
    dead = Thing(engine.labels_of("run") | {engine.LABEL: "1-1"})
    alive = Thing(engine.labels_of("run"))
    assert engine.clean(client_with(others, dead, alive)) == ["container thing"]
    assert [others.is_removed, dead.is_removed, alive.is_removed] == [False, True, False]

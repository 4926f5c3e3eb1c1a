"""docs/security.md is played: its files are saved, its commands run, and the broker that comes of it is what the page says."""

import os
import re
import signal
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from brokerbed.broker.runtime.security import LISTENER_KEYS, PARENT_KEYS
from brokerbed.broker.runtime.settings import KEYS
from tests.broker.running import until
from tests.mqtt.servers import free_port
from tests.needs import path_of

pytestmark = pytest.mark.needs("openssl", "mosquitto_pub")
PAGE = Path(__file__).parents[2] / "docs" / "security.md"
BLOCK = re.compile(r"^```(console|toml|text)\n(.*?)^```", re.DOTALL | re.MULTILINE)
PROGRAM = ".venv/bin/brokerbed"
COMMAND_S_MAX = 120.0


@dataclass
class Played:
    folder: Path
    ports: dict[str, str] = field(default_factory=lambda: {it: str(free_port()) for it in ("8883", "1883")})
    commands: list[str] = field(default_factory=list)

    def play(self) -> None:
        for language, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")):
            if language == "console":
                for command in re.findall(r"^\$ (.*)$", text, re.MULTILINE):
                    self.run(command)
            elif name := re.match(r"# ([\w.]+)\n", text):
                (self.folder / name[1]).write_text(self._here(text), encoding="utf-8")

    def run(self, command: str, is_accepted: bool = True) -> None:
        done = subprocess.run(
            ["sh", "-c", self._here(command)], cwd=self.folder, capture_output=True, text=True, timeout=COMMAND_S_MAX
        )
        assert (done.returncode == 0) is is_accepted, f"{command}: {done.stdout}{done.stderr}"
        self.commands.append(command)
        if command.endswith("broker.pid"):
            until(lambda: "brokerbed broker b-" in self.said, "the broker", COMMAND_S_MAX)
        elif command.startswith("kill -HUP"):
            until(
                lambda: "were read again; clients that have to log in again: 0" in self.said,
                "the answer",
                COMMAND_S_MAX,
            )

    @property
    def said(self) -> str:
        return (self.folder / "broker.log").read_text(encoding="utf-8")

    def _here(self, text: str) -> str:
        """With the ports and the program of this machine, and not for others."""
        for port, free in self.ports.items():
            text = text.replace(port, free)
        text = text.replace(PROGRAM, str(Path(sys.prefix) / "bin" / "brokerbed")).replace("0.0.0.0", "127.0.0.1")
        return re.sub(r"^mosquitto_pub", path_of("mosquitto_pub"), text)


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Played]:
    it = Played(tmp_path_factory.mktemp("security"))
    try:
        it.play()
        yield it
    finally:
        with suppress(OSError, ValueError):
            os.kill(int((it.folder / "broker.pid").read_text()), signal.SIGTERM)


def test_page_leads_to_a_broker_for_its_users_only(played: Played) -> None:
    password = (played.folder / "alice.password").read_text().strip()
    publish = "mosquitto_pub -h localhost -q 1 -t devices/alice/x -m 1"
    secure = f"{publish} -p 8883 --cafile ca.pem"
    for command, is_accepted in (
        (f"{secure} -u alice -P {password}", True),
        (f"{publish} -p 1883 -u alice -P {password}", True),
        (f"{secure} -u alice -P wrong", False),
        (secure, False),
        (f"{publish} -p 8883 -u alice -P {password}", False),
    ):
        played.run(command, is_accepted)
    assert (played.folder / "users").stat().st_mode & 0o077 == 0
    assert (played.folder / "link.secret").stat().st_mode & 0o077 == 0
    assert [line.partition(":")[0] for line in (played.folder / "users").read_text().splitlines()] == ["alice", "bob"]
    assert len(played.commands) > 10


def test_keys_in_the_pieces_of_the_page_exist() -> None:
    pieces = [
        tomllib.loads(text) for language, text in BLOCK.findall(PAGE.read_text(encoding="utf-8")) if language == "toml"
    ]
    assert len(pieces) == 3
    for piece in pieces:
        assert set(piece) <= set(KEYS)
        assert set(piece.get("parent", {})) <= PARENT_KEYS
        for listener in piece.get("listener", []):
            assert set(listener) <= set(LISTENER_KEYS)

"""Another machine with a Docker engine: a network namespace of its own, joined to this one by a cable, with its own dockerd.

Needs root, ip and dockerd.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker

from tests.broker.running import until
from tests.needs import path_of

HERE, THERE = "10.216.77.1", "10.216.77.2"  # the two ends of the cable
TCP_PORT, SSH_PORT = 2375, 2222
DAEMON_JSON = Path("/etc/docker/daemon.json")
START_S_MAX = 60.0


class OtherEngine:
    def __init__(self, folder: Path) -> None:
        self.tcp = f"tcp://{THERE}:{TCP_PORT}"
        self.ssh = f"ssh://root@{THERE}:{SSH_PORT}{folder}/docker.sock"
        self._folder = folder
        self._name = f"bb{os.getpid()}"
        self._running: list[subprocess.Popen[bytes]] = []

    def begin(self) -> None:
        mine, its = f"{self._name}a", f"{self._name}b"
        for command in (
            f"ip netns add {self._name}", f"ip link add {mine} type veth peer name {its}",
            f"ip link set {its} netns {self._name}", f"ip addr add {HERE}/30 dev {mine}", f"ip link set {mine} up",
            f"ip -n {self._name} addr add {THERE}/30 dev {its}", f"ip -n {self._name} link set {its} up",
            f"ip -n {self._name} link set lo up", f"ip -n {self._name} route add default via {HERE}",
        ):  # fmt: skip
            subprocess.run(command.split(), check=True)
        self.start()

    def start(self) -> None:
        """Its engine."""
        settings = json.loads(DAEMON_JSON.read_text()) if DAEMON_JSON.exists() else {}
        config = self._folder / "daemon.json"
        config.write_text(json.dumps(settings | {"data-root": str(self._folder / "data")}))
        options = [f"--config-file={config}", f"--exec-root={self._folder}/exec", f"--pidfile={self._folder}/pid"]
        hosts = ["-H", f"unix://{self._folder}/docker.sock", "-H", self.tcp]
        self._begin("dockerd", "--tls=false", *options, *hosts)
        until(self.answers, "the other engine", START_S_MAX)

    def _begin(self, *command: str) -> None:
        """There; what it says goes to a file."""
        with (self._folder / f"{Path(command[0]).name}.log").open("wb") as log:
            inside = ["nsenter", f"--net=/run/netns/{self._name}", *command]
            self._running.append(subprocess.Popen(inside, stdin=subprocess.DEVNULL, stdout=log, stderr=log))

    def answers(self) -> bool:
        try:
            with self.client() as client:
                return bool(client.ping())
        except (docker.errors.DockerException, OSError):
            return False

    @contextmanager
    def client(self) -> Iterator[docker.DockerClient]:
        client = docker.DockerClient(self.tcp)
        try:
            yield client
        finally:
            client.close()

    def serve_ssh(self) -> Path:
        """Returns the folder of an ssh that knows the way, for PATH."""
        place = self._folder / "ssh"
        place.mkdir()
        for key in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place / key], check=True)
        shutil.copy(place / "user.pub", place / "authorized_keys")
        Path("/run/sshd").mkdir(exist_ok=True)
        settings = {
            "Port": SSH_PORT, "ListenAddress": THERE, "HostKey": place / "host", "PidFile": "none", "UsePAM": "no",
            "AuthorizedKeysFile": place / "authorized_keys", "StrictModes": "no", "PermitRootLogin": "yes",
        }  # fmt: skip
        self._begin(path_of("sshd"), "-D", "-e", "-f", "/dev/null", *(f"-o{key}={it}" for key, it in settings.items()))
        (place / "config").write_text(
            f"Host *\n IdentityFile {place}/user\n IdentitiesOnly yes\n UserKnownHostsFile {place}/known\n"
            " StrictHostKeyChecking accept-new\n"
        )
        real, ours = shutil.which("ssh"), place / "bin" / "ssh"
        ours.parent.mkdir()
        ours.write_text(f'#!/bin/sh\nexec {real} -F {place}/config "$@"\n')
        ours.chmod(0o755)
        return ours.parent

    def stop(self) -> None:
        for process in self._running:
            process.terminate()
        for process in self._running:
            process.wait()
        self._running.clear()

    def end(self) -> None:
        self.stop()
        data = self._folder / "data"
        if data.is_mount():  # as an engine leaves it if a container is left
            subprocess.run(["umount", data], check=False)
        subprocess.run(["ip", "netns", "del", self._name], check=False)
        subprocess.run(["ip", "link", "del", f"{self._name}a"], check=False, stderr=subprocess.DEVNULL)


@contextmanager
def other_engine(folder: Path) -> Iterator[OtherEngine]:
    engine = OtherEngine(folder)
    try:
        engine.begin()
        yield engine
    finally:
        engine.end()

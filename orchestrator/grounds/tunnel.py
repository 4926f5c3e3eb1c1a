"""An ssh tunnel to the Docker engine of another machine, which makes its socket available here."""

import shutil
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from brokerbed.orchestrator.grounds.journal import Journal

SOCKET = "/var/run/docker.sock"  # the remote socket, unless the URL names another
OPEN_S_MAX = 20.0
LOOK_S = 0.05


class Tunnel:
    """Runs the ssh program, so that keys, agents and ~/.ssh/config are used. It never asks for a password."""

    def __init__(self, url: str) -> None:
        """`url` is ssh://[user@]host[:port][/path/of/the/socket]. Raises OSError if the tunnel cannot be opened."""
        parts = urlsplit(url)
        self.host = parts.hostname or ""
        destination = f"{parts.username}@{self.host}" if parts.username else self.host
        if destination.startswith("-") or self.host.startswith("-") or not self.host:
            raise OSError(f"{destination or url} is no name of a machine")
        self._journal = Journal()
        self._folder = Path(tempfile.mkdtemp(prefix="brokerbed-ssh-"))
        self._socket = self._folder / "docker.sock"
        port = ["-p", str(parts.port)] if parts.port else []
        options = ["-o", "BatchMode=yes", "-o", "ExitOnForwardFailure=yes", "-o", "ServerAliveInterval=15"]
        remote_socket = parts.path if parts.path not in ("", "/") else SOCKET
        try:
            self._process = subprocess.Popen(
                ["ssh", "-nNT", *options, *port, "-L", f"{self._socket}:{remote_socket}", "--", destination],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                start_new_session=True,  # Ctrl-C must not end ssh before we have cleaned up
            )  # fmt: skip
            self._journal.process(self._process.pid, f"ssh to {self.host}")
            self._await()
        except OSError:
            self.close()
            raise

    @property
    def url(self) -> str:
        return f"unix://{self._socket}"

    def _await(self) -> None:
        end_s = time.monotonic() + OPEN_S_MAX
        while not self._socket.exists():
            if self._process.poll() is not None:
                assert self._process.stderr is not None
                errors = [line.strip() for line in self._process.stderr if line.strip()]
                raise OSError(errors[-1] if errors else "ssh ended")
            if time.monotonic() > end_s:
                raise OSError(f"ssh did not connect within {OPEN_S_MAX:.0f} s")
            time.sleep(LOOK_S)

    def close(self) -> None:
        process = getattr(self, "_process", None)
        if process is not None:
            process.terminate()
            process.communicate()
        self._journal.close()
        shutil.rmtree(self._folder, ignore_errors=True)

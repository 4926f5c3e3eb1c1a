"""Docker engines as the docker ground uses them; what a run leaves behind if it is killed is known by its labels."""

import asyncio
import re
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from typing import Any, TypeVar

import docker
from docker.errors import APIError, DockerException, NotFound
from requests.exceptions import RequestException

from brokerbed.orchestrator.grounds import journal
from brokerbed.orchestrator.grounds.base import GroundError
from brokerbed.orchestrator.grounds.tunnel import Tunnel

LABEL = "brokerbed.orchestrator"  # on everything that a run makes: which process made it,
MACHINE_LABEL = "brokerbed.machine"  # and where that runs: only there can be told whether it lives
THREADS = 8  # calls to the engine at a time
USUAL = "the usual one"
LOOPBACK = "127.0.0.1"
T = TypeVar("T")


class Engine:
    """One of them; its calls take time, so each is done in a thread."""

    def __init__(self, url: str | None = None) -> None:
        """`url`: unix://, tcp:// or ssh://; without it, the one of DOCKER_HOST or of the usual socket."""
        self.url = url or USUAL
        self._tunnel: Tunnel | None = None
        try:
            if url is not None and url.startswith("ssh://"):
                self._tunnel = Tunnel(url)
                url = self._tunnel.url
            size = THREADS + 2
            self.client = (
                docker.from_env(max_pool_size=size) if url is None else docker.DockerClient(url, max_pool_size=size)
            )
            self.client.ping()
        except (DockerException, RequestException, OSError) as error:
            self._close_tunnel()
            which = "" if self.url == USUAL else f" at {self.url}"
            raise GroundError(
                f"no Docker engine answers{which} ({why(error)}): install or start one, or run --on local",
                is_missing=True,
            ) from None
        self.is_near = self._tunnel is None and str(self.client.api.base_url).startswith("http+docker://")
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="docker")

    @property
    def machine(self) -> str:
        """Where it runs, as an address; loopback if that is here."""
        if self.is_near:
            return LOOPBACK
        at = self._tunnel.host if self._tunnel is not None else self.client.api.base_url.split("//")[1].split(":")[0]
        return socket.gethostbyname(str(at))

    async def do(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, lambda: call(*arguments, **options))
        except (DockerException, RequestException, OSError) as error:
            which, reason = "" if self.url == USUAL else f" at {self.url}", why(error)
            raise GroundError(
                f"the Docker engine{which} could not do what was asked ({reason})",
                is_missing="no space left" in reason.lower(),
            ) from None

    def close(self) -> None:
        self._threads.shutdown()
        self.client.close()
        self._close_tunnel()

    def _close_tunnel(self) -> None:
        if self._tunnel is not None:
            self._tunnel.close()


def why(error: BaseException) -> str:
    """What the engine said, or what the system said of the way to it."""
    said = " ".join(str(getattr(error, "explanation", None) or error).split())
    reason = re.findall(r"\[Errno -?\d+\] ([^\"'()\[\]]+)", said) or re.findall(r"\(\d+, '([^']+)'\)", said)
    return reason[-1].strip() if reason else said


def labels_of(run: str) -> dict[str, str]:
    me = journal.me()
    return {LABEL: me, MACHINE_LABEL: journal.machine(), "brokerbed.run": run}


def clean(client: docker.DockerClient) -> list[str]:
    """Removes what orchestrators of this machine that are no more left behind; what it was."""
    found = []
    ours: dict[str, Any] = {"label": [LABEL, f"{MACHINE_LABEL}={journal.machine()}"]}
    for container in client.containers.list(all=True, filters=ours, ignore_removed=True):
        if not _is_alive(container.labels[LABEL]):
            with suppress(NotFound):
                container.remove(force=True, v=True)
                found.append(f"container {container.name}")
    for network in client.networks.list(filters=ours):
        if not _is_alive(network.attrs["Labels"][LABEL]):
            with suppress(NotFound, APIError):
                network.remove()
                found.append(f"network {network.name}")
    return found


def clean_engines(urls: Sequence[str]) -> list[str]:
    """The same at these engines, or at the usual one, if it answers."""
    found, wanted = list[str](), list[str | None](urls) or [None]
    for url in wanted:
        try:
            engine = Engine(url)
        except GroundError:
            if url is not None:
                raise
            continue
        with closing(engine):
            found += clean(engine.client)
    return found


def _is_alive(orchestrator: str) -> bool:
    pid, _, began = orchestrator.partition("-")
    return pid.isdigit() and str(journal.began(int(pid))) == began

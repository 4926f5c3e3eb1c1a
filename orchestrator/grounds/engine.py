"""Access to Docker engines. Labels identify what a killed run has left behind."""

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

LABEL = "brokerbed.orchestrator"  # on everything that a run creates: the process that created it,
MACHINE_LABEL = "brokerbed.machine"  # and the machine of that process, where we can check whether it lives
THREADS = 8  # simultaneous calls to the engine
USUAL = "the usual one"
LOOPBACK = "127.0.0.1"
T = TypeVar("T")


class EngineGoneError(GroundError):
    """No answer came from an engine that answered before."""


class Engine:
    """A Docker engine. Its calls block, so each of them runs in a thread."""

    def __init__(self, url: str | None = None) -> None:
        """`url` is unix://, tcp:// or ssh://; without it, DOCKER_HOST or the default socket is used."""
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
        """The address of its machine; loopback if it is this machine."""
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
            has_answered = isinstance(error, DockerException)
            raise (GroundError if has_answered else EngineGoneError)(
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
    """The explanation of the engine, or of the operating system if the engine cannot be reached."""
    text = " ".join(str(getattr(error, "explanation", None) or error).split())
    reason = re.findall(r"\[Errno -?\d+\] ([^\"'()\[\]]+)", text) or re.findall(r"\(\d+, '([^']+)'\)", text)
    return reason[-1].strip() if reason else text


def labels_of(run: str) -> dict[str, str]:
    return {LABEL: journal.process_name(), MACHINE_LABEL: journal.machine_id(), "brokerbed.run": run}


def clean(client: docker.DockerClient) -> list[str]:
    """Removes what dead orchestrators of this machine left behind, and returns descriptions of it."""
    removed = []
    ours: dict[str, Any] = {"label": [LABEL, f"{MACHINE_LABEL}={journal.machine_id()}"]}
    for container in client.containers.list(all=True, filters=ours, ignore_removed=True):
        if not _is_alive(container.labels[LABEL]):
            with suppress(NotFound):
                container.remove(force=True, v=True)
                removed.append(f"container {container.name}")
    for network in client.networks.list(filters=ours):
        if not _is_alive(network.attrs["Labels"][LABEL]):
            with suppress(NotFound, APIError):
                network.remove()
                removed.append(f"network {network.name}")
    return removed


def clean_engines(urls: Sequence[str]) -> list[str]:
    """Does the same on these engines, or on the default engine if it answers."""
    removed, engine_urls = list[str](), list[str | None](urls) or [None]
    for url in engine_urls:
        try:
            engine = Engine(url)
        except GroundError:
            if url is not None:
                raise
            continue
        with closing(engine):
            removed += clean(engine.client)
    return removed


def _is_alive(orchestrator: str) -> bool:
    pid, _, began = orchestrator.partition("-")
    return pid.isdigit() and str(journal.start_ticks(int(pid))) == began

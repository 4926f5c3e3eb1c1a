"""The Docker engine as the docker ground uses it; what it leaves behind if it is killed is known by a label."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

import docker
from docker.errors import APIError, DockerException, NotFound
from requests.exceptions import RequestException

from orchestrator.grounds import journal
from orchestrator.grounds.base import GroundError

LABEL = "brokerbed.orchestrator"  # on everything that a run makes: which process made it
THREADS = 8  # calls to the engine at a time
T = TypeVar("T")


class Engine:
    """The Docker engine; its calls take time, so each is done in a thread."""

    def __init__(self) -> None:
        try:
            self.client = docker.from_env(max_pool_size=THREADS + 2)
            self.client.ping()
        except (DockerException, RequestException, OSError) as error:
            raise GroundError(
                f"no Docker engine answers ({_why(error)}): install or start one, or run --on local", is_missing=True
            ) from None
        self._threads = ThreadPoolExecutor(THREADS, thread_name_prefix="docker")

    async def do(self, call: Callable[..., T], *arguments: Any, **options: Any) -> T:
        loop = asyncio.get_running_loop()
        try:
            return await loop.run_in_executor(self._threads, lambda: call(*arguments, **options))
        except (DockerException, RequestException, OSError) as error:
            raise GroundError(f"the Docker engine could not do what was asked ({_why(error)})") from None

    def close(self) -> None:
        self._threads.shutdown()
        self.client.close()


def _why(error: BaseException) -> str:
    explanation = getattr(error, "explanation", None)
    return " ".join(str(explanation or error).split())


def clean(client: docker.DockerClient) -> list[str]:
    """Removes what orchestrators that are no more left behind; what it was."""
    found = []
    for container in client.containers.list(all=True, filters={"label": LABEL}):
        if not _is_alive(container.labels[LABEL]):
            with suppress(NotFound):
                container.remove(force=True, v=True)
                found.append(f"container {container.name}")
    for network in client.networks.list(filters={"label": LABEL}):
        if not _is_alive(network.attrs["Labels"][LABEL]):
            with suppress(NotFound, APIError):
                network.remove()
                found.append(f"network {network.name}")
    return found


def _is_alive(orchestrator: str) -> bool:
    pid, _, began = orchestrator.partition("-")
    return pid.isdigit() and str(journal.began(int(pid))) == began

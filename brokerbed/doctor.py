"""Checks what this machine can do, and advises what to install for the rest."""

import platform
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from brokerbed import extras
from brokerbed.analysis import java

PROBE_S_MAX = 10  # how long each probe may take
PYTHON_MIN = (3, 11)


@dataclass(frozen=True, slots=True)
class Finding:
    what: str
    used_for: str
    found: str | None  # what was found, or None if it is missing
    advice: str
    needed: bool = False  # for ordinary use, not only for a special ground or test


def examine() -> Iterator[Finding]:
    yield Finding("Python", "everything", _python(), f"install Python {'.'.join(map(str, PYTHON_MIN))} or newer", True)
    runtime = java.find_java()
    yield Finding(
        "Java", "run, analyse", f"{runtime.version}: {runtime.executable}" if runtime else None, java.ADVICE, True
    )
    yield Finding("packages", "analyse, report, compare", _packages("analysis"), _advice("analysis"), True)
    yield Finding("packages", "run --on docker", _packages("docker"), _advice("docker"))
    yield Finding("Docker engine", "run --on docker", _docker(), "install and start Docker (Debian: docker.io)")
    yield Finding("image for containers", "run --on docker", *_image())
    yield Finding("slow, narrow links", "run on local, docker", "by brokerbed's relay, on every kernel", "")
    for program, used_for in (("mosquitto", "bench, tests"), ("chromium", "tests of pages"), ("prometheus", "tests")):
        yield Finding(program, used_for, shutil.which(program), f"install {program} (Debian: {program})")


def _python() -> str | None:
    version = sys.version_info[:2]
    return f"{platform.python_version()}: {sys.executable}" if version >= PYTHON_MIN else None


def _packages(extra: str) -> str | None:
    return None if extras.missing(extra) else ", ".join(extras.PACKAGES[extra])


def _advice(extra: str) -> str:
    return f"pip install 'brokerbed[{extra}]'"


def _docker() -> str | None:
    """The version of the engine, if one answers at DOCKER_HOST or the default socket."""
    if extras.missing("docker"):
        return None
    import docker  # slow to import, and needed only here

    try:
        client = docker.from_env(timeout=PROBE_S_MAX)
        try:
            return str(client.version()["Version"])
        finally:
            client.close()
    except (docker.errors.DockerException, OSError):
        return None


def _image() -> tuple[str | None, str]:
    """Whether the image exists or can be built, and what to do if not."""
    if extras.missing("docker"):
        return None, _advice("docker")
    import docker  # as above

    from brokerbed.orchestrator.grounds import base_image, image
    from brokerbed.orchestrator.grounds.base import GroundError

    try:
        client = docker.from_env(timeout=PROBE_S_MAX)
        try:
            return image.image_status(client), base_image.ADVICE
        finally:
            client.close()
    except GroundError as error:
        return None, str(error)
    except (docker.errors.DockerException, OSError):
        return None, "a Docker engine first"

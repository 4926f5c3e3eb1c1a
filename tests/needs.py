"""What tests use beyond Python packages: one list for `make test`, for CI and for the marker `needs`.

`python3 -m tests.needs` installs the missing packages, as root on Debian or Ubuntu; elsewhere, or with
BROKERBED_NO_INSTALL=1, it says what is missing. A test says what it needs by `@pytest.mark.needs("mosquitto", "docker")`,
a fixture by `require("java")`; without it the test is skipped, with the reason. This module runs before there is a .venv,
so at import it needs the standard library only.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from brokerbed.analysis import java

PACKAGES = {  # a program, and the Debian packages of which the first that exists is installed
    "make": ("make",),
    "java": ("openjdk-17-jre-headless", "openjdk-21-jre-headless", "default-jre-headless"),
    "ip": ("iproute2",),
    "openssl": ("openssl",),
    "mosquitto": ("mosquitto",),
    "mosquitto_pub": ("mosquitto-clients",),
    "debootstrap": ("debootstrap",),
    "sshd": ("openssh-server",),
    "chromium": ("chromium",),
    "prometheus": ("prometheus",),
    "promtool": ("prometheus",),
}
NOT_INSTALLED = {"dockerd": "docker.io", "nsenter": "util-linux"}  # whoever wants an engine sets it up
SBIN = "/usr/sbin:/sbin"  # not on the PATH of ordinary users
DEBIAN = Path("/etc/debian_version")  # Ubuntu has it, too
POLICY = Path("/usr/sbin/policy-rc.d")  # asked by Debian's packages before they start a service
NEVER_START = "#!/bin/sh\nexit 101\n"
ENGINE_S_MAX = 5  # for an engine to answer
PROBE_S_MAX = 60


def find(program: str) -> str | None:
    return shutil.which(program, path=f"{os.environ.get('PATH', os.defpath)}:{SBIN}")


def require(*needs: str) -> None:
    """Skips the test that runs, or whose fixture calls this, unless it has all it needs."""
    import pytest

    for need in needs:
        if reason := reason_lacking(need):
            pytest.skip(reason)


def path_of(program: str) -> str:
    require(program)
    path = find(program)
    assert path is not None
    return path


@cache
def reason_lacking(need: str) -> str | None:
    """Why a test with this need cannot run here; None if it can."""
    return PROBES[need]() if need in PROBES else _program(need)


def _program(name: str) -> str | None:
    if find(name):
        return None
    return f"{name} is not installed (Debian: {NOT_INSTALLED.get(name) or PACKAGES[name][0]})"


def _java() -> str | None:
    return None if java.find_java() else f"there is no Java: {java.ADVICE}"


def _root() -> str | None:
    return None if os.geteuid() == 0 else "needs root"


def _engine() -> str | None:
    import docker

    if os.environ.get("BROKERBED_REQUIRE_DOCKER") == "1":
        return None
    try:
        client = docker.from_env(timeout=ENGINE_S_MAX)
        client.ping()
        client.close()
    except (docker.errors.DockerException, OSError) as error:
        return f"no Docker engine answers ({error})"
    return None


def _docker() -> str | None:
    """An engine is of use only if there is an image for it. That is known for certain when the image has been made."""
    import docker

    from brokerbed.orchestrator.grounds import image
    from brokerbed.orchestrator.grounds.base import GroundError

    reason = reason_lacking("engine")
    if reason or os.environ.get("BROKERBED_REQUIRE_DOCKER") == "1":
        return reason
    client = docker.from_env()
    try:
        image.ensure(client, print)
    except GroundError as error:
        return f"the Docker engine has no image for brokers: {error}"
    finally:
        client.close()
    return None


def compose() -> list[str] | None:
    """Compose v2 if there is one, or docker-compose."""
    if shutil.which("docker") and not subprocess.run(["docker", "compose", "version"], capture_output=True).returncode:
        return ["docker", "compose"]
    return ["docker-compose"] if shutil.which("docker-compose") else None


def _compose() -> str | None:
    return None if compose() else "neither `docker compose` nor docker-compose is installed (Debian: docker-compose)"


def _small_disk() -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        reason = _tried("a small file system cannot be mounted", ["mount", "-t", "tmpfs", "brokerbed-test", folder])
        if reason is None:
            subprocess.run(["umount", folder], check=True)
    return reason


def _process_namespace() -> str | None:
    return _tried("no namespace of process ids can be made", ["unshare", "--pid", "--fork", "--mount-proc", "true"])


def _tried(failed: str, command: list[str]) -> str | None:
    try:
        subprocess.run(command, check=True, capture_output=True, timeout=PROBE_S_MAX)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{failed}, which needs root ({error})"
    return None


PROBES: dict[str, Callable[[], str | None]] = {  # needs that are not simply a program
    "java": _java,
    "root": _root,
    "engine": _engine,
    "docker": _docker,
    "compose": _compose,
    "small disk": _small_disk,
    "process namespace": _process_namespace,
}


def missing() -> list[str]:
    return [it for it in PACKAGES if reason_lacking(it)]


def debootstrap_problem() -> str | None:
    """Why packages cannot be installed."""
    if os.environ.get("BROKERBED_NO_INSTALL") == "1":
        return "BROKERBED_NO_INSTALL=1"
    if not DEBIAN.exists() or shutil.which("apt-get") is None:
        return "this is neither Debian nor Ubuntu"
    return None if os.geteuid() == 0 else "installing them needs root"


def install(programs: list[str]) -> str | None:
    """Returns why it did not work."""
    quiet = ["apt-get", "-qq", "-y", "-o", "Dpkg::Use-Pty=0"]
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    print(f"tests: installing what they use: {', '.join(programs)} (not with BROKERBED_NO_INSTALL=1)", flush=True)
    try:
        subprocess.run([*quiet, "update"], check=True, env=environment)
        packages = [name for it in programs if (name := _existing(PACKAGES[it]))]
        with _services_not_started():
            command = [*quiet, "install", "--no-install-recommends", *dict.fromkeys(packages)]
            subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    except (OSError, subprocess.CalledProcessError) as error:
        return f"apt-get failed: {error}"
    finally:
        reason_lacking.cache_clear()
    return None


def _existing(names: tuple[str, ...]) -> str | None:
    """The first that the machine's package sources have."""
    return next(
        (it for it in names if not subprocess.run(["apt-cache", "show", it], capture_output=True).returncode), None
    )


@contextmanager
def _services_not_started() -> Iterator[None]:
    """Tests start what they need themselves; nobody asked for an sshd or a broker that others can reach."""
    if POLICY.exists():
        yield
        return
    POLICY.write_text(NEVER_START)
    POLICY.chmod(0o755)
    try:
        yield
    finally:
        with suppress(FileNotFoundError):
            POLICY.unlink()


def main() -> int:
    """0 if everything is there."""
    absent = missing()
    reason = debootstrap_problem() if absent else None
    if absent and reason is None:
        reason = install(absent)
    # `make setup`, which comes next, fetches a Java where there is none, and says what came of it.
    left = [it for it in missing() if it != "java"]
    if left:
        packages = " ".join(dict.fromkeys(PACKAGES[it][0] for it in left))
        why = f"; not installed here: {reason}" if reason else ""
        print(f"tests: missing, so that tests which need them are skipped: {', '.join(left)} (Debian: {packages}){why}")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())

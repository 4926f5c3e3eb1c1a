"""The base of the docker ground's image: one that the user names, the official Python image, or one by debootstrap."""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import docker
from docker.models.images import Image
from requests.exceptions import RequestException

from brokerbed.orchestrator.grounds.base import GroundError, Notify

GIVEN = "BROKERBED_BASE_IMAGE"
ORDINARY = "python:3.12-slim-bookworm"
PYTHON_MIN = (3, 11)
REGISTRY_S_MAX = 5  # how long a registry may take to answer
MAKING_S_MAX = 1800  # how long debootstrap may take over a slow connection
ENDING_S_MAX = 20  # how long debootstrap may take to unmount its file systems
PACKAGES = ("python3", "iptables", "iproute2")
EMPTIED = (
    "dev", "proc", "run", "sys", "tmp", "usr/share/doc", "usr/share/info", "usr/share/lintian", "usr/share/locale",
    "usr/share/man", "var/cache/apt", "var/lib/apt/lists", "var/log",
)  # fmt: skip
LEFT_OUT = "__pycache__"  # modules are compiled when the image is built
RECIPE = hashlib.sha256(json.dumps([PACKAGES, EMPTIED, LEFT_OUT]).encode()).hexdigest()[:12]
MADE = f"brokerbed-base:{RECIPE}"
ADVICE = (
    f"docker pull {ORDINARY}, or set {GIVEN} to an image of a Debian with Python {'.'.join(map(str, PYTHON_MIN))} or "
    "newer, or (on Debian and Ubuntu) install debootstrap and run once as root"
)
QUESTION = """
import json, platform, shutil, sys
has_tools = all(shutil.which(tool) for tool in ("iptables", "tc"))
print(json.dumps([sys.version_info[:2], platform.libc_ver(), platform.machine(), has_tools]))
"""


@dataclass(frozen=True, slots=True)
class BaseProperties:
    """The properties of a base that decide which Python packages fit, and whether the build must install tools."""

    python: tuple[int, int]
    glibc: tuple[int, int]
    machine: str
    has_tools: bool


def image_of(client: docker.DockerClient, name: str) -> Image | None:
    try:
        return client.images.get(name)
    except docker.errors.ImageNotFound:
        return None


def local_base(client: docker.DockerClient) -> str | None:
    """The name of a base that is on this machine already; this uses no network."""
    given = os.environ.get(GIVEN)
    names = [given] if given else [ORDINARY, MADE]
    return next((name for name in names if image_of(client, name)), None)


def pullable_base(client: docker.DockerClient) -> str | None:
    """The name of a base that a registry has, if it answers soon."""
    name = os.environ.get(GIVEN) or ORDINARY
    usual_s, client.api.timeout = client.api.timeout, REGISTRY_S_MAX
    try:
        client.images.get_registry_data(name)
    except (docker.errors.DockerException, RequestException):
        return None
    finally:
        client.api.timeout = usual_s
    return name


def debootstrap_problem() -> str | None:
    """The reason why debootstrap cannot make a base here, or None."""
    if _debootstrap() is None:
        return "debootstrap is not installed"
    if os.geteuid() != 0:
        return "debootstrap needs root"
    return None


def ensure(client: docker.DockerClient, notify: Notify) -> str:
    """Fetches or makes the base if necessary, and returns its name."""
    if name := local_base(client):
        return name
    if name := pullable_base(client):
        notify(f"pulling {name} ...")
        try:
            client.images.pull(name)
        except (docker.errors.DockerException, RequestException) as error:
            notify(f"{name} cannot be pulled ({error})")
        else:
            return name
    if given := os.environ.get(GIVEN):
        raise GroundError(f"{GIVEN} is {given}, which is neither here nor can it be pulled", is_missing=True)
    if why := debootstrap_problem():
        text = f"there is no base for the image: {ORDINARY} is neither here nor can it be pulled, and {why}; {ADVICE}"
        raise GroundError(text, is_missing=True)
    notify("making a base image with debootstrap (once, a minute or more) ...")
    _make(client)
    return MADE


def inspect_base(client: docker.DockerClient, name: str) -> BaseProperties:
    try:
        output = client.containers.run(
            name, ["-c", QUESTION], entrypoint="python3", network_mode="none", remove=True, labels={"brokerbed": "1"}
        )
        python, (libc, glibc), machine, has_tools = json.loads(output)
    except (docker.errors.ContainerError, docker.errors.APIError, ValueError):
        raise GroundError(f"python3 does not run in the base image {name}; {ADVICE}", is_missing=True) from None
    if tuple(python) < PYTHON_MIN or libc != "glibc":
        text = f"the base image {name} has Python {'.'.join(map(str, python))} and {libc or 'no glibc'}; {ADVICE}"
        raise GroundError(text, is_missing=True)
    major, minor = map(int, glibc.split(".")[:2])
    return BaseProperties((python[0], python[1]), (major, minor), machine, has_tools)


def _make(client: docker.DockerClient) -> None:
    with tempfile.TemporaryDirectory(prefix="brokerbed-base-") as name:
        folder = Path(name)
        with _unmounted(folder):
            _run_debootstrap(folder / "root", folder / "log.txt")
        tar = folder / "base.tar"
        with tarfile.open(tar, "w") as file:
            file.add(folder / "root", ".", filter=_cleaned)
        repository, tag = MADE.split(":")
        answer = client.api.import_image_from_file(str(tar), repository, tag, changes=["LABEL brokerbed=1"])
    if image_of(client, MADE) is None:
        raise GroundError(f"the engine did not take the base image: {_last(answer)}", is_missing=True)


def _run_debootstrap(root: Path, log: Path) -> None:
    program, (site, suite) = _debootstrap(), package_site()
    assert program is not None
    command = [program, "--variant=minbase", f"--include={','.join(PACKAGES)}", suite, str(root), site]
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"},
        )
        try:
            code = process.wait(MAKING_S_MAX)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            _end(process)
    if code != 0:
        reason = _last(log.read_text(encoding="utf-8", errors="replace")) if code else "it takes too long"
        raise GroundError(f"debootstrap could not make a base image: {reason}", is_missing=True)


def _end(process: subprocess.Popen[bytes]) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        if process.poll() is None:
            os.killpg(process.pid, number)
            try:
                process.wait(ENDING_S_MAX)
            except subprocess.TimeoutExpired:
                continue


@contextmanager
def _unmounted(folder: Path) -> Iterator[None]:
    """Unmounts what debootstrap left mounted, so that removing the folder cannot harm /proc and /sys."""
    try:
        yield
    finally:
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
        for mount in reversed(mounts):
            if Path(mount).is_relative_to(folder.resolve()):
                subprocess.run(["umount", mount], check=True, capture_output=True)


def package_site() -> tuple[str, str]:
    """The mirror and the release of this machine's own packages, from the configuration of apt."""
    try:
        output = subprocess.run(
            ["apt-get", "indextargets", "--format", "$(SITE) $(RELEASE) $(COMPONENT)", "Created-By: Packages"],
            capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
    except (OSError, subprocess.CalledProcessError):
        output = ""
    for line in output.splitlines():
        site, release, component = line.split()
        if component == "main" and "-" not in release and "/" not in release and not site.startswith("mirror"):
            return site, release
    raise GroundError("apt does not say where this machine's packages come from: run apt-get update", is_missing=True)


def _debootstrap() -> str | None:
    return shutil.which("debootstrap", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin")


def _cleaned(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    path = PurePosixPath(entry.name)
    is_emptied = any(str(folder) in EMPTIED for folder in path.parents)
    return None if is_emptied or path.name == LEFT_OUT else entry


def _last(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it said nothing")

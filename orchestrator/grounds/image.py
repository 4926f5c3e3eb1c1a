"""The image of the docker ground. It is built once per content; the build needs no network and no registry.

To build it by hand: `python -m brokerbed.orchestrator.grounds.image`.
"""

import hashlib
import io
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import IO, Any

import docker
from packaging.requirements import Requirement
from requests.exceptions import RequestException

import brokerbed
from brokerbed.orchestrator.grounds import base_image
from brokerbed.orchestrator.grounds.base import GroundError, Notify
from brokerbed.orchestrator.grounds.base_image import BaseProperties
from brokerbed.orchestrator.grounds.engine import why

PACKAGE = Path(brokerbed.__file__).parent
DOCKERFILE = "image/Dockerfile"
CONSTRAINTS = "image/constraints.txt"
SOURCES = (
    "__init__.py",
    "log/__init__.py",
    "log/record.py",
    "registry.py",
    "topics.py",
    "scenario",
    "broker",
    "clients",
    "orchestrator/__init__.py",
    "orchestrator/grounds/__init__.py",
    "orchestrator/grounds/cutter.py",
)
EXTRA = "container"  # the extra in pyproject.toml that lists the packages for containers
PRUNED = ("tests", "__pycache__", "bin", "*.pyi", "*.pxd", "*.a", "*.h", "*.pyx", "*.c")  # not needed in containers
GLIBC_MINOR_MIN = 5  # minor version of glibc for the oldest manylinux wheels
BUILD_S_MAX = 600  # how long the engine may be silent during a build
BUILDER_PREFIXES = (
    "Step ",
    "--->",
    "Removing intermediate container",
)  # not written by its commands
COLOUR = re.compile(r"\x1b\[[0-9;]*m")  # the engine prints errors in red
HASH_DIGITS = 16
LATEST = "brokerbed:latest"


def ensure(client: docker.DockerClient, notify: Notify) -> str:
    """Builds the image for this version of brokerbed, and its base, unless they exist; returns the tag."""
    with _engine():
        base = base_image.ensure(client, notify)
        tag = tag_of(PACKAGE, base_id(client, base))
        if base_image.image_of(client, tag) is None:
            notify("building the image ...")
            inside = base_image.inspect_base(client, base)
            with context(PACKAGE, inside) as file:
                build(client, file, tag, base, inside)
    return tag


def copy(source: docker.DockerClient, target: docker.DockerClient, tag: str) -> None:
    """Copies the image to another engine that does not have it."""
    with _engine():
        if base_image.image_of(target, tag) is None:
            target.images.load(_Stream(source.images.get(tag).save(named=tag)))


class _Stream(io.RawIOBase):
    """Presents an iterator of byte strings as a file."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._rest = self._rest or next(self._pieces, b"")
        taken = self._rest[: len(buffer)]
        buffer[: len(taken)] = taken
        self._rest = self._rest[len(taken) :]
        return len(taken)


def image_status(client: docker.DockerClient) -> str | None:
    """Describes the image, or the base that it can be built on; None if it can be neither used nor built."""
    with _engine():
        if base := base_image.local_base(client):
            tag = tag_of(PACKAGE, base_id(client, base))
            return f"{tag} is there" if base_image.image_of(client, tag) else f"can be built on {base}, which is there"
        if name := base_image.pullable_base(client):
            return f"can be built on {name}, which can be pulled"
    return None if base_image.debootstrap_problem() else "can be built on a base made with debootstrap"


def base_id(client: docker.DockerClient, name: str) -> str:
    return str(client.images.get(name).id)


def tag_of(root: Path, base: str) -> str:
    """The tag, derived from all contents of the image and the identity of its base."""
    digest = hashlib.sha256(base.encode())
    for part in required():
        digest.update(f"\0{part}".encode())
    for name in (DOCKERFILE, CONSTRAINTS, *_sources(root)):
        content = (root / name).read_bytes()
        digest.update(f"\0{name}\0{len(content)}\0".encode() + content)
    return f"brokerbed:{digest.hexdigest()[:HASH_DIGITS]}"


def required() -> list[str]:
    """The packages of the image: the dependencies that brokerbed declares for containers."""
    declared = (Requirement(line) for line in metadata.requires("brokerbed") or ())
    needed = [each for each in declared if each.marker is not None and each.marker.evaluate({"extra": EXTRA})]
    return sorted(f"{requirement.name}{requirement.specifier}" for requirement in needed)


def _sources(root: Path) -> list[str]:
    files = [
        file for name in SOURCES for file in ((root / name).rglob("*.py") if (root / name).is_dir() else [root / name])
    ]
    return sorted(str(file.relative_to(root)) for file in files)


@contextmanager
def context(root: Path, inside: BaseProperties) -> Iterator[IO[bytes]]:
    """The build's context as a tar file: Dockerfile, source/, and site/ with the packages."""
    with tempfile.TemporaryDirectory(prefix="brokerbed-image-") as name, tempfile.TemporaryFile() as file:
        site = Path(name) / "site"
        _install(root, site, inside)
        with tarfile.open(fileobj=file, mode="w") as tar:
            _add(tar, root / DOCKERFILE, "Dockerfile")
            for source in _sources(root):
                _add(tar, root / source, f"source/brokerbed/{source}")
            for path in sorted(site.rglob("*")):
                if path.is_file():
                    _add(tar, path, str(path.relative_to(site.parent)))
        file.seek(0)
        yield file


def _add(tar: tarfile.TarFile, path: Path, name: str) -> None:
    """Removes times, owners and umask, so that unchanged layers are reused."""
    entry, content = tarfile.TarInfo(name), path.read_bytes()
    entry.size, entry.mode = len(content), 0o644
    tar.addfile(entry, io.BytesIO(content))


def _install(root: Path, site: Path, inside: BaseProperties) -> None:
    """Fetches wheels for the Python of the base, which may differ from ours, as pip is configured here."""
    major, minor = inside.glibc
    platforms = [f"manylinux_{major}_{number}_{inside.machine}" for number in range(minor, GLIBC_MINOR_MIN - 1, -1)]
    platforms.append(f"manylinux2014_{inside.machine}")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"]
    command += ["--target", str(site), "--only-binary", ":all:", "--constraint", str(root / CONSTRAINTS)]
    command += ["--implementation", "cp", "--python-version", ".".join(map(str, inside.python))]
    command += [word for platform in platforms for word in ("--platform", platform)]
    done = subprocess.run([*command, *required()], capture_output=True, text=True, check=False)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")] or done.stderr.splitlines()
        reason = errors[-1] if errors else f"exit code {done.returncode}"
        raise GroundError(f"pip could not fetch the image's packages: {reason}", is_missing=True)
    for pattern in PRUNED:
        for path in list(site.rglob(pattern)):
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def build(client: docker.DockerClient, file: IO[bytes], tag: str, base: str, inside: BaseProperties) -> None:
    try:
        client.images.build(
            fileobj=file,
            custom_context=True,
            tag=tag,
            buildargs={"BASE": base},
            network_mode="none" if inside.has_tools else None,
            rm=True,
            forcerm=True,
            timeout=BUILD_S_MAX,
        )
    except docker.errors.BuildError as error:
        output = COLOUR.sub("", "".join(str(part.get("stream", "")) for part in error.build_log))
        lines = [line.strip() for line in output.splitlines()]
        own = [line for line in lines if line and not line.startswith(BUILDER_PREFIXES)]
        reason = own[-1] if own else error.msg
        raise GroundError(f"the image could not be built: {reason}", is_missing=True) from None


@contextmanager
def _engine() -> Iterator[None]:
    try:
        yield
    except (docker.errors.DockerException, RequestException) as error:
        reason = why(error) or type(error).__name__
        text = f"the Docker engine does not do what it should ({reason}): `brokerbed doctor` says what is missing"
        raise GroundError(text, is_missing=True) from None


def main() -> int:
    try:
        client = docker.from_env()
        tag = ensure(client, lambda line: print(line, file=sys.stderr))
        client.images.get(tag).tag(LATEST)  # the default of deploy/compose.yaml
        print(tag)
    except (docker.errors.DockerException, GroundError) as error:
        print(error, file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())

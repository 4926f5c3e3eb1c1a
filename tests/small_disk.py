"""A small file system of a test's own, to be filled."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def small_disk(place: Path, size_bytes: int) -> Iterator[Path]:
    place.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size_bytes}", "brokerbed-test", str(place)]
    try:
        subprocess.run(["mount", *options], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a small file system cannot be mounted here, which needs root ({error})")
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True, capture_output=True)

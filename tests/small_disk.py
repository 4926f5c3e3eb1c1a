"""A small file system of a test's own, to be filled."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.needs import require


@contextmanager
def small_disk(place: Path, size_bytes: int) -> Iterator[Path]:
    require("small disk")
    place.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size_bytes}", "brokerbed-test", str(place)]
    subprocess.run(["mount", *options], check=True, capture_output=True)
    try:
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True, capture_output=True)


def fill(disk: Path, free_bytes: int = 0) -> Path:
    """A file that takes all space but so much."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        with suppress(OSError):
            while True:
                file.write(bytes(2**20))
        file.truncate(file.tell() - free_bytes)
    return ballast

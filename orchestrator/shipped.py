"""The scenarios that come with brokerbed: which there are, and how to name one on the command line."""

from pathlib import Path

import orchestrator

FOLDER = Path(orchestrator.__file__).parents[1] / "scenarios"  # beside the packages, in a clone and when installed


def shipped() -> dict[str, Path]:
    """Name -> file, quickstart first."""
    files = sorted(FOLDER.rglob("*.yaml"), key=lambda file: (len(file.relative_to(FOLDER).parts), file))
    return {file.relative_to(FOLDER).with_suffix("").as_posix(): file for file in files}


def find(file_or_name: str) -> Path:
    """A file if there is one of that name, else the shipped scenario of that name, else the (missing) file."""
    path = Path(file_or_name)
    if "\0" in file_or_name or path.exists():
        return path
    return shipped().get(file_or_name.removesuffix(".yaml"), path)


def summary(file: Path) -> str:
    """The first line of the comment that opens a shipped scenario."""
    with file.open(encoding="utf-8") as lines:
        return next(lines).removeprefix("#").strip()

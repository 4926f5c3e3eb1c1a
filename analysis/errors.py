"""What a user can be told when an analysis cannot be done. Imports little, so that the command line starts fast."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class RunError(ValueError):
    """A run directory cannot be analysed; the text says which file and why."""


class SparkError(RuntimeError):
    """Spark cannot be started, or cannot do its work; one sentence says why."""


class MasterError(ValueError):
    """What was given as the master of a Spark cluster is none; the text says what is allowed."""


@contextmanager
def named_in_errors(folder: Path) -> Iterator[None]:
    """An OSError that names no file, like one about a full disk, names this folder."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(folder)
        raise

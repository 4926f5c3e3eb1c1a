"""The errors that an analysis reports to users. The module imports little, so that the command line starts fast."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class RunError(ValueError):
    """A run directory cannot be analysed; the text says which file and why."""


class SparkError(RuntimeError):
    """Spark cannot be started, or failed; the text is one sentence that says why."""


class MasterError(ValueError):
    """The address of the Spark master is invalid; the text says what is allowed."""


class AdviceError(ValueError):
    """A question about algorithms that has no answer; the text is one sentence that says why."""


@contextmanager
def named_in_errors(folder: Path) -> Iterator[None]:
    """Adds this folder to an OSError that names no file, such as one about a full disk."""
    try:
        yield
    except OSError as error:
        error.filename = error.filename or str(folder)
        raise

"""The optional parts of brokerbed (extras of pyproject.toml), and the packages that show whether they are installed."""

from importlib.util import find_spec

PACKAGES = {"analysis": ("pandas", "pyspark"), "docker": ("docker", "packaging")}


class MissingExtraError(RuntimeError):
    """A command needs packages that are not installed; the message says how to install them."""


def missing(extra: str) -> list[str]:
    """The packages of an extra that are not installed."""
    return [package for package in PACKAGES[extra] if find_spec(package) is None]


def need(extra: str, purpose: str) -> None:
    """`purpose` is the subject of the sentence that MissingExtraError carries."""
    if packages := missing(extra):
        is_one = len(packages) == 1
        raise MissingExtraError(
            f"{purpose} needs {' and '.join(packages)}, which {'is' if is_one else 'are'} not installed:"
            f" pip install 'brokerbed[{extra}]'"
        )

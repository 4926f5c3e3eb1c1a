"""Optional parts of brokerbed: the extras of pyproject.toml, and the packages by which one sees that they are there."""

from importlib.util import find_spec

PACKAGES = {"analysis": ("pandas", "pyspark", "scipy"), "docker": ("docker", "packaging")}


class MissingExtraError(RuntimeError):
    """A command needs packages that are not installed; the text says how to install them."""


def missing(extra: str) -> list[str]:
    """The packages of an extra that are not installed."""
    return [package for package in PACKAGES[extra] if find_spec(package) is None]


def need(extra: str, purpose: str) -> None:
    """`purpose` is the subject of the sentence that MissingExtraError carries."""
    if packages := missing(extra):
        one = len(packages) == 1
        raise MissingExtraError(
            f"{purpose} needs {' and '.join(packages)}, which {'is' if one else 'are'} not installed:"
            f" pip install 'brokerbed[{extra}]'"
        )

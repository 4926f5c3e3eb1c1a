"""The scenarios that come with brokerbed, and how the command line refers to them."""

import shutil
from difflib import get_close_matches
from pathlib import Path

import brokerbed
from brokerbed.options import BadInputError
from brokerbed.scenario import load
from brokerbed.scenario.errors import Problem, ScenarioError

FOLDER = Path(brokerbed.__file__).parent / "scenarios"


def shipped() -> dict[str, Path]:
    """The files of the shipped scenarios by name, quickstart first."""
    files = sorted(FOLDER.rglob("*.yaml"), key=lambda file: (len(file.relative_to(FOLDER).parts), file))
    return {file.relative_to(FOLDER).with_suffix("").as_posix(): file for file in files}


def find(file_or_name: str) -> Path:
    """A file of that name if it exists, else the shipped scenario. Raises ScenarioError if there is neither."""
    path = Path(file_or_name)
    if "\0" in file_or_name or path.exists():
        return path
    known = shipped()
    if (file := known.get(name := file_or_name.removesuffix(".yaml"))) is not None:
        return file
    names = {known_name.rpartition("/")[2]: known_name for known_name in known} | {name: name for name in known}
    nearest = get_close_matches(name, names, n=1)
    hint = f"did you mean {names[nearest[0]]}?" if nearest else "`brokerbed scenarios` lists the shipped ones"
    raise ScenarioError(file_or_name, [Problem(None, "", f"there is no such file or shipped scenario; {hint}")])


def copy(name: str) -> Path:
    """Copies a shipped scenario, with the files that it needs, into the current folder, and returns the copy."""
    known = shipped()
    source = known.get(name.removesuffix(".yaml"))
    if source is None:
        raise BadInputError(f"--copy: there is no shipped scenario {name}; there are {', '.join(known)}")
    target = Path(source.name)
    files = [source.name, *load(source).files]
    for file in files:
        if Path(file).exists():
            raise BadInputError(f"--copy: {file} exists already; move it away first")
    for file in files:
        shutil.copyfile(source.with_name(file), file)
    return target


def summary(file: Path) -> str:
    """The first line of the comment that opens a shipped scenario."""
    with file.open(encoding="utf-8") as lines:
        return next(lines).removeprefix("#").strip()

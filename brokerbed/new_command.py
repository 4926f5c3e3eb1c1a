"""`brokerbed new`: asks what the scenario is to be like, or takes options, and writes it."""

import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, TypeVar

import typer

from brokerbed.draft import OFF_S, OFFLINE, TOLERANCE_MAX, TREES, Draft
from brokerbed.options import BadInputError
from brokerbed.scenario import ScenarioError, load
from brokerbed.scenario.format import COPIES_MAX
from brokerbed.scenario.topology import BROKERS_MAX
from brokerbed.scenario.units import duration_text, parse_fraction, parse_rate_per_s

V = TypeVar("V")
TREE_NAMES, OFFLINE_NAMES = (f"{', '.join(words[:-1])} or {words[-1]}" for words in (TREES, OFFLINE))
DEFAULTS = {"tree": "levels", "brokers": "7", "clients": "20", "rate": "1/s", "offline": "nobody", "tolerance": "10%"}
QUESTIONS = {
    "tree": f"Tree of brokers ({', '.join(TREES)})",
    "brokers": "Number of brokers",
    "clients": "Number of publishers, each with a subscriber of its own",
    "rate": "Messages of each publisher (like 1/s or 20/min)",
    "offline": f"Who goes offline now and then ({', '.join(OFFLINE)})",
    "tolerance": "How far measurements may be from predictions (delays: twice as far)",
}

File = Annotated[Path, typer.Argument(metavar="[FILE]", help="The file to write; it must not exist yet.")]
Tree = Annotated[str | None, typer.Option(metavar="TREE", help=f"The tree of brokers: {TREE_NAMES}.")]
Brokers = Annotated[str | None, typer.Option(metavar="N", help="The number of brokers.")]
Clients = Annotated[
    str | None, typer.Option(metavar="N", help="The number of publishers, each with a subscriber of its own.")
]
Rate = Annotated[str | None, typer.Option(metavar="RATE", help="Messages of each publisher, like 1/s or 20/min.")]
Offline = Annotated[
    str | None,
    typer.Option(metavar="WHO", help=f"Who disconnects now and then, for {OFF_S:g} s on average: {OFFLINE_NAMES}."),
]
Tolerance = Annotated[
    str | None,
    typer.Option(help="How far measurements may be from predictions, like 2%; delays may be twice as far."),
]


def new(
    file: File = Path("scenario.yaml"), tree: Tree = None, brokers: Brokers = None, clients: Clients = None,
    rate: Rate = None, offline: Offline = None, tolerance: Tolerance = None,
) -> None:  # fmt: skip
    """Writes a scenario to start from.

    On a terminal it asks for everything, unless options are given. The file is commented and can be run at once; it
    runs for as long as its tolerance needs. What is not given is: levels, 7 brokers, 20 clients, 1/s, nobody, 10%.

    Example: brokerbed new my.yaml --brokers 5 --tree star --offline subscribers
    """
    if file.exists():
        raise BadInputError(f"{file} exists already; move it away first, or give another name")
    given = {"tree": tree, "brokers": brokers, "clients": clients, "rate": rate, "offline": offline,
             "tolerance": tolerance}  # fmt: skip
    asks = sys.stdin.isatty() and sys.stdout.isatty() and not any(given.values())
    answer = _asked if asks else _given
    draft = Draft(
        name=file.stem,
        tree=answer("tree", given, _one_of(TREES)),
        brokers=answer("brokers", given, _count(BROKERS_MAX)),
        clients=answer("clients", given, _count(COPIES_MAX)),
        rate_per_s=answer("rate", given, _rate),
        offline=answer("offline", given, _one_of(OFFLINE)),
        tolerance=answer("tolerance", given, _tolerance),
    )
    if draft.tree == "regular" and not draft.is_full:
        raise BadInputError(f"--brokers: a regular tree has 1, 3, 7, 15, 31, ... brokers, not {draft.brokers}")
    _write(file, draft)


def _given(key: str, given: dict[str, str | None], parse: Callable[[str], V]) -> V:
    try:
        return parse(given[key] or DEFAULTS[key])
    except ValueError as error:
        raise BadInputError(f"--{key}: {error}") from None


def _asked(key: str, _: dict[str, str | None], parse: Callable[[str], V]) -> V:
    """Asks until the answer makes sense."""
    while True:
        try:
            return parse(typer.prompt(QUESTIONS[key], default=DEFAULTS[key]))
        except ValueError as error:
            typer.echo(str(error), err=True)


def _write(file: Path, draft: Draft) -> None:
    """It is loaded before it is written, so that nothing is left behind of a draft that is not right."""
    text = draft.text()
    with TemporaryDirectory() as folder:
        trial = Path(folder) / "scenario.yaml"
        trial.write_text(text, encoding="utf-8")
        try:
            load(trial)
        except ScenarioError as error:
            first = error.problems[0]
            raise BadInputError(f"{file}: {first.key + ': ' * bool(first.key)}{first.message}") from None
    try:
        with file.open("x", encoding="utf-8") as out:
            out.write(text)
    except FileExistsError:
        raise BadInputError(f"{file} exists already; move it away first, or give another name") from None
    except FileNotFoundError:
        raise BadInputError(f"{file}: there is no folder {file.parent}; make it first") from None
    print(file)
    typer.echo(
        f"it measures for {duration_text(draft.measure_s)} of model time; brokerbed run {file} --on virtual runs it",
        err=True,
    )


def _one_of(words: tuple[str, ...]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(f"must be one of {', '.join(words)}, not {text}")
        return text

    return parse


def _count(most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and 1 <= int(text) <= most):
            raise ValueError(f"must be a number from 1 to {most}, not {text}")
        return int(text)

    return parse


def _rate(text: str) -> float:
    rate_per_s = parse_rate_per_s(text)
    if rate_per_s < RATE_PER_S_MIN:
        raise ValueError("must be at least 1/h")
    return rate_per_s


def _tolerance(text: str) -> float:
    tolerance = parse_fraction(text)
    if not TOLERANCE_MIN <= tolerance <= TOLERANCE_MAX:
        raise ValueError(f"must be between {TOLERANCE_MIN:.1%} and {TOLERANCE_MAX:.0%}, not {text}")
    return tolerance


RATE_PER_S_MIN = 1 / 3600
TOLERANCE_MIN = 0.001  # with less, runs take weeks of model time

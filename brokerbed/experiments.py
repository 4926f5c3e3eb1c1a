"""What the options --until and --pair of `run` make of a scenario file, and how a pair is printed."""

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic_core import PydanticCustomError

from brokerbed.options import BadInputError
from brokerbed.scenario import Experiment, ScenarioError, load
from brokerbed.scenario.units import parse_fraction

if TYPE_CHECKING:
    from collections.abc import Callable

    from brokerbed.analysis import pairs

Until = Annotated[
    str | None,
    typer.Option(
        metavar="1%",
        help="Measure until every headline row is known to this part of its value, instead of clock.measure.",
    ),
]
Pair = Annotated[
    str | None,
    typer.Option(
        "--pair", metavar="KEY=A,B", help="Run two variants with the same random numbers, and show their differences."
    ),
]
_FORM = re.compile(r"(?P<key>[A-Za-z0-9_.\-]+)=(?P<values>[^\n]+)")
NOT_SHOWN, SAME = "not shown", "none"


def with_options(file: Path, until: str | None, pair: str | None) -> Experiment:
    """The experiment of a scenario file, as --until and --pair change it."""
    experiment = _with_pair(file, pair)
    if until is None:
        return experiment
    if experiment.is_pair:
        raise BadInputError("--until does not go with a pair, as both variants must measure the same time")
    try:
        half_width = parse_fraction(until)
    except PydanticCustomError as error:
        raise BadInputError(f"--until: {error.message()}") from None
    if half_width == 0:
        raise BadInputError("--until: must be more than 0%, as no measurement is exact")
    points = tuple(replace(point, clock=point.clock.going_on_until(half_width)) for point in experiment.points)
    return replace(experiment, points=points)


def _with_pair(file: Path, pair: str | None) -> Experiment:
    experiment = load(file)  # a mistake in the file itself is reported as such
    if pair is None:
        return experiment
    form = _FORM.fullmatch(pair)
    if form is None:
        raise BadInputError(f"--pair: {pair} is no KEY=A,B, like routing=identity,peer")
    try:
        return load(file, f"\npair: {{{form['key']}: [{form['values']}]}}\n")
    except ScenarioError as error:
        problem = error.problems[0]
        key = f"{problem.key}: " if problem.key and problem.key != "pair" else ""
        raise BadInputError(f"--pair {pair}: {key}{problem.message}") from None


def print_pair(pair: "pairs.Pair") -> None:
    from brokerbed.present import console, new_table, number  # they take a while to import

    first, second = pair.variants
    columns = first, second, "difference", "95% interval"
    table = new_table("metric", *columns, "", "shorter by", right=columns)
    table.title = f"{second} minus {first} ({pair.key}), with the same random numbers"
    for difference in pair.differences:
        interval = "-" if difference.paired is None else " .. ".join(map(number, difference.paired))
        values = (*map(number, difference.values), number(difference.value), interval)
        table.add_row(difference.title, *values, conclusion(difference, pair.variants), _shorter(difference, number))
    console().print(table)
    if any(difference.times_shorter is not None for difference in pair.differences):
        console().print(
            "shorter by: how many times longer independent runs must be for intervals of this width", soft_wrap=True
        )


def conclusion(difference: "pairs.Difference", variants: tuple[str, str]) -> str:
    """Which variant has more, or that this is not shown."""
    if difference.paired == (0.0, 0.0):
        return SAME
    if not difference.is_shown:
        return NOT_SHOWN
    return f"{variants[difference.value > 0]} has more"


def _shorter(difference: "pairs.Difference", number: "Callable[[float | None], str]") -> str:
    return "-" if difference.times_shorter is None else f"{number(difference.times_shorter)} x"

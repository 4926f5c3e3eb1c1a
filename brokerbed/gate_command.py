"""`brokerbed gate`: its options, what it prints, and its exit code."""

import json
from pathlib import Path
from typing import Annotated

import typer

from brokerbed import extras
from brokerbed.options import IN_A_SWEEP, BadInputError, Json, Junit
from brokerbed.scenario.units import parse_fraction

IS_WORSE = 1
UNDECIDED = 4

Base = Annotated[Path, typer.Argument(metavar="BASE_RUN", help=f"The run directory to compare with; {IN_A_SWEEP}")]
New = Annotated[Path, typer.Argument(metavar="NEW_RUN", help="The run directory that may be worse.")]
Margin = Annotated[
    str | None,
    typer.Option(
        metavar="MARGIN",
        help="The change that does not matter, like 2%; without it, the scenario's tolerance.",
    ),
]


def gate(base_run: Base, new_run: New, margin: Margin = None, as_json: Json = False, junit: Junit = None) -> int:
    """Whether a run is worse than another one of its scenario.

    Traffic, routing tables, delays with their quantiles, delivery and throughput are compared one by one: better, same,
    not worse, worse, or cannot tell, by a margin. Both runs must have been analysed; several seeds are pooled. Exits
    with 1 if anything is shown to be worse, or an invariant that held is broken, with 4 if it cannot tell, otherwise
    with 0. False alarms are at most 2.5%, over all rows together.

    Example: brokerbed gate runs/base runs/latest --margin 5%
    """
    extras.need("analysis", "the comparison")
    from brokerbed.analysis import gate_junit
    from brokerbed.analysis.changes import CANNOT_TELL, WORSE
    from brokerbed.analysis.gate import gate as compared
    from brokerbed.present_gate import print_gate

    found = compared(base_run, new_run, None if margin is None else _fraction(margin))
    if as_json:
        print(json.dumps(found.as_json(), allow_nan=False))
    else:
        print_gate(found)
    if junit is not None:
        gate_junit.write(junit, found)
    return {WORSE: IS_WORSE, CANNOT_TELL: UNDECIDED}.get(found.verdict, 0)


def _fraction(text: str) -> float:
    try:
        return parse_fraction(text)
    except ValueError as error:
        raise BadInputError(f"--margin: {error}") from None

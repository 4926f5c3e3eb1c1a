"""Options and arguments of the commands, and checks of their values that only we can make."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from brokerbed.orchestrator.grounds.registry import GroundKind

PORT_MAX = 65_535
ENGINES = ("ssh://", "tcp://", "unix://")


IN_A_SWEEP = "DIR/points/N is one point of a sweep."
RunDirs = Annotated[
    list[Path], typer.Argument(metavar="RUN_DIR...", help=f"Run directories, such as runs/latest; {IN_A_SWEEP}")
]
RunDir = Annotated[Path, typer.Argument(metavar="RUN_DIR", help=f"A run directory, such as runs/latest; {IN_A_SWEEP}")]
Message = Annotated[
    str, typer.Argument(metavar="MESSAGE", help="PUBLISHER.NUMBER, or as in the log, BROKER.LIFE.NUMBER.")
]
File = Annotated[str, typer.Argument(metavar="FILE", help="A scenario file, or the name of a shipped scenario.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, numbers unrounded.")]
Master = Annotated[str | None, typer.Option(metavar="URL", help="A Spark cluster, as spark://HOST:7077.")]
Junit = Annotated[Path | None, typer.Option(metavar="FILE", help="Also write metrics and invariants as test cases.")]
AllowInconclusive = Annotated[
    bool, typer.Option("--allow-inconclusive", help="Exit with 0 if nothing differs, even if something cannot be told.")
]
AllowUnpredicted = Annotated[bool, typer.Option("--allow-unpredicted", help="Let rows without a prediction pass.")]
Engines = Annotated[
    list[str] | None,
    typer.Option(
        "--engine", metavar="URL", help="A Docker engine: ssh://, tcp:// or unix://; several share the brokers."
    ),
]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Show what Spark says.")]
Detail = Annotated[bool, typer.Option("--detail", help="Also the rows per broker, link and queue.")]
Ground = Annotated[
    str, typer.Option(help="Where: local (a process per broker), virtual (simulated) or docker (containers).")
]
Seed = Annotated[int | None, typer.Option(min=0, help="The seed of all random numbers, instead of the scenario's own.")]
Seeds = Annotated[
    int,
    typer.Option(
        min=1, help="The number of runs: they have the seed, the one after it and so on, and their results are pooled."
    ),
]
Live = Annotated[
    bool, typer.Option("--live", help="Serve a web page to watch the run and inject faults; its address is printed.")
]
LiveAt = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Serve that page at this address (--live: at a free port of 127.0.0.1)."),
]


class BadInputError(Exception):
    """A mistake on the command line that only the command itself can detect."""


def page_address(text: str) -> tuple[str, int]:
    """Host and port of --live-at."""
    host, _, port = text.rpartition(":")
    if host and port.isdigit() and int(port) <= PORT_MAX:
        return host.strip("[]"), int(port)
    raise BadInputError(f"--live-at: {text} is no HOST:PORT, like 127.0.0.1:8000")


def check_engines(urls: Sequence[str]) -> None:
    for url in urls:
        if not url.startswith(ENGINES):
            raise BadInputError(f"--engine: {url} is no ssh://, tcp:// or unix:// address of a Docker engine")


def ground_kind(name: str, engines: Sequence[str], is_live: bool) -> "GroundKind":
    """The ground of that name, if it can do what the other options ask for."""
    from brokerbed.orchestrator.grounds.registry import GROUNDS

    kind = GROUNDS.all.get(name)
    if kind is None:
        raise BadInputError(f"--on: the grounds are {', '.join(GROUNDS.all)}, not {name}")
    check_engines(engines)
    if engines and not kind.has_engines:
        raise BadInputError("--engine is for containers: add --on docker")
    if is_live and not kind.is_real_time:
        raise BadInputError(f"--live: the {name} ground runs faster than anybody can watch; use --on local or docker")
    return kind

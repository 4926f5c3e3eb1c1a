"""The command line: what each command takes, prints and exits with.

Exit codes: 0 fine; 1 a measurement or an invariant does not hold; 2 bad input; 3 something is missing on this machine.
"""

import json
import shutil
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from orchestrator import shipped
from orchestrator.scenario import ScenarioError, load, schema
from orchestrator.scenario.units import NS_PER_S

if TYPE_CHECKING:
    from orchestrator.run import Done
    from orchestrator.scenario import Experiment

BAD_INPUT = 2
MISSING = 3
INTERRUPTED = 130  # as shells report a program that Ctrl-C ended

app = typer.Typer(
    help="A testbed for publish/subscribe broker networks: predict, run, measure, compare.",
    add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
)  # fmt: skip

File = Annotated[str, typer.Argument(metavar="FILE", help="A scenario file, or the name of a shipped scenario.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, numbers unrounded.")]
Detail = Annotated[bool, typer.Option("--detail", help="Also the rows per broker, link and queue.")]


class BadInputError(Exception):
    """A mistake on the command line that only the command itself can see."""


def main() -> NoReturn:
    """The console script. Every error that a user can cause is one line on stderr."""
    sys.exit(dispatch(sys.argv[1:]))


def dispatch(arguments: list[str]) -> int:
    try:
        return int(app(arguments or ["--help"], prog_name="brokerbed", standalone_mode=False) or 0)
    except (ScenarioError, BadInputError) as error:
        print(f"brokerbed: {error}" if isinstance(error, BadInputError) else error, file=sys.stderr)
        return BAD_INPUT
    except typer.TyperException as error:
        print(f"brokerbed: {' '.join(error.format_message().split())} (see brokerbed --help)", file=sys.stderr)
        return BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has seen enough
        sys.stdout = None  # nothing left to flush
        return 0


def _version(wanted: bool) -> None:
    if wanted:
        print(f"brokerbed {version('brokerbed')}")
        raise typer.Exit


@app.callback()
def _brokerbed(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


@app.command()
def predict(file: File, as_json: Json = False, detail: Detail = False) -> None:
    """What theory says of a scenario, at once; nothing is run.

    A sweep is predicted point by point. Queues that are unstable are named, and what depends on them is left open.

    Example: brokerbed predict muehl2009/fig3 --json
    """
    from analysis.predict import experiment_as_json
    from analysis.predict import predict as predicted
    from orchestrator import present

    experiment = load(shipped.find(file))
    with_detail_rows = detail or (as_json and not experiment.is_sweep)
    predictions = [predicted(scenario, with_detail_rows) for scenario in experiment.points]
    if as_json:
        print(json.dumps(experiment_as_json(experiment, predictions, detail), allow_nan=False))
    elif experiment.is_sweep and not detail:
        present.print_sweep(predictions)
    else:
        for prediction in predictions:
            present.print_prediction(prediction, detail)
    sys.stdout.flush()
    present.print_warnings(predictions)


@app.command()
def run(
    file: File,
    on: Annotated[str, typer.Option(help="The ground: virtual (local and docker are to come).")] = "virtual",
    seed: Annotated[int | None, typer.Option(min=0, help="Instead of the scenario's own.")] = None,
    out: Annotated[Path, typer.Option(help="Where run directories are made.")] = Path("runs"),
    as_json: Json = False,
) -> None:
    """Runs a scenario and keeps its message log in a run directory; the points of a sweep run on all cores.

    The virtual ground has the real brokers on a simulated network and clock: the same seed gives the same log.

    Example: brokerbed run quickstart --on virtual
    """
    from orchestrator import present
    from orchestrator.run import VIRTUAL
    from orchestrator.run import run as run_experiment

    if on != VIRTUAL:
        raise BadInputError(f"--on: the only ground so far is {VIRTUAL}, not {on}")
    experiment = load(shipped.find(file))
    with present.progress(f"{experiment.name} on {on}") as progress:
        folder, done = run_experiment(experiment, seed, out, progress)
    if as_json:
        print(json.dumps(_told(experiment, folder, done), allow_nan=False))
    else:
        print(folder)


def _told(experiment: "Experiment", folder: Path, done: "list[Done]") -> dict[str, Any]:
    points = [
        {
            "scenario": each.scenario.name,
            "on": "virtual",
            "seed": each.scenario.seed,
            "model_seconds": each.scenario.clock.measure / NS_PER_S,
            "wall_seconds": each.wall_s,
            "run_directory": str(each.folder),
        }
        for each in done
    ]
    if not experiment.is_sweep:
        return points[0]
    swept = [{"at": dict(each.scenario.at), **point} for each, point in zip(done, points, strict=True)]
    return {"scenario": experiment.name, "run_directory": str(folder), "points": swept}


@app.command()
def scenarios(
    copy: Annotated[
        str | None, typer.Option(metavar="NAME", help="Copy this scenario into the current folder.")
    ] = None,
    as_schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of scenario files.")] = False,
) -> None:
    """The shipped scenarios, one line each.

    Example: brokerbed scenarios --copy quickstart
    """
    known = shipped.shipped()
    if as_schema:
        print(json.dumps(schema(), indent=2))
    elif copy is not None:
        source = known.get(copy.removesuffix(".yaml"))
        if source is None:
            raise BadInputError(f"--copy: there is no shipped scenario {copy}; there are {', '.join(known)}")
        target = Path(source.name)
        if target.exists():
            raise BadInputError(f"--copy: {target} exists already; move it away first")
        shutil.copyfile(source, target)
        print(target)
    else:
        width = max(map(len, known))
        for name, file in known.items():
            print(f"{name:<{width}}  {shipped.summary(file)}")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False)
def broker(context: typer.Context) -> int:
    """One MQTT broker (3.1.1 and 5) on its own; see brokerbed broker --help.

    Example: brokerbed broker --port 1883
    """
    from broker.runtime.command import main as serve

    return serve(context.args)


@app.command()
def doctor() -> int:
    """What this machine can do, and what to install for the rest.

    Exits with 3 if something is missing that ordinary use needs.

    Example: brokerbed doctor
    """
    from orchestrator import present
    from orchestrator.doctor import examine

    findings = list(examine())
    present.print_findings(findings)
    return MISSING if any(it.needed and not it.found for it in findings) else 0

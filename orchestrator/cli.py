"""The command line: what each command takes, prints and exits with.

Exit codes: 0 fine; 1 a measurement or an invariant does not hold; 2 bad input; 3 something is missing on this machine.
"""

import json
import shutil
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from analysis.errors import MasterError, RunError, SparkError
from analysis.jobs.cluster import check_master
from orchestrator import shipped
from orchestrator.entry import INTERRUPTED
from orchestrator.grounds.base import GroundError
from orchestrator.java import JavaError, need_java
from orchestrator.scenario import ScenarioError, load, schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from analysis.jobs.analyse import Analysis
    from analysis.runs import Finished
    from orchestrator.run import Task

DIFFERS = 1
BAD_INPUT = 2
MISSING = 3
PORT_MAX = 65_535

app = typer.Typer(
    help="A testbed for publish/subscribe broker networks: predict, run, measure, compare.",
    add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
)  # fmt: skip

File = Annotated[str, typer.Argument(metavar="FILE", help="A scenario file, or the name of a shipped scenario.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, numbers unrounded.")]
Master = Annotated[str | None, typer.Option(metavar="URL", help="A Spark cluster, as spark://HOST:7077.")]
Junit = Annotated[Path | None, typer.Option(metavar="FILE", help="Also write metrics and invariants as test cases.")]
AllowInconclusive = Annotated[
    bool, typer.Option("--allow-inconclusive", help="Exit with 0 if nothing differs, even if something cannot be told.")
]
Engines = Annotated[
    list[str] | None,
    typer.Option(
        "--engine", metavar="URL", help="A Docker engine: ssh://, tcp:// or unix://; several share the brokers."
    ),
]
Verbose = Annotated[bool, typer.Option("-v", "--verbose", help="Show what Spark says.")]
RunDirs = Annotated[list[Path], typer.Argument(metavar="RUN_DIR...", help="Run directories, or points of sweeps.")]
RunDir = Annotated[Path, typer.Argument(metavar="RUN_DIR")]
Detail = Annotated[bool, typer.Option("--detail", help="Also the rows per broker, link and queue.")]


class BadInputError(Exception):
    """A mistake on the command line that only the command itself can see."""


def main() -> NoReturn:
    """The console script. Every error that a user can cause is one line on stderr."""
    sys.exit(dispatch(sys.argv[1:]))


def dispatch(arguments: list[str]) -> int:
    try:
        return int(app(arguments or ["--help"], prog_name="brokerbed", standalone_mode=False) or 0)
    except (ScenarioError, BadInputError, MasterError, RunError) as error:
        print(error if isinstance(error, ScenarioError) else f"brokerbed: {error}", file=sys.stderr)
        return BAD_INPUT
    except GroundError as error:
        print(f"brokerbed: {error}", file=sys.stderr)
        return MISSING if error.is_missing else DIFFERS
    except (SparkError, JavaError) as error:
        print(f"brokerbed: {error}", file=sys.stderr)
        return MISSING
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
    on: Annotated[str, typer.Option(help="The ground: local, virtual or docker.")] = "local",
    seed: Annotated[int | None, typer.Option(min=0, help="Instead of the scenario's own.")] = None,
    seeds: Annotated[int, typer.Option(min=1, help="So many runs, with this seed and the next ones, pooled.")] = 1,
    out: Annotated[Path, typer.Option(help="Where run directories are made.")] = Path("runs"),
    master: Master = None,
    engine: Engines = None,
    live: Annotated[
        bool, typer.Option("--live", help="Serve a page that shows the run, and lets you strike it.")
    ] = False,
    live_at: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="The same, there (port 0: a free one), not on 127.0.0.1:0.")
    ] = None,
    no_analyse: Annotated[bool, typer.Option("--no-analyse", help="Only run; print the run directory.")] = False,
    as_json: Json = False,
    detail: Detail = False,
    junit: Junit = None,
    allow_inconclusive: AllowInconclusive = False,
    verbose: Verbose = False,
) -> int:
    """Runs a scenario, measures what happened and sets it beside the prediction.

    On the local ground every broker is a process, on the docker ground a container; model time is wall time times
    clock.speedup. The virtual ground has the same brokers on a simulated network and clock: the same seed gives the
    same log. There the points of a sweep run on all cores, or with --master on a Spark cluster. A sweep that was
    interrupted goes on.

    Example: brokerbed run quickstart --on virtual
    """
    from orchestrator import present
    from orchestrator.run import DOCKER, GROUNDS, VIRTUAL
    from orchestrator.run import run as run_experiment

    if on not in GROUNDS:
        raise BadInputError(f"--on: the grounds are {', '.join(GROUNDS)}, not {on}")
    _check_engines(engine or [])
    if engine and on != DOCKER:
        raise BadInputError("--engine is for containers: add --on docker")
    page = _address(live_at or "127.0.0.1:0") if live or live_at else None
    if page and on == VIRTUAL:
        raise BadInputError("--live: the virtual ground runs faster than anybody can watch; use --on local or docker")
    experiment = load(shipped.find(file))
    if not no_analyse:
        need_java()  # before anything is run that could not be analysed
    if master is not None:
        check_master(master)
    spread = None if master is None or on != VIRTUAL else partial(_spread, master, verbose)
    with present.progress(f"{experiment.name} on {on}") as progress:
        folder = run_experiment(experiment, on, seed, seeds, out, progress, spread, present.tell, engine or (), page)
    if not no_analyse:
        return _analyse([folder], master, as_json, detail, junit, allow_inconclusive, verbose)
    print(json.dumps({"scenario": experiment.name, "on": on, "run_directory": str(folder)}) if as_json else folder)
    return 0


def _spread(master: str, verbose: bool, tasks: "Sequence[Task]", work: "Callable[[Task], None]") -> None:
    from analysis.jobs.session import session
    from analysis.jobs.spread import spread

    with session(master, 0, verbose) as spark:
        spread(spark, [task.absolute() for task in tasks], work)


@app.command()
def analyse(
    run_dirs: RunDirs,
    master: Master = None,
    as_json: Json = False,
    detail: Detail = False,
    junit: Junit = None,
    allow_inconclusive: AllowInconclusive = False,
    verbose: Verbose = False,
) -> int:
    """Measures finished runs with Spark and sets them beside their predictions.

    Example: brokerbed analyse runs/latest
    """
    return _analyse(run_dirs, master, as_json, detail, junit, allow_inconclusive, verbose)


def _analyse(
    folders: "Sequence[Path]", master: str | None, as_json: bool, detail: bool, junit_file: Path | None,
    allow_inconclusive: bool, verbose: bool,
) -> int:  # fmt: skip
    from analysis import junit, report
    from analysis.runs import find
    from analysis.verdicts import INCONCLUSIVE
    from orchestrator import present

    analyses = _analysed([find(folder) for folder in folders], master, verbose)
    for analysis in analyses:
        page = report.write(analysis.finished.folder)
        if not as_json:
            present.print_analysis(analysis, detail)
            print(f"report: {page}")
            sys.stdout.flush()
            present.print_assumptions(analysis)
            present.print_warnings([point.prediction for point in analysis.points])
    if as_json:
        told = [analysis.as_json(detail) for analysis in analyses]
        print(json.dumps(told[0] if len(told) == 1 else {"runs": told}, allow_nan=False))
    if junit_file is not None:
        junit.write(junit_file, analyses, allow_inconclusive)
    points = [point for analysis in analyses for point in analysis.points]
    if not allow_inconclusive and any(row.verdict == INCONCLUSIVE for point in points for row in point.headline):
        present.tell("inconclusive: measure longer (clock.measure), or with more copies or --seeds, to tell")
    is_fine = all(point.is_tolerable if allow_inconclusive else point.agrees for point in points)
    return 0 if is_fine else DIFFERS


def _analysed(found: "Sequence[Finished]", master: str | None, verbose: bool) -> "list[Analysis]":
    from analysis.jobs.analyse import analyse as analyse_all
    from orchestrator import present

    with present.progress("analysis", is_even=False) as progress:
        return list(analyse_all(found, master, verbose, progress=progress))


@app.command()
def report(run_dir: RunDir, master: Master = None, verbose: Verbose = False) -> None:
    """Writes report.html into a run directory: one file that opens offline. Analyses the run if that was not done yet.

    Example: brokerbed report runs/latest
    """
    from analysis import report as reports

    if not reports.is_analysed(run_dir):
        from analysis.runs import find

        found = find(run_dir)
        need_java()
        _analysed([found], master, verbose)
    print(reports.write(run_dir))


@app.command()
def compare(run_dirs: RunDirs, master: Master = None, as_json: Json = False, verbose: Verbose = False) -> None:
    """Several runs of one scenario (grounds, seeds, routings) in one table; analyses those that were not yet.

    Example: brokerbed compare runs/one runs/other
    """
    from analysis.compare import comparison, missing
    from analysis.runs import find
    from orchestrator import present

    found = [find(folder) for folder in run_dirs]
    if left := missing(found):
        _analysed(left, master, verbose)
    table = comparison(found)
    if as_json:
        print(json.dumps(table.as_json(), allow_nan=False))
    else:
        present.print_comparison(table)


@app.command()
def trace(run_dir: RunDir, message: Annotated[str, typer.Argument(metavar="MESSAGE")], as_json: Json = False) -> None:
    """The way of one message through the network, hop by hop: of publisher sensor the 17th is sensor.17.

    With copies a publisher's name has the copy's number, sensor.0.17; b3.1.17 is the 17th that entered at b3 in its
    first life.

    Example: brokerbed trace runs/latest sensor.0.17
    """
    from analysis.trace import trace as way_of
    from orchestrator import present

    steps = way_of(run_dir, message)
    if as_json:
        print(json.dumps({"message": message, "steps": [step.as_json() for step in steps]}))
    else:
        present.print_trace(steps)


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
def clean(engine: Engines = None) -> None:
    """Removes the processes, containers and networks that an interrupted run left behind.

    Example: brokerbed clean
    """
    from orchestrator import targets
    from orchestrator.grounds import journal
    from orchestrator.grounds.engine import clean_engines

    _check_engines(engine or [])
    ended = [*journal.clean(), *targets.clean(), *clean_engines(engine or [])]
    for it in ended:
        print(f"ended {it}")
    if not ended:
        print("nothing was left behind")


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if host and port.isdigit() and int(port) <= PORT_MAX:
        return host.strip("[]"), int(port)
    raise BadInputError(f"--live-at: {text} is no HOST:PORT, like 127.0.0.1:8000")


def _check_engines(urls: "Sequence[str]") -> None:
    for url in urls:
        if not url.startswith(("ssh://", "tcp://", "unix://")):
            raise BadInputError(f"--engine: {url} is no ssh://, tcp:// or unix:// address of a Docker engine")


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

"""The command line: what each command takes, prints and exits with.

Exit codes: 0 fine; 1 a measurement or an invariant does not hold; 2 bad input; 3 something is missing on this machine;
4 `gate` cannot tell.
"""

import json
import os
import sys
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brokerbed import extras, shipped
from brokerbed.advising import advise
from brokerbed.analysing import analysed, need_spark
from brokerbed.analysis.errors import AdviceError, MasterError, RunError, SparkError, named_in_errors
from brokerbed.analysis.java import JavaError
from brokerbed.analysis.jobs.cluster import check_master
from brokerbed.entry import INTERRUPTED
from brokerbed.experiments import Pair, Until, with_options
from brokerbed.gate_command import gate
from brokerbed.new_command import new
from brokerbed.options import (
    AllowInconclusive,
    AllowUnpredicted,
    BadInputError,
    Detail,
    Engines,
    File,
    Ground,
    Json,
    Junit,
    Live,
    LiveAt,
    Master,
    Message,
    RunDir,
    RunDirs,
    Seed,
    Seeds,
    Verbose,
    check_engines,
    ground_kind,
    page_address,
)  # fmt: skip
from brokerbed.orchestrator.grounds.base import GroundError
from brokerbed.passwd import passwd
from brokerbed.scenario import ScenarioError, load, schema

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from brokerbed.orchestrator.run import Task

DIFFERS = 1
BAD_INPUT = 2
MISSING = 3

app = typer.Typer(
    help="A testbed for publish/subscribe broker networks: predict, run, measure, compare.",
    add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False,
)  # fmt: skip


def dispatch(arguments: list[str]) -> int:
    """Runs a command; its exit code. Every error that a user can cause is one line on stderr."""
    try:
        return int(app(arguments or ["--help"], prog_name="brokerbed", standalone_mode=False) or 0)
    except (ScenarioError, BadInputError, AdviceError, MasterError, RunError) as error:
        print(error if isinstance(error, ScenarioError) else f"brokerbed: {error}", file=sys.stderr)
        return BAD_INPUT
    except GroundError as error:
        print(f"brokerbed: {error}", file=sys.stderr)
        return MISSING if error.is_missing else DIFFERS
    except (SparkError, JavaError, extras.MissingExtraError) as error:
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
    except OSError as error:  # what the system refuses: space on a disk, a permission, open files
        where = f"{error.filename}: " if error.filename else ""
        print(f"brokerbed: {where}{os.strerror(error.errno) if error.errno else error}", file=sys.stderr)
        return MISSING


def _version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"brokerbed {version('brokerbed')}")
        raise typer.Exit


@app.callback()
def _brokerbed(
    _: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    pass


@app.command()
def predict(file: File, as_json: Json = False, detail: Detail = False) -> None:
    """What theory says of a scenario; nothing is run.

    A sweep is predicted point by point. Queues that are unstable are named, and what depends on them is left open.

    Example: brokerbed predict muehl2009/fig3 --json
    """
    from brokerbed import present
    from brokerbed.analysis.predict import experiment_as_json
    from brokerbed.analysis.predict import predict as predicted

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


app.command()(advise)


@app.command()
def run(
    file: File,
    on: Ground = "local",
    seed: Seed = None,
    seeds: Seeds = 1,
    until: Until = None,
    pair: Pair = None,
    out: Annotated[Path, typer.Option(help="Where run directories are made.")] = Path("runs"),
    master: Master = None,
    engine: Engines = None,
    live: Live = False,
    live_at: LiveAt = None,
    no_analyse: Annotated[bool, typer.Option("--no-analyse", help="Only run; print the run directory.")] = False,
    as_json: Json = False,
    detail: Detail = False,
    junit: Junit = None,
    allow_inconclusive: AllowInconclusive = False,
    allow_unpredicted: AllowUnpredicted = False,
    verbose: Verbose = False,
) -> int:
    """Runs a scenario and compares it with its prediction.

    On the local ground every broker is a process, on the docker ground a container; model time is wall time times
    clock.speedup. The virtual ground has the same brokers on a simulated network and clock: the same seed gives the
    same log. There the points of a sweep run on all cores, or with --master on a Spark cluster. A sweep that was
    interrupted goes on. If it will take more than 10 minutes, the expected time and size of the log are said first.

    Example: brokerbed run quickstart --on virtual
    """
    from brokerbed import present
    from brokerbed.analysis.pacing import pacer_of
    from brokerbed.analysis.predict import predict as predicted
    from brokerbed.orchestrator.run import run as run_experiment
    from brokerbed.progress import progress

    page = page_address(live_at or "127.0.0.1:0") if live or live_at else None
    kind = ground_kind(on, engine or [], page is not None)
    experiment = with_options(shipped.find(file), until, pair)
    if kind.extra is not None:
        extras.need(kind.extra, f"the {on} ground")
    if not no_analyse:
        need_spark()  # before anything is run that could not be analysed
    if master is not None:
        check_master(master)
    present.print_warnings([predicted(point, detail=False) for point in experiment.points])
    spread = None if master is None or kind.is_real_time else partial(_spread, master, verbose)
    with progress(f"{experiment.name} on {on}") as report:
        folder = run_experiment(
            experiment, on, seed, seeds, out, report, spread, present.notify, engine or (), page, predicted, pacer_of
        )
    if not no_analyse:
        allow = allow_inconclusive, allow_unpredicted
        return _analyse([folder], master, as_json, detail, junit, *allow, verbose, is_warned=True)
    print(json.dumps({"scenario": experiment.name, "on": on, "run_directory": str(folder)}) if as_json else folder)
    return 0


def _spread(master: str, verbose: bool, tasks: "Sequence[Task]", work: "Callable[[Task], None]") -> None:
    from brokerbed.analysis.jobs.session import session
    from brokerbed.analysis.jobs.spread import spread

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
    allow_unpredicted: AllowUnpredicted = False,
    verbose: Verbose = False,
) -> int:
    """Compares finished runs with their predictions.

    Spark measures what happened from the message log of each run.

    Example: brokerbed analyse runs/latest
    """
    return _analyse(run_dirs, master, as_json, detail, junit, allow_inconclusive, allow_unpredicted, verbose)


def _analyse(
    folders: "Sequence[Path]", master: str | None, as_json: bool, detail: bool, junit_file: Path | None,
    allow_inconclusive: bool, allow_unpredicted: bool, verbose: bool, is_warned: bool = False,
) -> int:  # fmt: skip
    from brokerbed import present

    extras.need("analysis", "the analysis")
    from brokerbed.analysis import junit, report
    from brokerbed.analysis.runs import find
    from brokerbed.analysis.verdicts import AGREES, INCONCLUSIVE

    passing = (AGREES, True), (INCONCLUSIVE, allow_inconclusive), (None, allow_unpredicted)
    allowed = {verdict for verdict, is_allowed in passing if is_allowed}
    analyses = analysed([find(folder) for folder in folders], master, verbose)
    for analysis in analyses:
        with named_in_errors(analysis.finished.folder):
            page = report.write(analysis.finished.folder)
        if not as_json:
            present.print_analysis(analysis, detail, page)
        if not is_warned:
            present.print_warnings([point.prediction for point in analysis.points])
    if as_json:
        documents = [analysis.as_json(detail) for analysis in analyses]
        print(json.dumps(documents[0] if len(documents) == 1 else {"runs": documents}, allow_nan=False))
    if junit_file is not None:
        junit.write(junit_file, analyses, allowed)
    points = [point for analysis in analyses for point in analysis.points]
    present.print_advice(points, allowed)
    return 0 if all(point.passes(allowed) for point in points) else DIFFERS


@app.command()
def report(run_dir: RunDir, master: Master = None, verbose: Verbose = False) -> None:
    """Writes report.html into a run directory.

    The report is one file that opens offline. The run is analysed first if that was not done yet.

    Example: brokerbed report runs/latest
    """
    extras.need("analysis", "the report")
    from brokerbed.analysis import report as reports

    if not reports.is_analysed(run_dir):
        from brokerbed.analysis.runs import find

        finished = find(run_dir)
        need_spark()
        analysed([finished], master, verbose)
    with named_in_errors(run_dir):
        print(reports.write(run_dir))


@app.command()
def compare(run_dirs: RunDirs, master: Master = None, as_json: Json = False, verbose: Verbose = False) -> None:
    """Several runs of one scenario in one table.

    They may differ in ground, seed or routing. Those that were not analysed yet are analysed first.

    Example: brokerbed compare runs/one runs/other
    """
    from brokerbed import present

    extras.need("analysis", "the comparison")
    from brokerbed.analysis.compare import comparison, missing
    from brokerbed.analysis.runs import find

    finished = [find(folder) for folder in run_dirs]
    if left := missing(finished):
        analysed(left, master, verbose)
    table = comparison(finished)
    if as_json:
        print(json.dumps(table.as_json(), allow_nan=False))
    else:
        present.print_comparison(table)


app.command()(gate)
app.command()(new)


@app.command()
def trace(run_dir: RunDir, message: Message, as_json: Json = False) -> None:
    """The way of one message through the network, hop by hop.

    The 17th message of publisher sensor is sensor.17. Where a scenario has copies, it is sensor.0.17 in the first copy.
    The 17th message that entered the network at broker b3 in b3's first life, before any crash, is b3.1.17.

    Example: brokerbed trace runs/latest sensor.0.17
    """
    from brokerbed import present
    from brokerbed.analysis.trace import trace as way_of

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
    if as_schema:
        print(json.dumps(schema(), indent=2))
    elif copy is not None:
        print(shipped.copy(copy))
    else:
        known = shipped.shipped()
        width = max(map(len, known))
        for name, file in known.items():
            print(f"{name:<{width}}  {shipped.summary(file)}")


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True}, add_help_option=False)
def broker(context: typer.Context) -> int:
    """One MQTT broker (3.1.1 and 5) on its own.

    Its options are listed by brokerbed broker --help and in docs/broker.md.

    Example: brokerbed broker --port 1883
    """
    from brokerbed.broker.runtime.command import main as serve

    return serve(context.args)


app.command()(passwd)


@app.command()
def clean(engine: Engines = None) -> None:
    """Removes what an interrupted run left behind.

    That is processes, containers, networks, and entries of BROKERBED_TARGETS.

    Example: brokerbed clean
    """
    from brokerbed.orchestrator import targets
    from brokerbed.orchestrator.grounds import journal

    check_engines(engine or [])
    if engine:
        extras.need("docker", "--engine")
    ended = [*journal.clean(), *targets.clean()]
    if not extras.missing("docker"):
        from brokerbed.orchestrator.grounds.engine import clean_engines

        ended += clean_engines(engine or [])
    for description in ended:
        print(f"ended {description}")
    if not ended:
        print("nothing was left behind")


@app.command()
def doctor() -> int:
    """What this machine can do, and what to install for the rest.

    Exits with 3 if something is missing that ordinary use needs.

    Example: brokerbed doctor
    """
    from brokerbed import present
    from brokerbed.doctor import examine

    findings = list(examine())
    present.print_findings(findings)
    return MISSING if any(finding.needed and not finding.found for finding in findings) else 0

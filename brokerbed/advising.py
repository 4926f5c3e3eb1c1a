"""`brokerbed advise`: which routing algorithm is cheapest for a scenario, and where the answer changes."""

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from brokerbed import extras, shipped
from brokerbed.analysing import analysed, need_spark
from brokerbed.options import File, Json, Verbose
from brokerbed.scenario import has_sweep, load

if TYPE_CHECKING:
    from collections.abc import Sequence

    from brokerbed.analysis.advise import Advice
    from brokerbed.analysis.confirm import Confirmed, Side

DIFFERS = 1
Over = Annotated[
    str | None,
    typer.Option(metavar="KEY=A..B", help="Where along this key of the scenario another algorithm becomes cheapest."),
]
By = Annotated[
    str, typer.Option(metavar="METRIC", help="What to compare: a metric that has one total, or delay (the mean one).")
]
Confirm = Annotated[
    bool, typer.Option("--confirm", help="Run the two cheapest on the virtual ground, on both sides of each crossing.")
]
Out = Annotated[Path | None, typer.Option(metavar="FILE.html", help="Also draw it.")]
Runs = Annotated[Path, typer.Option(help="Where --confirm makes its run directory.")]


def advise(
    file: File,
    over: Over = None,
    by: By = "rate.total",
    confirm: Confirm = False,
    out: Out = None,
    runs: Runs = Path("runs"),
    as_json: Json = False,
    verbose: Verbose = False,
) -> int:
    """Finds the cheapest routing algorithm, by the models.

    Every algorithm that the scenario allows is predicted; a sweep in the file is left out. With --over the exact values
    of a key are found at which the cheapest one changes. With --confirm the two cheapest run beside each of these, with
    the same arrivals, lifetimes and publications, and the exit code is 1 unless their order holds.

    Example: brokerbed advise algorithms/all --over publications.rate=1/s..600/s
    """
    from brokerbed import present
    from brokerbed.analysis import confirm as confirming
    from brokerbed.analysis.advise import advise as advice_on

    path = shipped.find(file)
    advice = advice_on(path, by, over)
    if has_sweep(path):
        present.notify(f"note: the sweep of {advice.name} is left out; the advice is for the rest of the file")
    confirmed: list[Confirmed] = []
    folders: list[Path] = []
    if confirm:
        need_spark()
        folders, confirmed = _confirmed(advice, runs, verbose)
    page = None if out is None else _drawn(advice, confirmed, out)
    holds = confirming.holds(confirmed) if confirm else True
    if as_json:
        document = advice.as_json()
        if confirm:
            each = [side.as_json() for side in confirmed]
            document["confirmed"] = {"holds": holds, "sides": each, "run_directories": [*map(str, folders)]}
        print(json.dumps(document, allow_nan=False))
    else:
        present.print_cheapest(advice)
        if confirm:
            present.print_confirmed(confirmed)
        if page is not None:
            print(f"picture: {page}")
    sys.stdout.flush()
    present.print_warnings([candidate.prediction for candidate in advice.candidates])
    return 0 if holds or not confirmed else DIFFERS


def _confirmed(advice: "Advice", runs: Path, verbose: bool) -> "tuple[list[Path], list[Confirmed]]":
    """Runs each side, and again for longer where that does not show the order; and the run directories."""
    from brokerbed.analysis.confirm import UNCLEAR, sides

    left, folders = sides(advice), list[Path]()
    found: dict[tuple[float | None, float | None], Confirmed] = {}
    while left:
        folder, confirmed = _run(advice, left, runs, verbose)
        folders.append(folder)
        found |= {(each.side.crossing, each.side.at): each for each in confirmed}
        unclear = [each.side.longer(advice) for each in confirmed if each.verdict == UNCLEAR]
        left = [side for side in unclear if side is not None]
    return folders, list(found.values())


def _run(advice: "Advice", sides: "Sequence[Side]", runs: Path, verbose: bool) -> "tuple[Path, list[Confirmed]]":
    """All runs as one sweep, so that they use all cores and one analysis."""
    from brokerbed.analysis.confirm import experiment, judged
    from brokerbed.analysis.runs import find
    from brokerbed.orchestrator.run import run
    from brokerbed.present import notify
    from brokerbed.progress import progress

    with tempfile.TemporaryDirectory(prefix="brokerbed-advise-") as place:
        file = Path(place) / advice.file.name
        file.write_text(experiment(advice, sides), encoding="utf-8")
        for name in advice.candidates[0].scenario.traces:
            shutil.copyfile(advice.file.with_name(name), file.with_name(name))
        with progress(f"{advice.name} on virtual") as report:
            folder = run(load(file), "virtual", None, 1, runs, report, notify=notify)
    (analysis,) = analysed([find(folder)], None, verbose)
    return folder, judged(sides, advice, [point.rows for point in analysis.points])


def _drawn(advice: "Advice", confirmed: "Sequence[Confirmed]", file: Path) -> Path:
    extras.need("analysis", "--out")
    from brokerbed.analysis.report import advice as picture

    file.write_text(picture.page(advice, confirmed), encoding="utf-8")
    return file

"""Prints results for people: tables on a terminal, plain and unwrapped text elsewhere."""

import sys
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from brokerbed.analysis.predict import Prediction
from brokerbed.analysis.queues import Way
from brokerbed.analysis.verdicts import AGREES, DIFFERS, INCONCLUSIVE, Compared
from brokerbed.doctor import Finding
from brokerbed.experiments import print_pair
from brokerbed.metrics import RECURSION, Row, labels_text

if TYPE_CHECKING:  # they import Spark, which most commands do not need
    from brokerbed.analysis.advise import Advice
    from brokerbed.analysis.compare import Comparison
    from brokerbed.analysis.confirm import Confirmed
    from brokerbed.analysis.jobs.analyse import Analysis, Point
    from brokerbed.analysis.trace import Step

UNWRAPPED_COLUMNS = 100_000  # without a terminal no line is folded or cut
WARNINGS_SHOWN_MAX = 10  # an overloaded tree has hundreds of unstable queues; the first few are enough
COLUMNS_MAX = 14  # of headline rows in the table of a sweep: four pairs of peers; more would not fit a screen


def console(stderr: bool = False) -> Console:
    out = Console(stderr=stderr, highlight=False)
    if not out.is_terminal:
        out.width = UNWRAPPED_COLUMNS
    return out


def notify(line: str) -> None:
    """Prints one line on stderr."""
    console(stderr=True).print(line, markup=False, soft_wrap=True)


def number(value: float | None) -> str:
    """A number with four significant digits, or more if there are more before the point; a dash for no value."""
    if value is None or value != value:
        return "-"
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"


def print_prediction(prediction: Prediction, detail: bool) -> None:
    scenario = prediction.scenario
    is_simulated = detail and any(row.standard_error is not None for row in prediction.rows)
    more = ("standard error", "method") if is_simulated else ()
    table = new_table("metric", "of", "predicted", "unit", *more, right=("predicted", "standard error"))
    table.title = f"{scenario.name}: {len(scenario.tree)} brokers, {scenario.routing} routing"
    for row in prediction.rows:
        if detail or row.is_headline:
            unit = row.unit if row.unit != "1" else ""
            method = (number(row.standard_error), RECURSION if row.standard_error is not None else "formula")
            of_row = row.metric, labels_text(row.labels) or "all", number(row.predicted), unit
            table.add_row(*of_row, *(method if is_simulated else ()))
    console().print(table)
    if detail:
        for way in prediction.ways:
            console().print(_way_table(way))


def print_sweep(predictions: Sequence[Prediction]) -> None:
    """Prints one line per point; values that are the same at every point are printed once, below."""
    keys = list(dict.fromkeys(key for prediction in predictions for key in prediction.scenario.at))
    headlines = [{_column(row): number(row.predicted) for row in each.rows if row.is_headline} for each in predictions]
    columns = list(dict.fromkeys(column for headline in headlines for column in headline))
    left_out = len(columns) > COLUMNS_MAX
    if left_out:
        columns = [column for column in columns if "->" not in column]
    varying = [column for column in columns if len({headline.get(column) for headline in headlines}) > 1]
    table = new_table(*keys, *varying, right=tuple(varying))
    table.title = f"{predictions[0].scenario.name}: {len(predictions)} points"
    for prediction, headline in zip(predictions, headlines, strict=True):
        at = prediction.scenario.at
        points = ("null" if (value := at.get(key, "")) is None else escape(str(value)) for key in keys)
        table.add_row(*points, *(headline.get(column, "-") for column in varying))
    for column in table.columns:  # on a narrow terminal headings are folded, figures never
        column.min_width = max(len(str(cell)) for cell in column.cells)
    console().print(table)
    constant = [f"{column} {headlines[0].get(column)}" for column in columns if column not in varying]
    if constant:
        console().print(f"at every point: {', '.join(constant)}")
    if left_out:
        console().print("delays and delivery per publisher and subscriber are left out here; --json has them")


def print_analysis(analysis: "Analysis", detail: bool, page: Path) -> None:
    """Prints measured beside predicted values; for a sweep, the headline rows of all points in one table. Doubts go to
    stderr.
    """
    if analysis.finished.experiment.is_sweep and not detail:
        _print_points(analysis)
    else:
        for point in analysis.points:
            _print_point(point, detail)
    if analysis.pair is not None:
        print_pair(analysis.pair)
    verdicts = [row.verdict for point in analysis.points for row in point.headline]
    counts = [
        f"{verdicts.count(verdict)} {verdict}" for verdict in (AGREES, DIFFERS, INCONCLUSIVE) if verdict in verdicts
    ]
    if None in verdicts:
        counts.append(f"{verdicts.count(None)} without a prediction")
    console().print(f"{', '.join(counts)}; {analysis.finished.folder}", soft_wrap=True)
    print(f"report: {page}")
    sys.stdout.flush()
    _print_doubts(analysis)


def _print_point(point: "Point", detail: bool) -> None:
    run = point.runs[0]
    seeds = f"seed {run.scenario.seed}" if len(point.runs) == 1 else f"{len(point.runs)} seeds"
    table = new_table("metric", "of", *COMPARED, right=COMPARED[:-1])
    at = f" at {where}" if (where := _at(point.prediction)) else ""
    table.title = f"{run.scenario.name}{at} on {run.ground}, {seeds}: {point.compared_s:,.0f} s compared"
    for row in point.rows:
        if detail or row.is_headline:
            table.add_row(row.metric, labels_text(row.labels) or "all", *_figures(row, detail))
    console().print(table)
    table = new_table("invariant", "checked", "", right=("checked",))
    for invariant in point.invariants:
        result = "[green]holds[/]" if invariant.holds else f"[red]{invariant.broken:,} broken[/]"
        table.add_row(invariant.name, f"{invariant.checked:,}", result)
    console().print(table)
    for invariant in point.invariants:
        for text in invariant.offenders:
            console().print(f"{invariant.name}: {text}", markup=False, soft_wrap=True)


def _print_points(analysis: "Analysis") -> None:
    keys = list(dict.fromkeys(key for point in analysis.points for key in point.runs[0].scenario.at))
    table = new_table(*keys, "metric", *COMPARED, right=COMPARED[:-1])
    table.title = f"{analysis.finished.experiment.name}: {len(analysis.points)} points"
    for point in analysis.points:
        at = point.runs[0].scenario.at
        values = ["null" if (value := at.get(key, "")) is None else escape(str(value)) for key in keys]
        for row in point.headline:
            table.add_row(*values, _column(row), *_figures(row))
    console().print(table)
    for point in analysis.points:
        for invariant in point.invariants:
            if not invariant.holds:
                where = ", ".join(f"{key}={value}" for key, value in point.runs[0].scenario.at.items())
                console().print(
                    f"{invariant.name}: {invariant.broken} broken at {where}: {'; '.join(invariant.offenders)}",
                    markup=False,
                )


COMPARED = ("predicted", "measured", "95% interval", "error", "verdict")
_COLOURS = {AGREES: "green", DIFFERS: "red", INCONCLUSIVE: "yellow", None: "yellow"}


def _figures(row: Compared, detail: bool = False) -> tuple[str, ...]:
    interval = "-" if row.ci_low is None else f"{number(row.ci_low)} .. {number(row.ci_high)}"
    error = "-" if row.relative_error is None else f"{row.relative_error:+.2%}"
    verdict = f"[{_COLOURS[row.verdict]}]{row.verdict or 'no prediction'}[/]"
    if row.longer is not None:
        verdict += f", {number(row.longer)} x longer"
    predicted = number(row.predicted)
    if detail and row.standard_error is not None:
        predicted = f"{predicted} ± {number(row.standard_error)} by {RECURSION}"
    return predicted, number(row.measured), interval, error, verdict


def print_comparison(comparison: "Comparison") -> None:
    """Prints runs side by side: the measurements of each, and the prediction where it is the same for all. An asterisk
    marks values whose difference from the first run is shown.
    """
    predicted = [{value["predicted"] for value in values if value is not None} for _, values in comparison.rows]
    is_shared = all(len(distinct) == 1 for distinct in predicted)
    names = [name for name in comparison.names for name in ((name,) if is_shared else (name, "predicted"))]
    table = new_table("metric", *(("predicted",) if is_shared else ()), *names, right=("predicted", *names))
    for ((metric, labels), values), changes in zip(comparison.rows, comparison.differences, strict=True):
        cells = [number(next(value["predicted"] for value in values if value is not None))] if is_shared else []
        for value, change in zip(values, changes, strict=True):
            mark = " *" if change is not None and change.is_shown else ""
            cells.append("-" if value is None else _short(value) + mark)
            if not is_shared:
                cells.append("-" if value is None else number(value["predicted"]))
        table.add_row(f"{metric} {' -> '.join(value for _, value in labels)}".strip(), *cells)
    console().print(table)
    known = [change for changes in comparison.differences for change in changes if change is not None]
    if known:
        shown = sum(change.is_shown for change in known)
        text = f"* differs from {comparison.names[0]}: {shown} of {len(known)} differences are shown (95% interval)"
        console().print(text, markup=False, soft_wrap=True)


def _short(entry: dict[str, Any]) -> str:
    half = "" if entry["ci_low"] is None else f" ± {number((entry['ci_high'] - entry['ci_low']) / 2)}"
    verdict = entry["verdict"]
    return f"{number(entry['measured'])}{half} [{_COLOURS[verdict]}]{verdict or 'no prediction'}[/]"


PARTS = {  # what is shown of each algorithm, beside the metric by which they are compared
    "rate.notifications": "notifications", "rate.notifications.additional": "additional",
    "rate.notifications.unwanted": "unwanted", "rate.control": "control", "table.remote_entries": "entries",
}  # fmt: skip


def print_cheapest(advice: "Advice") -> None:
    """Prints the algorithms, the cheapest first; why others are refused; and where along a key the cheapest changes."""
    parts = {metric: name for metric, name in PARTS.items() if metric != advice.by}
    table = new_table("routing", advice.by, *parts.values(), "more", right=(advice.by, *parts.values(), "more"))
    table.title = f"{advice.name}: the cheapest by {advice.by}"
    for it in advice.candidates:
        figures = (number(it.predicted.get(metric)) for metric in (advice.by, *parts))
        table.add_row(it.routing, *figures, _more(it.total, advice))
    console().print(table)
    for refused in advice.refused:
        console().print(f"{refused.routing} is refused: {refused.reason}", markup=False, soft_wrap=True)
    for line in crossings_text(advice):
        console().print(line, markup=False, soft_wrap=True)


def _more(total: float | None, advice: "Advice") -> str:
    best = advice.best
    if total is None or best is None or best.total is None:
        return "-"
    if abs(total - best.total) <= 1e-9 * best.total:
        return ""  # they differ by rounding
    return f"+{number(total - best.total)}" + (f" ({total / best.total - 1:+.2%})" if best.total else "")


def crossings_text(advice: "Advice") -> list[str]:
    along = advice.along
    if along is None:
        return []
    axis = along.axis
    where = f"{axis.key} from {axis.shown(axis.low)} to {axis.shown(axis.high)}"
    if not along.crossings:
        return [f"{where}: {along.best or 'no algorithm'} {'is the cheapest' if along.best else 'has a prediction'}"]
    lines = [f"{where}: {along.best or 'no algorithm with a prediction'} first"]
    return lines + [f"  from {axis.shown(it.at)} on: {it.after or 'none has a prediction'}" for it in along.crossings]


def print_confirmed(confirmed: "Sequence[Confirmed]") -> None:
    if not confirmed:
        console().print("there is nothing to confirm: no two algorithms have predictions that differ")
        return
    table = new_table(
        "at", "cheaper", "than", "measured difference", "95% interval", "", right=("measured difference",)
    )
    table.title = "Runs on the virtual ground, in pairs with the same seeds"
    for it in confirmed:
        interval = "-" if it.interval is None else " .. ".join(map(number, it.interval))
        at = "as it is" if it.side.at is None else number(it.side.at)
        table.add_row(at, *it.side.routings, number(it.difference), interval, it.verdict)
    console().print(table)


def print_trace(steps: "Sequence[Step]") -> None:
    table = new_table("after s", "at", "event", "client", "", right=("after s",))
    for step in steps:
        table.add_row(
            f"{(step.time_ns - steps[0].time_ns) / 1e9:.6f}", step.broker, step.event, step.client, step.reason
        )
    console().print(table)


def print_advice(points: Iterable["Point"], allowed: Collection[str | None]) -> None:
    """Prints on stderr what to do about headline rows that do not agree, unless they are allowed."""
    rows = [row for point in points for row in point.headline]
    verdicts = [row.verdict for row in rows]
    instant = [row for row in rows if row.unit == "s" and row.predicted == 0 and row.verdict == DIFFERS]
    if instant:
        others = f" and {len(instant) - 1} more are" if len(instant) > 1 else " is"
        notify(
            f"differs: {instant[0].metric} {labels_text(instant[0].labels)}{others} predicted as 0, because nothing on"
            " the way takes time in the model, and on running brokers everything takes some; give the publisher, the"
            " subscriber or the brokers a service time that is long beside that"
        )
    if INCONCLUSIVE in verdicts and INCONCLUSIVE not in allowed:
        longer = number(max(row.longer or 1.0 for row in rows))
        notify(
            f"inconclusive: intervals are too wide for the tolerance; measure {longer} times longer (clock.measure),"
            " with so many times more copies or --seeds, or allow a larger tolerance"
        )
    if None in verdicts and None not in allowed:
        notify(
            f"no prediction for {verdicts.count(None)} of {len(verdicts)} headline rows, so the exit code is 1;"
            " --allow-unpredicted lets them pass"
        )


def _print_doubts(analysis: "Analysis") -> None:
    """Prints on stderr a warning for each kind of assumption that does not hold."""
    from brokerbed.analysis.assumptions import doubts  # it imports scipy, which most commands do not need

    broken = [
        (assumption.name, assumption.at, _at(point.prediction))
        for point in analysis.points
        for assumption in point.assumptions
        if not assumption.holds
    ]
    _print_some([f"warning: {text}" for text in doubts(broken)])


def print_warnings(predictions: Sequence[Prediction]) -> None:
    """Prints on stderr what has no prediction and why, and what may invalidate one; each once, with its points."""
    places: dict[str, list[str]] = {}
    for prediction in predictions:
        for line in _warnings(prediction):
            places.setdefault(line, []).append(_at(prediction))
    _print_some([f"{line}{_points(numbers, len(predictions))}" for line, numbers in places.items()])


def _at(prediction: Prediction) -> str:
    """What the sweep set at this point; empty without a sweep."""
    return ", ".join(f"{key}={'null' if value is None else value}" for key, value in prediction.scenario.at.items())


def _points(at: Sequence[str], points: int) -> str:
    if not at[0]:
        return ""
    if len(at) == 1:
        return f" (at {at[0]})"
    return " (at every point)" if len(at) == points else f" (at {len(at)} of {points} points, first at {at[0]})"


def _print_some(lines: list[str]) -> None:
    if len(lines) > WARNINGS_SHOWN_MAX:
        lines[WARNINGS_SHOWN_MAX:] = [f"and {len(lines) - WARNINGS_SHOWN_MAX} more like these; --json has all of them"]
    out = console(stderr=True)
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)


def print_findings(findings: Iterable[Finding]) -> None:
    table = new_table("", "what", "for", "found")
    for finding in findings:
        mark = "ok" if finding.found else "MISSING" if finding.needed else "absent"
        table.add_row(mark, finding.what, finding.used_for, finding.found or finding.advice)
    console().print(table)


def _warnings(prediction: Prediction) -> Iterable[str]:
    for queue in prediction.unstable:
        rounded = number(queue.utilisation)
        utilisation = rounded if rounded != "1" else f"{queue.utilisation:.7g}"  # 1.0001 must not look like 1
        yield (
            f"unstable: the {queue.stage} queue at {queue.at} has utilisation {utilisation},"
            f" which must be below 1; what depends on it has no prediction"
        )
    for note in prediction.notes:
        yield f"warning: {note}"


def _way_table(way: Way) -> Table:
    table = new_table("stage", "at", "rate 1/s", "utilisation", "effective demand s", "mean s",
                   right=("rate 1/s", "utilisation", "effective demand s", "mean s"))  # fmt: skip
    table.title = f"from {way.publisher} to {way.subscriber}"
    for queue in way.queues:
        figures = (queue.rate_per_s, queue.utilisation, queue.effective_demand_s, queue.response_s)
        table.add_row(queue.stage, queue.at, *map(number, figures))
    return table


def new_table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def _column(row: Row | Compared) -> str:
    return f"{row.metric} {labels_text(row.labels)}".strip()

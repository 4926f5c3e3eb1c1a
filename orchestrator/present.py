"""Results as people read them: tables on a terminal, plain and unwrapped elsewhere."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table

from analysis.delays import Way
from analysis.predict import Prediction, Row
from orchestrator.doctor import Finding

PROGRESS_LINE_S = 5.0  # between two lines of progress off a terminal
UNWRAPPED_COLUMNS = 100_000  # off a terminal no line is folded or cut
WARNINGS_SHOWN_MAX = 10  # an overloaded tree has hundreds of unstable queues; the first few tell the story
COLUMNS_MAX = 14  # of headline rows in the table of a sweep: four pairs of peers; more would not fit a screen


def console(stderr: bool = False) -> Console:
    out = Console(stderr=stderr, highlight=False)
    if not out.is_terminal:
        out.width = UNWRAPPED_COLUMNS
    return out


@contextmanager
def progress(what: str) -> Iterator[Callable[[float], None]]:
    """A bar with the time left on a terminal, elsewhere a line now and then; on stderr."""
    out = console(stderr=True)
    if out.is_terminal:
        columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
        with Progress(*columns, console=out, transient=True) as bar:
            task = bar.add_task(what, total=1.0)
            yield lambda part: bar.update(task, completed=part)
        return
    begun = told = time.monotonic()

    def tell(part: float) -> None:
        nonlocal told
        now = time.monotonic()
        if now - told >= PROGRESS_LINE_S and part > 0:
            told = now
            left_s = (now - begun) * (1 - part) / part
            out.print(f"{what}: {part:.0%}, about {left_s:.0f} s left")

    yield tell


def number(value: float | None) -> str:
    """Four digits and more where there are more before the point; a dash for no value."""
    if value is None or value != value:
        return "-"
    return f"{value:,.1f}" if abs(value) >= 1000 else f"{value:.4g}"


def print_prediction(prediction: Prediction, detail: bool) -> None:
    scenario = prediction.scenario
    table = _table("metric", "of", "predicted", "unit", right=("predicted",))
    table.title = f"{scenario.name}: {len(scenario.tree)} brokers, {scenario.routing} routing"
    for row in prediction.rows:
        if detail or row.is_headline:
            table.add_row(row.metric, _labels(row), number(row.predicted), row.unit if row.unit != "1" else "")
    console().print(table)
    if detail:
        for way in prediction.ways:
            console().print(_way_table(way))


def print_sweep(predictions: Sequence[Prediction]) -> None:
    """One line per point; what is the same at every point stands once, below."""
    keys = list(dict.fromkeys(key for prediction in predictions for key in prediction.scenario.at))
    headlines = [{_column(row): number(row.predicted) for row in each.rows if row.is_headline} for each in predictions]
    columns = list(dict.fromkeys(column for headline in headlines for column in headline))
    left_out = len(columns) > COLUMNS_MAX
    if left_out:
        columns = [column for column in columns if "->" not in column]
    varying = [column for column in columns if len({headline.get(column) for headline in headlines}) > 1]
    table = _table(*keys, *varying, right=tuple(varying))
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


def print_warnings(predictions: Iterable[Prediction]) -> None:
    """One line each, on stderr, for what has no prediction and why."""
    lines = list(dict.fromkeys(line for prediction in predictions for line in _warnings(prediction)))
    if len(lines) > WARNINGS_SHOWN_MAX:
        lines[WARNINGS_SHOWN_MAX:] = [f"and {len(lines) - WARNINGS_SHOWN_MAX} more like these; --json has all of them"]
    out = console(stderr=True)
    for line in lines:
        out.print(line, markup=False, soft_wrap=True)


def print_findings(findings: Iterable[Finding]) -> None:
    table = _table("", "what", "for", "found")
    for it in findings:
        mark = "ok" if it.found else "MISSING" if it.needed else "absent"
        table.add_row(mark, it.what, it.used_for, it.found or it.advice)
    console().print(table)


def _warnings(prediction: Prediction) -> Iterable[str]:
    where = ", ".join(f"{key}={'null' if value is None else value}" for key, value in prediction.scenario.at.items())
    suffix = f" (at {where})" if where else ""
    for queue in prediction.unstable:
        yield (
            f"unstable: the {queue.stage} queue at {queue.at} has utilisation {number(queue.utilisation)},"
            f" which must be below 1; what depends on it has no prediction{suffix}"
        )
    for note in prediction.notes:
        yield f"note: {note}{suffix}"


def _way_table(way: Way) -> Table:
    table = _table("stage", "at", "rate 1/s", "utilisation", "effective demand s", "mean s",
                   right=("rate 1/s", "utilisation", "effective demand s", "mean s"))  # fmt: skip
    table.title = f"from {way.publisher} to {way.subscriber}"
    for queue in way.queues:
        figures = (queue.rate_per_s, queue.utilisation, queue.effective_demand_s, queue.response_s)
        table.add_row(queue.stage, queue.at, *map(number, figures))
    return table


def _table(*columns: str, right: tuple[str, ...] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title_justify="left")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def _labels(row: Row) -> str:
    if row.metric.startswith("delay.stage"):
        return f"{row.labels['stage']} {row.labels['at']}"
    return " -> ".join(row.labels.values()) or "all"


def _column(row: Row) -> str:
    return f"{row.metric} {' -> '.join(row.labels.values())}".strip()

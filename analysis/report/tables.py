"""Tables that script.js sorts and filters; cells carry the values by which they are sorted. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from brokerbed.analysis.report.data import Row
from brokerbed.analysis.report.markup import Html, breakable, tag
from brokerbed.analysis.report.scales import number
from brokerbed.analysis.verdicts import AGREES, DIFFERS, INCONCLUSIVE
from brokerbed.metrics import RECURSION

FILTERED_FROM = 12  # rows; shorter tables need no filter
LONG_FROM = 40  # rows; such a table scrolls in its own box
ROWS_MAX = 3000  # more rows make a page slow
SIGNS = {AGREES: "✓", DIFFERS: "✕", INCONCLUSIVE: "?", None: "–"}
COMPARED = ("predicted", "measured", "95% interval", "error", "verdict")


@dataclass(frozen=True, slots=True)
class Cell:
    content: str
    value: float | None = None  # by which a numeric cell is sorted
    is_number: bool = False


def figure(value: float | None) -> Cell:
    return Cell(number(value), value, is_number=True)


def table(name: str, caption: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Html:
    """A table with the id `name`. A column is numeric if its first cell is."""
    all_rows = list(rows)
    body = all_rows[:ROWS_MAX]
    numeric = [cell.is_number for cell in body[0]] if body else [False] * len(columns)
    heads = [
        tag("th", tag("button", breakable(column), type="button"), scope="col", class_="number" if is_number else None)
        for column, is_number in zip(columns, numeric, strict=True)
    ]
    caption_tag = tag("caption", caption, " ", tag("span", f"{len(body):,} rows", class_="rows", aria_live="polite"))
    note = Html("")
    if len(all_rows) > ROWS_MAX:
        limit_text = f"The first {ROWS_MAX:,} of {len(all_rows):,} rows; the files in analysis/ have all of them."
        note = tag("p", limit_text, class_="small")
    lines = [tag("tr", *map(_cell, row, columns)) for row in body]
    table_tag = tag(
        "table", caption_tag, tag("thead", tag("tr", *heads)), tag("tbody", *lines), id=name, class_="sorted"
    )
    search = Html("")
    if len(body) >= FILTERED_FROM:
        entry = tag("input", type="search", id=f"{name}-filter", aria_controls=name, placeholder="b3, differs, …")
        search = tag("p", tag("label", "Filter ", entry), class_="filter")
    is_long = len(body) >= LONG_FROM
    box = tag("div", table_tag, class_="wide long" if is_long else "wide", tabindex="0" if is_long else None)
    return tag("div", search, note, box, class_="block")


def _cell(cell: Cell, column: str) -> Html:
    """A cell that knows the name of its column, which narrow screens show beside it."""
    value = None if cell.value is None else f"{cell.value:.10g}"
    content = cell.content if isinstance(cell.content, Html) or cell.is_number else breakable(cell.content)
    return tag("td", content, class_="number" if cell.is_number else None, data_value=value, data_label=column)


def verdict(row: Row) -> Html:
    """The verdict as a sign, a word and a colour, and how much longer to measure if it is inconclusive."""
    word = tag("b", tag("i", SIGNS[row.verdict], aria_hidden="true"), row.verdict or "no prediction")
    advice = "" if row.longer is None else f", measure {times(row.longer)} × longer"
    return tag("span", word, advice, class_=f"verdict {row.verdict or 'none'}")


def times(factor: float) -> str:
    """A factor with two significant digits."""
    return number(float(f"{factor:.2g}"))


def compared(row: Row) -> tuple[Cell, ...]:
    interval = "–" if row.low is None else f"{number(row.low)} … {number(row.high)}"
    error = Cell("–" if row.error is None else f"{row.error:+.2%}".replace("-", "\u2212"), row.error, is_number=True)
    width = None if row.low is None or row.high is None else row.high - row.low
    return (
        predicted(row), figure(row.measured), Cell(interval, width, is_number=True), error,
        Cell(verdict(row)),
    )  # fmt: skip


def predicted(row: Row) -> Cell:
    """With the standard error and the method, if it comes from sample paths and not from a formula."""
    if row.predicted is None or row.standard_error is None:
        return figure(row.predicted)
    text = f"{number(row.predicted)} ± {number(row.standard_error)} ({RECURSION})"
    return Cell(text, row.predicted, is_number=True)


def plain(pairs: Iterable[tuple[str, str]]) -> Html:
    """A list of terms and their descriptions."""
    return tag(
        "dl", *(tag("div", tag("dt", term), tag("dd", description)) for term, description in pairs), class_="facts"
    )

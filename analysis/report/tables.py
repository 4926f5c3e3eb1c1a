"""Tables that sort and filter (script.js does it): their cells carry the value they sort by. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from brokerbed.analysis.report.data import Row
from brokerbed.analysis.report.markup import Html, breakable, tag
from brokerbed.analysis.report.scales import number
from brokerbed.analysis.verdicts import AGREES, DIFFERS, INCONCLUSIVE

FILTERED_FROM = 12  # rows; fewer are seen at a glance
LONG_FROM = 40  # rows; such a table scrolls in a box of its own
ROWS_MAX = 3000  # more make a page slow
SIGNS = {AGREES: "✓", DIFFERS: "✕", INCONCLUSIVE: "?", None: "–"}
COMPARED = ("predicted", "measured", "95% interval", "error", "verdict")


@dataclass(frozen=True, slots=True)
class Cell:
    content: str
    value: float | None = None  # to sort by, where it is a number
    is_number: bool = False


def figure(value: float | None) -> Cell:
    return Cell(number(value), value, is_number=True)


def table(name: str, caption: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> Html:
    """`name` is its id on the page; a column is of numbers if its first row has one there."""
    given = list(rows)
    body = given[:ROWS_MAX]
    numeric = [cell.is_number for cell in body[0]] if body else [False] * len(columns)
    heads = [
        tag("th", tag("button", breakable(column), type="button"), scope="col", class_="number" if is_number else None)
        for column, is_number in zip(columns, numeric, strict=True)
    ]
    told = tag("caption", caption, " ", tag("span", f"{len(body):,} rows", class_="rows", aria_live="polite"))
    note = Html("")
    if len(given) > ROWS_MAX:
        told_of = f"The first {ROWS_MAX:,} of {len(given):,} rows; the files in analysis/ have all of them."
        note = tag("p", told_of, class_="small")
    lines = [tag("tr", *map(_cell, row, columns)) for row in body]
    made = tag("table", told, tag("thead", tag("tr", *heads)), tag("tbody", *lines), id=name, class_="sorted")
    search = Html("")
    if len(body) >= FILTERED_FROM:
        entry = tag("input", type="search", id=f"{name}-filter", aria_controls=name, placeholder="b3, differs, …")
        search = tag("p", tag("label", "Filter ", entry), class_="filter")
    is_long = len(body) >= LONG_FROM
    box = tag("div", made, class_="wide long" if is_long else "wide", tabindex="0" if is_long else None)
    return tag("div", search, note, box, class_="block")


def _cell(cell: Cell, column: str) -> Html:
    """With the name of its column, which stands beside it where there is no room for a table."""
    value = None if cell.value is None else f"{cell.value:.10g}"
    content = cell.content if isinstance(cell.content, Html) or cell.is_number else breakable(cell.content)
    return tag("td", content, class_="number" if cell.is_number else None, data_value=value, data_label=column)


def verdict(row: Row) -> Html:
    """A sign, a word and a colour; where the run was too short also how long it would have to be."""
    word = tag("b", tag("i", SIGNS[row.verdict], aria_hidden="true"), row.verdict or "no prediction")
    advice = "" if row.longer is None else f", measure {times(row.longer)} × longer"
    return tag("span", word, advice, class_=f"verdict {row.verdict or 'none'}")


def times(factor: float) -> str:
    """Two digits that count."""
    return number(float(f"{factor:.2g}"))


def compared(row: Row) -> tuple[Cell, ...]:
    interval = "–" if row.low is None else f"{number(row.low)} … {number(row.high)}"
    error = Cell("–" if row.error is None else f"{row.error:+.2%}".replace("-", "\u2212"), row.error, is_number=True)
    width = None if row.low is None or row.high is None else row.high - row.low
    return (
        figure(row.predicted), figure(row.measured), Cell(interval, width, is_number=True), error,
        Cell(verdict(row)),
    )  # fmt: skip


def plain(pairs: Iterable[tuple[str, str]]) -> Html:
    """Terms and what they are."""
    return tag("dl", *(tag("div", tag("dt", term), tag("dd", told)) for term, told in pairs), class_="facts")

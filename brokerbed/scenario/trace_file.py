"""Traces: CSV files beside a scenario file, with a header. It knows how they are written, not what they mean."""

import csv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from brokerbed.scenario.part import FileName, problem

ROWS_MAX = 10_000  # models look at every row again and again
BYTES_MAX = 2**20
SUFFIX = ".csv"  # the ground of containers takes the files with this suffix along

Row = tuple[int, list[str]]  # the number of its line, and its cells


class TraceError(ValueError):
    """The file of a trace cannot be used; the text says why, and begins with the name of the file."""


def _csv_name(name: str) -> str:
    if not name.endswith(SUFFIX):
        raise problem(f"must be the name of a CSV file beside the scenario, like rates.csv, not {name}")
    return name


TraceName = Annotated[FileName, AfterValidator(_csv_name)]


def read(folder: Path, name: str, headers: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], list[Row]]:
    """The header of the file, which is one of `headers`, and its rows. Raises TraceError."""
    file = folder / name
    try:
        if file.stat().st_size > BYTES_MAX:
            raise TraceError(f"{name} has more than {BYTES_MAX} bytes")
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise TraceError(f"{name} cannot be read beside the scenario: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TraceError(f"{name} is not a text file in UTF-8") from None
    parser = csv.reader(lines, strict=True)
    try:
        header = tuple(cell.strip() for cell in next(parser, ()))
        if header not in headers:
            raise TraceError(f"{name} must begin with the line {' or '.join(map(','.join, headers))}")
        rows = [(parser.line_num, [cell.strip() for cell in row]) for row in parser if row]
    except csv.Error as error:
        raise TraceError(f"{name}, line {parser.line_num}: this is not CSV ({error})") from None
    if not rows:
        raise TraceError(f"{name} has no rows below its header")
    if len(rows) > ROWS_MAX:
        raise TraceError(f"{name} has {len(rows)} rows; at most {ROWS_MAX} are allowed")
    return header, rows


def numbers(name: str, rows: Sequence[Row], meanings: Sequence[str]) -> Iterator[tuple[int, list[float]]]:
    """The line of each row and its numbers, of which there must be as many as `meanings`."""
    wanted = "a number" if len(meanings) == 1 else "two numbers"
    for line, cells in rows:
        try:
            values = [float(cell) for cell in cells]
        except ValueError:
            values = []
        if len(values) != len(meanings):
            raise TraceError(f"{name}, line {line}: must be {wanted}, {' and '.join(meanings)}")
        yield line, values

"""report.html: one self-contained file about one run directory."""

from pathlib import Path

from brokerbed.analysis.report.data import is_analysed, read
from brokerbed.analysis.report.page import page

__all__ = ["is_analysed", "write"]

FILE = "report.html"


def write(folder: Path) -> Path:
    """Writes the report from the results of the analysis; RunError if they cannot be read."""
    file = folder / FILE
    new = folder / f"{FILE}.new"
    new.write_text(page(read(folder)), encoding="utf-8")
    new.replace(file)
    return file

"""report.html: one file about one run directory, that opens without a network."""

from pathlib import Path

from brokerbed.analysis.report.data import is_analysed, read
from brokerbed.analysis.report.page import page

__all__ = ["is_analysed", "write"]

FILE = "report.html"


def write(folder: Path) -> Path:
    """From what the analysis left in the run directory; RunError if that cannot be read."""
    file = folder / FILE
    new = folder / f"{FILE}.new"
    new.write_text(page(read(folder)), encoding="utf-8")
    new.replace(file)
    return file

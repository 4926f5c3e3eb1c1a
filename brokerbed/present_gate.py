"""What `brokerbed gate` prints."""

import sys
from typing import TYPE_CHECKING

from rich.markup import escape

from brokerbed.metrics import labels_text
from brokerbed.present import console, new_table, notify, number

if TYPE_CHECKING:  # it needs packages that most commands do without
    from brokerbed.analysis.gate import Gate, Row


def print_gate(gate: "Gate") -> None:
    """Prints what has changed from one run to another; what to do about it goes to stderr."""
    columns = ("base", "new", "change", "95% interval", "margin")
    table = new_table("metric", "of", *columns, "verdict", right=columns)
    table.title = f"{gate.scenario}: {gate.new} against {gate.base}"
    rows = [(point.at, row) for point in gate.points for row in point.rows]
    for at, row in rows:
        where = ", ".join(f"{key}={value}" for key, value in at.items()) if gate.is_sweep else ""
        of = " at ".join(filter(None, (labels_text(row.labels) or "all", where)))
        table.add_row(row.metric, escape(of), *_change(row), f"[{_COLOURS.get(row.verdict, 'green')}]{row.verdict}[/]")
    console().print(table)
    broken = [invariant for point in gate.points for invariant in point.invariants if not invariant.new]
    for invariant in broken:
        console().print(f"{invariant.name} is broken{'' if invariant.base else ', as in the base'}", markup=False)
    verdicts = [row.verdict for _, row in rows]
    counts = ", ".join(f"{verdicts.count(verdict)} {verdict}" for verdict in dict.fromkeys(verdicts))
    console().print(f"{gate.verdict}: {counts}", soft_wrap=True)
    sys.stdout.flush()
    for warning in gate.warnings:
        notify(f"warning: {warning}")
    if unknown := [row for _, row in rows if row.change.longer is not None]:
        longer = number(max(row.change.longer or 1.0 for row in unknown))
        notify(
            f"cannot tell: intervals are too wide for the margin in {len(unknown)} of {len(rows)} rows; run both"
            f" {longer} times longer (clock.measure), with so many times more --seeds, or allow a larger --margin"
        )


_COLOURS = {"worse": "red", "cannot tell": "yellow"}


def _change(row: "Row") -> tuple[str, ...]:
    found = row.change
    low, high = ("?" if limit is None else f"{limit:+.2%}" for limit in (found.ci_low, found.ci_high))
    interval = "-" if found.ci_low is None and found.ci_high is None else f"{low} .. {high}"
    change = "-" if found.change is None else f"{found.change:+.2%}"
    return number(found.base), number(found.new), change, interval, f"{row.margin * 100:.3g}%"

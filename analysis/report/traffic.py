"""Compares routing algorithms over a sweep: which is cheapest where, and what their traffic consists of. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from brokerbed.analysis.report.bars import Bar, BarChart
from brokerbed.analysis.report.chart import Chart, Curve, Dot
from brokerbed.analysis.report.data import Point, Row
from brokerbed.analysis.report.scales import number
from brokerbed.analysis.verdicts import DIFFERS
from brokerbed.metrics import (
    ADDITIONAL_NOTIFICATIONS,
    ALL_MESSAGES,
    CONTROL_MESSAGES,
    NOTIFICATIONS,
    UNWANTED_NOTIFICATIONS,
    Metric,
)

GROUPS_MAX = 6  # values of the axis for which bars are drawn
PARTS = ("other notifications", "additional notifications", "unwanted notifications", "control messages")


def with_crossings(
    chart: Chart, families: Mapping[str, Sequence[Curve]] | None = None, published: Mapping[str, float] | None = None
) -> Chart:
    """The chart with marks where another curve becomes the lowest one, and sentences about them.

    Only curves of one family are compared with each other; without families, all are. `published` has the place where a
    paper says that the lowest curve of a family changes.
    """
    marks: list[tuple[float, float, str]] = []
    sentences: list[str] = []
    for family, curves in (families or {"": chart.curves}).items():
        of_family = f"{family}, " if family else ""
        found = {"predicted": crossings(curves), "measured": crossings(curves, are_measured=True)}
        for kind, changes in found.items():
            if changes:
                lines = _lines(curves, kind == "measured")
                words = [f"{_cheapest(lines, _common(lines)[0])} is cheapest first"]
                words += [f"{name} from {number(x)} on" for x, _, name in changes]
                sentences.append(f"{of_family}{kind}: {', '.join(words)}.")
                marks += [
                    (x, y, f"{of_family}{kind}: {name} is cheapest from {number(x)} on") for x, y, name in changes
                ]
        if published is not None and family in published:
            x = published[family]
            sentences.append(f"{of_family}published: from {number(x)} on.")
            heights = [y for y in (_height(line, x) for line in _lines(curves).values()) if y is not None]
            marks += [(x, y, f"{of_family}published: from {number(x)} on") for y in sorted(heights)[:1]]
    note = " ".join(map(_capitalised, sentences))
    return replace(chart, marks=marks, note=note) if sentences else chart


def _capitalised(sentence: str) -> str:
    """Symbols like ω stay as they are."""
    return sentence[0].upper() + sentence[1:] if sentence[0].isascii() else sentence


def crossings(curves: Sequence[Curve], are_measured: bool = False) -> list[tuple[float, float, str]]:
    """Where the lowest curve changes: x, y, and the name of the curve that is lowest from there on."""
    lines = _lines(curves, are_measured)
    found: list[tuple[float, float, str]] = []
    for left, right in pairwise(_common(lines)):
        found += _between(lines, left, right)
    return found


def _height(line: Mapping[float, float], x: float) -> float | None:
    """The height of a line at x, if x is not outside of it."""
    for left, right in pairwise(sorted(line)):
        if left <= x <= right:
            return line[left] + (line[right] - line[left]) * (x - left) / (right - left)
    return None


def _between(lines: dict[str, dict[float, float]], left: float, right: float) -> list[tuple[float, float, str]]:
    """The changes between two neighbouring values of x, between which the curves are taken for straight."""
    found = []
    at, name = left, _cheapest(lines, left)
    while name != (last := _cheapest(lines, right)):
        slopes = {it: (line[right] - line[left]) / (right - left) for it, line in lines.items()}
        meets = []
        for other, line in lines.items():
            if slopes[other] < slopes[name]:
                x = left + (line[left] - lines[name][left]) / (slopes[name] - slopes[other])
                meets.append((max(x, at), line[right], other))
        x, _, name = min(meets, default=(right, 0.0, last))
        found.append((x, lines[name][left] + slopes[name] * (x - left), name))
        at = x
    return found


def _cheapest(lines: dict[str, dict[float, float]], x: float) -> str:
    return min(lines, key=lambda name: lines[name][x])


def _lines(curves: Sequence[Curve], are_measured: bool = False) -> dict[str, dict[float, float]]:
    lines = {curve.name: {dot.x: dot.y for dot in curve.dots} if are_measured else dict(curve.line) for curve in curves}
    return {name: line for name, line in lines.items() if len(line) > 1}


def _common(lines: dict[str, dict[float, float]]) -> list[float]:
    """The values of x that all lines have."""
    return sorted(x for x in next(iter(lines.values()), {}) if all(x in line for line in lines.values()))


def parts_of_traffic(groups: Sequence[tuple[str, Sequence[tuple[str, Point]]]], x_title: str) -> BarChart | None:
    """Bars of predicted traffic, divided into its parts, with the measured totals; None without predictions.

    `groups` has the values of the axis, each with the points of the algorithms.
    """
    if len(groups) > GROUPS_MAX:
        places = np.linspace(0, len(groups) - 1, GROUPS_MAX).round().astype(int).tolist()
        groups = [groups[place] for place in places]
    bars = [(name, [bar for algorithm, point in points if (bar := _bar(algorithm, point))]) for name, points in groups]
    if not any(group for _, group in bars):
        return None
    title = "Traffic over links by routing algorithm, and its parts"
    return BarChart(title, x_title, "messages, 1/s", PARTS, bars, "Bars are predictions, points are measured totals.")


def _bar(algorithm: str, point: Point) -> Bar | None:
    rows = {row.kind: row for row in point.headline if not row.labels}

    def predicted(kind: Metric) -> float | None:
        return rows[kind].predicted if kind in rows else 0.0

    notifications, control, total = predicted(NOTIFICATIONS), predicted(CONTROL_MESSAGES), rows.get(ALL_MESSAGES)
    additional, unwanted = predicted(ADDITIONAL_NOTIFICATIONS), predicted(UNWANTED_NOTIFICATIONS)
    if notifications is None or control is None or additional is None or unwanted is None or total is None:
        return None
    parts = (max(0.0, notifications - additional - unwanted), additional, unwanted, control)
    return Bar(algorithm, parts, _dot(algorithm, total))


def _dot(algorithm: str, row: Row) -> Dot | None:
    if row.measured is None:
        return None
    title = f"{algorithm}: measured {number(row.measured)}, predicted {number(row.predicted)}"
    return Dot(0.0, row.measured, row.low, row.high, title, row.verdict == DIFFERS)

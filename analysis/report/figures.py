"""Figures of a sweep with predicted curves and measured points; figures of papers have the papers' axes. Pure.

One swept quantity is the axis; each combination of the others is a curve.
"""

import json
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import hypot
from typing import Any

from pydantic_core import PydanticCustomError

from brokerbed.analysis.report.bars import BarChart
from brokerbed.analysis.report.chart import STYLES, Chart, Curve, Dot
from brokerbed.analysis.report.data import Point, Row
from brokerbed.analysis.report.scales import number
from brokerbed.analysis.report.traffic import parts_of_traffic, with_crossings
from brokerbed.analysis.verdicts import DIFFERS
from brokerbed.metrics import (
    ALL_MESSAGES,
    CONTROL_MESSAGES,
    DELIVERY_RATIO,
    END_TO_END_DELAY,
    NOTIFICATIONS,
    REMOTE_ENTRIES,
    Metric,
)
from brokerbed.scenario import Scenario
from brokerbed.scenario.units import NS_PER_S, parse_duration_ns, parse_rate_per_s

CHARTS_MAX = 16
LOGARITHMIC_FROM = 1000  # ratio of the largest to the smallest value
SUBSCRIPTIONS, WIDTH, ROUTING, PUBLICATIONS = (
    "subscriptions.mean_active",
    "topology.width",
    "routing",
    "publications.rate",
)
POPULATION = "subscriptions.population."
LOGARITHMIC = (SUBSCRIPTIONS, WIDTH)  # as the papers draw them
AXES = {SUBSCRIPTIONS: "number of subscriptions N_s", PUBLICATIONS: "publications ω, 1/s", WIDTH: "width of the tree"}
SYMBOLS = {".session_service.mean": "D", ".on.mean": "T_ON", ".off.mean": "T_OFF", PUBLICATIONS: "ω"}
SAVED: dict[Metric, tuple[str, str]] = {
    ALL_MESSAGES: ("Message rate saved over flooding", "saved message rate b, 1/s"),
    NOTIFICATIONS: ("Notification rate saved over flooding", "saved notification rate b_s, 1/s"),
}
CROSSING = "crossing"
PAPERS = {  # the chart that comes first, and the figure that it reproduces
    "muehl2009-fig3": (REMOTE_ENTRIES.name, "Mühl et al. 2009, Fig. 3"),
    "muehl2009-fig3_measured": (REMOTE_ENTRIES.name, "Mühl et al. 2009, Fig. 3"),
    "muehl2009-fig4": (NOTIFICATIONS.name, "Mühl et al. 2009, Fig. 4"),
    "muehl2009-fig5": (CONTROL_MESSAGES.name, "Mühl et al. 2009, Fig. 5"),
    "muehl2009-fig6": (f"saved {ALL_MESSAGES.name}", "Mühl et al. 2009, Fig. 6"),
    "muehl2009-fig7": (CROSSING, "Mühl et al. 2009, Fig. 7"),
    "bouloukakis2017-fig7": (END_TO_END_DELAY.name, "Bouloukakis et al. 2017, Fig. 7"),
    "bouloukakis2017-fig11": (END_TO_END_DELAY.name, "Bouloukakis et al. 2017, Fig. 11"),
    "bouloukakis2017-fig12": (END_TO_END_DELAY.name, "Bouloukakis et al. 2017, Fig. 12"),
    "bouloukakis2017-lifetime": (DELIVERY_RATIO.name, "After Bouloukakis et al. 2017"),
    "bouloukakis2017-table3": (END_TO_END_DELAY.name, "Bouloukakis et al. 2017, Table 3"),
    "vliet2007-radio": (ALL_MESSAGES.name, "Van Vliet 2007, Fig. 3.3"),
    "vliet2007-radio_measured": (ALL_MESSAGES.name, "Van Vliet 2007, Fig. 3.3"),
    "vliet2007-radio_periods": (ALL_MESSAGES.name, "Van Vliet 2007, Fig. 3.4"),
    "vliet2007-radio_refresh": (ALL_MESSAGES.name, "Van Vliet 2007, Fig. 3.5"),
    "bouloukakis2017-tandem": (END_TO_END_DELAY.name, "Bouloukakis et al. 2017, Table 3"),
    "bouloukakis2017-table3_metro": (END_TO_END_DELAY.name, "Bouloukakis et al. 2017, Table 3"),
}
BREAK_EVENS = {  # of identity-based routing and flooding as published, by scenario and by settings of the curves
    "vliet2007-radio": {"ω = 2/min": 40.0, "ω = 6/min": 110.0, "ω = 12/min": 170.0},
    "vliet2007-radio_measured": {"": 110.0},
}
Group = tuple[Any, ...]
Between = dict[
    tuple[str, tuple[str, ...]], dict[Group, list[tuple[float, float]]]
]  # by row and curve: pairs of x and predicted value


@dataclass(frozen=True, slots=True)
class Axes:
    """How the points of a sweep are drawn: along `x`, with one curve for each combination of `others`."""

    points: Sequence[Point]
    x: str | None
    others: tuple[str, ...]

    def group(self, point: Point) -> Group:
        return tuple(_setting(key, point) for key in self.others)

    def groups(self) -> dict[Group, list[Point]]:
        groups: dict[Group, list[Point]] = {}
        for point in self.points:
            groups.setdefault(self.group(point), []).append(point)
        for group_points in groups.values():
            group_points.sort(key=self.place)
        return groups

    def place(self, point: Point) -> float:
        place = self.place_of(point.scenario)
        return float(point.number) if place is None else place

    def place_of(self, scenario: Scenario) -> float | None:
        """The value of the axis. Periods of populations are drawn as the number of clients that are active."""
        if self.x is not None and self.x.startswith(POPULATION):
            return scenario.subscriptions.mean_active(range(scenario.classes))
        return None if self.x is None else quantity(scenario.at.get(self.x))

    def name(self, group: Group) -> str:
        return ", ".join(_setting_text(key, value) for key, value in zip(self.others, group, strict=True))


def _setting(key: str, point: Point) -> Any:
    """A swept value that can be compared with others; of routing with parameters a short text."""
    value = point.scenario.at.get(key)
    if key == ROUTING and isinstance(value, dict):
        parameters = ", ".join(f"{name} {number}" for name, number in point.scenario.routing_parameters.items())
        return f"{point.scenario.routing} ({parameters})" if parameters else point.scenario.routing
    return json.dumps(value) if isinstance(value, dict | list) else value


def quantity(value: object) -> float | None:
    """A swept value as a number: durations in seconds, rates per second; None if it is not a quantity."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    if isinstance(value, str):
        for parse, unit in _UNITS:
            try:
                return parse(value) / unit
            except PydanticCustomError:
                continue
    return None


_UNITS: tuple[tuple[Callable[[object], float], int], ...] = ((parse_duration_ns, NS_PER_S), (parse_rate_per_s, 1))


def axes_of(points: Sequence[Point]) -> Axes:
    keys = list(dict.fromkeys(key for point in points for key in point.scenario.at))
    values = {key: [point.scenario.at.get(key) for point in points] for key in keys}
    varying = [key for key in keys if len(set(map(str, values[key]))) > 1 and not key.startswith("clock.")]
    candidates = [key for key in varying if all(quantity(value) is not None for value in values[key])]
    if not candidates:
        return Axes(points, None, ())
    x = max(candidates, key=lambda key: (key == SUBSCRIPTIONS, len(set(map(str, values[key]))), key.endswith(".rate")))
    others = [key for key in varying if key != x and not _follows(values[x], values[key])]
    axes = Axes(points, x, tuple(others))
    return axes if all(len(group_points) > 1 for group_points in axes.groups().values()) else Axes(points, None, ())


def _follows(causes: Sequence[Any], values: Sequence[Any]) -> bool:
    """Whether equal causes always come with equal values."""
    pairs = {(str(cause), str(value)) for cause, value in zip(causes, values, strict=True)}
    return len(pairs) == len({cause for cause, _ in pairs})


def _setting_text(key: str, value: object) -> str:
    if key == WIDTH:
        return f"T_{value}"
    if key == ROUTING:
        return str(value)
    for end, symbol in SYMBOLS.items():
        if key.endswith(end):
            return f"{symbol} = {value}"
    return f"{'.'.join(key.split('.')[-2:])} = {'null' if value is None else value}"


def charts(points: Sequence[Point], name: str, between: Between | None = None) -> list[Chart]:
    """Charts of all headline rows that differ between points; the figure of the paper comes first."""
    axes = axes_of(points)
    charts_of: dict[str, list[Chart]] = {}
    for kind, labels in dict.fromkeys((row.kind, row.labels) for point in points for row in point.headline):
        rows = _by_point(points, kind, labels)
        if _is_worth_it(rows.values()):
            title = f"{kind.title}, {' → '.join(labels)}" if labels else kind.title
            lines = (between or {}).get((kind.name, labels))
            charts_of.setdefault(kind.name, []).extend(_split(axes, rows, title, kind.axis, lines, name))
    for kind, (title, y_title) in SAVED.items():
        without, values = _saved(axes, kind)
        if values:
            charts_of[f"saved {kind.name}"] = _split(without, values, title, y_title)
    if {f"saved {NOTIFICATIONS.name}", CONTROL_MESSAGES.name} <= charts_of.keys() and PUBLICATIONS in axes.others:
        charts_of[CROSSING] = [_crossing(axes)]
    first, paper = PAPERS.get(name, ("", ""))
    first_charts = [replace(chart, title=f"{paper}. {chart.title}") for chart in charts_of.pop(first, [])]
    return (first_charts + [chart for others in charts_of.values() for chart in others])[:CHARTS_MAX]


def _by_point(points: Sequence[Point], kind: Metric, labels: tuple[str, ...] = ()) -> dict[int, Row]:
    """The headline row of a metric at each point that has it, by the number of the point."""
    return {point.number: row for point in points for row in point.headline if (row.kind, row.labels) == (kind, labels)}


def _is_worth_it(rows: Iterable[Row]) -> bool:
    """Whether the rows differ, in their measured or predicted values."""
    return len({(row.predicted, row.measured) for row in rows}) > 1


def _split(
    axes: Axes, values: dict[int, Row], title: str, y_title: str,
    between: dict[Group, list[tuple[float, float]]] | None = None, name: str = "",
) -> list[Chart]:  # fmt: skip
    """One chart, or with too many curves one chart for each value of the first of `others`."""
    if axes.x is None:
        return [_by_name(axes.points, values, title, y_title)]
    groups = {
        group: group_points
        for group, group_points in axes.groups().items()
        if any(point.number in values for point in group_points)
    }
    parts: dict[str, list[Group]] = {}
    for group in groups:
        part = _setting_text(axes.others[0], group[0]) if len(groups) > STYLES and len(axes.others) > 1 else ""
        parts.setdefault(part, []).append(group)
    charts = []
    for part, part_groups in parts.items():
        curves = [
            _curve(axes, groups[group], values, axes.name(group), place % STYLES, (between or {}).get(group))
            for place, group in enumerate(part_groups)
        ]
        chart = _chart(axes, f"{title}, {part}" if part else title, y_title, curves)
        if y_title == ALL_MESSAGES.axis and ROUTING in axes.others:
            chart = with_crossings(chart, _families(axes, part_groups, curves), BREAK_EVENS.get(name))
        charts.append(chart)
    return charts


def _families(axes: Axes, groups: Sequence[Group], curves: Sequence[Curve]) -> dict[str, list[Curve]]:
    """Curves that differ only in the routing, which is their name then, by the other settings."""
    routing = axes.others.index(ROUTING)
    families: dict[str, list[Curve]] = {}
    for group, curve in zip(groups, curves, strict=True):
        others = [_setting_text(key, value) for key, value in zip(axes.others, group, strict=True) if key != ROUTING]
        named = replace(curve, name=_setting_text(ROUTING, group[routing]))
        families.setdefault(", ".join(others), []).append(named)
    return families


def bar_charts(points: Sequence[Point]) -> list[BarChart]:
    """The parts of the traffic by algorithm, if a sweep is over the routing and at most one quantity."""
    axes = axes_of(points)
    swept = {key for point in points for key in point.scenario.at if not key.startswith("clock.")}
    if ROUTING not in swept or swept - {ROUTING, axes.x}:
        return []
    by_place: dict[float, list[tuple[str, Point]]] = {}
    for point in points:
        place = 0.0 if axes.x is None else axes.place(point)
        by_place.setdefault(place, []).append((str(_setting(ROUTING, point)), point))
    groups = [("" if axes.x is None else number(place), its) for place, its in sorted(by_place.items())]
    chart = parts_of_traffic(groups, "" if axes.x is None else _axis(axes.x))
    return [] if chart is None else [chart]


def _chart(axes: Axes, title: str, y_title: str, curves: Sequence[Curve], y_log: bool = False) -> Chart:
    assert axes.x is not None
    return Chart(title, _axis(axes.x), y_title, curves, is_logarithmic(axes), y_log)


def is_logarithmic(axes: Axes) -> bool:
    xs = [axes.place(point) for point in axes.points]
    return min(xs) > 0 and (axes.x in LOGARITHMIC or max(xs) / min(xs) >= LOGARITHMIC_FROM)


def _axis(key: str) -> str:
    if key in AXES:
        return AXES[key]
    if key.startswith(POPULATION):
        return "active subscribers, on average"
    if re.fullmatch(r"publishers\.[^.]+\.rate", key):
        return "arrival rate λ, 1/s"
    if re.fullmatch(r"publishers\.[^.]+\.expiry(\.mean)?", key):
        return "lifetime of a message, s"
    return key + (", 1/s" if key.endswith("rate") else ", s" if key.endswith(("mean", "refresh")) else "")


def _curve(
    axes: Axes, points: Sequence[Point], values: dict[int, Row], name: str, style: int,
    between: list[tuple[float, float]] | None = None,
) -> Curve:  # fmt: skip
    placed = [(axes.place(point), point, values[point.number]) for point in points if point.number in values]
    line = sorted({*((x, row.predicted) for x, _, row in placed if row.predicted is not None), *(between or ())})
    dots = [
        Dot(x, row.measured, row.low, row.high, _title(point.at, row), row.verdict == DIFFERS)
        for x, point, row in placed
        if row.measured is not None
    ]
    return Curve(name, line, dots, style)


def _title(at: str, row: Row) -> str:
    interval = "" if row.low is None else f" ({number(row.low)} to {number(row.high)})"
    return f"{at}: measured {number(row.measured)}{interval}, predicted {number(row.predicted)}"


def _by_name(points: Sequence[Point], values: dict[int, Row], title: str, y_title: str) -> Chart:
    """A chart of points side by side, for sweeps without a quantity as axis."""
    placed = [(place, point, values[point.number]) for place, point in enumerate(points) if point.number in values]
    predicted = [
        Dot(place - 0.12, row.predicted, None, None, _title(point.at, row))
        for place, point, row in placed
        if row.predicted is not None
    ]
    measured = [
        Dot(place + 0.12, row.measured, row.low, row.high, _title(point.at, row), row.verdict == DIFFERS)
        for place, point, row in placed
        if row.measured is not None
    ]
    curves = (Curve("predicted", (), predicted, 3), Curve("measured", (), measured, 0))
    return Chart(title, "point", y_title, curves, x_names=[str(point.number) for point in points])


def _saved(axes: Axes, kind: Metric) -> tuple[Axes, dict[int, Row]]:
    """The rate that routing saves compared with flooding, between points that differ only in the routing."""
    if ROUTING not in axes.others or axes.x is None:
        return axes, {}
    rows = _by_point(axes.points, kind)
    others = tuple(key for key in (axes.x, *axes.others) if key != ROUTING)
    flooding = {
        tuple(str(point.scenario.at[key]) for key in others): rows[point.number]
        for point in axes.points
        if not point.scenario.algorithm.stores_entries
    }
    values = {}
    for point in axes.points:
        other = flooding.get(tuple(str(point.scenario.at[key]) for key in others))
        if other is not None and point.scenario.algorithm.stores_entries:
            values[point.number] = _less(other, rows[point.number])
    return axes, values


def _less(minuend: Row, subtrahend: Row) -> Row:
    """The difference of two rows. The runs are independent, so the squares of the half-widths add up."""
    predicted = (
        None if minuend.predicted is None or subtrahend.predicted is None else minuend.predicted - subtrahend.predicted
    )
    if minuend.measured is None or subtrahend.measured is None:
        return replace(minuend, predicted=predicted, measured=None, low=None, high=None, error=None, verdict=None)
    measured, low, high = minuend.measured - subtrahend.measured, None, None
    if minuend.high is not None and subtrahend.high is not None:
        half = hypot(minuend.high - minuend.measured, subtrahend.high - subtrahend.measured)
        low, high = measured - half, measured + half
    return Row(minuend.kind, minuend.names, minuend.labels, predicted, measured, low, high, None, None)


def _crossing(axes: Axes) -> Chart:
    """Control messages and the notifications that they save, for several publication rates."""
    control = _by_point(axes.points, CONTROL_MESSAGES)
    _, saved = _saved(axes, NOTIFICATIONS)
    curves: list[Curve] = []
    routing, rate = axes.others.index(ROUTING), axes.others.index(PUBLICATIONS)
    groups = axes.groups()
    storing = list(
        dict.fromkeys(
            group[routing]
            for group, group_points in groups.items()
            if group_points[0].scenario.algorithm.stores_entries
        )
    )
    for name in storing:
        first = next(group_points for group, group_points in groups.items() if group[routing] == name)
        curves.append(_curve(axes, first, control, f"control, {name}", len(curves) % STYLES))
    for group, group_points in groups.items():
        if group[routing] == storing[0]:
            curves.append(
                _curve(
                    axes,
                    group_points,
                    saved,
                    f"saved, {_setting_text(PUBLICATIONS, group[rate])}",
                    len(curves) % STYLES,
                )
            )
    return _chart(axes, "Control messages and saved notifications", "messages, 1/s", curves, y_log=True)

"""A sweep as figures: predicted curves, measured points; the papers' own figures in the papers' own axes. Pure.

One swept quantity is the axis, the others tell the curves apart.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import hypot
from typing import Any

from pydantic_core import PydanticCustomError

from brokerbed.analysis.report.chart import STYLES, Chart, Curve, Dot
from brokerbed.analysis.report.data import Point, Row
from brokerbed.analysis.report.scales import number
from brokerbed.analysis.verdicts import DIFFERS
from brokerbed.scenario import algorithm
from brokerbed.scenario.units import NS_PER_S, parse_duration_ns, parse_rate_per_s

CHARTS_MAX = 16
LOGARITHMIC_FROM = 1000  # from the least to the largest value
SUBSCRIPTIONS, WIDTH, ROUTING, PUBLICATIONS = (
    "subscriptions.mean_active",
    "topology.width",
    "routing",
    "publications.rate",
)
LOGARITHMIC = (SUBSCRIPTIONS, WIDTH)  # as the papers draw them
AXES = {SUBSCRIPTIONS: "number of subscriptions N_s", PUBLICATIONS: "publications ω, 1/s", WIDTH: "width of the tree"}
MEASURES = {
    "table.remote_entries": ("Routing table sizes", "remote routing entries x_r"),
    "table.local_entries": ("Local subscriptions", "local entries"),
    "rate.notifications": ("Notification rate", "notifications b_n + b_p, 1/s"),
    "rate.notifications.additional": ("Additional notifications", "additional notifications b_p, 1/s"),
    "rate.control": ("Control message rate", "control messages b_c, 1/s"),
    "rate.total": ("All messages", "messages over links, 1/s"),
    "delay.end_to_end": ("Response time", "mean response time, s"),
    "delivery.ratio": ("Delivery", "delivered / due"),
}
SYMBOLS = {".session_service.mean": "D", ".on.mean": "T_ON", ".off.mean": "T_OFF", PUBLICATIONS: "ω"}
SAVED = {
    "rate.total": ("Message rate saved over flooding", "saved message rate b, 1/s"),
    "rate.notifications": ("Notification rate saved over flooding", "saved notification rate b_s, 1/s"),
}
PAPERS = {  # the chart that comes first, and what it is in the paper
    "muehl2009-fig3": ("table.remote_entries", "Mühl et al. 2009, Fig. 3"),
    "muehl2009-fig3_measured": ("table.remote_entries", "Mühl et al. 2009, Fig. 3"),
    "muehl2009-fig4": ("rate.notifications", "Mühl et al. 2009, Fig. 4"),
    "muehl2009-fig5": ("rate.control", "Mühl et al. 2009, Fig. 5"),
    "muehl2009-fig6": ("saved rate.total", "Mühl et al. 2009, Fig. 6"),
    "muehl2009-fig7": ("crossing", "Mühl et al. 2009, Fig. 7"),
    "bouloukakis2017-fig7": ("delay.end_to_end", "Bouloukakis et al. 2017, Fig. 7"),
    "bouloukakis2017-fig11": ("delay.end_to_end", "Bouloukakis et al. 2017, Fig. 11"),
    "bouloukakis2017-fig12": ("delay.end_to_end", "Bouloukakis et al. 2017, Fig. 12"),
    "bouloukakis2017-table3": ("delay.end_to_end", "Bouloukakis et al. 2017, Table 3"),
    "bouloukakis2017-table3_metro": ("delay.end_to_end", "Bouloukakis et al. 2017, Table 3"),
}
Group = tuple[Any, ...]
Between = dict[
    tuple[str, tuple[str, ...]], dict[Group, list[tuple[float, float]]]
]  # of a row and curve: x and predicted


@dataclass(frozen=True, slots=True)
class Axes:
    """How the points of a sweep lie: along `x`, in curves by the values of `others`."""

    points: Sequence[Point]
    x: str | None
    others: tuple[str, ...]

    def group(self, point: Point) -> Group:
        return tuple(point.scenario.at.get(key) for key in self.others)

    def groups(self) -> dict[Group, list[Point]]:
        found: dict[Group, list[Point]] = {}
        for point in self.points:
            found.setdefault(self.group(point), []).append(point)
        for its in found.values():
            its.sort(key=self.place)
        return found

    def place(self, point: Point) -> float:
        value = None if self.x is None else quantity(point.scenario.at.get(self.x))
        return float(point.number) if value is None else value

    def name(self, group: Group) -> str:
        return ", ".join(_told(key, value) for key, value in zip(self.others, group, strict=True))


def quantity(value: object) -> float | None:
    """A number; of durations the seconds, of rates those per second; None if it is none of them."""
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
    candidates = [key for key in varying if all(quantity(it) is not None for it in values[key])]
    if not candidates:
        return Axes(points, None, ())
    x = max(candidates, key=lambda key: (key == SUBSCRIPTIONS, len(set(map(str, values[key]))), key.endswith(".rate")))
    others = [key for key in varying if key != x and not _follows(values[x], values[key])]
    axes = Axes(points, x, tuple(others))
    return axes if all(len(its) > 1 for its in axes.groups().values()) else Axes(points, None, ())


def _follows(causes: Sequence[Any], values: Sequence[Any]) -> bool:
    """Whether one is the same wherever the other is."""
    pairs = {(str(one), str(other)) for one, other in zip(causes, values, strict=True)}
    return len(pairs) == len({one for one, _ in pairs})


def _told(key: str, value: object) -> str:
    if key == WIDTH:
        return f"T_{value}"
    if key == ROUTING:
        return str(value)
    for end, symbol in SYMBOLS.items():
        if key.endswith(end):
            return f"{symbol} = {value}"
    return f"{'.'.join(key.split('.')[-2:])} = {'null' if value is None else value}"


def charts(points: Sequence[Point], name: str, between: Between | None = None) -> list[Chart]:
    """All headline rows that change from point to point; the paper's own figure first."""
    axes = axes_of(points)
    found: dict[str, list[Chart]] = {}
    for key in dict.fromkeys((row.metric, row.labels) for point in points for row in point.headline):
        title, y_title = MEASURES[key[0]]
        values = {point.number: row for point in points for row in point.headline if (row.metric, row.labels) == key}
        if _is_worth_it(values.values()):
            titled = f"{title}, {' → '.join(key[1])}" if key[1] else title
            found.setdefault(key[0], []).extend(_split(axes, values, titled, y_title, (between or {}).get(key)))
    for metric, (title, y_title) in SAVED.items():
        without, values = _saved(axes, metric)
        if values:
            found[f"saved {metric}"] = _split(without, values, title, y_title)
    if {"saved rate.notifications", "rate.control"} <= found.keys() and PUBLICATIONS in axes.others:
        found["crossing"] = [_crossing(axes)]
    first, paper = PAPERS.get(name, ("", ""))
    made = [replace(it, title=f"{paper}. {it.title}") for it in found.pop(first, [])]
    return (made + [it for its in found.values() for it in its])[:CHARTS_MAX]


def _is_worth_it(rows: Iterable[Row]) -> bool:
    """Not the same everywhere, measured and predicted."""
    return len({(row.predicted, row.measured) for row in rows}) > 1


def _split(
    axes: Axes, values: dict[int, Row], title: str, y_title: str,
    between: dict[Group, list[tuple[float, float]]] | None = None,
) -> list[Chart]:  # fmt: skip
    """One chart, or if there are too many curves one for each value of the first thing that tells them apart."""
    if axes.x is None:
        return [_by_name(axes.points, values, title, y_title)]
    groups = {group: its for group, its in axes.groups().items() if any(it.number in values for it in its)}
    parts: dict[str, list[Group]] = {}
    for group in groups:
        part = _told(axes.others[0], group[0]) if len(groups) > STYLES and len(axes.others) > 1 else ""
        parts.setdefault(part, []).append(group)
    made = []
    for part, its in parts.items():
        curves = [
            _curve(axes, groups[group], values, axes.name(group), place % STYLES, (between or {}).get(group))
            for place, group in enumerate(its)
        ]
        made.append(_chart(axes, f"{title}, {part}" if part else title, y_title, curves))
    return made


def _chart(axes: Axes, title: str, y_title: str, curves: Sequence[Curve], y_log: bool = False) -> Chart:
    assert axes.x is not None
    return Chart(title, _axis(axes.x), y_title, curves, is_logarithmic(axes), y_log)


def is_logarithmic(axes: Axes) -> bool:
    xs = [axes.place(point) for point in axes.points]
    return min(xs) > 0 and (axes.x in LOGARITHMIC or max(xs) / min(xs) >= LOGARITHMIC_FROM)


def _axis(key: str) -> str:
    if key in AXES:
        return AXES[key]
    if re.fullmatch(r"publishers\.[^.]+\.rate", key):
        return "arrival rate λ, 1/s"
    return key + (", 1/s" if key.endswith("rate") else ", s" if key.endswith(("mean", "refresh")) else "")


def _curve(
    axes: Axes, points: Sequence[Point], values: dict[int, Row], name: str, style: int,
    between: list[tuple[float, float]] | None = None,
) -> Curve:  # fmt: skip
    known = [(axes.place(point), point, values[point.number]) for point in points if point.number in values]
    line = sorted({*((x, row.predicted) for x, _, row in known if row.predicted is not None), *(between or ())})
    dots = [
        Dot(x, row.measured, row.low, row.high, _title(point.at, row), row.verdict == DIFFERS)
        for x, point, row in known
        if row.measured is not None
    ]
    return Curve(name, line, dots, style)


def _title(at: str, row: Row) -> str:
    interval = "" if row.low is None else f" ({number(row.low)} to {number(row.high)})"
    return f"{at}: measured {number(row.measured)}{interval}, predicted {number(row.predicted)}"


def _by_name(points: Sequence[Point], values: dict[int, Row], title: str, y_title: str) -> Chart:
    """Points that lie along no quantity stand side by side."""
    known = [(place, point, values[point.number]) for place, point in enumerate(points) if point.number in values]
    predicted = [
        Dot(place - 0.12, row.predicted, None, None, _title(point.at, row))
        for place, point, row in known
        if row.predicted is not None
    ]
    measured = [
        Dot(place + 0.12, row.measured, row.low, row.high, _title(point.at, row), row.verdict == DIFFERS)
        for place, point, row in known
        if row.measured is not None
    ]
    curves = (Curve("predicted", (), predicted, 3), Curve("measured", (), measured, 0))
    return Chart(title, "point", y_title, curves, x_names=[str(point.number) for point in points])


def _saved(axes: Axes, metric: str) -> tuple[Axes, dict[int, Row]]:
    """What flooding sends and the other routings do not, of points that are alike but for the routing."""
    if ROUTING not in axes.others or axes.x is None:
        return axes, {}
    rows = {point.number: row for point in axes.points for row in point.headline if row.metric == metric}
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


def _less(one: Row, other: Row) -> Row:
    """Their difference; the runs are independent, so the squares of the half-widths add up."""
    predicted = None if one.predicted is None or other.predicted is None else one.predicted - other.predicted
    if one.measured is None or other.measured is None:
        return replace(one, predicted=predicted, measured=None, low=None, high=None, error=None, verdict=None)
    measured, low, high = one.measured - other.measured, None, None
    if one.high is not None and other.high is not None:
        half = hypot(one.high - one.measured, other.high - other.measured)
        low, high = measured - half, measured + half
    return Row(one.metric, one.labels, one.unit, predicted, measured, low, high, None, None)


def _crossing(axes: Axes) -> Chart:
    """Control messages beside the notifications saved by them, for several rates of publication."""
    control = {point.number: row for point in axes.points for row in point.headline if row.metric == "rate.control"}
    _, saved = _saved(axes, "rate.notifications")
    curves: list[Curve] = []
    routing, rate = axes.others.index(ROUTING), axes.others.index(PUBLICATIONS)
    groups = axes.groups()
    storing = [name for name in dict.fromkeys(group[routing] for group in groups) if algorithm(name).stores_entries]
    for name in storing:
        first = next(its for group, its in groups.items() if group[routing] == name)
        curves.append(_curve(axes, first, control, f"control, {name}", len(curves) % STYLES))
    for group, its in groups.items():
        if group[routing] == storing[0]:
            curves.append(_curve(axes, its, saved, f"saved, {_told(PUBLICATIONS, group[rate])}", len(curves) % STYLES))
    return _chart(axes, "Control messages and saved notifications", "messages, 1/s", curves, y_log=True)

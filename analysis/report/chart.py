"""A chart with axes, predicted curves, and measured points with intervals. It knows nothing of brokers. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import isfinite

from brokerbed.analysis.report.fitting import LETTER_PX, fitting, shortened, without_overlaps
from brokerbed.analysis.report.markup import Html, joined, short, tag
from brokerbed.analysis.report.scales import Scale, on_axis, scale

WIDTH, HEIGHT = 570.0, 350.0
LEFT, RIGHT, TOP, BOTTOM = 84.0, 34.0, 14.0, 48.0
STYLES = 8  # colours, each with its own marker and dash pattern
SIZE = 4.2  # of a marker


@dataclass(frozen=True, slots=True)
class Dot:
    """A measured point and its interval."""

    x: float
    y: float
    low: float | None
    high: float | None
    title: str
    is_off: bool = False  # the measurement differs from the prediction


@dataclass(frozen=True, slots=True)
class Curve:
    name: str
    line: Sequence[tuple[float, float]] = ()
    dots: Sequence[Dot] = ()
    style: int = 0


@dataclass(frozen=True, slots=True)
class Chart:
    title: str
    x_title: str
    y_title: str
    curves: Sequence[Curve]
    x_log: bool = False
    y_log: bool = False
    x_names: Sequence[str] = ()  # if x is not a quantity: the names of 0, 1, 2, ...
    note: str = field(default="")
    marks: Sequence[tuple[float, float, str]] = ()  # places to point at: x, y, and what is there


def draw(chart: Chart) -> Html:
    """The figure, with its caption and legend."""
    caption = tag("figcaption", tag("b", chart.title), *((" ", chart.note) if chart.note else ()))
    return tag("figure", caption, legend(chart.curves), fitting(lambda width: _picture(chart, width), WIDTH))


def _picture(chart: Chart, width: float) -> Html:
    x, y = _scales(chart, width)
    return tag(
        "svg", tag("title", f"{chart.title}: {chart.y_title} against {chart.x_title}"),
        *_grid(chart, x, y), *(part for curve in chart.curves for part in _curve(curve, x, y)), *_marks(chart, x, y),
        viewBox=f"0 0 {width:g} {HEIGHT:g}", role="img", class_="chart",
    )  # fmt: skip


def _scales(chart: Chart, width: float) -> tuple[Scale, Scale]:
    xs = [x for curve in chart.curves for x in (*(x for x, _ in curve.line), *(dot.x for dot in curve.dots))]
    ys = [y for curve in chart.curves for y in (*(y for _, y in curve.line), *_reach(curve.dots))]
    if chart.x_names:
        x = Scale(-0.5, len(chart.x_names) - 0.5, LEFT, width - RIGHT)
    else:
        x = scale(xs, LEFT, width - RIGHT, chart.x_log)
    return x, scale(ys, HEIGHT - BOTTOM, TOP, chart.y_log, from_zero=True)


def _reach(dots: Sequence[Dot]) -> list[float]:
    """The values that the axis must show. Intervals may extend below it, measurements may not."""
    return [y for dot in dots for y in (dot.y, dot.high) if y is not None]


def _grid(chart: Chart, x: Scale, y: Scale) -> list[Html]:
    parts = []
    left, right, base = x.begin, x.end, HEIGHT - BOTTOM
    for value in y.ticks():
        at = y(value)
        parts.append(tag("line", x1=left, x2=right, y1=at, y2=at, class_="grid"))
        parts.append(tag("text", on_axis(value), x=left - 8, y=at + 4, class_="tick end"))
    named = list(enumerate(chart.x_names)) if chart.x_names else [(value, on_axis(value)) for value in x.ticks()]
    for at, name in without_overlaps([(x(value), name) for value, name in named]):
        parts.append(tag("line", x1=at, x2=at, y1=base, y2=base + 5, class_="axis"))
        parts.append(tag("text", name, x=at, y=base + 19, class_="tick mid"))
    parts.append(tag("line", x1=left, x2=right, y1=base, y2=base, class_="axis"))
    x_title = shortened(chart.x_title, right + RIGHT)
    middle = min((left + right) / 2, right + RIGHT - len(x_title) * LETTER_PX / 2)
    parts.append(tag("text", *_words(x_title), x=middle, y=HEIGHT - 8, class_="name mid"))
    middle = (TOP + base) / 2
    rotation = f"rotate(-90 14 {short(middle)})"
    parts.append(tag("text", *_words(chart.y_title), x=14.0, y=middle, transform=rotation, class_="name mid"))
    return parts


def _words(text: str) -> list[Html]:
    """Text in which an underscore starts a subscript, as in N_s."""
    parts = re.split(r"_(\w+)", text)
    return [
        tag("tspan", part, dy=3.0, font_size="75%") if place % 2 else tag("tspan", part, dy=-3.0 if place else None)
        for place, part in enumerate(parts)
    ]


def _curve(curve: Curve, x: Scale, y: Scale) -> list[Html]:
    parts = []
    drawn = [(a, b) for a, b in curve.line if isfinite(b) and (b > 0 or not y.is_log)]
    if len(drawn) > 1:
        parts.append(tag("path", d=path([(x(a), y.clipped(b)) for a, b in drawn]), class_=f"line s{curve.style}"))
    elif drawn and not curve.dots:
        parts.append(mark(curve.style, x(drawn[0][0]), y.clipped(drawn[0][1])))
    for dot in curve.dots:
        bar: tuple[Html, ...] = ()
        if dot.low is not None and dot.high is not None:
            at = short(x(dot.x))
            bar = (tag("path", d=f"M{at} {short(y.clipped(dot.low))}V{short(y.clipped(dot.high))}", class_="bar"),)
        ring = (tag("circle", cx=x(dot.x), cy=y.clipped(dot.y), r=SIZE + 4, class_="off"),) if dot.is_off else ()
        marker = mark(curve.style, x(dot.x), y.clipped(dot.y))
        parts.append(tag("g", tag("title", dot.title), *bar, marker, *ring, class_=f"s{curve.style}"))
    return parts


def _marks(chart: Chart, x: Scale, y: Scale) -> list[Html]:
    parts = []
    for at, height, title in chart.marks:
        down = f"M{short(x(at))} {short(y.clipped(height))}V{short(HEIGHT - BOTTOM)}"
        ring = tag("circle", cx=x(at), cy=y.clipped(height), r=SIZE + 2, class_="crossing")
        parts.append(tag("g", tag("title", title), tag("path", d=down, class_="crossing"), ring))
    return parts


def path(places: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{short(a)} {short(b)}" for a, b in places)


def mark(style: int, x: float, y: float, size: float = SIZE) -> Html:
    """A marker, whose shape differs by style, so that charts can be read without colours."""
    corners = _SHAPES[style % STYLES]
    if corners is None:
        return tag("circle", cx=x, cy=y, r=size * 0.9, class_=f"mark s{style}")
    places = [(x + a * size, y + b * size) for a, b in corners]
    return tag("path", d=path(places) + "Z", class_=f"mark s{style}")


_SHAPES: tuple[tuple[tuple[float, float], ...] | None, ...] = (
    None,
    ((-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)),
    ((0, -1.15), (1.05, 0.8), (-1.05, 0.8)),
    ((0, -1.25), (1.1, 0), (0, 1.25), (-1.1, 0)),
    ((0, 1.15), (1.05, -0.8), (-1.05, -0.8)),
    ((-0.4, -1.1), (0.4, -1.1), (0.4, -0.4), (1.1, -0.4), (1.1, 0.4), (0.4, 0.4), (0.4, 1.1), (-0.4, 1.1), (-0.4, 0.4),
     (-1.1, 0.4), (-1.1, -0.4), (-0.4, -0.4)),
    ((0, -1.2), (0.35, -0.4), (1.15, -0.35), (0.5, 0.2), (0.7, 1.05), (0, 0.55), (-0.7, 1.05), (-0.5, 0.2),
     (-1.15, -0.35), (-0.35, -0.4)),
    ((-1.1, 0), (-0.55, -0.95), (0.55, -0.95), (1.1, 0), (0.55, 0.95), (-0.55, 0.95)),
)  # fmt: skip


def _indexed(text: str) -> list[Html]:
    parts = re.split(r"\b([A-Za-z])_([A-Za-z0-9]+)\b", text)
    return [tag("sub", part) if place % 3 == 2 else joined((part,)) for place, part in enumerate(parts)]


def legend(curves: Sequence[Curve]) -> Html:
    items = []
    for curve in curves:
        line = (tag("path", d="M1 8H31", class_=f"line s{curve.style}"),) if curve.line else ()
        dot = (mark(curve.style, 16.0, 8.0),) if curve.dots or not curve.line else ()
        sample = tag("svg", *line, *dot, viewBox="0 0 32 16", width="32", height="16", aria_hidden="true")
        items.append(tag("li", sample, tag("span", *_indexed(curve.name))))
    return tag("ul", joined(items), class_="legend") if any(curve.name for curve in curves) else Html("")

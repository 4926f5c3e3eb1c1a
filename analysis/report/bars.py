"""A chart of stacked bars in groups, with a measured point on each bar. It knows nothing of brokers. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from brokerbed.analysis.report.chart import BOTTOM, HEIGHT, LEFT, RIGHT, TOP, WIDTH, Curve, Dot, legend
from brokerbed.analysis.report.fitting import LETTER_PX, fitting, shortened, without_overlaps
from brokerbed.analysis.report.markup import Html, short, tag
from brokerbed.analysis.report.scales import Scale, number, on_axis, scale

BAR_SHARE = 0.8  # of the room that a bar has
NAMES_PX = 118.0  # for names of bars, which are written upwards
NAME_LETTERS_MAX = 18  # of one bar; peer-advertisement has so many


@dataclass(frozen=True, slots=True)
class Bar:
    name: str
    parts: Sequence[float]  # from the bottom to the top, in the order of the chart's part names
    measured: Dot | None = None  # of the sum; its x is not used


@dataclass(frozen=True, slots=True)
class BarChart:
    title: str
    x_title: str
    y_title: str
    part_names: Sequence[str]
    groups: Sequence[tuple[str, Sequence[Bar]]]  # name of the group, and its bars
    note: str = ""


def draw(chart: BarChart) -> Html:
    """The figure, with its caption and legend."""
    caption = tag("figcaption", tag("b", chart.title), *((" ", chart.note) if chart.note else ()))
    point = Dot(0.0, 0.0, None, None, "")
    names = legend([Curve(name, (), (point,), style) for style, name in enumerate(chart.part_names)])
    return tag("figure", caption, names, fitting(lambda width: _picture(chart, width), WIDTH))


def _picture(chart: BarChart, width: float) -> Html:
    bars = [bar for _, group in chart.groups for bar in group]
    heights = [value for bar in bars for value in (sum(bar.parts), *_reach(bar.measured))]
    base = HEIGHT - BOTTOM
    y = scale(heights, base, TOP, from_zero=True)
    room = (width - LEFT - RIGHT) / (len(bars) + len(chart.groups) - 1)  # one place is left free between groups
    parts = []
    for value in y.ticks():
        at = y(value)
        parts.append(tag("line", x1=LEFT, x2=width - RIGHT, y1=at, y2=at, class_="grid"))
        parts.append(tag("text", on_axis(value), x=LEFT - 8, y=at + 4, class_="tick end"))
    left, centres = LEFT, []
    for name, group in chart.groups:
        centres.append((left + room * len(group) / 2, name))
        for bar in group:
            parts += _bar(bar, chart.part_names, left, room, y)
            left += room
        left += room
    parts.append(tag("line", x1=LEFT, x2=width - RIGHT, y1=base, y2=base, class_="axis"))
    names = without_overlaps(centres) if len(centres) > 1 else []
    parts += [tag("text", name, x=at, y=base + NAMES_PX + 14, class_="tick mid") for at, name in names]
    middle = (TOP + base) / 2
    rotation = f"rotate(-90 14 {short(middle)})"
    parts.append(tag("text", chart.y_title, x=14.0, y=middle, transform=rotation, class_="name mid"))
    parts.append(tag("text", chart.x_title, x=(LEFT + width - RIGHT) / 2, y=base + NAMES_PX + 34, class_="name mid"))
    title = tag("title", f"{chart.title}: {chart.y_title}, by {chart.x_title}")
    return tag("svg", title, *parts, viewBox=f"0 0 {width:g} {HEIGHT + NAMES_PX:g}", role="img", class_="chart")


def _reach(dot: Dot | None) -> list[float]:
    return [] if dot is None else [y for y in (dot.y, dot.high) if y is not None]


def _bar(bar: Bar, part_names: Sequence[str], left: float, room: float, y: Scale) -> list[Html]:
    at, middle, below = left + room * (1 - BAR_SHARE) / 2, left + room / 2, 0.0
    drawn = []
    for style, (name, value) in enumerate(zip(part_names, bar.parts, strict=True)):
        if value > 0:
            top = y(below + value)
            box = tag("rect", x=at, y=top, width=room * BAR_SHARE, height=y(below) - top, class_=f"part s{style}")
            drawn.append(tag("g", tag("title", f"{bar.name}: {name} {number(value)}"), box))
            below += value
    if (dot := bar.measured) is not None:
        ends = (
            ()
            if dot.low is None or dot.high is None
            else (f"M{short(middle)} {short(y(dot.low))}V{short(y(dot.high))}",)
        )
        marks = [tag("path", d=end, class_="measured") for end in ends]
        marks.append(tag("circle", cx=middle, cy=y(dot.y), r=2.6, class_="off" if dot.is_off else "measured"))
        drawn.append(tag("g", tag("title", dot.title), *marks))
    base = HEIGHT - BOTTOM + 8
    rotation = f"rotate(-90 {short(middle + 4)} {short(base)})"
    drawn.append(
        tag(
            "text",
            shortened(bar.name, NAME_LETTERS_MAX * LETTER_PX),
            x=middle + 4,
            y=base,
            transform=rotation,
            class_="tick end",
        )
    )
    return drawn

"""How far each headline row is from its prediction, in one picture: intervals beside the tolerance. Pure."""

from analysis.report.chart import mark
from analysis.report.data import Point, Row
from analysis.report.markup import Html, short, tag
from analysis.report.scales import Scale, linear_ticks, number
from analysis.verdicts import AGREES, DIFFERS

WIDTH, LEFT, RIGHT, TOP, LINE = 960.0, 290.0, 24.0, 12.0, 26.0
REACH_MIN, REACH_MAX = 0.05, 0.5  # the axis ends there, whatever is beyond
STYLES = {AGREES: 0, DIFFERS: 1}  # other verdicts get the third


def draw(point: Point) -> Html:
    rows = [row for row in point.headline if row.predicted and row.measured is not None]
    if not rows:
        return Html("")
    tolerance = point.scenario.tolerance
    reach = max(REACH_MIN, 1.3 * tolerance, *(abs(it) for row in rows for it in _interval(row)))
    axis = Scale(-min(reach, REACH_MAX) * 1.08, min(reach, REACH_MAX) * 1.08, LEFT, WIDTH - RIGHT)
    bottom = TOP + LINE * len(rows)
    parts = [
        tag("rect", x=axis(-tolerance), y=TOP, width=axis(tolerance) - axis(-tolerance), height=bottom - TOP,
            class_="tolerance")
    ]  # fmt: skip
    for value in linear_ticks(axis.low, axis.high):
        at = axis(value)
        parts.append(tag("line", x1=at, x2=at, y1=TOP, y2=bottom, class_="grid" if value else "axis"))
        told = f"{value * 100:+.3g}%".replace("-", "\u2212") if value else "predicted"
        parts.append(tag("text", told, x=at, y=bottom + 16, class_="tick mid"))
    for place, row in enumerate(rows):
        parts.append(_line(row, axis, TOP + LINE * (place + 0.5)))
    title = tag("title", "Measured against predicted, as relative error with 95% interval; the table has the figures")
    picture = tag("svg", title, *parts, viewBox=f"0 0 {WIDTH:g} {bottom + 26:.0f}", role="img", class_="forest")
    told = f"The band is the tolerance, ±{tolerance * 100:.3g}% of the prediction; bars are 95% intervals."
    caption = tag("figcaption", tag("b", "How far from theory."), " ", told)
    return tag("figure", caption, tag("div", picture, class_="wide", tabindex="0"), class_="full")


def _interval(row: Row) -> tuple[float, ...]:
    assert row.predicted
    assert row.measured is not None
    return tuple(it / row.predicted - 1 for it in (row.measured, row.low, row.high) if it is not None)


def _line(row: Row, axis: Scale, y: float) -> Html:
    style = STYLES.get(row.verdict or "", 2)
    value, *ends = _interval(row)
    bar: tuple[Html, ...] = ()
    if ends:
        begin, end = (short(axis.clipped(it)) for it in ends)
        bar = (tag("path", d=f"M{begin} {short(y)}H{end}", class_="bar"),)
    name = f"{row.metric} {row.of}".strip()
    told = tag("title", f"{name}: {number(row.measured)}, predicted {number(row.predicted)}, {row.verdict}")
    label = tag("text", name, x=LEFT - 14, y=y + 4, class_="name end")
    return tag("g", told, label, *bar, mark(style, axis.clipped(value), y, 5.0), class_=f"s{style}")

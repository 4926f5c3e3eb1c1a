"""A forest plot of the relative errors of headline rows, with intervals and tolerances. Pure."""

from brokerbed.analysis.report.chart import mark
from brokerbed.analysis.report.data import Point, Row
from brokerbed.analysis.report.fitting import NARROW, fitting, shortened
from brokerbed.analysis.report.markup import Html, short, tag
from brokerbed.analysis.report.scales import TICKS, Scale, linear_ticks, number
from brokerbed.analysis.verdicts import AGREES, DIFFERS

WIDTH, LEFT, EDGE, TOP, LINE = 960.0, 290.0, 24.0, 12.0, 26.0
NARROW_LINE = 42.0  # the name is above the interval
REACH_MIN, REACH_MAX = 0.05, 0.5  # bounds for the end of the axis, as relative errors
STYLES = {AGREES: 0, DIFFERS: 1}  # other verdicts have the third style


def draw(point: Point) -> Html:
    rows = [row for row in point.headline if row.predicted and row.measured is not None]
    if not rows:
        return Html("")
    explanation = (
        "The band is prediction ± tolerance, bars are 95% intervals: a row agrees if its bar lies within the band, and"
        " differs if it lies outside."
    )
    caption = tag("figcaption", tag("b", "How far from theory."), " ", explanation)
    return tag("figure", caption, fitting(lambda width: _picture(point, rows, width), WIDTH), class_="full")


def _picture(point: Point, rows: list[Row], width: float) -> Html:
    is_narrow = width <= NARROW
    line, left = (NARROW_LINE, EDGE) if is_narrow else (LINE, LEFT)
    tolerances = [point.scenario.tolerance.of(row.metric) for row in rows]  # as shares of the predictions
    reach = max(REACH_MIN, 1.3 * max(tolerances), *(abs(error) for row in rows for error in _interval(row)))
    axis = Scale(-min(reach, REACH_MAX) * 1.08, min(reach, REACH_MAX) * 1.08, left, width - EDGE)
    bottom = TOP + line * len(rows)
    parts = [
        tag("rect", x=axis.clipped(-tolerance), y=TOP + line * place, height=line,
            width=axis.clipped(tolerance) - axis.clipped(-tolerance), class_="tolerance")
        for place, tolerance in enumerate(tolerances)
    ]  # fmt: skip
    for value in linear_ticks(axis.low, axis.high, 3 if is_narrow else TICKS):
        at = axis(value)
        parts.append(tag("line", x1=at, x2=at, y1=TOP, y2=bottom, class_="grid" if value else "axis"))
        label = f"{value * 100:+.3g}%".replace("-", "\u2212") if value else "predicted"
        parts.append(tag("text", label, x=at, y=bottom + 16, class_="tick mid"))
    for place, row in enumerate(rows):
        top = TOP + line * place
        name = f"{row.metric} {row.place}".strip()
        if is_narrow:
            label = tag("text", shortened(name, width - 4), x=2.0, y=top + 15, class_="name")
        else:
            label = tag("text", shortened(name, left - 14), x=left - 14, y=top + line / 2 + 4, class_="name end")
        parts.append(_line(row, name, label, axis, top + (29.0 if is_narrow else line / 2)))
    title = tag("title", "Measured against predicted, as relative error with 95% interval; the table has the figures")
    return tag("svg", title, *parts, viewBox=f"0 0 {width:g} {bottom + 26:.0f}", role="img", class_="forest")


def _interval(row: Row) -> tuple[float, ...]:
    assert row.predicted
    assert row.measured is not None
    return tuple(value / row.predicted - 1 for value in (row.measured, row.low, row.high) if value is not None)


def _line(row: Row, name: str, label: Html, axis: Scale, y: float) -> Html:
    style = STYLES.get(row.verdict or "", 2)
    value, *ends = _interval(row)
    bar: tuple[Html, ...] = ()
    if ends:
        begin, end = (short(axis.clipped(end_value)) for end_value in ends)
        bar = (tag("path", d=f"M{begin} {short(y)}H{end}", class_="bar"),)
    title = tag("title", f"{name}: {number(row.measured)}, predicted {number(row.predicted)}, {row.verdict}")
    return tag("g", title, label, *bar, mark(style, axis.clipped(value), y, 5.0), class_=f"s{style}")

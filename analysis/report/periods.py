"""Charts of rates and sizes over the period of a workload that varies: measured and predicted by phase. Pure."""

from brokerbed.analysis.metrics.registry import metrics
from brokerbed.analysis.report.chart import Chart, Curve, Dot
from brokerbed.analysis.report.chart import draw as draw_chart
from brokerbed.analysis.report.data import Point, Row
from brokerbed.analysis.report.markup import Html, joined, tag
from brokerbed.analysis.report.scales import number
from brokerbed.analysis.verdicts import DIFFERS
from brokerbed.metrics import PHASES
from brokerbed.scenario.units import NS_PER_S

NOTE = "Averages of each twelfth of the period. The line is the prediction, marks are measurements with 95% intervals."


def draw(point: Point) -> Html:
    """Nothing if rates are constant."""
    period_ns = point.scenario.period_ns
    found = [(metric, rows) for metric in metrics().values() if (rows := point.phases(metric))]
    if period_ns is None or not found:
        return Html("")
    period_s = period_ns / NS_PER_S
    charts = [
        draw_chart(
            Chart(metric.title, "time since the beginning of the period, s", metric.axis, [_curve(rows, period_s)])
        )
        for metric, rows in found
    ]
    return joined((tag("p", NOTE), tag("div", *charts, class_="grid-of-charts")))


def _curve(rows: list[Row], period_s: float) -> Curve:
    line, dots = [], []
    for row in rows:
        middle_s = (int(row.labels[0]) + 0.5) * period_s / PHASES
        if row.predicted is not None:
            line.append((middle_s, row.predicted))
        if row.measured is not None:
            title = f"{row.metric} {row.place}: {number(row.measured)}, predicted {number(row.predicted)}"
            dots.append(Dot(middle_s, row.measured, row.low, row.high, title, row.verdict == DIFFERS))
    return Curve("", line, dots)

"""The distribution of delays: the share of messages that took longer, measured and, if a model knows it, predicted.

The vertical axis is logarithmic, so an exponential law is a straight line. Pure.
"""

from math import isnan, log

import numpy as np

from brokerbed.analysis.delays import Way
from brokerbed.analysis.models.distribution import share_longer
from brokerbed.analysis.predict import predict
from brokerbed.analysis.report.chart import STYLES, Chart, Curve, Dot
from brokerbed.analysis.report.chart import draw as draw_chart
from brokerbed.analysis.report.data import Pairs, Point
from brokerbed.analysis.report.markup import Html, tag
from brokerbed.analysis.report.scales import number
from brokerbed.metrics import END_TO_END_DELAY

CURVES_MAX = 7  # in one chart
STEPS = 120  # points of a predicted curve
DOTS = 40  # approximate number of markers of a measured curve
MEASURED = "Marks: the measured share of messages that took longer (CCDF)."
PREDICTED = "Lines: predicted, taking the queues on the way as independent, each with Poisson arrivals."
BURSTS = (
    "Behind a publisher that is OFF at times messages come in bursts, so the truth can lie somewhat above the line."
)


def draw(point: Point) -> Html:
    measured = list(point.series.get("delay", {}).items())
    if not measured:
        return Html("")
    ways = {f"{way.publisher} -> {way.subscriber}": way for way in predict(point.scenario, detail=False).ways}
    charts = [
        draw_chart(_chart(point, dict(measured[first : first + CURVES_MAX]), ways))
        for first in range(0, len(measured), CURVES_MAX)
    ]
    return tag("div", *charts, class_="grid-of-charts")


def _chart(point: Point, measured: dict[str, Pairs], ways: dict[str, Way]) -> Chart:
    curves, unknown, are_bursts_seen = [], [], False
    for place, (name, pairs) in enumerate(measured.items()):
        seen = [(x, y) for x, y in pairs if y > 0]
        line = predicted_shares(ways[name], seen[-1][0], seen[-1][1]) if name in ways and seen else []
        if not line:
            unknown.append(name)
        elif _comes_in_bursts(ways[name]):
            are_bursts_seen = True
        curves.append(Curve(f"{name}{_means(point, name)}", line, _dots(name, seen), place % STYLES))
    words = [MEASURED]
    if len(unknown) < len(measured):
        words.append(PREDICTED)
    if are_bursts_seen:
        words.append(BURSTS)
    if unknown:
        words.append(f"No line for {', '.join(unknown)}: no model here knows how these delays are distributed.")
    return Chart("End-to-end delays.", "delay, s", "share that took longer", curves, y_log=True, note=" ".join(words))


def predicted_shares(way: Way, end_s: float, least: float) -> Pairs:
    """The predicted curve up to `end_s` or a share of `least`; empty if the distribution of a queue is unknown."""
    queues = [queue.times for queue in way.queues if queue.times is not None]
    if len(queues) < len(way.queues) or isnan(way.links_s):
        return []
    times_s = end_s * np.arange(1, STEPS + 1) / STEPS
    shares = share_longer(queues, way.links_s, times_s)
    return [(x, y) for x, y in zip(times_s.tolist(), shares.tolist(), strict=True) if y >= least]


def _comes_in_bursts(way: Way) -> bool:
    first, *others = way.queues
    return first.has_outages and any(queue.utilisation > 0 for queue in others)


def _dots(name: str, pairs: Pairs) -> list[Dot]:
    """Markers of a measured curve, without those that would overlap."""
    kept: list[Dot] = []
    for x, y in pairs:
        is_apart = not kept or (
            abs(x - kept[-1].x) * DOTS >= pairs[-1][0] or abs(log(y / kept[-1].y)) * DOTS >= -log(pairs[-1][1])
        )
        if is_apart:
            kept.append(Dot(x, y, None, None, f"{name}: {number(y * 100)}% took longer than {number(x)} s"))
    return kept


def _means(point: Point, name: str) -> str:
    for row in point.rows:
        if row.kind == END_TO_END_DELAY and row.place == name:
            return f": mean {number(row.measured)} s, predicted {number(row.predicted)} s"
    return ""

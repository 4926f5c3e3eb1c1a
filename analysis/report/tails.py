"""The distribution of delays: the share of messages that took longer, measured and, if a model knows it, predicted.

The vertical axis is logarithmic, so an exponential law is a straight line. Pure.
"""

from collections.abc import Callable, Mapping
from math import log

import numpy as np

from brokerbed.analysis.models.distribution import share_longer
from brokerbed.analysis.path_times import times_on
from brokerbed.analysis.predict import predict
from brokerbed.analysis.queues import Queue, Way
from brokerbed.analysis.report.chart import STYLES, Chart, Curve, Dot
from brokerbed.analysis.report.chart import draw as draw_chart
from brokerbed.analysis.report.data import Pairs, Point
from brokerbed.analysis.report.markup import Html, tag
from brokerbed.analysis.report.scales import number
from brokerbed.metrics import DELAY_QUANTILES, END_TO_END_DELAY, STAGE_DELAY, Metric
from brokerbed.scenario.topology import Floats

CURVES_MAX = 7  # in one chart
STEPS = 120  # points of a predicted curve
DOTS = 40  # approximate number of markers of a measured curve
MEASURED = "Marks: the measured share of messages that took longer (CCDF)."
QUANTILES = "Rings: the measured 50, 95 and 99% quantiles."
INDEPENDENT = "Lines: predicted, taking the queues on the way as independent, each with Poisson arrivals."
EXACT = "Lines: predicted."
SAMPLED = "Behind peers that are OFF at times lines come from the sample paths that also give the predicted mean."
BURSTS = (
    "Behind a publisher that is OFF at times messages come in bursts, so the truth can lie somewhat above the line."
)
Longer = Callable[[Floats], Floats]


def draw(point: Point) -> Html:
    pairs, queues = (point.series.get(kind, {}) for kind in ("delay", "delay.stage"))
    if not pairs and not queues:
        return Html("")
    ways = {f"{way.publisher} -> {way.subscriber}": way for way in predict(point.scenario, detail=False).ways}
    charts = [_of_pairs(point, part, ways) for part in _parts(pairs)]
    # In a scenario with one queue on each path the pictures would be the same.
    if any(len(_waiting(way)) > 1 for way in ways.values()):
        charts += [_of_queues(point, part, ways) for part in _parts(queues)]
    return tag("div", *map(draw_chart, charts), class_="grid-of-charts")


def _parts(measured: Mapping[str, Pairs]) -> list[dict[str, Pairs]]:
    names = list(measured)
    return [
        {name: measured[name] for name in names[first : first + CURVES_MAX]}
        for first in range(0, len(names), CURVES_MAX)
    ]


def _of_pairs(point: Point, measured: dict[str, Pairs], ways: Mapping[str, Way]) -> Chart:
    known = {name: longer for name in measured if name in ways and (longer := _longer(ways[name])) is not None}
    curves, unknown = _curves(point, END_TO_END_DELAY, measured, known)
    words = [MEASURED, QUANTILES]
    if known:
        words.append(EXACT if all(ways[name].distribution is not None for name in known) else INDEPENDENT)
    if any(ways[name].standard_error_s is not None for name in known):
        words.append(SAMPLED)
    if any(ways[name].distribution is None and _comes_in_bursts(ways[name]) for name in known):
        words.append(BURSTS)
    note = " ".join([*words, *_missing(unknown)])
    marks = [mark for name in measured for mark in _quantiles(point, name)]
    return Chart("End-to-end delays.", "delay, s", "share that took longer", curves, y_log=True, note=note, marks=marks)


def _of_queues(point: Point, measured: dict[str, Pairs], ways: Mapping[str, Way]) -> Chart:
    """The times in the queues on these paths, each queue with Poisson arrivals."""
    known: dict[str, Longer] = {}
    are_bursts_seen = False
    for way in ways.values():
        for place, queue in enumerate(way.queues):
            name = f"{queue.stage} {queue.at}"
            if name in measured and name not in known and (longer := _longer_in(queue)) is not None:
                known[name] = longer
                are_bursts_seen |= any(before.has_outages for before in way.queues[:place])
    curves, unknown = _curves(point, STAGE_DELAY, measured, known)
    words = [MEASURED, *((EXACT,) if known else ()), *((BURSTS,) if are_bursts_seen else ()), *_missing(unknown)]
    return Chart(
        "Times in the queues.", "time in the queue, s", "share that took longer", curves, y_log=True,
        note=" ".join(words),
    )  # fmt: skip


def _curves(
    point: Point, metric: Metric, measured: dict[str, Pairs], known: Mapping[str, Longer]
) -> tuple[list[Curve], list[str]]:
    """The curves, and the names of those without a line."""
    curves, unknown = [], []
    for place, (name, pairs) in enumerate(measured.items()):
        seen = [(x, y) for x, y in pairs if y > 0]
        line = _line(known[name], seen[-1][0], seen[-1][1]) if name in known and seen else []
        if not line:
            unknown.append(name)
        curves.append(Curve(f"{name}{_means(point, metric, name)}", line, _dots(name, seen), place % STYLES))
    return curves, unknown


def _missing(unknown: list[str]) -> list[str]:
    names = ", ".join(unknown)
    return [f"No line for {names}: no model here knows how these delays are distributed."] if unknown else []


def predicted_shares(way: Way, end_s: float, least: float) -> Pairs:
    """The predicted curve up to `end_s` or a share of `least`; empty if the distribution of a queue is unknown."""
    longer = _longer(way)
    return [] if longer is None else _line(longer, end_s, least)


def _line(longer: Longer, end_s: float, least: float) -> Pairs:
    times_s = end_s * np.arange(1, STEPS + 1) / STEPS
    return [(x, y) for x, y in zip(times_s.tolist(), longer(times_s).tolist(), strict=True) if y >= least]


def _longer(way: Way) -> Longer | None:
    """The predicted distribution, exact where that is known."""
    if way.distribution is not None:
        return way.distribution.share_longer
    times = times_on(way)
    return None if times is None else lambda times_s: share_longer(times, way.links_s, times_s)


def _longer_in(queue: Queue) -> Longer | None:
    times = queue.times
    return None if times is None else lambda times_s: share_longer([times], 0.0, times_s)


def _waiting(way: Way) -> list[Queue]:
    return [queue for queue in way.queues if queue.utilisation > 0 or queue.has_outages]


def _comes_in_bursts(way: Way) -> bool:
    first, *others = way.queues
    return first.has_outages and any(queue.utilisation > 0 for queue in others)


def _quantiles(point: Point, name: str) -> list[tuple[float, float, str]]:
    shares = {metric: metric.share for metric in DELAY_QUANTILES}
    return [
        (row.measured, 1 - share, f"{name}: {number(share * 100)}% took at most {number(row.measured)} s")
        for row in point.rows
        if (share := shares.get(row.kind)) is not None and row.place == name and row.measured
    ]


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


def _means(point: Point, metric: Metric, name: str) -> str:
    for row in point.rows:
        if row.kind == metric and row.place == name:
            return f": mean {number(row.measured)} s, predicted {number(row.predicted)} s"
    return ""

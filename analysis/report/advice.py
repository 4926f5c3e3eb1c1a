"""The page of `brokerbed advise --out`: what each algorithm costs, along a key and part by part."""

from collections.abc import Iterator, Sequence
from importlib.metadata import version
from math import isfinite

import numpy as np

from brokerbed.analysis.advise import Advice, Along, Curves, whole_values
from brokerbed.analysis.confirm import Confirmed
from brokerbed.analysis.metrics.registry import metrics
from brokerbed.analysis.report.bars import Bar, BarChart
from brokerbed.analysis.report.bars import draw as draw_bars
from brokerbed.analysis.report.chart import Chart, Curve
from brokerbed.analysis.report.chart import draw as draw_chart
from brokerbed.analysis.report.markup import Html, joined, tag
from brokerbed.analysis.report.page import document, section
from brokerbed.analysis.report.tables import Cell, figure, table
from brokerbed.metrics import ADDITIONAL_NOTIFICATIONS, CONTROL_MESSAGES, NOTIFICATIONS, UNWANTED_NOTIFICATIONS

DRAWN = 121  # values of the key at which the curves are drawn
LOG_FROM = 100.0  # costs that differ by more have a logarithmic axis
UNITS = {"s": "s", "/s": "1/s"}


def page(advice: Advice, confirmed: Sequence[Confirmed]) -> str:
    """The whole file. The same advice always gives the same bytes."""
    sections = [*_sections(advice, confirmed)]
    best = "no algorithm has a prediction" if advice.best is None else f"{advice.best.routing} is the cheapest"
    button = tag("button", "Light or dark", type="button", id="theme", hidden=True)
    body = [
        tag("a", "Skip to the answer", href="#content", class_="skip"),
        tag("header", tag("h1", advice.name, button), tag("p", f"By {advice.by}, {best}. {_changes(advice)}")),
        tag("main", *(section(*each) for each in sections), id="content"),
        tag("footer", tag("p", f"brokerbed {version('brokerbed')}. This file needs no network.")),
    ]
    return document(f"{advice.name}: {best}", body)


def _sections(advice: Advice, confirmed: Sequence[Confirmed]) -> Iterator[tuple[str, str, Html]]:
    if advice.along is not None:
        curves = tag("div", _curves(advice, advice.along), class_="grid-of-charts")
        yield "along", f"Along {advice.along.axis.key}", joined((curves, _crossings(advice.along)))
    bars = tag("div", draw_bars(_bars(advice)), class_="grid-of-charts")
    yield "algorithms", "The scenario as it is", joined((bars, _table(advice), _refused(advice)))
    if confirmed:
        yield "confirmed", "Confirmed by runs", _confirmed(confirmed)


def _changes(advice: Advice) -> str:
    along = advice.along
    if along is None:
        return ""
    names = [it.after or "none" for it in along.crossings]
    values = [along.axis.shown(it.at) for it in along.crossings]
    changes = "; ".join(f"{name} from {value} on" for name, value in zip(names, values, strict=True))
    first = along.best or "none"
    return f"Along {along.axis.key}: {first} first{'; ' + changes if changes else ''}."


def _curves(advice: Advice, along: Along) -> Html:
    axis = along.axis
    curves = Curves(advice.file, axis, advice.by, advice.candidates)
    values: list[float] = [*map(float, whole_values(axis))]
    if not axis.is_whole:
        places = np.linspace(axis.place(axis.low), axis.place(axis.high), DRAWN).tolist()
        values = sorted({*map(axis.value, places), *(it.at for it in along.crossings)})
    costs = curves.at(values, range(len(curves.candidates)))
    lines = [
        Curve(candidate.routing, [(x, y) for x, y in zip(values, column, strict=True) if isfinite(y)], (), style)
        for style, (candidate, column) in enumerate(zip(curves.candidates, costs.T.tolist(), strict=True))
    ]
    least = dict(zip(values, costs.min(axis=1).tolist(), strict=True))
    marks = [
        (it.at, least[it.at], f"{axis.shown(it.at)}: {it.before or 'none'} before, {it.after or 'none'} after")
        for it in along.crossings
        if isfinite(least.get(it.at, np.inf))
    ]
    drawn = costs[np.isfinite(costs)]
    y_log = bool(drawn.size and drawn.min() > 0 and drawn.max() / drawn.min() > LOG_FROM)
    unit = UNITS.get(axis.unit, axis.unit)
    x_title = f"{axis.key}, {unit}" if unit else axis.key
    note = "Predicted; a ring is where the cheapest algorithm changes."
    return draw_chart(Chart(_title(advice), x_title, _axis(advice), lines, axis.is_log, y_log, (), note, marks))


def _title(advice: Advice) -> str:
    known = metrics().get(advice.by)
    return "Mean delay" if known is None else known.title


def _axis(advice: Advice) -> str:
    known = metrics().get(advice.by)
    return "mean delay, s" if known is None else known.axis or advice.by


def _crossings(along: Along) -> Html:
    if not along.crossings:
        return tag("p", f"{along.best or 'No algorithm'} is the cheapest in the whole range.")
    lines = [
        (figure(it.at), Cell(f"{it.at!r}"), Cell(it.before or "none"), Cell(it.after or "none"))
        for it in along.crossings
    ]
    unit = UNITS.get(along.axis.unit, along.axis.unit)
    columns = (f"at{', ' + unit if unit else ''}", "exactly", "cheapest before", "cheapest after")
    return table("crossings", "Where the cheapest algorithm changes", columns, lines)


def _bars(advice: Advice) -> BarChart:
    bars = []
    for it in advice.candidates:
        parts = [
            it.predicted.get(metric.name) or 0.0
            for metric in (NOTIFICATIONS, ADDITIONAL_NOTIFICATIONS, UNWANTED_NOTIFICATIONS, CONTROL_MESSAGES)
        ]
        bars.append(Bar(it.routing, (max(0.0, parts[0] - parts[1] - parts[2]), *parts[1:])))
    names = ("other notifications", "additional ones", "unwanted ones", "control messages")
    return BarChart("Messages over links", "routing", "messages over links, 1/s", names, [("", bars)])


def _table(advice: Advice) -> Html:
    names = list(dict.fromkeys(metric for it in advice.candidates for metric in it.predicted))
    lines = [
        (Cell(it.routing), figure(it.total), *(figure(it.predicted.get(name)) for name in names if name != advice.by))
        for it in advice.candidates
    ]
    columns = ("routing", advice.by, *(name for name in names if name != advice.by))
    return table("candidates", "All algorithms, the cheapest first", columns, lines)


def _refused(advice: Advice) -> Html:
    lines = [tag("li", f"{it.routing} is refused: {it.reason}") for it in advice.refused]
    return tag("ul", *lines, class_="warnings") if lines else Html("")


def _confirmed(confirmed: Sequence[Confirmed]) -> Html:
    lines = []
    for it in confirmed:
        low, high = (None, None) if it.interval is None else it.interval
        cells = figure(it.side.at), Cell(it.side.routings[0]), Cell(it.side.routings[1]), figure(it.difference)
        lines.append((*cells, figure(low), figure(high), Cell(it.verdict)))
    columns = ("at", "cheaper", "than", "measured difference", "from", "to", "order")
    return table("pairs", "Runs in pairs with the same seeds, on the virtual ground", columns, lines)

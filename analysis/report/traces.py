"""Recorded connectivity: the trace over time, its distribution and correlation, and what its order is worth. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

from brokerbed.analysis.models.intermittent import Centre
from brokerbed.analysis.models.permuted import permuted
from brokerbed.analysis.models.recorded import RecordedCentre
from brokerbed.analysis.report.chart import Chart, Curve, Dot, path
from brokerbed.analysis.report.chart import draw as draw_chart
from brokerbed.analysis.report.data import Point
from brokerbed.analysis.report.fitting import NARROW, fitting, without_overlaps
from brokerbed.analysis.report.markup import Html, joined, tag
from brokerbed.analysis.report.scales import Scale, linear_ticks, number, on_axis
from brokerbed.analysis.report.tables import Cell, figure, table
from brokerbed.analysis.traced import recorded
from brokerbed.scenario import Law, Publisher, Subscriber
from brokerbed.scenario.topology import Floats

PEERS_MAX = 4  # with recorded periods that are described
DOTS_MAX = 400  # of the chart of cycles
LAW_DOTS = 40  # approximate number of markers of a law
STEPS = 60  # points of an exponential curve
WIDTH, SIDE, TOP, LANE = 960.0, 16.0, 6.0, 30.0  # of the picture over time
TICKS, NARROW_TICKS = 12, 4
AS_RECORDED = "in recorded order"


@dataclass(frozen=True, slots=True)
class _Traced:
    """A peer with recorded periods, and the messages in its queue."""

    peer: str
    trace: str
    centre: RecordedCentre
    service: Law | None
    rate: float


def draw(point: Point) -> Html:
    """Nothing if the connectivity of no peer was recorded."""
    return joined(_described(it, point.number) for it in _traced(point)[:PEERS_MAX])


def _traced(point: Point) -> list[_Traced]:
    rates: dict[str, float] = {}
    for stream, receiver in point.scenario.pairs():
        rates[receiver.id] = rates.get(receiver.id, 0.0) + stream.rate
    found = []
    peers: list[Publisher | Subscriber] = [*point.scenario.publishers, *point.scenario.subscribers]
    for peer in peers:
        if peer.connectivity is not None:
            service, rate = _work(peer, rates)
            centre = RecordedCentre(recorded(peer.connectivity).cycles_s, service.mean_s if service else 0.0)
            found.append(_Traced(peer.id, peer.connectivity.trace, centre, service, rate))
    return found


def _work(peer: Publisher | Subscriber, rates: dict[str, float]) -> tuple[Law | None, float]:
    if isinstance(peer, Subscriber):
        return peer.session_service, rates.get(peer.id, 0.0)
    return peer.service, peer.rate


def _described(it: _Traced, number_of_point: int) -> Html:
    charts = tag("div", draw_chart(_laws(it)), draw_chart(_pairs(it)), class_="grid-of-charts")
    return joined((_over_time(it), charts, _orders(it, number_of_point)))


def _over_time(it: _Traced) -> Html:
    centre = it.centre
    words = (
        f"{it.trace}, one pass: {len(centre.cycles_s)} cycles in {number(centre.pass_s)} s;"
        f" bars are ON periods ({number(centre.availability * 100)}% of the time)."
    )
    caption = tag("figcaption", tag("b", f"Recorded connectivity of {it.peer}."), " ", words)
    return tag("figure", caption, fitting(lambda width: _strip(centre, width), WIDTH), class_="full")


def _strip(centre: RecordedCentre, width: float) -> Html:
    time = Scale(0.0, centre.pass_s, SIDE, width - SIDE)
    base, parts, at = TOP + LANE, list[Html](), 0.0
    bars = []
    for on_s, off_s in centre.cycles_s:
        begin, end = time(at), time(at + on_s)
        bars.append(path([(begin, base), (begin, TOP), (end, TOP), (end, base)]) + "Z")
        at += on_s + off_s
    parts.append(tag("path", d="".join(bars), class_="online"))
    parts.append(tag("line", x1=SIDE, x2=width - SIDE, y1=base, y2=base, class_="axis"))
    ticks = linear_ticks(0.0, centre.pass_s, NARROW_TICKS if width <= NARROW else TICKS)
    for place, name in without_overlaps([(time(value), on_axis(value)) for value in ticks]):
        parts.append(tag("line", x1=place, x2=place, y1=base, y2=base + 5, class_="axis"))
        parts.append(tag("text", name, x=place, y=base + 19, class_="tick mid"))
    parts.append(tag("text", "time, s", x=width / 2, y=base + 38, class_="name mid"))
    title = tag("title", "When the peer was connected, over one pass of the trace")
    return tag("svg", title, *parts, viewBox=f"0 0 {width:g} {base + 44:g}", role="img", class_="time")


def _laws(it: _Traced) -> Chart:
    curves = [
        _law("ON periods", it.centre.on_s, 0),
        _law("OFF periods", it.centre.off_s, 1),
    ]
    note = "Marks: the share of the recorded periods that are longer (CCDF). Lines: exponential laws with their means."
    return Chart(f"Periods of {it.trace}.", "length, s", "share of longer periods", curves, y_log=True, note=note)


def _law(name: str, periods_s: Floats, style: int) -> Curve:
    ordered, count = np.sort(periods_s), len(periods_s)
    mean_s = float(ordered.mean())
    seen = [(float(x), 1 - (place + 1) / count) for place, x in enumerate(ordered[:-1])]
    dots: list[Dot] = []
    for x, y in seen:  # without those that would overlap
        title = f"{number(y * 100)}% of {name} are longer than {number(x)} s"
        if not dots or (x - dots[-1].x) * LAW_DOTS >= seen[-1][0] or log(dots[-1].y / y) * LAW_DOTS >= log(count):
            dots.append(Dot(x, y, None, None, title))
    ends_s = mean_s * min(float(np.log(count)), float(ordered[-1]) / mean_s) if count > 1 else mean_s
    line = [(ends_s * step / STEPS, exp(-ends_s * step / STEPS / mean_s)) for step in range(STEPS + 1)]
    return Curve(f"{name}: mean {number(mean_s)} s, cv {number(float(ordered.std()) / mean_s)}", line, dots, style)


def _pairs(it: _Traced) -> Chart:
    pairs = list(it.centre.cycles_s)
    dots = [
        Dot(on, off, None, None, f"ON {number(on)} s, then OFF {number(off)} s")
        for on, off in pairs[:: -(-len(pairs) // DOTS_MAX)]
    ]
    on_s, off_s = it.centre.on_s, it.centre.off_s
    words = [f"Correlation: {_correlation(on_s, off_s)}."]
    words.append(f"Of an ON period with the one before: {_correlation(on_s, np.roll(on_s, 1))};")
    words.append(f"of OFF periods: {_correlation(off_s, np.roll(off_s, 1))}.")
    title = "Each ON period and the OFF period after it."
    return Chart(title, "ON period, s", "OFF period, s", [Curve("", (), dots)], note=" ".join(words))


def _correlation(first: Floats, second: Floats) -> str:
    if len(first) < 2 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return "none, as they are all equal"
    return f"{float(np.corrcoef(first, second)[0, 1]):+.2f}".replace("-", "\u2212")


def _orders(it: _Traced, number_of_point: int) -> Html:
    """The mean delays that the same periods give in other orders, if the queue has a model."""
    delays = orders(it.centre, it.service, it.rate)
    lines = [(Cell(name), figure(delay_s)) for name, delay_s in delays]
    caption = f"What the order of the periods is worth in the queue of {it.peer}: predicted mean time"
    name = f"orders-{it.peer}-{number_of_point}"
    return table(name, caption, ("periods", "mean s"), lines) if lines else Html("")


def orders(centre: RecordedCentre, service: Law | None, rate: float) -> Sequence[tuple[str, float]]:
    if service is None or service.law != "exponential" or rate == 0 or centre.utilisation(rate) >= 1:
        return ()
    on_s, off_s, demand_s = float(centre.on_s.mean()), float(centre.off_s.mean()), centre.demand_s
    exponential = Centre(demand_s, 2 * demand_s**2, on_s, off_s, 2 * off_s**2)
    return (
        (AS_RECORDED, centre.response_s(rate)),
        ("whole cycles in random order", permuted(centre, rate, are_cycles_whole=True).response_s),
        ("ON and OFF periods in random order, each by themselves", permuted(centre, rate).response_s),
        ("exponential periods with the same means", float(exponential.response_s(rate))),
    )

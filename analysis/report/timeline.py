"""Message rates, faults and connections over time, in one picture. Pure."""

from collections.abc import Sequence
from math import isfinite

from brokerbed.analysis.report.chart import path
from brokerbed.analysis.report.data import Pairs, Point
from brokerbed.analysis.report.fitting import GAP_PX, LETTER_PX, NARROW, fitting, shortened, without_overlaps
from brokerbed.analysis.report.markup import Html, tag
from brokerbed.analysis.report.scales import Scale, linear_ticks, on_axis, scale
from brokerbed.scenario.units import NS_PER_S

WIDTH, LEFT, RIGHT = 960.0, 96.0, 16.0
TOP, LANE = 10.0, 13.0  # the names of faults are in lanes above the panels
PANEL, GAP = 74.0, 16.0
PEER, PEER_GAP = 9.0, 4.0
TICKS, NARROW_TICKS = 12, 4
FAULTS_NAMED_MAX = 12  # more names would cover the picture
Levels = Sequence[tuple[float, float, float]]  # from, to, value
TITLES = {
    "published": "published",
    "notifications": "over links",
    "delivered": "delivered",
    "control": "control",
    "resynchronised": "resync",
    "dropped": "dropped",
    "cost": "cost",  # of notifications, if links may move
}


def draw(point: Point) -> Html:
    """The figure; empty if there are no series of this point."""
    rates = {kind: point.series[f"rate.{kind}"][""] for kind in TITLES if f"rate.{kind}" in point.series}
    if not rates:
        return Html("")
    has_peers = bool(point.series.get("seen"))
    picture = fitting(lambda width: _picture(point, rates, width), WIDTH)
    return tag("figure", _caption(point, has_peers), picture, class_="full")


def _picture(point: Point, rates: dict[str, Pairs], width: float) -> Html:
    clock = point.scenario.clock
    time = Scale(0.0, (clock.warmup + clock.measure) / NS_PER_S, LEFT, width - RIGHT)
    faults, moves = point.series.get("fault", {}), point.series.get("move", {})
    names, top = _names(faults, moves, time)
    parts, at = list[Html](), top
    for place, (kind, pairs) in enumerate(rates.items()):
        predicted = [(begin, end, cost) for begin, end, _, cost in point.costs_over_time if cost is not None]
        parts += _panel(TITLES[kind], pairs, time, at, place, predicted if kind == "cost" else ())
        at += PANEL + GAP
    bottom = at
    peers = point.series.get("seen", {})
    if peers:
        parts += _peers(point, time, at + 6)
        bottom = at + 6 + (PEER + PEER_GAP) * len(peers) + 8
    behind = [*_left_out(point, time, top, bottom), *_faults(faults, time, top, bottom)]
    behind += _moves(moves, time, top, bottom)
    shown = ["faults", *(["moves of links"] if moves else []), *(["connections"] if peers else [])]
    title = tag("title", f"Messages per second over model time, with {' and '.join(shown)}")
    axis = _axis(time, top, bottom, NARROW_TICKS if width <= NARROW else TICKS)
    return tag("svg", title, *behind, *axis, *parts, *names, viewBox=f"0 0 {width:g} {bottom + 40:.0f}", role="img",
               class_="time")  # fmt: skip


def _caption(point: Point, has_peers: bool) -> Html:
    words = ["Messages per second."]
    if point.series.get("fault"):
        words.append("Red: a fault lasts.")
    left_out = "warm-up" + (", aftermath of faults" if len(words) > 1 else "")
    if point.series.get("move"):
        words.append("Dashed: a link moves.")
        left_out += ", the time before the last move"
    words.append(f"Grey: not compared with theory ({left_out}).")
    if point.costs_over_time:
        words.append("Line in the costs: predicted for the tree of that time.")
    if has_peers:
        words.append("Below: who was connected when.")
        known_s = min(end for pairs in point.series["seen"].values() for _, end in pairs)
        clock = point.scenario.clock
        if known_s < (clock.warmup + clock.measure) / NS_PER_S:
            words.append(f"Connections are drawn up to {on_axis(round(known_s))} s at least.")
    return tag("figcaption", tag("b", "Over time."), " ", " ".join(words))


def _panel(name: str, pairs: Pairs, time: Scale, top: float, style: int, predicted: Levels = ()) -> list[Html]:
    base = top + PANEL
    rate = scale([*(y for _, y in pairs), *(level for _, _, level in predicted)], base, top, from_zero=True)
    half = (pairs[1][0] - pairs[0][0]) / 2 if len(pairs) > 1 else 0.5
    steps = [place for x, y in pairs for place in ((time(x - half), rate(y)), (time.clipped(x + half), rate(y)))]
    area = path([(steps[0][0], base), *steps, (steps[-1][0], base)]) + "Z"
    return [
        tag("line", x1=LEFT, x2=time.end, y1=base, y2=base, class_="axis"),
        tag("line", x1=LEFT, x2=time.end, y1=top, y2=top, class_="grid"),
        tag("path", d=area, class_=f"area s{style}"),
        tag("path", d=path(steps), class_=f"step s{style}"),
        *(
            tag("line", x1=time.clipped(begin), x2=time.clipped(end), y1=rate(level), y2=rate(level), class_="level")
            for begin, end, level in predicted
        ),
        tag("text", on_axis(rate.high), x=LEFT - 8, y=top + 9, class_="tick end"),
        tag("text", name, x=LEFT - 8, y=(top + base) / 2 + 6, class_="name end"),
        tag("text", "0", x=LEFT - 8, y=base, class_="tick end"),
    ]


def _peers(point: Point, time: Scale, top: float) -> list[Html]:
    parts = []
    for place, (name, ((_, known_s),)) in enumerate(point.series["seen"].items()):
        y = top + place * (PEER + PEER_GAP)
        on = point.series.get("on", {}).get(name, [])
        share = sum(end - begin for begin, end in on) / known_s if known_s > 0 else 0.0
        whole = tag(
            "rect", x=time(0.0), y=y + PEER / 2 - 0.5, width=time(known_s) - time(0.0), height=1.0, class_="offline"
        )
        bars = "".join(f"M{time(begin):.1f} {y:g}H{time(end):.1f}V{y + PEER:g}H{time(begin):.1f}Z" for begin, end in on)
        label = tag("text", shortened(name, LEFT - 8), x=LEFT - 8, y=y + PEER, class_="tick end")
        title = tag("title", f"{name}: connected {share:.0%} of the time, {len(on)} times")
        parts.append(tag("g", title, label, whole, *((tag("path", d=bars, class_="online"),) if bars else ())))
    return parts


def _left_out(point: Point, time: Scale, top: float, bottom: float) -> list[Html]:
    spans = [(0.0, point.scenario.clock.warmup / NS_PER_S), *point.series.get("left_out", {}).get("", [])]
    return [
        tag("rect", x=time.clipped(begin), y=top, width=time.clipped(end) - time.clipped(begin), height=bottom - top,
            class_="left-out")
        for begin, end in spans if end > begin
    ]  # fmt: skip


def _in_order(faults: dict[str, Pairs]) -> list[tuple[float, float, str]]:
    return sorted((begin, end, what) for what, pairs in faults.items() for begin, end in pairs)


def _faults(faults: dict[str, Pairs], time: Scale, top: float, bottom: float) -> list[Html]:
    parts = []
    for begin, end, what in _in_order(faults):
        x, width = time.clipped(begin), max(2.0, time.clipped(end) - time.clipped(begin))
        title = f"{what}, {begin:g} s to " + (f"{end:g} s" if isfinite(end) else "the end")
        parts.append(tag("rect", tag("title", title), x=x, y=top, width=width, height=bottom - top, class_="struck"))
    return parts


def _moves(moves: dict[str, Pairs], time: Scale, top: float, bottom: float) -> list[Html]:
    return [
        tag("line", tag("title", f"{what}, {at:g} s"), x1=time.clipped(at), x2=time.clipped(at), y1=top, y2=bottom,
            class_="move")
        for at, _, what in _in_order(moves)
    ]  # fmt: skip


def _names(faults: dict[str, Pairs], moves: dict[str, Pairs], time: Scale) -> tuple[list[Html], float]:
    """The names of faults and moves, each in the first lane where it fits, and the top of the panels below them."""
    in_order = _in_order({**faults, **moves})
    if not 0 < len(in_order) <= FAULTS_NAMED_MAX:
        return [], TOP
    ends = list[float]()  # right ends of the lanes, the lowest lane first
    placed = []
    for begin, _, what in in_order:
        text = shortened(what, time.end)
        text_px = len(text) * LETTER_PX
        x = max(0.0, min(time.clipped(begin), time.end + RIGHT - text_px))
        lane = next((place for place, end in enumerate(ends) if end + GAP_PX <= x), len(ends))
        ends[lane : lane + 1] = [x + text_px]
        placed.append((x, lane, text, "moved" if what in moves else "fault"))
    top = TOP + LANE * len(ends) + 4
    return [tag("text", text, x=x, y=top - 6 - LANE * lane, class_=kind) for x, lane, text, kind in placed], top


def _axis(time: Scale, top: float, bottom: float, wanted: int) -> list[Html]:
    ticks = linear_ticks(time.low, time.high, wanted)
    parts = [tag("line", x1=time(value), x2=time(value), y1=top, y2=bottom, class_="grid") for value in ticks]
    for at, name in without_overlaps([(time(value), on_axis(value)) for value in ticks]):
        parts.append(tag("text", name, x=at, y=bottom + 16, class_="tick mid"))
    parts.append(tag("text", "model time, s", x=(LEFT + time.end) / 2, y=bottom + 34, class_="name mid"))
    return parts

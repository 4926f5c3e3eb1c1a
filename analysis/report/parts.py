"""The parts of the page about points: comparison, tree, time, delays, tables, invariants, assumptions. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

from brokerbed.analysis.metrics.registry import metrics
from brokerbed.analysis.report import forest, periods, tails, timeline, traces, tree
from brokerbed.analysis.report.data import Point, Row
from brokerbed.analysis.report.markup import Html, joined, tag
from brokerbed.analysis.report.tables import COMPARED, Cell, compared, figure, table, verdict
from brokerbed.analysis.verdicts import AGREES, DIFFERS, INCONCLUSIVE
from brokerbed.metrics import CONTROL_MESSAGES, LOCAL_ENTRIES, NOTIFICATIONS, REMOTE_ENTRIES, STAGE_DELAY, Metric


def comparison(point: Point) -> Html:
    rows = [(Cell(row.metric), Cell(row.place or "all"), *compared(row)) for row in point.headline]
    headline_table = table(f"headline-{point.number}", "Measured beside predicted", ("metric", "of", *COMPARED), rows)
    return joined((headline_table, forest.draw(point)))


def pictures(point: Point) -> Html:
    return joined((traces.draw(point), periods.draw(point), timeline.draw(point), tails.draw(point)))


def detail_tables(point: Point) -> Html:
    """Brokers, links and queues; then a table for each other metric that has detail rows."""
    parts = [_costs(point), _brokers(point), _links(point), _details(point, STAGE_DELAY, "queues", ("queue", "at"))]
    parts += [
        _details(point, metric, metric.name.replace(".", "-"), metric.detail)
        for metric in metrics().values()
        if metric.detail is not None and metric not in TABULATED
    ]
    return joined(parts)


TABULATED = (
    REMOTE_ENTRIES,
    LOCAL_ENTRIES,
    NOTIFICATIONS,
    CONTROL_MESSAGES,
    STAGE_DELAY,
)  # in the tables of brokers, links and queues


def _details(point: Point, metric: Metric, name: str, columns: Sequence[str]) -> Html:
    """A table of one metric, with the labels in the first columns; nothing if there are no rows."""
    lines = [(*map(Cell, row.labels), *compared(row)) for row in point.detail(metric)]
    caption = metric.title if metric.unit == "1" else f"{metric.title}, {metric.unit}"
    return table(f"{name}-{point.number}", caption, (*columns, *COMPARED), lines) if lines else Html("")


def _costs(point: Point) -> Html:
    """What the traffic cost with one tree after the other, if links can move."""
    lines = []
    for begin_s, end_s, measured, predicted in point.costs_over_time:
        error = measured / predicted - 1 if predicted else None
        off = Cell("–" if error is None else f"{error:+.2%}".replace("-", "\u2212"), error, is_number=True)
        lines.append((figure(begin_s), figure(end_s), figure(predicted), figure(measured), off))
    columns = ("from, s", "to, s", "predicted", "measured", "error")
    caption = "Cost of routing per second, from one move to the next"
    return table(f"costs-{point.number}", caption, columns, lines) if lines else Html("")


def _brokers(point: Point) -> Html:
    scenario = point.scenario
    by_name = {(row.kind, row.labels): row for row in point.rows if row.names == row.kind.detail}
    depths = scenario.tree.depths.tolist()
    lines = []
    for place, name in enumerate(scenario.tree.names):
        cells = [Cell(name), figure(depths[place])]
        for metric in (REMOTE_ENTRIES, LOCAL_ENTRIES):
            cells += _short(by_name.get((metric, (name,))))
        lines.append(cells)
    columns = ("broker", "level", "remote entries", "predicted", "verdict", "local entries", "predicted", "verdict")
    return table(f"brokers-{point.number}", "Brokers: mean sizes of their tables", columns, lines)


def _links(point: Point) -> Html:
    by_name = {(row.kind, row.labels): row for row in point.rows if row.names == row.kind.detail}
    lines = []
    for child, parent in point.scenario.tree.links:
        for link, way in ((f"{child}>{parent}", "up"), (f"{parent}>{child}", "down")):
            cells = [Cell(link), Cell(way)]
            for metric in (NOTIFICATIONS, CONTROL_MESSAGES):
                cells += _short(by_name.get((metric, (link,))))
            lines.append(cells)
    columns = ("link", "way", "notifications/s", "predicted", "verdict", "control/s", "predicted", "verdict")
    return table(f"links-{point.number}", "Links: messages per second", columns, lines) if lines else Html("")


def _short(row: Row | None) -> Iterable[Cell]:
    if row is None:
        return figure(None), figure(None), Cell("")
    return figure(row.measured), figure(row.predicted), Cell(verdict(row))


def invariants(points: Sequence[Point]) -> Html:
    """The invariants over all points, with descriptions of violations."""
    names = list(dict.fromkeys(invariant["name"] for point in points for invariant in point.summary["invariants"]))
    lines, offenders = [], []
    for name in names:
        judged = [
            (point, invariant)
            for point in points
            for invariant in point.summary["invariants"]
            if invariant["name"] == name
        ]
        broken = sum(invariant.get("broken", 0) for _, invariant in judged)
        word = verdict_of_invariant(broken)
        lines.append(
            (Cell(name), figure(sum(invariant["checked"] for _, invariant in judged)), figure(broken), Cell(word))
        )
        offenders += [_violation(point, invariant) for point, invariant in judged if not invariant["holds"]]
    invariant_table = table(
        "invariants", "Invariants, over the whole run", ("invariant", "checked", "broken", "verdict"), lines
    )
    named = tag("ul", *offenders, class_="offenders") if offenders else Html("")
    return joined((invariant_table, *((tag("h3", "Offenders"), named) if offenders else ())))


def verdict_of_invariant(broken: int) -> Html:
    sign, word, kind = ("✕", "broken", DIFFERS) if broken else ("✓", "holds", AGREES)
    return tag("span", tag("i", sign, aria_hidden="true"), word, class_=f"verdict {kind}")


def _violation(point: Point, invariant: dict[str, Any]) -> Html:
    where = f" at {point.at}" if point.at else ""
    offenders = [tag("li", tag("code", text)) for text in invariant.get("offenders", ())]
    head = f"{invariant['name']}{where}: {invariant.get('broken', 0):,} broken; the first:"
    return tag("li", head, tag("ul", *offenders))


def assumptions(points: Sequence[Point]) -> Html:
    """The assumptions, doubtful ones first; only those for a sweep, as each point has hundreds of tests."""
    tested = [(point, assumption) for point in points for assumption in point.summary["assumptions"]]
    doubtful = [(point, assumption) for point, assumption in tested if not assumption["holds"]]
    several = len(points) > 1
    held = f"{len(tested) - len(doubtful):,} of {len(tested):,}"
    summary = tag("p", f"{held} tests of what the models take for granted found nothing wrong.")
    if several and not doubtful:
        return summary
    credible = [(point, assumption) for point, assumption in tested if assumption["holds"]]
    lines = []
    for point, assumption in doubtful if several else doubtful + credible:
        place = (Cell(str(assumption["at"])), *((Cell(point.at),) if several else ()))
        verdict_cell = Cell(_credibility(assumption["holds"]))
        lines.append((Cell(assumption["name"]), *place, figure(assumption["p_value"]), verdict_cell))
    columns = ("assumption", "at", *(("point",) if several else ()), "p-value", "verdict")
    caption = "Doubtful assumptions" if several else "Assumptions, tested on the run itself"
    return joined((summary, table("assumptions", caption, columns, lines)))


def _credibility(holds: bool) -> Html:
    sign, word, kind = ("✓", "holds", AGREES) if holds else ("!", "doubtful", INCONCLUSIVE)
    return tag("span", tag("i", sign, aria_hidden="true"), word, class_=f"verdict {kind}")


def drawing(point: Point) -> Html:
    """The tree; if links moved, beside the one at the beginning."""
    first = tree.draw_first(point)
    return tag("div", first, tree.draw(point, tree.SMALL), class_="grid-of-trees") if first else tree.draw(point)


def small_drawing(point: Point) -> Html:
    """A drawing for several side by side."""
    return tree.draw(point, tree.SMALL)

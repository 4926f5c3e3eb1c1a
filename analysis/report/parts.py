"""The parts of the page that tell of one point: comparison, tree, time, delays, tables, invariants. Pure."""

from collections.abc import Iterable, Sequence
from typing import Any

from brokerbed.analysis.report import forest, tails, timeline, tree
from brokerbed.analysis.report.data import Point, Row
from brokerbed.analysis.report.markup import Html, joined, tag
from brokerbed.analysis.report.tables import COMPARED, Cell, compared, figure, table, verdict
from brokerbed.analysis.verdicts import AGREES, DIFFERS, INCONCLUSIVE


def comparison(point: Point) -> Html:
    rows = [(Cell(row.metric), Cell(row.of or "all"), *compared(row)) for row in point.headline]
    made = table(f"headline-{point.number}", "Measured beside predicted", ("metric", "of", *COMPARED), rows)
    return joined((made, forest.draw(point)))


def pictures(point: Point) -> Html:
    return joined((timeline.draw(point), tails.draw(point)))


def detail_tables(point: Point) -> Html:
    parts = [_brokers(point), _links(point)]
    stages = [row for row in point.rows if row.metric == "delay.stage"]
    if stages:
        lines = [(Cell(row.labels[0]), Cell(row.labels[1]), *compared(row)) for row in stages]
        parts.append(table(f"queues-{point.number}", "Mean time in each queue, s", ("queue", "at", *COMPARED), lines))
    return joined(parts)


def _brokers(point: Point) -> Html:
    scenario = point.scenario
    by_name = {(row.metric, row.labels): row for row in point.rows}
    depths = scenario.tree.depths.tolist()
    lines = []
    for place, name in enumerate(scenario.tree.names):
        cells = [Cell(name), figure(depths[place])]
        for metric in ("table.remote_entries", "table.local_entries"):
            cells += _short(by_name.get((metric, (name,))))
        lines.append(cells)
    columns = ("broker", "level", "remote entries", "predicted", "verdict", "local entries", "predicted", "verdict")
    return table(f"brokers-{point.number}", "Brokers: mean sizes of their tables", columns, lines)


def _links(point: Point) -> Html:
    by_name = {(row.metric, row.labels): row for row in point.rows}
    lines = []
    for child, parent in point.scenario.tree.links:
        for link, way in ((f"{child}>{parent}", "up"), (f"{parent}>{child}", "down")):
            cells = [Cell(link), Cell(way)]
            for metric in ("rate.notifications", "rate.control"):
                cells += _short(by_name.get((metric, (link,))))
            lines.append(cells)
    columns = ("link", "way", "notifications/s", "predicted", "verdict", "control/s", "predicted", "verdict")
    return table(f"links-{point.number}", "Links: messages per second", columns, lines) if lines else Html("")


def _short(row: Row | None) -> Iterable[Cell]:
    if row is None:
        return figure(None), figure(None), Cell("")
    return figure(row.measured), figure(row.predicted), Cell(verdict(row))


def invariants(points: Sequence[Point]) -> Html:
    """Over all points; who broke one is named, and where."""
    names = list(dict.fromkeys(it["name"] for point in points for it in point.told["invariants"]))
    lines, offenders = [], []
    for name in names:
        its = [(point, it) for point in points for it in point.told["invariants"] if it["name"] == name]
        broken = sum(it.get("broken", 0) for _, it in its)
        word = verdict_of_invariant(broken)
        lines.append((Cell(name), figure(sum(it["checked"] for _, it in its)), figure(broken), Cell(word)))
        offenders += [_offence(point, it) for point, it in its if not it["holds"]]
    made = table("invariants", "Invariants, over the whole run", ("invariant", "checked", "broken", "verdict"), lines)
    named = tag("ul", *offenders, class_="offenders") if offenders else Html("")
    return joined((made, *((tag("h3", "Offenders"), named) if offenders else ())))


def verdict_of_invariant(broken: int) -> Html:
    sign, word, kind = ("✕", "broken", DIFFERS) if broken else ("✓", "holds", AGREES)
    return tag("span", tag("i", sign, aria_hidden="true"), word, class_=f"verdict {kind}")


def _offence(point: Point, it: dict[str, Any]) -> Html:
    where = f" at {point.at}" if point.at else ""
    told = [tag("li", tag("code", text)) for text in it.get("offenders", ())]
    head = f"{it['name']}{where}: {it.get('broken', 0):,} broken; the first:"
    return tag("li", head, tag("ul", *told))


def assumptions(points: Sequence[Point]) -> Html:
    """Doubtful ones first; of a sweep only those, as there are hundreds of tests at each point."""
    its = [(point, it) for point in points for it in point.told["assumptions"]]
    doubtful = [(point, it) for point, it in its if not it["holds"]]
    several = len(points) > 1
    held = f"{len(its) - len(doubtful):,} of {len(its):,}"
    said = tag("p", f"{held} tests of what the models take for granted found nothing wrong.")
    if several and not doubtful:
        return said
    shown = doubtful if several else doubtful + [(point, it) for point, it in its if it["holds"]]
    lines = [
        (Cell(it["name"]), Cell(str(it["at"])), *((Cell(point.at),) if several else ()), figure(it["p_value"]),
         Cell(_trust(it["holds"])))
        for point, it in shown
    ]  # fmt: skip
    columns = ("assumption", "at", *(("point",) if several else ()), "p-value", "verdict")
    caption = "Doubtful assumptions" if several else "Assumptions, tested on the run itself"
    return joined((said, table("assumptions", caption, columns, lines)))


def _trust(holds: bool) -> Html:
    sign, word, kind = ("✓", "holds", AGREES) if holds else ("!", "doubtful", INCONCLUSIVE)
    return tag("span", tag("i", sign, aria_hidden="true"), word, class_=f"verdict {kind}")


def drawing(point: Point) -> Html:
    return tree.draw(point)


def small_drawing(point: Point) -> Html:
    """One of several side by side."""
    return tree.draw(point, tree.SMALL)
